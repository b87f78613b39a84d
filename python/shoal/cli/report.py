"""``shoal report``: describe the clusters of a model."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .arguments import Verbs, add_verb
from .errors import FailedError
from .files import check_outputs, label_of, open_data, refuse_other_width
from .results import show

#: Suffixes of the page.
PAGES = (".html", ".htm")


def parse_image(text: str) -> tuple[int, ...]:
    """Parse ``HxW`` or ``HxWx3``."""
    sides = tuple(int(part) for part in text.replace(",", "x").split("x"))
    if len(sides) not in (2, 3):
        raise ValueError
    return sides


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    report = add_verb(
        verbs,
        "report",
        "describe the clusters of a model: sizes, radii, typical rows, outliers, close pairs, features",
        run,
        details="Reads the rows once.",
    )
    report.add_model()
    report.add_rows()
    about = "also write a page with pictures to this .html file, which needs no other file"
    report.add_file("--html", "OUT.html", about)
    about = "the rows are images of this height and width (HxWx3: RGB), which the page shows"
    report.add_option("--image", "HxW", about, parse_image, sets="image_shape")
    for name, what in (
        ("exemplars", "nearest rows per cluster"),
        ("outliers", "farthest rows per cluster"),
        ("features", "features per cluster"),
    ):
        report.add_option(f"--{name}", "N", f"{what} (default: 5)", int, sets=f"n_{name}", default=5)
    report.add_common()


def run(args: argparse.Namespace) -> int:
    """Describe the clusters."""
    import shoal

    check_outputs([args.model, args.data], [("--html", args.html, PAGES)])
    model = shoal.load(args.model)
    if isinstance(model, shoal.StreamingCoreset):
        raise FailedError(f"{args.model}: holds a coreset, which has no clusters. Fit a model to it first.")
    model.set_params(n_jobs=args.n_jobs)
    with open_data(args, args.data) as source:
        refuse_other_width(model, source, args.data)
        begun = time.perf_counter()
        found = shoal.report(
            model,
            source,
            n_exemplars=args.n_exemplars,
            n_outliers=args.n_outliers,
            n_features=args.n_features,
            image_shape=args.image_shape,
            title=f"Clusters of {label_of(args.data)}",
            progress=not args.quiet,
        )
        seconds = time.perf_counter() - begun
    if args.html:
        found.to_html(args.html)
    if args.json:
        show(args, as_dict(args, found, seconds))
        return 0
    print(found)
    if args.html:
        print(f"\npage  {args.html}")
    return 0


def as_dict(args: argparse.Namespace, report: Any, seconds: float) -> dict[str, Any]:
    """Convert a report to plain values for JSON."""
    names = report.table.dtype.names
    clusters = [
        dict(zip(names, row, strict=True)) | {"exemplars": near, "outliers": far, "features": features}
        for row, near, far, features in zip(
            report.table.tolist(),
            report.exemplars.tolist(),
            report.outliers.tolist(),
            report.features,
            strict=True,
        )
    ]
    pairs = [dict(zip(report.pairs.dtype.names, row, strict=True)) for row in report.pairs.tolist()]
    return {
        "model": args.model,
        "data": args.data,
        "rows": report.n_rows,
        "columns": report.n_features,
        "clusters": clusters,
        "inertia": report.inertia,
        "silhouette": report.silhouette,
        "calinski_harabasz": report.calinski_harabasz,
        "davies_bouldin": report.davies_bouldin,
        "pairs": pairs,
        "seconds": round(seconds, 6),
        "html": args.html,
    }
