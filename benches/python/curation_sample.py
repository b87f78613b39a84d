"""Balanced samples of mixtures with a long tail: how far the groups are from equal shares.

Group ``g`` of a mixture of Gaussians has a share of the rows that falls with ``g``. `KL` is the divergence of
the shares of the groups in a sample from equal shares: 0 if all groups have equally many rows. A sample is
drawn uniformly, balanced over the clusters of one level, or over levels of clusters, with and without rounds
of resampling.

The data sets "sep 2" and "sep 1" are far groups and near ones, and "wide" has more groups and features.
`seconds` are those of the processor, on all threads. KL and seconds are means over the random states.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import _common as common
import numpy as np
import shoal

#: Rows in a sample.
N_SAMPLES = 2000
#: Ways to sample: numbers of clusters as shares of those of the first level, and options.
THREE = (1.0, 0.3, 0.1)
WAYS: dict[str, tuple[tuple[float, ...], dict[str, Any]]] = {
    "uniform": ((), {}),
    "few clusters": ((0.1,), {"n_resamples": 0}),
    "many clusters": ((1.0,), {"n_resamples": 0}),
    "levels": (THREE, {"n_resamples": 0}),
    "levels, 3 rounds": (THREE, {"n_resamples": 3}),
    "levels, 10 rounds": (THREE, {"n_resamples": 10}),
    "1/8 of a cluster": (THREE, {"n_resamples": 3, "resample_size": 1 / 8}),
    "1/4 of a cluster": (THREE, {"n_resamples": 3, "resample_size": 1 / 4}),
    "all of a cluster": (THREE, {"n_resamples": 3, "resample_size": 1}),
}
COLUMNS = {
    "data": "",
    "way": "",
    "n": "d",
    "d": "d",
    "groups": "d",
    "levels": "",
    "KL": ".3f",
    "KL low": ".3f",
    "KL high": ".3f",
    "seconds": ".1f",
}


def separated(seed: int, sep: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw 100 groups of 6,000 to 60 rows with 16 features, whose means have the standard deviation `sep`."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(100, 16)) * sep
    groups = np.repeat(np.arange(100), 6000 // (np.arange(100) + 1))
    return means[groups] + rng.normal(size=(len(groups), 16)), groups


def wide(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw 300 groups of 8,000 to about 8 rows with 48 features, of different widths."""
    rng = np.random.default_rng(seed)
    means, widths = rng.normal(size=(300, 48)), rng.uniform(0.5, 1.5, size=300)
    groups = np.repeat(np.arange(300), (8000 * (np.arange(300) + 1) ** -1.2).astype(int))
    noise = rng.normal(size=(len(groups), 48)) * widths[groups, None]
    return (means[groups] + noise).astype(np.float32), groups


SETS: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {
    "sep 2": lambda seed: separated(seed, 2.0),
    "sep 1": lambda seed: separated(seed, 1.0),
    "wide": wide,
}


def divergence(groups: np.ndarray, count: int) -> float:
    """Return the Kullback-Leibler divergence of the shares of `count` groups from equal shares."""
    shares = np.bincount(groups, minlength=count) / len(groups)
    shares = shares[shares > 0]
    return float((shares * np.log(count * shares)).sum())


def drawn(X: np.ndarray, way: str, k: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """Return a sample, and the numbers of clusters."""
    shares, options = WAYS[way]
    levels = [max(1, round(share * k)) for share in shares]
    if not levels:
        return np.random.default_rng(seed).choice(len(X), N_SAMPLES, replace=False), levels
    size = options.get("resample_size")
    if size is not None:
        below = [len(X), *levels]
        sizes = [max(2, round(size * n / k)) for n, k in zip(below, levels, strict=False)]
        options = options | {"resample_size": sizes}
    return shoal.curation.sample(X, N_SAMPLES, levels=levels, random_state=seed, **options), levels


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="random states (default 3)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="default: all")
    common.add_options(parser, quick="200 clusters, 1 random state, no result file")
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error("at least 1 random state")
    k = 200 if args.quick else 1000
    head = common.announced(["numpy", "shoal"])
    rows = []
    for data in args.sets:
        for way in args.ways:
            found, begun = [], time.process_time()
            for seed in range(1 if args.quick else args.seeds):
                X, groups = SETS[data](seed)
                count = int(groups.max()) + 1
                sample, levels = drawn(X, way, k, seed)
                found.append(divergence(groups[sample], count))
            row = {"data": data, "way": way, "n": len(X), "d": X.shape[1], "groups": count}
            row |= {"levels": "/".join(map(str, levels)), "sample": N_SAMPLES, "seeds": len(found)}
            row |= {"KL": float(np.mean(found)), "KL low": min(found), "KL high": max(found)}
            row["seconds"] = (time.process_time() - begun) / len(found)
            rows.append(row)
            print(common.table([row], COLUMNS), flush=True)
    common.keep("sampling", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
