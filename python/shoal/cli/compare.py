"""``shoal compare``: methods are fitted to the same rows, and judged by others.

The rows that judge are the last ones of DATA, a tenth of all and 40,000 at most, which no method gets to
see: a range of a mapped file is a source of its own, so that nothing is copied. Where the order of the file
means something, its end is unlike the rest; a warning says so, and ``--shuffle`` or ``--validation`` is the
remedy.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .arguments import Verbs, add_common, add_rows, add_start, add_verb, file_of
from .errors import FailedError, UsageError, line_of
from .files import check_outputs, rows_of
from .methods import (
    CENTERS,
    addressed_setting_of,
    available,
    centers_file,
    estimator,
    methods_of,
    parameters,
    settable,
)
from .results import show

if TYPE_CHECKING:
    from .curve import Point

#: Rows held out by default: so many at most, and one in so many.
MOST_HELD_OUT, SHARE_HELD_OUT = 40_000, 10
#: How much larger or smaller the energy of the held-out rows may be than that of the fitted ones.
UNLIKE = 1.5
#: "To within 1%" of the lowest energy of all methods.
NEAR = 1.01


def add(verbs: Verbs) -> None:
    """Add the verb."""
    compare = add_verb(
        verbs,
        "compare",
        "fit several methods to the same rows, and score rows held out",
        run,
        details="Every method gets the same rows, seed and number of clusters, and one start. The last rows "
        "of DATA are held out: their mean squared distance to the nearest centers is the validation energy. "
        "Scoring is not in the seconds.",
    )
    add_rows(compare)
    add_start(compare)
    compare.add_argument(
        "--methods",
        type=methods_of,
        metavar="A,B,...",
        help=f"some of: {', '.join(available(CENTERS))} (default: all of them)",
    )
    compare.add_argument(
        "--set",
        dest="settings",
        type=addressed_setting_of,
        action="append",
        default=[],
        metavar="[METHOD.]NAME=VALUE",
        help="a parameter of one method, or of all that have it; may be repeated",
    )
    judges = compare.add_mutually_exclusive_group()
    judges.add_argument(
        "--held-out",
        type=int,
        metavar="N",
        help="rows at the end that are held out (default: a tenth of all, at most 40,000)",
    )
    judges.add_argument(
        "--validation", type=file_of, metavar="ROWS.npy", help="score these rows, and fit all of DATA"
    )
    compare.add_argument(
        "--shuffle",
        action="store_true",
        help="first put the rows in a random order, in memory: for files whose order means something",
    )
    compare.add_argument(
        "--plot",
        type=file_of,
        metavar="P.png",
        help="draw the validation energy over seconds and over rows read (needs matplotlib)",
    )
    add_common(compare)


@dataclass(frozen=True)
class Outcome:
    """What a method came to."""

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
        """When the validation energy was first as low as this; None: never."""
        return next((point.seconds for point in self.curve if point.energy <= energy), None)


def run(args: argparse.Namespace) -> int:
    """Fit and score the methods, one after the other."""
    import shoal
    from shoal._common.outputs import PICTURES

    methods = args.methods or available(CENTERS)
    chosen = {method: chosen_for(method, methods, args) for method in methods}
    starts = {file for params in chosen.values() if (file := centers_file(params))}
    check_outputs(
        [args.data, *filter(None, [args.validation]), *sorted(starts)], [("--plot", args.plot, PICTURES)]
    )
    if args.plot:
        from shoal.plot import require_matplotlib

        require_matplotlib()
    with ExitStack() as opened:
        source = opened.enter_context(rows_of(args, args.data))
        if source.access != "random":
            raise FailedError(
                f"{args.data}: can only be read in order, and rows are held out here: write them to a file "
                "with `shoal shuffle`"
            )
        (rows, cols), dtype = source.shape, source.dtype.name
        if args.shuffle:
            source = shuffled(source, args.seed or 0)
        if args.validation:
            fitted, judges = source, opened.enter_context(shoal.open(args.validation))
        else:
            last = held_out(rows, args.held_out)
            fitted, judges = source.slice(0, rows - last), source.slice(rows - last, rows)
        sizes = {"rows": rows, "columns": cols, "fitted_rows": len(fitted), "validation_rows": len(judges)}
        outcomes = fitted_with(chosen, fitted, judges, quiet=args.quiet)
    best = min(outcome.energy for outcome in outcomes)
    for outcome in outcomes:
        if outcome.energy == best and outcome.inertia is not None:
            warn_if_unlike(best, outcome.inertia / sizes["fitted_rows"])
            break
    if args.plot:
        from shoal.plot import Curve, curves

        drawn = [Curve.of(outcome.method, outcome.curve) for outcome in outcomes]
        curves(args.plot, drawn, f"{args.clusters} clusters of {sizes['fitted_rows']} x {cols}", excess=True)
    if args.json:
        result = {
            "data": args.data,
            **sizes,
            "dtype": dtype,
            "clusters": args.clusters,
            "seed": args.seed or 0,
            "results": [as_dict(outcome, best) for outcome in outcomes],
            "plot": args.plot,
        }
        show(args, result)
        return 0
    print(f"{args.data}: {rows} x {cols} {dtype}, {args.clusters} clusters, seed {args.seed or 0}")
    print(f"fitted to {sizes['fitted_rows']} rows, validation energy of {sizes['validation_rows']}\n")
    print(as_table(outcomes, best))
    if args.plot:
        print(f"\nplot  {args.plot}")
    return 0


def chosen_for(method: str, methods: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """Give the parameters of one of the methods to compare."""
    options = {
        "n_clusters": args.clusters,
        "init": args.init,
        "random_state": args.seed,
        "n_jobs": args.threads,
    }
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
    # A curve has one beginning.
    return {"n_init": 1, **params} if "n_init" in own else params


def held_out(rows: int, wanted: int | None) -> int:
    """Give the number of rows to hold out."""
    if wanted is None:
        wanted = max(1, min(rows // SHARE_HELD_OUT, MOST_HELD_OUT))
    elif not 1 <= wanted < rows:
        raise UsageError(f"--held-out must lie between 1 and {rows - 1}, the rows but one, got {wanted}")
    if wanted >= rows:
        raise FailedError(f"there must be at least 2 rows, one to fit and one to hold out, got {rows}")
    return wanted


def shuffled(source: Any, seed: int) -> Any:
    """Give all rows in a random order, as an array in their own type."""
    import numpy as np

    import shoal

    rows = np.empty(source.shape, dtype=source.dtype)
    place = np.random.default_rng(seed).permutation(len(source))
    begin = 0
    for block in source.blocks():
        rows[place[begin : begin + len(block)]] = block
        begin += len(block)
    return shoal.open(rows)


def fitted_with(
    chosen: Mapping[str, dict[str, Any]], rows: Any, judges: Any, *, quiet: bool
) -> list[Outcome]:
    """Fit every method to the rows."""
    from .curve import EnergyCurve

    if rows.shape[1] != judges.shape[1]:
        raise FailedError(f"the rows to fit have {rows.shape[1]} columns, those to score {judges.shape[1]}")
    begun = []
    for method, params in chosen.items():
        curve = EnergyCurve(judges)
        progress = None if quiet else f"shoal compare: {method}"
        # Parameters that a method refuses end the program before another has worked for an hour.
        try:
            model = estimator(method, params, progress=progress, watchers=[curve])
            begun.append((method, model, curve, model.iter_fit(rows)))
        except (TypeError, ValueError) as error:
            raise FailedError(f"{method}: {line_of(error)}") from error
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
                # Left out by `--set compute_labels=false`.
                inertia=getattr(model, "inertia_", None),
                curve=tuple(curve.points),
            )
        )
    return outcomes


def warn_if_unlike(held_out: float, fitted: float) -> None:
    """Say that the rows held out are not like the others, which a wrong order of rows does."""
    if not fitted / UNLIKE <= held_out <= fitted * UNLIKE:
        warnings.warn(
            f"the mean squared distance of scored rows is {held_out:.4g}, of fitted ones {fitted:.4g}: "
            "if the order of the rows means something take --shuffle, otherwise fewer clusters",
            stacklevel=2,
        )


def as_dict(outcome: Outcome, best: float) -> dict[str, Any]:
    """Give plain values, for JSON."""
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
    """Give aligned lines."""
    from shoal._common.text import table

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
                # Of nothing there are no percents.
                f"{outcome.energy / best - 1.0:.2%}" if best else "-",
            )
        )
    return table(head, body)
