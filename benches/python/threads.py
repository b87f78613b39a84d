"""How much faster calls are on more threads, and the same fits by scikit-learn and faiss on all of them.

Calls with `given centers` start from the same random rows for all libraries, and make the same number of
sweeps. All others are calls with the defaults and a fixed seed. Every call is warmed up once; then all
numbers of threads take turns, and the median counts. CPU seconds are those of the same round.

    python benches/python/threads.py --threads 1 4 16
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import _common as common
import numpy as np

#: The sets: deep features and SIFT descriptors.
FEATURES, DESCRIPTORS = "resnet18_cifar_16k", "sift_bsds_trainval"
#: Rows of the descriptors, and sweeps from given centers.
ROWS, SWEEPS = 100_000, 24
#: Calls with the defaults: the name, the set and the number of clusters.
DEFAULTS = (
    ("KMeans", FEATURES, 256),
    ("KMeans", DESCRIPTORS, 1000),
    ("MiniBatchKMeans", DESCRIPTORS, 1000),
    ("NestedMiniBatchKMeans", DESCRIPTORS, 256),
    ("HierarchicalKMeans", DESCRIPTORS, 4000),
    ("BalancedKMeans", FEATURES, 64),
    ("TruncatedGaussianMixture", FEATURES, 64),
)
GIVEN = ((FEATURES, 1024), (DESCRIPTORS, 1024))
PEERS = ("scikit-learn", "faiss")

#: A call on a number of threads.
Call = Callable[[int], Any]


def given(X: np.ndarray, k: int) -> dict[str, Call]:
    """Return fits from the same random rows: ours, and those of peers."""
    import faiss
    import shoal
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    start = common.distinct_rows(X, k)
    options: dict[str, Any] = {"init": start, "n_init": 1, "max_iter": SWEEPS, "tol": 0.0}

    def own(threads: int) -> None:
        shoal.KMeans(k, n_jobs=threads, **options).fit(X)

    def sklearn(threads: int) -> None:
        with threadpool_limits(threads):
            KMeans(k, **options).fit(X)

    def by_faiss(threads: int) -> None:
        faiss.omp_set_num_threads(threads)
        everything = {"max_points_per_centroid": len(X), "min_points_per_centroid": 1}
        model = faiss.Kmeans(X.shape[1], k, niter=SWEEPS, **everything)
        model.train(X, init_centroids=start)
        # Ours ends with labels too.
        model.index.search(X, 1)

    return {"shoal": own, "scikit-learn": sklearn, "faiss": by_faiss}


def default(name: str, X: np.ndarray, k: int) -> dict[str, Call]:
    """Return fits with the defaults: ours, and that of scikit-learn for k-means."""
    import shoal
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    def own(threads: int) -> None:
        getattr(shoal, name)(k, random_state=0, n_jobs=threads).fit(X)

    def sklearn(threads: int) -> None:
        with threadpool_limits(threads):
            KMeans(k, random_state=0).fit(X)

    return {"shoal": own} | ({"scikit-learn": sklearn} if name == "KMeans" else {})


def predict(X: np.ndarray, k: int) -> dict[str, Call]:
    """Return `predict` with random rows as centers."""
    import shoal

    model = shoal.KMeans(k, init=common.distinct_rows(X, k), n_init=1, max_iter=1).fit(X)

    def own(threads: int) -> None:
        with shoal.config_context(n_threads=threads):
            model.predict(X)

    return {"shoal": own}


def timed(call: Call, threads: int) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a call."""
    begun, busy = time.perf_counter(), time.process_time()
    call(threads)
    return time.perf_counter() - begun, time.process_time() - busy


def measure(what: str, calls: dict[str, Call], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure our call on all numbers of threads, and those of peers on the largest."""
    most = max(args.threads)
    turns = [(library, n) for library in calls for n in (args.threads if library == "shoal" else [most])]
    for call in calls.values():
        call(most)
    found: dict[tuple[str, int], list[tuple[float, float]]] = {turn: [] for turn in turns}
    for _ in range(args.rounds):
        for library, n in turns:
            found[library, n].append(timed(calls[library], n))
    middle = {turn: sorted(times)[len(times) // 2] for turn, times in found.items()}
    own = middle["shoal", most][0]
    return [
        {
            "call": what,
            "library": library,
            "threads": n,
            "s": seconds,
            "cpu s": busy,
            "speed-up": middle["shoal", min(args.threads)][0] / seconds if library == "shoal" else None,
            "over ours": None if library == "shoal" else seconds / own,
        }
        for (library, n), (seconds, busy) in middle.items()
    ]


COLUMNS = {
    "call": "",
    "data": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "library": "",
    "threads": "d",
    "s": ".3f",
    "cpu s": ".2f",
    "speed-up": ".1f",
    "over ours": ".1f",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[], help="default: 1, 2, 4, ... all cores")
    parser.add_argument("--rounds", type=int, default=3)
    common.add_options(parser, quick="a tenth of the rows, one round, no result file")
    args = parser.parse_args()
    powers = [2**i for i in range(common.cores().bit_length())]
    args.threads = sorted(set(args.threads or [n for n in powers if n < common.cores()] + [common.cores()]))
    if args.rounds < 1 or not 1 <= args.threads[0] <= args.threads[-1] <= common.cores():
        parser.error(f"at least 1 round, and 1 to {common.cores()} threads")
    if args.quick:
        args.rounds = 1
    # Peers that have not converged, as planned.
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "shoal", *PEERS[:1], "faiss-cpu"])
    sets: dict[str, np.ndarray] = {}
    for name in (FEATURES, DESCRIPTORS):
        X = common.raw(name)
        chosen = np.sort(np.random.default_rng(0).permutation(len(X))[: ROWS // 10 if args.quick else ROWS])
        sets[name] = np.ascontiguousarray(X[chosen], dtype=np.float32)
    cases: list[tuple[str, str, int, Callable[[], dict[str, Call]]]] = [
        ("KMeans, given centers", name, k, lambda name=name, k=k: given(sets[name], k)) for name, k in GIVEN
    ]
    cases += [
        (what, name, k, lambda w=what, x=name, k=k: default(w, sets[x], k)) for what, name, k in DEFAULTS
    ]
    cases.append(("predict", DESCRIPTORS, 1024, lambda: predict(sets[DESCRIPTORS], 1024)))
    rows: list[dict[str, Any]] = []
    for what, name, k, make in cases:
        n, d = sets[name].shape
        of = {"data": name, "n": n, "d": d, "k": k}
        new = [{"call": what, **of, **row} for row in measure(what, make(), args)]
        print(common.table(new, COLUMNS), flush=True)
        rows += new
    common.keep("threads", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
