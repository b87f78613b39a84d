"""Thousands of clusters: time and inertia of ``HierarchicalKMeans`` and of other methods and libraries.

Every library runs in a process of its own, on the same rows and threads. Fits are interleaved over rounds,
and the fastest counts. The inertia is that of the nearest of all centers.

curve
    Inertia and seconds of the tree alone, of sweeps with lists of 32 to 128 centers, of flat k-means (25
    sweeps from random rows), and of other libraries.
file
    Made rows of bytes in files of 2,000,000 x 64 and 200,000 x 768, 100,000 clusters: seconds, and the peak
    of anonymous memory.
growth
    Seconds by phase for 1,000 to 100,000 clusters of the same rows, and for a growing number of rows.
init
    Seconds and inertia of ``KMeans`` (25 sweeps) and ``TruncatedGaussianMixture`` from several seedings.
ivf
    The share of the ten nearest rows that inverted lists of the centers find, with 1% of the lists probed,
    for queries that no fit has seen.
search
    Seconds and recall of exact and approximate searches for the nearest centers.

    python benches/python/hierarchical.py
    python benches/python/hierarchical.py --parts curve --data sift_bsds_trainval:2000 --rounds 2
    python benches/python/hierarchical.py --superkmeans VENV/bin/python    # in another environment
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

PARTS = ("curve", "file", "growth", "init", "ivf", "search")
SETS = ("sift_bsds_trainval:2000", "sift_bsds_trainval:20000")
#: Rows of a set.
ROWS = 200_000
SWEEPS = 25
#: Fits of the part "curve" by name: a library and its settings.
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "tree": ("hierarchical", {"max_iter": 0}),
    "m=32, 5 sweeps": ("hierarchical", {"n_candidates": 32, "max_iter": 5}),
    "tree without labels": ("hierarchical", {"max_iter": 0, "compute_labels": False}),
    "m=16, 1 sweep without labels": (
        "hierarchical",
        {"n_candidates": 16, "max_iter": 1, "compute_labels": False},
    ),
    "m=32, 2 sweeps without labels": (
        "hierarchical",
        {"n_candidates": 32, "max_iter": 2, "compute_labels": False},
    ),
    "m=32, 5 sweeps without labels": (
        "hierarchical",
        {"n_candidates": 32, "max_iter": 5, "compute_labels": False},
    ),
    "m=64": ("hierarchical", {"n_candidates": 64}),
    "m=128, 5 sweeps": ("hierarchical", {"n_candidates": 128, "max_iter": 5}),
    "default": ("hierarchical", {}),
    "mixture": ("mixture", {}),
    "flat": ("flat", {}),
    "faiss": ("faiss", {}),
    "superkmeans hierarchical": ("superkmeans", {"hierarchical": True}),
    "superkmeans hierarchical, refined": ("superkmeans", {"hierarchical": True, "iters_refinement": 5}),
    "superkmeans flat": ("superkmeans", {"hierarchical": False}),
}
#: Rows, columns and clusters of the part "file".
FILES = ((2_000_000, 64, 100_000), (200_000, 768, 100_000))
GROWTH = (1_000, 3_000, 10_000, 30_000, 100_000)
#: Rows of the second part of "growth", with this many clusters.
GROWTH_ROWS, GROWTH_CENTERS = (12_500, 25_000, 50_000, 100_000, 200_000), 2_000
#: Sets of the part "init", and its seedings of k-means and of the mixture.
INIT_SETS = (
    "mnist_70k:256",
    "sift_bsds_trainval:1000",
    "sift_bsds_trainval:4000",
    "sift_bsds_trainval:20000",
)
SEEDINGS = ("auto", "random", "k-means||", "afk-mc2", "hierarchical")
MIXED = ("afk-mc2", "random", "hierarchical")
RECALLS = (0.9, 0.99, 0.999)
QUERIES, FOUND, PROBED = 10_000, 10, 0.01

COLUMNS = {
    "work": "",
    "fit": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "seconds": ".2f",
    "of flat": ".3f",
    "inertia": ".6e",
    "over flat": "+.4f",
    "tree s": ".2f",
    "sweeps s": ".2f",
    "final s": ".2f",
    "sweeps": "d",
    "certified": ".3f",
    "MB": ".0f",
    "recall": ".4f",
    "told": ".4f",
    "probes": "d",
    "init": "",
    "seeding s": ".2f",
    "first sweep": ".6e",
    "over random": "+.4f",
    "exponent": ".2f",
}

# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker."""

    def __init__(self) -> None:
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._X: Any = None

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def data(self, rows: str, load: bool) -> None:
        """Read rows, or keep the path of their file."""
        self._X = np.load(rows) if load else rows

    def fit(self, library: str, k: int, settings: dict[str, Any], to: str | None) -> dict[str, Any]:
        """Fit, write the centers to a file, and return seconds and what the model tells."""
        begun = time.perf_counter()
        centers, about = getattr(self, f"_{library}")(k, **settings)
        seconds = time.perf_counter() - begun
        if to is not None:
            np.save(to, np.asarray(centers, dtype=np.float32))
        return {"seconds": seconds, **about}

    def inertia(self, centers: str) -> float:
        """Return the inertia of the rows."""
        import shoal

        return shoal.metrics.inertia(self._X, np.load(centers))

    def _hierarchical(self, k: int, **settings: Any) -> Any:
        import shoal

        model = shoal.HierarchicalKMeans(k, random_state=0, n_jobs=self._threads, **settings).fit(self._X)
        phases = {"seeding": "tree s", "sweeps": "sweeps s", "final": "final s"}
        about = {phases[phase]: seconds for phase, seconds in model.timings_.items()}
        about |= {"sweeps": model.n_iter_, "certified": model.certified_, "sample rows": model.sample_rows_}
        return model.cluster_centers_, about

    def _flat(self, k: int) -> Any:
        import shoal

        params = {"init": "random", "n_init": 1, "max_iter": SWEEPS, "tol": 0.0, "random_state": 0}
        model = shoal.KMeans(k, **params, n_jobs=self._threads).fit(self._X)
        return model.cluster_centers_, {"sweeps": model.n_iter_}

    def _mixture(self, k: int) -> Any:
        import shoal

        model = shoal.TruncatedGaussianMixture(k, stopping="relative", random_state=0, n_jobs=self._threads)
        return model.fit(self._X).cluster_centers_, {}

    def _seeded(self, k: int, init: str) -> Any:
        import shoal

        params = {"init": init, "n_init": 1, "max_iter": SWEEPS, "tol": 0.0, "random_state": 0}
        model = shoal.KMeans(k, **params, n_jobs=self._threads).fit(self._X)
        about = {"seeding s": model.timings_["seeding"], "first sweep": model.history_["objective"][0]}
        return model.cluster_centers_, about | {"sweeps": model.n_iter_, "init": model.init_}

    def _mixed(self, k: int, init: str) -> Any:
        import shoal

        settings = {"init": init, "stopping": "relative", "random_state": 0, "n_jobs": self._threads}
        model = shoal.TruncatedGaussianMixture(k, **settings).fit(self._X)
        return model.cluster_centers_, {"sweeps": model.n_iter_, "init": model.init_}

    def search(self, centers: str, recall: float | None) -> dict[str, float]:
        """Return seconds and recall of a search for the nearest centers."""
        import shoal

        C = np.load(centers)
        if not hasattr(self, "_nearest"):
            self._nearest: dict[str, Any] = {}
        begun = time.perf_counter()
        method = {} if recall is None else {"method": "approximate", "recall": recall}
        labels, _, info = shoal.nearest(self._X, C, return_info=True, n_jobs=self._threads, **method)
        seconds = time.perf_counter() - begun
        if recall is None:
            self._nearest[centers] = labels
        found = float((labels == self._nearest[centers]).mean())
        return {
            "seconds": seconds,
            "recall": found,
            "told": info["recall"],
            "probes": info.get("n_probes", 0),
        }

    def _faiss(self, k: int) -> Any:
        import faiss

        faiss.omp_set_num_threads(self._threads)
        everything = {"min_points_per_centroid": 1, "max_points_per_centroid": len(self._X)}
        model = faiss.Kmeans(self._X.shape[1], k, niter=SWEEPS, nredo=1, seed=1, **everything)
        model.train(self._X)
        return model.centroids, {}

    def _superkmeans(self, k: int, **settings: Any) -> Any:
        import superkmeans

        # Flat fits get all rows and as many sweeps as the others.
        flat = {"iters": SWEEPS, "max_points_per_cluster": len(self._X)}
        settings |= {} if settings["hierarchical"] else flat
        model = superkmeans.SuperKMeans(
            k, self._X.shape[1], n_threads=self._threads, sampling_fraction=1.0, **settings
        )
        return np.asarray(model.train(self._X)), {}

    def recall(self, centers: str, queries: str) -> float:
        """Return the recall of queries with inverted lists of the rows."""
        import shoal

        rows, asked, C = self._X, np.load(queries), np.load(centers)
        truth = shoal.nearest(asked, rows, n_nearest=FOUND)[0]
        labels = shoal.nearest(rows, C)[0].ravel()
        probed = shoal.nearest(asked, C, n_nearest=max(1, round(PROBED * len(C))))[0]
        return float(
            np.mean([np.isin(labels[near], lists).mean() for near, lists in zip(truth, probed, strict=True)])
        )


