"""The command line: ``shoal fit``, ``predict``, ``info`` and ``demo``.

Progress and messages go to stderr, results to stdout. Exit status: 0 done, 1 failed (one line on stderr that
begins with ``shoal: error:``), 2 wrong usage, 130 interrupted. Files appear whole or not at all. With
``SHOAL_TRACEBACK=1`` in the environment a failure shows where it came from.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["main"]

#: Names of methods, and of their estimators.
METHODS = {"kmeans": "KMeans", "minibatch": "MiniBatchKMeans"}
LATER_METHODS = ("nested", "vrkm", "vrkm++", "sbe", "gmm", "kmodes")
#: Parameters that belong to the program, not to its user.
NOT_SET = ("callbacks", "verbose")

DATA_HELP = "an .npy file, or a raw one together with --shape and --dtype"


class FailedError(Exception):
    """A message for the user; the exit status is 1."""


class UsageError(Exception):
    """A message about the arguments; the exit status is 2."""


# ---------------------------------------------------------------- arguments


def shape_of(text: str) -> tuple[int, int]:
    """Read ``N,D``."""
    rows, cols = (int(part) for part in text.replace("x", ",").split(","))
    if rows < 1 or cols < 1:
        raise ValueError
    return rows, cols


def file_of(text: str) -> str:
    """Read the name of a file."""
    if not text:
        raise argparse.ArgumentTypeError("the name of a file must not be empty")
    return text


def value_of(text: str) -> Any:
    """Read the value of a parameter: a number, true, false, none, or else a text."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def method_of(text: str) -> str:
    """Read the name of a method."""
    if text in METHODS:
        return text
    known = ", ".join(METHODS)
    if text in LATER_METHODS:
        raise argparse.ArgumentTypeError(f"{text} is not in this version, which has: {known}")
    raise argparse.ArgumentTypeError(f"there is no method {text!r}; this version has: {known}")


