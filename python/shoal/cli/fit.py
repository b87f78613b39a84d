"""``shoal fit``: cluster rows and save the model."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .arguments import VALUES_HELP, Verbs, add_verb, parse_size
from .checkpoints import kept_note
from .errors import LeftError, UsageError
from .files import check_outputs, label_of, open_data, refuse_other_columns, shown_shape
from .methods import CENTERS, available, centers_file, make_estimator, parameters, parse_method
from .results import format_timings, show

#: Parameters of methods with options of their own.
PARAMETERS = (
    *("n_clusters", "init", "random_state", "n_jobs", "max_iter", "tol"),
    *("metric", "size_min", "size_max", "n_factors"),
)
#: What only a fit of Laplacian K-modes shows.
OF_MODES = ("collapsed", "laplacian_weight", "normalize", "n_neighbors")


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    fit = add_verb(verbs, "fit", "cluster rows and save the model", run)
    fit.add_rows()
    fit.add_start()
    about = f"clustering method: {', '.join(available())} (default: kmeans)"
    fit.add_option("--method", "NAME", about, parse_method, default="kmeans")
    fit.add_output("MODEL", "write the model to this .safetensors file", required=False)
    fit.add_file("--labels", "OUT.npy", f"write the label of every row (int32) to this {VALUES_HELP} file")
    about = "maximum number of iterations (default: the method's default)"
    fit.add_option("--max-iter", "N", about, int)
    about = "tolerance for stopping; with 0, stop when nothing changes (default: the method's default)"
    fit.add_option("--tol", "T", about, float)
    fit.add_metric()
    for name, which in (("--size-min", "smallest"), ("--size-max", "largest")):
        about = (
            f"{which} size of a cluster, of --method balanced: a number of rows, or a multiple of the mean "
            "size such as 1.1x"
        )
        fit.add_option(name, "SIZE", about, parse_size)
    about = "number of factors per component of --method gmm; implies --set covariance_type=factor"
    fit.add_option("--n-factors", "H", about, int)
    fit.add_settings("set any other parameter of the method")
    about = "held-out rows: print their mean squared distance, and add it to the plot of --plot"
    fit.add_file("--validation", "ROWS.npy", about)
    about = (
        "plot the objective per row against time and against rows read to this .png file (needs matplotlib)"
    )
    fit.add_file("--plot", "CURVE.png", about)
    about = (
        "write checkpoints of the fit to this .safetensors file, also at Ctrl-C and SIGTERM; an existing "
        "file needs --resume"
    )
    fit.add_file("--checkpoint", "PATH", about)
    about = "seconds between two checkpoints (default: 60)"
    fit.add_option("--checkpoint-every", "SECONDS", about, float)
    about = "resume from the checkpoint if the file exists; DATA and all options must be the same"
    fit.add_flag("--resume", about)
    fit.add_common()


@dataclass(frozen=True)
class Outcome:
    """A finished fit, and what the outputs need of its rows."""

    model: Any
    rows: int
    cols: int
    dtype: str
    seconds: float
    resumed: bool
    inertia: float | None
    #: The lower bound of a mixture.
    bound: float | None
    #: Factor that turns a mean per row into a mean per unit of weight.
    per_weight: float
    #: Labels of the rows for ``--labels``.
    labels: Any
    #: Scores of the rows of ``--validation``.
    curve: Any

    def found(self, name: str) -> Any:
        """Return an attribute of the model; None if it has none."""
        return getattr(self.model, name, None)

    @property
    def energy(self) -> float | None:
        """Mean squared distance of the held-out rows."""
        return None if self.curve is None else self.curve.points[-1].energy


def run(args: argparse.Namespace) -> int:
    """Cluster the rows."""
    from shoal._files.outputs import write_values

    params = params_of(args)
    check(args, params)
    done = fit(args, params)
    if done.labels is not None:
        write_values("--labels", args.labels, "label", done.labels)
    if args.plot:
        plot(args, done)
    show(args, (as_dict if args.json else as_lines)(args, done, params["random_state"]))
    return 0


def params_of(args: argparse.Namespace) -> dict[str, Any]:
    """Collect the parameters of the estimator."""
    options = {name: getattr(args, name) for name in PARAMETERS}
    if args.n_factors is not None and "covariance_type" not in dict(args.settings):
        options["covariance_type"] = "factor"
    return parameters(args.method, options, args.settings)


def check(args: argparse.Namespace, params: dict[str, Any]) -> None:
    """Check the options and the outputs before any work."""
    from shoal._files.outputs import MODELS, PICTURES, VALUES

    if args.validation and args.method not in CENTERS:
        raise UsageError(f"--validation: {args.method} has no energy of held-out rows")
    if args.resume and not args.checkpoint:
        raise UsageError("--resume needs --checkpoint, the file to resume from")
    if args.checkpoint_every is not None and not args.checkpoint:
        raise UsageError("--checkpoint-every needs --checkpoint, the file to write")
    check_outputs(
        [name for name in (args.data, args.validation, centers_file(params)) if name],
        [
            ("--output", args.output, MODELS),
            ("--labels", args.labels, VALUES),
            ("--plot", args.plot, PICTURES),
            ("--checkpoint", args.checkpoint, MODELS),
        ],
    )


def fit(args: argparse.Namespace, params: dict[str, Any]) -> Outcome:
    """Open the rows, fit or resume the model, and save it."""
    import shoal

    from .curve import EnergyCurve

    every = {} if args.checkpoint_every is None else {"every": args.checkpoint_every}
    keeper = shoal.callbacks.Checkpoint(args.checkpoint, **every) if args.checkpoint else None
    with ExitStack() as opened:
        source = opened.enter_context(open_data(args, args.data))
        if args.labels and source.access == "once":
            raise UsageError(
                f"--labels needs a second pass, but {label_of(args.data)} can be read only once: save the "
                "rows to a file, or leave out --labels"
            )
        curve = None
        if args.validation:
            held_out = opened.enter_context(shoal.open(args.validation))
            refuse_other_columns(source, held_out)
            curve = EnergyCurve(held_out)
        watchers = [watcher for watcher in (curve, keeper) if watcher is not None]
        progress = None if args.quiet else "shoal fit"
        model = make_estimator(args.method, params, progress=progress, watchers=watchers)
        resumed = args.resume and Path(args.checkpoint).exists()
        begun = time.perf_counter()
        try:
            if resumed:
                shoal.io.finish_from(model, args.checkpoint, source)
            else:
                model.fit(source)
        except KeyboardInterrupt as interrupt:
            raise LeftError(kept_note(args, keeper, resumed=resumed)) from interrupt
        seconds = time.perf_counter() - begun - (0.0 if curve is None else curve.spent)
        # The inertia of a mixture would compute labels that nobody asked for.
        bound = model.lower_bound_ if args.method == "gmm" else None
        # Missing with `--set compute_labels=false`, and for k-modes.
        inertia = model.inertia_ if bound is None and hasattr(model, "inertia_") else None
        labels = None
        if args.labels:
            labels = model.labels_ if hasattr(model, "labels_") else model.predict(source)
        if curve is not None:
            curve.conclude(model)
        (rows, cols), dtype = source.shape, source.dtype.name
        per_weight = 1.0 if source.sample_weight is None else rows / source._total_weight
        if args.output:
            # Some models save rows, which are read from the open source.
            model.save(args.output)
    return Outcome(
        model, rows, cols, dtype, seconds, resumed, inertia, bound, per_weight, labels=labels, curve=curve
    )


def plot(args: argparse.Namespace, done: Outcome) -> None:
    """Plot the objective per row, and the scores of held-out rows."""
    from shoal.plot import Curve, curves

    history, drawn = done.model.history_, []
    if done.bound is None:
        mean = history["objective"] / history["batch_size"] * done.per_weight
        drawn.append(Curve("rows of the step", history["elapsed"], history["rows_seen"], mean))
    elif done.curve is None:
        # The bound in nats and squared distances do not share an axis.
        own = "bound of the mean log-likelihood"
        drawn.append(Curve(own, history["elapsed"], history["rows_seen"], history["objective"]))
    if done.curve is not None:
        drawn.append(Curve.of("held-out rows", done.curve.points))
    curves(
        args.plot, drawn, f"{args.method}, {args.n_clusters} clusters of {shown_shape(done.rows, done.cols)}"
    )


def as_dict(args: argparse.Namespace, done: Outcome, seed: int) -> dict[str, Any]:
    """Return the result for JSON."""
    of_modes = {name: done.found(name + "_") for name in OF_MODES}
    return {
        "data": args.data,
        "rows": done.rows,
        "columns": done.cols,
        "dtype": done.dtype,
        "method": args.method,
        "algorithm": done.found("algorithm_"),
        "init": done.found("init_"),
        "metric": done.found("metric"),
        "clusters": args.n_clusters,
        "seed": seed,
        "iterations": done.model.n_iter_,
        "stop_reason": done.model.stop_reason_,
        "inertia": done.inertia,
        **({} if done.bound is None else {"lower_bound": done.bound}),
        "energy": done.found("energy_"),
        **{name: value for name, value in of_modes.items() if value is not None},
        "validation_energy": done.energy,
        "seconds": round(done.seconds, 6),
        "resumed": done.resumed,
        "timings": done.found("timings_"),
        "model": args.output,
        "labels": args.labels,
        "plot": args.plot,
    }


def as_lines(args: argparse.Namespace, done: Outcome, seed: int) -> dict[str, Any]:
    """Return the result as one line per value."""

    def figure(value: float | None, unit: str = "") -> str | None:
        return None if value is None else f"{value:.9g}{unit}"

    kind = ", ".join(name for name in (done.found("algorithm_"), done.found("metric")) if name)
    timings = done.found("timings_")
    return {
        "data": f"{label_of(args.data)}: {shown_shape(done.rows, done.cols)} {done.dtype}",
        "method": f"{args.method} ({kind})" if kind else args.method,
        "start": ", ".join(text for text in (done.found("init_"), f"seed {seed}") if text),
        "clusters": args.n_clusters,
        "iterations": f"{done.model.n_iter_} ({done.model.stop_reason_})",
        "inertia": figure(done.inertia),
        "bound": figure(done.bound, " nats per row"),
        "energy": figure(done.found("energy_")),
        "validation": figure(done.energy, f" per row ({args.validation})"),
        "seconds": f"{done.seconds:.3f} ({format_timings(timings)})" if timings else f"{done.seconds:.3f}",
        "model": args.output,
        "labels": args.labels,
        "plot": args.plot,
    }