# ---------------------------------------------------------------- the parent's side


class Libraries:
    """A worker per library, each with the same rows."""

    def __init__(self, rows: Path, load: bool, args: argparse.Namespace) -> None:
        self._rows, self._load, self._args = rows, load, args
        self.workers: dict[str, common.Worker] = {}

    def of(self, library: str) -> common.Worker:
        """Return the worker of a library, which has its rows."""
        if library not in self.workers:
            python = self._args.superkmeans if library == "superkmeans" else None
            env = common.blas_settings() if library == "faiss" else None
            worker = common.Worker(__file__, threads=self._args.threads, python=python, env=env)
            worker.call("data", str(self._rows), self._load)
            self.workers[library] = worker
        return self.workers[library]


def curve(spec: str, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure all fits of a set."""
    name, X, k = common.load(f"{spec}:f32")
    X = X[:ROWS]
    rows, centers = folder / "rows.npy", str(folder / "centers.npy")
    np.save(rows, X)
    libraries = Libraries(rows, True, args)
    best: dict[str, dict[str, Any]] = {}
    names = [fit for fit in args.fits if FITS[fit][0] != "superkmeans" or args.superkmeans]
    with common.closing(libraries.workers.values()):
        for turn in range(args.rounds):
            for fit in names:
                library, settings = FITS[fit]
                if turn > 0 and best[fit]["seconds"] > args.long:
                    continue
                found = libraries.of(library).call("fit", library, k, settings, centers)
                found["inertia"] = libraries.of("hierarchical").call("inertia", centers)
                if fit not in best or found["seconds"] < best[fit]["seconds"]:
                    best[fit] = found
                print(f"{name} k={k} {fit}: {found['seconds']:.2f} s, {found['inertia']:.6e}", flush=True)
    flat = best["flat"]
    shape = {"work": f"curve {name}", "n": len(X), "d": X.shape[1], "k": k}
    return [
        shape
        | {"fit": fit, **found}
        | {"of flat": found["seconds"] / flat["seconds"], "over flat": found["inertia"] / flat["inertia"] - 1}
        for fit, found in best.items()
    ]


def made(n: int, d: int, to: Path) -> None:
    """Write rows of bytes near 1,000 points."""
    rng = np.random.default_rng(0)
    clumps = rng.integers(40, 216, size=(1000, d))
    file = np.lib.format.open_memmap(to, mode="w+", dtype=np.uint8, shape=(n, d))
    for start in range(0, n, 100_000):
        part = rng.normal(scale=20, size=(min(100_000, n - start), d))
        file[start : start + len(part)] = np.clip(
            clumps[rng.integers(0, 1000, size=len(part))] + part, 0, 255
        )
    file.flush()


def of_file(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure fits to files."""
    found = []
    for n, d, k in args.files:
        n, k = (n // 20, k // 20) if args.quick else (n, k)
        rows = folder / "made.npy"
        made(n, d, rows)
        worker = common.Worker(__file__, threads=args.threads)
        with common.closing([worker]):
            worker.call("data", str(rows), False)
            one, peak = worker.watched("fit", "hierarchical", k, {}, None)
        found.append({"work": "file", "fit": "default", "n": n, "d": d, "k": k} | one | {"MB": peak / 1e6})
        rows.unlink()
    return found


def growth(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure the seconds for growing numbers of clusters and of rows."""
    name, X, _ = common.load(f"{SETS[0]}:f32")
    X = np.random.default_rng(0).permutation(X[:ROWS])
    found: list[dict[str, Any]] = []
    worker = common.Worker(__file__, threads=args.threads)
    by_k = [(len(X), k) for k in (GROWTH[:2] if args.quick else GROWTH)]
    by_n = [(n, GROWTH_CENTERS) for n in (GROWTH_ROWS[:2] if args.quick else GROWTH_ROWS)]
    with common.closing([worker]):
        for work, sizes in ((f"growth in k, {name}", by_k), (f"growth in n, {name}", by_n)):
            before: dict[str, Any] = {}
            for n, k in sizes:
                np.save(folder / "rows.npy", X[:n])
                worker.call("data", str(folder / "rows.npy"), True)
                fits = [worker.call("fit", "hierarchical", k, {}, None) for _ in range(args.rounds)]
                one = min(fits, key=lambda fit: fit["seconds"])
                if before:
                    grown = n / before["n"] * k / before["k"]
                    one["exponent"] = float(np.log(one["seconds"] / before["seconds"]) / np.log(grown))
                before = {"work": work, "fit": "default", "n": n, "d": X.shape[1], "k": k} | one
                found.append(before)
                print(f"{work} n={n} k={k}: {one['seconds']:.2f} s", flush=True)
    return found


def init(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Compare seedings."""
    rows, centers, found = folder / "rows.npy", str(folder / "centers.npy"), []
    for spec in INIT_SETS[:1] if args.quick else args.init_data:
        name, X, k = common.load(f"{spec}:f32")
        np.save(rows, X[:ROWS])
        libraries = Libraries(rows, True, args)
        fits = [("seeded", how) for how in SEEDINGS] + [("mixed", how) for how in MIXED]
        with common.closing(libraries.workers.values()):
            best: dict[tuple[str, str], dict[str, Any]] = {}
            for turn in range(args.rounds):
                for method, how in fits:
                    if turn > 0 and best[method, how]["seconds"] > args.long:
                        continue
                    one = libraries.of("hierarchical").call("fit", method, k, {"init": how}, centers)
                    one["inertia"] = libraries.of("hierarchical").call("inertia", centers)
                    if turn == 0 or one["seconds"] < best[method, how]["seconds"]:
                        best[method, how] = one
                    print(
                        f"{name} k={k} {method} {how}: {one['seconds']:.2f} s, {one['inertia']:.6e}",
                        flush=True,
                    )
        shape = {"work": f"init {name}", "n": min(ROWS, len(X)), "d": X.shape[1], "k": k}
        for (method, how), one in best.items():
            base = best[method, "random"]
            ratio = {"over random": one["inertia"] / base["inertia"] - 1}
            found.append(shape | {"fit": f"{LONG[method]}, {how}"} | one | ratio)
    return found


LONG = {"seeded": "KMeans", "mixed": "TruncatedGaussianMixture"}


def search(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Compare exact and approximate searches."""
    found = []
    for spec in args.data:
        name, X, k = common.load(f"{spec}:f32")
        X = X[:ROWS]
        np.save(folder / "rows.npy", X)
        libraries, centers = Libraries(folder / "rows.npy", True, args), str(folder / f"{k}.npy")
        with common.closing(libraries.workers.values()):
            worker = libraries.of("hierarchical")
            worker.call("fit", "hierarchical", k, {"max_iter": 3}, centers)
            for recall in (None, *RECALLS):
                runs = [worker.call("search", centers, recall) for _ in range(args.rounds)]
                one = min(runs, key=lambda run: run["seconds"])
                shape = {"work": f"search {name}", "n": len(X), "d": X.shape[1], "k": k}
                found.append(shape | {"fit": "exact" if recall is None else f"recall={recall}"} | one)
    return found


def ivf(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Compare the recall of inverted lists."""
    spec = SETS[0]
    name, X, k = common.load(f"{spec}:f32")
    X = np.random.default_rng(0).permutation(X[:ROWS])
    rows, queries, centers = folder / "rows.npy", str(folder / "queries.npy"), str(folder / "centers.npy")
    np.save(rows, X[:-QUERIES])
    np.save(queries, X[-QUERIES:])
    libraries = Libraries(rows, True, args)
    found = []
    with common.closing(libraries.workers.values()):
        for library in ("hierarchical", "flat", "faiss"):
            libraries.of(library).call("fit", library, k, {}, centers)
            recall = libraries.of("hierarchical").call("recall", centers, queries)
            shape = {"work": f"ivf {name}", "fit": library, "n": len(X) - QUERIES, "d": X.shape[1], "k": k}
            found.append(shape | {"recall": recall})
    return found


def file_shape(text: str) -> tuple[int, int, int]:
    """Parse ``n:d:k``."""
    n, d, k = (int(part) for part in text.split(":"))
    return n, d, k


def main() -> None:
    """Measure and print the tables."""
    parser = common.parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data", nargs="+", default=list(SETS), help="sets of curve and search")
    parser.add_argument("--fits", nargs="+", choices=FITS, default=list(FITS), help="fits of the part curve")
    parser.add_argument("--init-data", nargs="+", default=list(INIT_SETS), help="sets of the part init")
    parser.add_argument("--files", nargs="+", type=file_shape, default=FILES, help="n:d:k of the part file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--long", type=float, default=30.0, help="slower fits (seconds) run in one round only"
    )
    parser.add_argument("--superkmeans", help="Python interpreter with SuperKMeans (default: without it)")
    common.add_options(parser, quick="1 round, smaller sizes, no result file", threads=True, worker=True)
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler())
        return
    args.rounds = 1 if args.quick else args.rounds
    head = common.description(["numpy", "shoal", "faiss-cpu", "superkmeans"])
    head["faiss BLAS core"] = common.blas_core() or "as found"
    common.announce(head)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for part in args.parts:
            if part == "curve":
                found = [row for spec in args.data for row in curve(spec, args, folder)]
            else:
                parts = {"file": of_file, "growth": growth, "init": init, "ivf": ivf, "search": search}
                found = parts[part](args, folder)
            rows += found
            shown = {name: form for name, form in COLUMNS.items() if any(name in row for row in found)}
            print("\n" + common.table(found, shown), flush=True)
    common.keep("hierarchical", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