def setting_of(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name.replace("-", "_"), value_of(value)


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="shoal",
        description="Fast clustering of data larger than memory: exact, streaming and deterministic.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=False)

    def verb(name: str, about: str, run: Any) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        added.set_defaults(run=run, parser=added)
        return added

    def data(to: argparse.ArgumentParser) -> None:
        to.add_argument("--shape", type=shape_of, metavar="N,D", help="rows and columns of a raw file")
        to.add_argument("--dtype", help="type of a raw file's numbers, for example u1, float32 or bfloat16")

    def common(to: argparse.ArgumentParser) -> None:
        to.add_argument("--threads", type=int, metavar="N", help="default: all that the process may use")
        to.add_argument("--json", action="store_true", help="print the result as one JSON object")
        to.add_argument("--quiet", action="store_true", help="no progress on stderr")

    fit = verb("fit", "cluster rows and keep the model", fit_verb)
    fit.add_argument("data", type=file_of, metavar="DATA", help=DATA_HELP)
    data(fit)
    fit.add_argument("-k", "--clusters", type=int, required=True, metavar="K", help="number of clusters")
    fit.add_argument(
        "--method", type=method_of, default="kmeans", metavar="NAME", help=f"one of: {', '.join(METHODS)}"
    )
    fit.add_argument(
        "--init",
        metavar="HOW",
        help="auto, random, k-means++, plain-k-means++, or an .npy file of K centers (default: auto)",
    )
    fit.add_argument(
        "-o", "--output", type=file_of, metavar="MODEL", help="write the model to this .safetensors file"
    )
    fit.add_argument("--labels", type=file_of, metavar="OUT.npy", help="write the label of every row (int32)")
    fit.add_argument("--seed", type=int, metavar="N", help="seed of all random draws (default: 0)")
    fit.add_argument(
        "--max-iter",
        type=int,
        metavar="N",
        help="most passes over the rows (default: 300, or 100 with mini-batches)",
    )
    fit.add_argument(
        "--tol",
        type=float,
        metavar="T",
        help="when to stop; 0: when no label changes (default: 1e-4, or 0 with mini-batches)",
    )
    fit.add_argument("--metric", metavar="NAME", help="kmeans: euclidean (the default) or cosine")
    fit.add_argument(
        "--set",
        dest="settings",
        type=setting_of,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter of the method; may be repeated",
    )
    fit.add_argument(
        "--plot",
        type=file_of,
        metavar="CURVE.png",
        help="draw the objective of every step (needs matplotlib)",
    )
    common(fit)

    predict = verb("predict", "label rows with the centers of a model", predict_verb)
    predict.add_argument("model", type=file_of, metavar="MODEL", help="a file that `shoal fit -o` wrote")
    predict.add_argument("data", type=file_of, metavar="DATA", help=DATA_HELP)
    data(predict)
    predict.add_argument(
        "-o",
        "--output",
        required=True,
        type=file_of,
        metavar="LABELS.npy",
        help="the label of every row (int32)",
    )
    predict.add_argument(
        "--distances",
        type=file_of,
        metavar="OUT.npy",
        help="the distance of every row to its center (float64)",
    )
    common(predict)

    info = verb("info", "say what a file holds", info_verb)
    info.add_argument(
        "file",
        type=file_of,
        metavar="FILE",
        help="an .npy file, a model, or a raw file with --shape and --dtype",
    )
    data(info)
    info.add_argument("--json", action="store_true", help="print the result as one JSON object")

    demo = verb("demo", "cluster real data that ships with the package", demo_verb)
    demo.add_argument(
        "--compare",
        action="store_true",
        help="check the result against scikit-learn's (exit 1 if it differs)",
    )
    demo.add_argument(
        "--out", type=file_of, metavar="DIR", help="where to write (default: a new temporary folder)"
    )
    common(demo)
    return top


# ---------------------------------------------------------------- files


def check_outputs(inputs: Sequence[str], outputs: Sequence[str | None]) -> None:
    """Refuse, before any work, outputs that could not be written or would overwrite something in use."""
    from shoal._files import SPECIAL, is_special

    taken = {Path(name).resolve(): "is also read" for name in inputs}
    for name in outputs:
        if name is None:
            continue
        path = Path(name)
        if path.is_dir():
            raise FailedError(f"{name}: is a directory, not a file to write")
        if is_special(path):
            raise FailedError(f"{name}: {SPECIAL}")
        folder = path.parent
        if not folder.is_dir():
            raise FailedError(f"{name}: there is no folder {str(folder)!r} to write it to")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise FailedError(f"{name}: no permission to write into {str(folder)!r}")
        real = path.resolve()
        if real in taken:
            raise FailedError(f"{name}: {taken[real]}: choose another name")
        taken[real] = "is written twice"


def rows_of(args: argparse.Namespace, name: str) -> Any:
    """Open DATA."""
    import shoal

    if (args.shape is None) != (args.dtype is None):
        raise UsageError("a raw file needs both --shape and --dtype")
    return shoal.open(name, shape=args.shape, dtype=dtype_of(args.dtype))


def dtype_of(name: str | None) -> str | None:
    """Give the name of a type that NumPy, or shoal, knows."""
    import numpy as np

    if name is None or name in ("bfloat16", "bf16"):
        return name and "bfloat16"
    try:
        np.dtype(name)
    except TypeError:
        raise UsageError(
            f"--dtype: there is no type {name!r}; try u1, i2, float32, float64 or bfloat16"
        ) from None
    return name


# ---------------------------------------------------------------- results


def show(args: argparse.Namespace, result: dict[str, Any], text: str | None = None) -> None:
    """Print a result: one JSON object, or lines."""
    if args.json:
        print(json.dumps(result, indent=2))
        return
    if text is None:
        width = max(map(len, result))
        text = "\n".join(f"{name:<{width}}  {value}" for name, value in result.items() if value is not None)
    print(text)


def spent(timings: dict[str, float]) -> str:
    """Seconds by phase, as text."""
    return ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in timings.items())


# ---------------------------------------------------------------- verbs


def parameters(args: argparse.Namespace, kind: Any) -> dict[str, Any]:
    """Give the estimator's parameters from options and settings."""
    given = {
        "n_clusters": args.clusters,
        "init": args.init,
        "random_state": args.seed,
        "n_jobs": args.threads,
        "max_iter": args.max_iter,
        "tol": args.tol,
        "metric": args.metric,
    }
    params = {name: value for name, value in given.items() if value is not None}
    allowed = sorted(set(kind().get_params()) - set(NOT_SET))
    for name in params:
        if name not in allowed:
            raise UsageError(f"--{name}: {args.method} has no such parameter")
    for name, value in args.settings:
        if name not in allowed:
            raise UsageError(f"--set: {args.method} has no parameter {name!r}; it has: {', '.join(allowed)}")
        if name in params:
            raise UsageError(f"--set: {name} is given twice")
        params[name] = value
    params.setdefault("random_state", 0)
    return params


