"""``shoal convert``: write a model in the format of another library."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import IO, Any

from .arguments import Verbs, add_verb
from .errors import FailedError, UsageError
from .files import check_outputs
from .results import show

#: Suffixes of the output, by library.
SUFFIXES = {
    "faiss": (".faiss", ".index"),
    "onnx": (".onnx",),
    "sklearn": (".joblib", ".pkl", ".pickle"),
}


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    convert = add_verb(
        verbs,
        "convert",
        "write a model in the format of faiss, ONNX or scikit-learn",
        run,
        details="faiss and onnx need the extras of these names. Reading the output does not need shoal.",
    )
    convert.add_model()
    convert.add_argument(
        "--to",
        required=True,
        choices=tuple(SUFFIXES),
        help="faiss: index of the centers; onnx: network for labels and distances; sklearn: fitted KMeans",
    )
    about = "; ".join(f"{to}: {' or '.join(endings)}" for to, endings in SUFFIXES.items())
    convert.add_output("OUT", about)
    about = (
        "faiss index: flat holds the centers, ivf is a trained, empty inverted file with a list per center "
        "(default: flat)"
    )
    convert.add_argument("--index", choices=("flat", "ivf"), help=about)
    convert.add_json()


def run(args: argparse.Namespace) -> int:
    """Convert the model."""
    import shoal
    from shoal._files.staged import replace_file

    if args.index is not None and args.to != "faiss":
        raise UsageError(f"--index belongs to --to faiss, got --to {args.to}")
    check_outputs([args.model], [("--output", args.output, SUFFIXES[args.to])])
    model = shoal.load(args.model)
    try:
        if args.to == "faiss":
            made = shoal.convert.to_faiss(model, index=args.index or "flat")
        elif args.to == "onnx":
            made = shoal.convert.to_onnx(model)
        else:
            made = shoal.convert.to_sklearn(model)
    except TypeError as error:
        raise FailedError(f"{args.model}: {error}") from error
    with replace_file(args.output) as file:
        WRITERS[args.to](made, file)
    k, d = model.cluster_centers_.shape
    result = {
        "model": args.model,
        "estimator": type(model).__name__,
        "metric": model.metric,
        "clusters": k,
        "columns": d,
        "to": args.to,
        "class": type(made).__name__,
        "bytes": Path(args.output).stat().st_size,
        "output": args.output,
    }
    show(args, result)
    return 0


def write_faiss(index: Any, file: IO[bytes]) -> None:
    """Write an index as ``faiss.write_index`` does."""
    import faiss

    file.write(faiss.serialize_index(index).data)


def write_onnx(network: Any, file: IO[bytes]) -> None:
    """Write a network as ``onnx.save`` does."""
    file.write(network.SerializeToString())


def write_sklearn(model: Any, file: IO[bytes]) -> None:
    """Write a pickle, which ``pickle.load`` and ``joblib.load`` read."""
    pickle.dump(model, file)


WRITERS = {"faiss": write_faiss, "onnx": write_onnx, "sklearn": write_sklearn}
