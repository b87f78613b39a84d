"""``shoal compare``: fit several methods, and score them on held-out rows.

The held-out rows are the last 10% of DATA, at most 40,000. They are a view of the mapped file, so nothing is
copied. If the file is sorted, its last rows differ from the others. A warning then suggests ``--shuffle``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shoal._checks.marked import marked_text

from .arguments import Verbs, add_verb
from .errors import FailedError, UsageError
from .files import check_outputs, label_of, open_data, refuse_other_columns
from .methods import (
    CENTERS,
    available,
    centers_file,
    make_estimator,
    parameters,
    parse_addressed_setting,
    parse_methods,
    settable,
)
from .results import show

if TYPE_CHECKING:
    from .curve import Point

#: Parameters of methods with options of their own.
PARAMETERS = ("n_clusters", "init", "random_state", "n_jobs", "metric")
#: By default, one row in 10 is held out, but at most 40,000 rows.
MOST_HELD_OUT, SHARE_HELD_OUT = 40_000, 10
#: Warn if the energies of held-out and fitted rows differ by more than this factor.
UNLIKE = 1.5
#: An energy within 1% of the lowest energy of all methods counts as near.
NEAR = 1.01


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    compare = add_verb(
        verbs,
        "compare",
        "fit several methods to the same rows, and score them on held-out rows",
        run,
        details="Every method gets the same rows, seed and number of clusters, and a single start. The "
        "validation energy is the mean squared distance of the held-out rows to their nearest centers. The "
        "reported seconds do not include scoring.",
    )
    compare.add_rows()
    compare.add_start()
    compare.add_metric()
    about = f"methods to compare, from: {', '.join(available(CENTERS))} (default: all)"
    compare.add_option("--methods", "A,B,...", about, parse_methods)
    about = "set a parameter of METHOD, or of every method that has the parameter"
    compare.add_settings(about, parse_addressed_setting, "[METHOD.]NAME=VALUE")
    either = compare.add_mutually_exclusive_group()
    about = "hold out the last N rows of DATA (default: 10%% of the rows, at most 40,000)"
    compare.add_option("--held-out", "N", about, int, group=either)
    about = "score these rows, and fit all rows of DATA"
    compare.add_file("--validation", "ROWS.npy", about, group=either)
    compare.add_flag("--shuffle", "load the rows into memory and shuffle them first; use it for sorted files")
    about = (
        "plot the validation energy against time and against rows read to this .png file (needs matplotlib)"
    )
    compare.add_file("--plot", "P.png", about)
    compare.add_common()


@dataclass(frozen=True)
class Outcome:
    """The result of one method."""

    method: str
    seconds: float
    steps: int
    rows_seen: int
    stop_reason: str
    inertia: float | None
    curve: Sequence[Point]

    @property
    def energy(self) -> float:
        """The validation energy of the finished model."""
        return self.curve[-1].energy

    def seconds_to(self, energy: float) -> float | None:
        """Time until the validation energy was first at most `energy`; None if never."""
        return next((point.seconds for point in self.curve if point.energy <= energy), None)


def run(args: argparse.Namespace) -> int:
    """Fit and score the methods, one after the other."""
    import shoal
    from shoal._files.outputs import PICTURES

    methods = args.methods or available(CENTERS)
    chosen = {method: parameters_of(method, methods, args) for method in methods}
    starts = {file for params in chosen.values() if (file := centers_file(params))}
    check_outputs(
        [args.data, *filter(None, [args.validation]), *sorted(starts)], [("--plot", args.plot, PICTURES)]
    )
    with ExitStack() as opened:
        source = opened.enter_context(open_data(args, args.data))
        if source.access != "random":
            raise FailedError(
                f"{label_of(args.data)}: can only be read in order, but holding rows out needs random "
                "access. Convert the file with `shoal shuffle` first."
            )
        (rows, cols), dtype = source.shape, source.dtype.name
        if args.shuffle:
            source = shuffle_rows(source, args.random_state or 0)
        if args.validation:
            fitted, scored = source, opened.enter_context(shoal.open(args.validation))
        else:
            last = held_out(rows, args.held_out)
            fitted, scored = source.slice(0, rows - last), source.slice(rows - last, rows)
        sizes = {"rows": rows, "columns": cols, "fitted_rows": len(fitted), "validation_rows": len(scored)}
        weight = fitted._total_weight
        outcomes = fit_all(chosen, fitted, scored, quiet=args.quiet)
    best = min(outcome.energy for outcome in outcomes)
    for outcome in outcomes:
        if outcome.energy == best and outcome.inertia is not None:
            warn_if_unlike(best, outcome.inertia / weight)
            break
    if args.plot:
        from shoal.plot import Curve, curves

        drawn = [Curve.of(outcome.method, outcome.curve) for outcome in outcomes]
        curves(
            args.plot, drawn, f"{args.n_clusters} clusters of {sizes['fitted_rows']} x {cols}", excess=True
        )
    if args.json:
        result = {
            "data": args.data,
            **sizes,
            "dtype": dtype,
            "clusters": args.n_clusters,
            "seed": args.random_state or 0,
            "results": [as_dict(outcome, best) for outcome in outcomes],
            "plot": args.plot,
        }
        show(args, result)
        return 0
    about = f"{args.n_clusters} clusters, seed {args.random_state or 0}"
    print(f"{label_of(args.data)}: {rows} x {cols} {dtype}, {about}")
    print(f"fitted to {sizes['fitted_rows']} rows, validation energy of {sizes['validation_rows']}\n")
    print(as_table(outcomes, best))
    if args.plot:
        print(f"\nplot  {args.plot}")
    return 0


def parameters_of(method: str, methods: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """Collect the parameters of one method from the options and ``--set``."""
    options = {name: getattr(args, name) for name in PARAMETERS}
    own = set(settable(method))
    settings = []
    for whose, name, value in args.settings:
        if whose is not None and whose not in methods:
            raise UsageError(f"--set: {whose} is not among the methods to compare: {', '.join(methods)}")
        if whose is None and not any(name in settable(each) for each in methods):
            raise UsageError(f"--set: none of {', '.join(methods)} has a parameter {name!r}")
        if whose == method or (whose is None and name in own):
            settings.append((name, value))
    params = parameters(method, options, settings)
    # With several starts the curve would not show one fit.
    return {"n_init": 1, **params} if "n_init" in own else params


def held_out(rows: int, wanted: int | None) -> int:
    """Compute the number of rows to hold out."""
    if wanted is None:
        wanted = max(1, min(rows // SHARE_HELD_OUT, MOST_HELD_OUT))
    elif not 1 <= wanted < rows:
        raise UsageError(f"--held-out must be between 1 and {rows - 1}, one less than the rows, got {wanted}")
    if wanted >= rows:
        raise FailedError(f"DATA must have at least 2 rows, one to fit and one to hold out, got {rows}")
    return wanted


def shuffle_rows(source: Any, seed: int) -> Any:
    """Load all rows into memory in random order, without conversion."""
    import numpy as np

    import shoal

    rows = np.empty(source.shape, dtype=source.dtype)
    place = np.random.default_rng(seed).permutation(len(source))
    begin = 0
    for block in source.blocks():
        rows[place[begin : begin + len(block)]] = block
        begin += len(block)
    made = shoal.open(rows)
    if source.sample_weight is not None:
        made._weights = np.empty(len(source))
        made._weights[place] = source.sample_weight
    return made


def fit_all(chosen: Mapping[str, dict[str, Any]], rows: Any, scored: Any, *, quiet: bool) -> list[Outcome]:
    """Fit every method to `rows`, and score it on `scored`."""
    from .curve import EnergyCurve

    refuse_other_columns(rows, scored)
    begun = []
    for method, params in chosen.items():
        curve = EnergyCurve(scored)
        progress = None if quiet else f"shoal compare: {method}"
        # Check the parameters of all methods before the first long fit.
        try:
            model = make_estimator(method, params, progress=progress, watchers=[curve])
            begun.append((method, model, curve, model.iter_fit(rows)))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{method}: {marked_text(error)}") from error
    outcomes = []
    for method, model, curve, steps in begun:
        for _ in steps:
            pass
        curve.conclude(model)
        history = model.history_
        outcomes.append(
            Outcome(
                method=method,
                seconds=float(history["elapsed"][-1]),
                steps=len(history),
                rows_seen=int(history["rows_seen"][-1]),
                stop_reason=str(model.stop_reason_),
                # Missing with `--set compute_labels=false`.
                inertia=model.inertia_ if hasattr(model, "inertia_") else None,
                curve=tuple(curve.points),
            )
        )
    return outcomes


def warn_if_unlike(held_out: float, fitted: float) -> None:
    """Warn if held-out and fitted rows differ, as they do in a sorted file."""
    if not fitted / UNLIKE <= held_out <= fitted * UNLIKE:
        warnings.warn(
            f"the mean squared distance is {held_out:.4g} for scored rows and {fitted:.4g} for fitted rows. "
            "If the file is sorted use --shuffle, otherwise fit fewer clusters.",
            stacklevel=2,
        )


def as_dict(outcome: Outcome, best: float) -> dict[str, Any]:
    """Convert an outcome to plain values for JSON."""
    return {
        "method": outcome.method,
        "seconds": outcome.seconds,
        "seconds_to_1_percent": outcome.seconds_to(NEAR * best),
        "steps": outcome.steps,
        "rows_seen": outcome.rows_seen,
        "stop_reason": outcome.stop_reason,
        "inertia": outcome.inertia,
        "validation_energy": outcome.energy,
        "curve": [asdict(point) for point in outcome.curve],
    }


def as_table(outcomes: Sequence[Outcome], best: float) -> str:
    """Format the outcomes as a table."""
    from shoal._terminal.text import format_table

    head = ("method", "seconds", "to 1%", "steps", "rows read", "inertia", "validation energy", "above best")
    body = []
    for outcome in outcomes:
        near = outcome.seconds_to(NEAR * best)
        body.append(
            (
                outcome.method,
                f"{outcome.seconds:.3f}",
                "-" if near is None else f"{near:.3f}",
                str(outcome.steps),
                str(outcome.rows_seen),
                "-" if outcome.inertia is None else f"{outcome.inertia:.9g}",
                f"{outcome.energy:.9g}",
                # No ratio to a best energy of 0.
                f"{outcome.energy / best - 1.0:.2%}" if best else "-",
            )
        )
    return format_table(head, body)