def fit_verb(args: argparse.Namespace) -> int:
    """Cluster rows."""
    import numpy as np

    import shoal
    from shoal._files import write_npy

    kind = getattr(shoal, METHODS[args.method])
    params = parameters(args, kind)
    centers = [params["init"]] if str(params.get("init", "")).endswith(".npy") else []
    check_outputs([args.data, *centers], [args.output, args.labels, args.plot])
    if args.plot:
        from shoal.plot import require_matplotlib

        require_matplotlib()
    with rows_of(args, args.data) as source:
        if centers:
            params["init"] = np.load(centers[0], allow_pickle=False)
            if args.method == "kmeans":
                params.setdefault("n_init", 1)
        model = kind(**params)
        if not args.quiet:
            model.set_params(callbacks=[shoal.callbacks.ProgressBar("shoal fit")])
        begun = time.perf_counter()
        model.fit(source)
        seconds = time.perf_counter() - begun
        (rows, cols), dtype = source.shape, source.dtype.name
        inertia = getattr(model, "inertia_", None)
        if args.output:
            model.save(args.output)
        if args.labels:
            write_npy(args.labels, model.predict(source) if inertia is None else model.labels_)
    how = [name for name in (getattr(model, "algorithm_", None), model.metric) if name]
    if args.plot:
        from shoal.plot import curve

        curve(args.plot, model.history_, f"{args.method}, {args.clusters} clusters of {rows} x {cols}")
    result = {
        "data": args.data,
        "rows": rows,
        "columns": cols,
        "dtype": dtype,
        "method": args.method,
        "algorithm": getattr(model, "algorithm_", None),
        "init": model.init_,
        "metric": model.metric,
        "clusters": args.clusters,
        "seed": params["random_state"],
        "iterations": model.n_iter_,
        "stop_reason": model.stop_reason_,
        "inertia": inertia,
        "seconds": round(seconds, 6),
        "timings": model.timings_,
        "model": args.output,
        "labels": args.labels,
        "plot": args.plot,
    }
    lines = {
        "data": f"{args.data}: {rows} x {cols} {dtype}",
        "method": f"{args.method} ({', '.join(how)})",
        "start": f"{model.init_}, seed {params['random_state']}",
        "clusters": args.clusters,
        "iterations": f"{model.n_iter_} ({model.stop_reason_})",
        "inertia": None if inertia is None else f"{inertia:.9g}",
        "seconds": f"{seconds:.3f} ({spent(model.timings_)})",
        "model": args.output,
        "labels": args.labels,
        "plot": args.plot,
    }
    show(args, result if args.json else lines)
    return 0


def predict_verb(args: argparse.Namespace) -> int:
    """Label rows."""
    import numpy as np

    import shoal
    from shoal import _core, _params
    from shoal._files import write_npy

    check_outputs([args.model, args.data], [args.output, args.distances])
    model = shoal.load(args.model)
    model.set_params(n_jobs=args.threads)
    with rows_of(args, args.data) as source:
        begun = time.perf_counter()
        if args.distances:
            rows = model._rows(source, reset=False)
            threads = _params.threads(args.threads)
            labels, sq_dists = _core.nearest(rows, model.cluster_centers_, 1, model.metric, threads)
            write_npy(args.distances, np.sqrt(sq_dists))
        else:
            labels = model.predict(source)
        write_npy(args.output, labels)
        seconds = time.perf_counter() - begun
    result = {
        "model": args.model,
        "data": args.data,
        "rows": len(labels),
        "clusters": len(model.cluster_centers_),
        "clusters_used": len(np.unique(labels)),
        "seconds": round(seconds, 6),
        "labels": args.output,
        "distances": args.distances,
    }
    show(args, result)
    return 0


