"""``shoal demo``: cluster 1,797 images of handwritten digits."""

from __future__ import annotations

import argparse
import sys

from .arguments import Verbs, add_verb
from .errors import FailedError
from .results import show


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    demo = add_verb(verbs, "demo", "cluster 1,797 images of handwritten digits", run)
    about = "compare the result with scikit-learn, and exit with status 1 if it differs"
    demo.add_flag("--compare", about)
    demo.add_file("--out", "DIR", "output folder (default: a new temporary folder)")
    demo.add_common()


def run(args: argparse.Namespace) -> int:
    """Cluster the images and print the report."""
    from shoal import demo

    if not args.quiet:
        print("shoal: clustering 1,797 images of 8 x 8 pixels ...", file=sys.stderr, flush=True)
    report = demo.run(args.out, with_sklearn=args.compare, n_jobs=args.n_jobs)
    show(args, report.as_dict(), report.as_text())
    if not report.agrees:
        raise FailedError("the result differs from the result of scikit-learn")
    return 0
