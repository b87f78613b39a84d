"""``shoal demo``: real data that ships with the package."""

from __future__ import annotations

import argparse
import sys

from .arguments import Verbs, add_common, add_verb, file_of
from .errors import FailedError
from .results import show


def add(verbs: Verbs) -> None:
    """Add the verb."""
    demo = add_verb(verbs, "demo", "cluster real data that ships with the package", run)
    demo.add_argument(
        "--compare",
        action="store_true",
        help="check the result against scikit-learn's (exit 1 if it differs)",
    )
    demo.add_argument(
        "--out", type=file_of, metavar="DIR", help="where to write (default: a new temporary folder)"
    )
    add_common(demo)


def run(args: argparse.Namespace) -> int:
    """Cluster what ships with the package."""
    from shoal import demo

    if not args.quiet:
        print("shoal: clustering 10000 images of 28 x 28 pixels ...", file=sys.stderr, flush=True)
    report = demo.run(args.out, with_sklearn=args.compare, n_jobs=args.threads)
    show(args, report.as_dict(), report.as_text())
    if not report.agrees:
        raise FailedError("the result differs from scikit-learn's")
    return 0