def info_verb(args: argparse.Namespace) -> int:
    """Say what a file holds."""
    import shoal
    from shoal import _core

    if args.shape is None and args.dtype is None and not args.file.lower().endswith(".npy"):
        with Path(args.file).open("rb") as file:
            start = file.read(9)
        if not start.startswith(b"\x93NUMPY"):
            if not args.file.lower().endswith(".safetensors") and start[8:] != b"{":
                raise FailedError(
                    f"{args.file}: is neither an .npy file nor a model; a raw file needs --shape and --dtype"
                )
            model = shoal.load(args.file)
            kind, _, meta = _core.load_model(args.file)
            k, d = model.cluster_centers_.shape
            params = {
                name: value if value is None or isinstance(value, (bool, int, float, str)) else "array"
                for name, value in model.get_params(deep=False).items()
                if name not in NOT_SET
            }
            result = {
                "file": args.file,
                "kind": kind,
                "clusters": k,
                "columns": d,
                "dtype": model.cluster_centers_.dtype.name,
                "iterations": model.n_iter_,
                "inertia": model.__dict__.get("_inertia"),
                "bytes": Path(args.file).stat().st_size,
                "version": meta.get("version"),
                "params": params,
            }
            if not args.json:
                result["params"] = ", ".join(f"{name}={value}" for name, value in params.items())
            show(args, result)
            return 0
    try:
        opened = rows_of(args, args.file)
    except ValueError as error:
        array = other_array(args.file, str(error)) if args.shape is None else None
        if array is None:
            raise
        if not args.json:
            array["shape"] = str(array["shape"])
        show(args, array)
        return 0
    with opened as source:
        rows, cols = source.shape
        dtype = source._source.dtype
        result = {
            "file": args.file,
            "kind": "rows",
            "shape": [rows, cols] if args.json else f"{rows} x {cols}",
            "dtype": dtype,
            "computed_as": source._source.compute,
            "bytes": source.nbytes,
            "access": source.access,
        }
    show(args, result)
    return 0


def other_array(name: str, problem: str) -> dict[str, Any] | None:
    """Describe an ``.npy`` file that is whole but cannot be clustered; None where it is damaged."""
    import math

    import numpy as np

    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with Path(name).open("rb") as file:
        try:
            shape, _, dtype = readers[np.lib.format.read_magic(file)](file)
        except (ValueError, LookupError, TypeError, SyntaxError, RecursionError, MemoryError):
            return None
        begin, size = file.tell(), os.fstat(file.fileno()).st_size
    # Objects are pickled: how many bytes they take cannot be told.
    if min(shape, default=0) < 0 or (
        not dtype.hasobject and size < begin + math.prod(shape) * dtype.itemsize
    ):
        return None
    return {
        "file": name,
        "kind": "array",
        "shape": list(shape),
        "dtype": str(dtype),
        "bytes": size - begin,
        "clustering": f"not possible: {problem.removeprefix(name + ': ')}",
    }


def demo_verb(args: argparse.Namespace) -> int:
    """Cluster what ships with the package."""
    from shoal import demo

    if not args.quiet:
        print("shoal: clustering 10000 images of 28 x 28 pixels ...", file=sys.stderr, flush=True)
    report = demo.run(args.out, with_sklearn=args.compare, n_jobs=args.threads)
    show(args, report.as_dict(), report.as_text())
    if not report.agrees:
        raise FailedError("the result differs from scikit-learn's")
    return 0


# ---------------------------------------------------------------- the program


def line_of(error: BaseException) -> str:
    """Give the message of an error on one line."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = str(error) or "not enough memory"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error comes of Ctrl-C, which a class that is being made turns into another error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name. Default: those of the process.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    SystemExit
        For wrong usage (2) and ``--help`` (0), as argparse does.

    Examples
    --------
    >>> from shoal.cli import main
    >>> main(["info", "no-such-file.npy"])
    1
    """
    args = argparse.Namespace()
    try:
        top = parser()
        top.parse_args(argv, args)
        if args.version:
            from shoal import __version__

            print(f"shoal {__version__}")
            return 0
        if args.verb is None:
            top.print_usage(sys.stderr)
            print("shoal: error: say what to do: fit, predict, info or demo", file=sys.stderr)
            return 2
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(
                f"shoal: warning: {line_of(message) if isinstance(message, Warning) else message}",
                file=sys.stderr,
            )
            status: int = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("shoal: interrupted", file=sys.stderr)
        return 130
    except UsageError as error:
        args.parser.error(str(error))
    except BrokenPipeError:
        # Who read the output has gone, and the interpreter must not try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if was_interrupted(error):
            print("shoal: interrupted", file=sys.stderr)
            return 130
        if os.environ.get("SHOAL_TRACEBACK") == "1":
            raise
        print(f"shoal: error: {line_of(error)}", file=sys.stderr)
        return 1
    return status
