"""``shoal select``: choose the number of clusters."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable

from .arguments import Verbs, add_verb
from .files import check_outputs, label_of, open_data, shown_shape
from .methods import CENTERS, METHODS, available, parameters, parse_method
from .results import show

#: Methods whose fits can start from given centers.
GROWING = tuple(name for name in CENTERS if name != "gmm")


def parse_counts(text: str) -> Iterable[int]:
    """Parse ``A:B``, ``A:B:STEP`` (both ends included) and ``A,B,...``."""
    try:
        numbers = [int(part) for part in text.split("," if ":" not in text else ":")]
    except ValueError:
        numbers = []
    if not numbers or (len(numbers) > 3 and ":" in text):
        raise argparse.ArgumentTypeError(f"must be a range A:B or A:B:STEP, or numbers A,B,..., got {text!r}")
    if ":" not in text:
        return numbers
    first, last, *step = numbers
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(f"must be a range A:B with 1 <= A <= B, got {text!r}")
    if step and step[0] < 1:
        raise argparse.ArgumentTypeError(f"must be a range A:B:STEP with a STEP of at least 1, got {text!r}")
    # No list: a range of any length takes no memory until it is checked.
    return range(first, last + 1, *step)


def growing_of(text: str) -> str:
    """Parse the name of a method."""
    known = available(GROWING)
    if parse_method(text) not in known:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(known)}, got {text!r}")
    return text


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    select = add_verb(
        verbs,
        "select",
        "cluster rows with several numbers of clusters, and choose one",
        run,
        details="Every fit starts from the centers of the last one. The criteria are elbow, silhouette, "
        "calinski_harabasz, davies_bouldin and stability; auto takes the choice of most of the first three.",
    )
    select.add_rows()
    about = "numbers of clusters: from A to B (2:50), in steps (10:100:10), or a list (5,10,20)"
    select.add_option("--k", "A:B", about, parse_counts, sets="ks", required=True)
    select.add_option("--criterion", "NAME", "what chooses (default: auto)", default="auto")
    about = f"one of {', '.join(available(GROWING))} (default: kmeans)"
    select.add_option("--method", "METHOD", about, growing_of, default="kmeans")
    select.add_settings("set a parameter of the method")
    select.add_metric()
    about = "samples whose fits measure the stability; 0 measures none (default: 5)"
    select.add_option("--resamples", "N", about, int, sets="n_resamples", default=5)
    select.add_seed(None)
    select.add_file("--plot", "P.png", "plot all measures to this .png file (needs matplotlib)")
    select.add_common()


def run(args: argparse.Namespace) -> int:
    """Fit all numbers of clusters and print the table."""
    import shoal
    from shoal._files.outputs import PICTURES
    from shoal._quality.choosing import verdict

    options = {"metric": args.metric, "n_jobs": args.n_jobs}
    model = METHODS[args.method].kind()(**parameters(args.method, options, args.settings))
    check_outputs([args.data], [("--plot", args.plot, PICTURES)])
    with open_data(args, args.data) as source:
        rows, cols = source.shape
        dtype = source.dtype.name
        begun = time.perf_counter()
        found = shoal.select_n_clusters(
            source,
            args.ks,
            estimator=model,
            criterion=args.criterion,
            n_resamples=args.n_resamples,
            random_state=args.random_state or 0,
            n_jobs=args.n_jobs,
            verbose=not args.quiet,
        )
        seconds = time.perf_counter() - begun
    if args.plot:
        found.plot(args.plot)
    table, choices = found.table_, found.suggestions_
    if args.json:
        result = {
            "data": args.data,
            "rows": rows,
            "columns": cols,
            "method": args.method,
            "criterion": args.criterion,
            "best": verdict(args.criterion, choices),
            "suggestions": choices,
            "agreement": found.agreement_,
            "margin": found.margin_,
            "doubts": found.doubts_,
            "table": [dict(zip(table.dtype.names or (), row, strict=True)) for row in table.tolist()],
            "seconds": round(seconds, 6),
            "plot": args.plot,
        }
        show(args, result)
        return 0
    print(f"{label_of(args.data)}: {shown_shape(rows, cols)} {dtype}, method {args.method}\n")
    print(found)
    if args.plot:
        print(f"\nplot  {args.plot}")
    return 0
