"""``shoal fit``: cluster rows and save the model."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from .arguments import (
    VALUES_HELP,
    Verbs,
    add_common,
    add_metric,
    add_rows,
    add_start,
    add_verb,
    file_of,
    setting_of,
    size_of,
)
from .checkpoints import kept_note, refuse_to_overwrite
from .errors import LeftError, UsageError
from .files import check_outputs, label_of, rows_of, shown_shape
from .methods import CENTERS, available, centers_file, estimator, method_of, parameters
from .results import show, spent


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    fit = add_verb(verbs, "fit", "cluster rows and save the model", run)
    add_rows(fit)
    add_start(fit)
    fit.add_argument(
        "--method",
        type=method_of,
        default="kmeans",
        metavar="NAME",
        help=f"clustering method: {', '.join(available())} (default: kmeans)",
    )
    fit.add_argument(
        "-o", "--output", type=file_of, metavar="MODEL", help="write the model to this .safetensors file"
    )
    fit.add_argument(
        "--labels",
        type=file_of,
        metavar="OUT.npy",
        help=f"write the label of every row (int32) to this {VALUES_HELP} file",
    )
    fit.add_argument(
        "--max-iter",
        type=int,
        metavar="N",
        help="maximum number of iterations (default: the method's default)",
    )
    fit.add_argument(
        "--tol",
        type=float,
        metavar="T",
        help="tolerance for stopping; with 0, stop when nothing changes (default: the method's default)",
    )
    add_metric(fit)
    for name, which in (("--size-min", "smallest"), ("--size-max", "largest")):
        fit.add_argument(
            name,
            type=size_of,
            metavar="SIZE",
            help=f"{which} size of a cluster, of --method balanced: a number of rows, or a multiple of the "
            "mean size such as 1.1",
        )
    fit.add_argument(
        "--n-factors",
        type=int,
        metavar="H",
        help="number of factors per component of --method gmm; implies --set covariance_type=factor",
    )
    fit.add_argument(
        "--set",
        dest="settings",
        type=setting_of,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set any other parameter of the method; may be repeated",
    )
    fit.add_argument(
        "--validation",
        type=file_of,
        metavar="ROWS.npy",
        help="held-out rows: print their mean squared distance, and add it to the plot of --plot",
    )
    fit.add_argument(
        "--plot",
        type=file_of,
        metavar="CURVE.png",
        help="plot the objective per row against time and against rows read to this .png file (needs "
        "matplotlib)",
    )
    fit.add_argument(
        "--checkpoint",
        type=file_of,
        metavar="PATH",
        help="write checkpoints of the fit to this .safetensors file, also at Ctrl-C and SIGTERM; an "
        "existing file needs --resume",
    )
    fit.add_argument(
        "--checkpoint-every",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds between two checkpoints (default: 60)",
    )
    fit.add_argument(
        "--resume",
        action="store_true",
        help="resume from the checkpoint if the file exists; DATA and all options must be the same",
    )
    add_common(fit)


def run(args: argparse.Namespace) -> int:
    """Cluster the rows."""
    from contextlib import ExitStack

    import shoal
    from shoal._common.outputs import MODELS, PICTURES, VALUES, write_values

    options = {
        "n_clusters": args.clusters,
        "init": args.init,
        "random_state": args.seed,
        "n_jobs": args.threads,
        "max_iter": args.max_iter,
        "tol": args.tol,
        "metric": args.metric,
        "size_min": args.size_min,
        "size_max": args.size_max,
        "n_factors": args.n_factors,
    }
    if args.n_factors is not None and "covariance_type" not in dict(args.settings):
        options["covariance_type"] = "factor"
    params = parameters(args.method, options, args.settings)
    if args.validation and args.method not in CENTERS:
        raise UsageError(f"--validation: {args.method} has no energy of held-out rows")
    if args.resume and not args.checkpoint:
        raise UsageError("--resume needs --checkpoint, the file to resume from")
    read = [name for name in (args.data, args.validation, centers_file(params)) if name]
    check_outputs(
        read,
        [
            ("--output", args.output, MODELS),
            ("--labels", args.labels, VALUES),
            ("--plot", args.plot, PICTURES),
            ("--checkpoint", args.checkpoint, MODELS),
        ],
    )
    if args.plot:
        from shoal.plot import require_matplotlib

        require_matplotlib()
    from .curve import EnergyCurve

    keeper = shoal.callbacks.Checkpoint(args.checkpoint, args.checkpoint_every) if args.checkpoint else None
    with ExitStack() as opened:
        source = opened.enter_context(rows_of(args, args.data))
        if args.labels and source.access == "once":
            raise UsageError(
                f"--labels needs a second pass, but {label_of(args.data)} can be read only once: save the "
                "rows to a file, or leave out --labels"
            )
        watchers = []
        if args.validation:
            watchers.append(EnergyCurve(opened.enter_context(shoal.open(args.validation))))
        model = estimator(
            args.method,
            params,
            progress=None if args.quiet else "shoal fit",
            watchers=[*watchers, *filter(None, [keeper])],
        )
        kept = bool(args.checkpoint and Path(args.checkpoint).exists())
        if kept and not args.resume:
            refuse_to_overwrite(args, model, source)
        resumed = kept
        begun = time.perf_counter()
        try:
            if resumed:
                shoal.io.go_on(model, args.checkpoint, source)
            else:
                model.fit(source)
        except KeyboardInterrupt as interrupt:
            raise LeftError(kept_note(args, keeper, resumed=resumed)) from interrupt
        seconds = time.perf_counter() - begun - sum(watcher.spent for watcher in watchers)
        # The inertia of a mixture would compute labels that nobody asked for.
        bound = getattr(model, "lower_bound_", None) if args.method == "gmm" else None
        # Missing with `--set compute_labels=false`, and for k-modes.
        inertia = model.inertia_ if bound is None and hasattr(model, "inertia_") else None
        energy_of_labels = getattr(model, "energy_", None)
        labels = None
        if args.labels:
            labels = model.labels_ if hasattr(model, "labels_") else model.predict(source)
        for watcher in watchers:
            watcher.conclude(model)
        (rows, cols), dtype = source.shape, source.dtype.name
        if args.output:
            # Some models save rows, which are read from the open source.
            model.save(args.output)
    if labels is not None:
        write_values("--labels", args.labels, "label", labels)
    if args.plot:
        from shoal.plot import Curve, curves

        history = model.history_
        mean = history["objective"] / (history["batch_size"] if bound is None else 1)
        if bound is None and source.sample_weight is not None:
            mean *= rows / source._total_weight
        own = "rows of the step" if bound is None else "bound of the mean log-likelihood"
        drawn = [Curve(own, history["elapsed"], history["rows_seen"], mean)]
        if bound is not None and watchers:
            # The bound in nats and squared distances do not share an axis.
            drawn = []
        drawn += [Curve.of("held-out rows", watcher.points) for watcher in watchers]
        curves(args.plot, drawn, f"{args.method}, {args.clusters} clusters of {shown_shape(rows, cols)}")
    algorithm, init, metric, timings = (
        getattr(model, name, None) for name in ("algorithm_", "init_", "metric", "timings_")
    )
    of_modes = {
        "collapsed": getattr(model, "collapsed_", None),
        "laplacian_weight": getattr(model, "laplacian_weight_", None),
    }
    energy = watchers[0].points[-1].energy if watchers else None
    result = {
        "data": args.data,
        "rows": rows,
        "columns": cols,
        "dtype": dtype,
        "method": args.method,
        "algorithm": algorithm,
        "init": init,
        "metric": metric,
        "clusters": args.clusters,
        "seed": params["random_state"],
        "iterations": model.n_iter_,
        "stop_reason": model.stop_reason_,
        "inertia": inertia,
        **({} if bound is None else {"lower_bound": bound}),
        "energy": energy_of_labels,
        **{name: value for name, value in of_modes.items() if value is not None},
        "validation_energy": energy,
        "seconds": round(seconds, 6),
        "resumed": resumed,
        "timings": timings,
        "model": args.output,
        "labels": args.labels,
        "plot": args.plot,
    }
    kind = ", ".join(name for name in (algorithm, metric) if name)
    lines = {
        "data": f"{label_of(args.data)}: {shown_shape(rows, cols)} {dtype}",
        "method": f"{args.method} ({kind})" if kind else args.method,
        "start": ", ".join(text for text in (init, f"seed {params['random_state']}") if text),
        "clusters": args.clusters,
        "iterations": f"{model.n_iter_} ({model.stop_reason_})",
        "inertia": None if inertia is None else f"{inertia:.9g}",
        "bound": None if bound is None else f"{bound:.9g} nats per row",
        "energy": None if energy_of_labels is None else f"{energy_of_labels:.9g}",
        "validation": None if energy is None else f"{energy:.9g} per row ({args.validation})",
        "seconds": f"{seconds:.3f} ({spent(timings)})" if timings else f"{seconds:.3f}",
        "model": args.output,
        "labels": args.labels,
        "plot": args.plot,
    }
    show(args, result if args.json else lines)
    return 0
