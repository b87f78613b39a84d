"""Two builds of shoal compared: processor time of sweeps and fits that do the same work.

Each build is a folder that holds the package `shoal` with its compiled module, for example the ``python``
folder of a checkout after ``make build``. Worker processes of the two builds alternate, one thread each. A
ratio is the least time of the second build divided by the least time of the first. Work is left out if the
results of the builds differ.

    python benches/python/builds.py before/python after/python --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import _common as common
import numpy as np

COLUMNS = {
    "work": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "before s": ".3f",
    "after s": ".3f",
    "after/before": ".3f",
}
#: Data sets: name, rows, clusters.
SETS = (
    ("sift_bsds_trainval", 40_000, 256),
    ("resnet18_cifar_16k", 15_000, 512),
    ("mnist_70k", 15_000, 128),
    ("cover_286k", 100_000, 50),
    ("uk_accidents_lnglat_140k", 140_000, 100),
    # Some rows are far from all others.
    ("shuttle_49k", 49_000, 256),
    ("kddcup99_10pct_494k", 100_000, 50),
)
ALGORITHMS = ("lloyd", "yinyang", "elkan", "hamerly", "exponion")
REPEATS = 3


def work(quick: bool) -> dict[str, tuple[tuple[int, int, int], Callable[[], Any]]]:
    """Return the pieces of work by name: the size (n, d, k), and a function that returns a result."""
    import shoal

    tasks: dict[str, tuple[tuple[int, int, int], Callable[[], Any]]] = {}
    for name, rows, k in SETS:
        X = common.raw(name)[: rows // 20 if quick else rows]
        X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype.name in common.NARROW else np.float64)
        centers, size, short = common.distinct_rows(X, k), (*X.shape, k), name.split("_")[0]

        def predict(X: Any = X, centers: Any = centers) -> Any:
            return shoal.nearest(X, centers)[0]

        tasks[f"nearest {short}"] = size, predict
        for algorithm in ALGORITHMS:

            def fit(X: Any = X, centers: Any = centers, algorithm: Any = algorithm) -> Any:
                options = {"algorithm": algorithm, "max_iter": 12, "tol": 0}
                return shoal.KMeans(len(centers), init=centers, **options).fit(X).cluster_centers_

            tasks[f"{algorithm} {short}"] = size, fit
        if short not in ("mnist", "cover"):
            continue
        methods: dict[str, Any] = {
            "minibatch": shoal.MiniBatchKMeans(k, random_state=0, max_iter=20),
            "nested": shoal.NestedMiniBatchKMeans(k, random_state=0, max_iter=15),
            "sbe": shoal.BackwardEulerKMeans(k, random_state=0, max_iter=30),
            "vrkm++": shoal.VarianceReducedKMeans(k, random_state=0, max_iter=3),
            "mixture": shoal.TruncatedGaussianMixture(k, random_state=0, max_iter=8),
        }
        for method, estimator in methods.items():

            def run(X: Any = X, estimator: Any = estimator) -> Any:
                return estimator.fit(X).cluster_centers_

            tasks[f"{method} {short}"] = size, run
    return tasks


def worker(quick: bool) -> None:
    """Print the least processor time and a checksum of every piece of work."""
    warnings.simplefilter("ignore")
    found = {}
    for name, (size, run) in work(quick).items():
        least, result = np.inf, None
        for _ in range(1 if quick else REPEATS):
            begun = time.process_time()
            result = run()
            least = min(least, time.process_time() - begun)
        found[name] = (size, least, hash(np.asarray(result).tobytes()))
    json.dump(found, sys.stdout)


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("builds", nargs="*", metavar="FOLDER", help="two folders with the package shoal")
    parser.add_argument("--rounds", type=int, default=5)
    common.add_options(parser, quick="few rows, one round", worker=True)
    args = parser.parse_args()
    if args.worker:
        worker(args.quick)
    elif len(args.builds) == 2:
        compare(args)
    else:
        parser.error("expected two folders")


def compare(args: argparse.Namespace) -> None:
    """Run both builds and print the table."""
    head = common.announced(["numpy"])
    least: list[dict[str, Any]] = [{}, {}]
    for round_ in range(1 if args.quick else args.rounds):
        for which in (0, 1) if round_ % 2 == 0 else (1, 0):
            environment = os.environ | {
                "PYTHONPATH": args.builds[which],
                "PYTHONHASHSEED": "0",
                "SHOAL_NUM_THREADS": "1",
            }
            command = [sys.executable, __file__, "--worker", *(["--quick"] if args.quick else [])]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for name, (size, seconds, result) in json.loads(done.stdout).items():
                before = least[which].get(name, (size, np.inf, result))
                least[which][name] = (size, min(seconds, before[1]), result)
    rows = []
    for name, (size, before, result) in least[0].items():
        _, after, other = least[1][name]
        if result != other:
            print(f"{name}: left out, the builds have different results", file=sys.stderr)
            continue
        rows.append(
            {
                "work": name,
                **dict(zip("ndk", size, strict=True)),
                "before s": before,
                "after s": after,
                "after/before": after / before,
            }
        )
    print(common.table(rows, COLUMNS))
    common.keep("builds", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
