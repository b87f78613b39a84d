"""Whole fits in few columns: sweeps by blocks of rows compared with plain sweeps and scikit-learn.

All methods start from the same distinct rows and take up to 100 sweeps, or until no label changes. The time
of a fit includes the tree. Fits are interleaved (A B C A B C ...), and the fastest round counts. The methods
of shoal must take the same number of sweeps and end with bit-identical labels and centers, otherwise the run
fails.

Besides stored sets there are two made ones: ``scan``, the scan of a street by a laser (ground, walls,
intensity), and ``duplicates``, rows of six binary and four rounded columns. ``name[4]`` takes the four widest
columns.

    python benches/python/blocks.py                     # the sets with targets
    python benches/python/blocks.py --data shuttle_49k:64 cover_286k:50 --methods auto lloyd filtering
    python benches/python/blocks.py --clock processor --threads 1     # on a busy machine
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import _common as common
import numpy as np

SWEEPS = 100
#: Target: time of plain sweeps, and of the faster method of scikit-learn, divided by that of "filtering".
TARGET = (4.0, 25.0)
SETS = (
    "scan:100",
    "http_567k:100",
    "skin_245k:100",
    "kddcup99_10pct_494k[4]:100",
    "bsds_pixels_rgb:64",
    "uk_accidents_lnglat_140k:100",
    "uk_accidents_lnglat_140k:1000",
    "duplicates:50",
)
METHODS = ("filtering", "auto", "lloyd", "exponion", "sklearn-lloyd", "sklearn-elkan")


def scan(n: int = 258_042) -> np.ndarray:
    """Make a scan of a street: positions and intensities, line by line."""
    rng = np.random.default_rng(1)
    angle = rng.uniform(0, 2 * np.pi, n)
    height = rng.choice(np.deg2rad(np.linspace(-25, 3, 64)), n)
    walls = 8 + 20 * np.abs(np.sin(3 * angle)) + 5 * np.sin(17 * angle) ** 2
    range_ = np.minimum(1.8 / np.maximum(np.tan(-height), 1e-3), walls)
    intensity = np.abs(np.sin(5 * angle)) * 0.5 + 0.1 * rng.random(n)
    columns = [range_ * np.cos(angle), range_ * np.sin(angle), range_ * np.tan(height), intensity]
    X = np.stack(columns, 1)[np.lexsort((angle, height))]
    return np.ascontiguousarray(X + 0.02 * rng.normal(size=X.shape), dtype=np.float32)


def duplicates(n: int = 619_326) -> np.ndarray:
    """Make rows of six binary and four rounded columns."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(40, 3))
    hidden = middles[rng.integers(0, 40, n)] + 0.3 * rng.normal(size=(n, 3))
    flags = hidden @ rng.normal(size=(3, 6)) > 0.5
    amounts = np.round(hidden @ rng.normal(size=(3, 4)), 1)
    return np.ascontiguousarray(np.hstack([flags, amounts]), dtype=np.float32)


def load(spec: str) -> tuple[np.ndarray, int]:
    """Read ``name:k`` or ``name[columns]:k``; with columns, the widest ones, each of variance 1."""
    name, _, k = spec.rpartition(":")
    made = {"scan": scan, "duplicates": duplicates}.get(name)
    if made is not None:
        return made(), int(k)
    stem, _, columns = name.partition("[")
    X = np.asarray(common.raw(stem), dtype=np.float32)
    if columns:
        spread = X.std(axis=0)
        widest = np.sort(np.argsort(-spread)[: int(columns.rstrip("]"))])
        X = X[:, widest] / spread[widest]
    return np.ascontiguousarray(X), int(k)


def fit(method: str, X: np.ndarray, start: np.ndarray, threads: int) -> Any:
    """Fit with one method."""
    given = {"n_clusters": len(start), "init": start, "n_init": 1, "max_iter": SWEEPS, "tol": 0.0}
    if method.startswith("sklearn-"):
        from sklearn.cluster import KMeans as Peer
        from threadpoolctl import threadpool_limits

        with threadpool_limits(threads):
            return Peer(algorithm=method.removeprefix("sklearn-"), **given).fit(X)
    from shoal import KMeans

    return KMeans(algorithm=method, n_jobs=threads, **given).fit(X)


def measure(spec: str, methods: list[str], args: Any) -> dict[str, Any]:
    """Measure all methods on one set."""
    X, k = load(spec)
    start = common.distinct_rows(X, k)
    clock = time.process_time if args.clock == "processor" else time.perf_counter
    best: dict[str, float] = {}
    row: dict[str, Any] = {"data": spec, "n": len(X), "d": X.shape[1], "k": k, "threads": args.threads}
    expected = None
    for turn in range(args.rounds):
        for method in methods:
            if turn and method.startswith("sklearn-") and turn >= args.peer_rounds:
                continue
            begun = clock()
            model = fit(method, X, start, args.threads)
            best[method] = min(best.get(method, np.inf), clock() - begun)
            if not method.startswith("sklearn-"):
                found = (model.n_iter_, model.labels_.tobytes(), model.cluster_centers_.tobytes())
                if expected is not None and found != expected:
                    raise SystemExit(f"{spec}: {method} gives other results")
                expected, row["sweeps"] = found, model.n_iter_
                if method in ("auto", "filtering"):
                    row[f"{method} is"] = model.algorithm_
                    row[f"{method} share"] = float(model.history_["n_distances"].mean() / len(X) / k)
    row |= {f"{method} s": seconds for method, seconds in best.items()}
    own = best.get("filtering", best.get("auto", np.nan))
    row["against lloyd"] = best.get("lloyd", np.nan) / own
    peers = [seconds for method, seconds in best.items() if method.startswith("sklearn-")]
    row["against sklearn"] = min(peers, default=np.nan) / own
    return row


def main() -> None:
    """Measure and print the table."""
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="+", default=list(SETS), help="sets as name:k")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-rounds", type=int, default=2, help="rounds of scikit-learn")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    common.add_options(parser, quick="1 round, no result file", threads=True)
    args = parser.parse_args()
    args.rounds = 1 if args.quick else args.rounds
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "shoal", "scikit-learn"])
    head["target"] = f"{TARGET[0]:.0f} times as fast as lloyd, {TARGET[1]:.0f} times as fast as scikit-learn"
    rows = []
    for spec in args.data:
        rows.append(measure(spec, args.methods, args))
        formats = {"data": "", "n": ",", "d": "d", "k": "d", "sweeps": "d"}
        formats |= {f"{method} s": ".3f" for method in args.methods}
        formats |= {"against lloyd": ".2f", "against sklearn": ".1f", "auto is": "", "filtering share": ".4f"}
        print("\n" + common.table(rows[-1:], formats), flush=True)
    common.keep("blocks", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
