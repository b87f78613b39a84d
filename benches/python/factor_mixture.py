"""Mixtures with covariances: log-likelihood of held-out rows and seconds, compared with diagonal mixtures.

Every set is split into training rows and a seventh of held-out rows. Fits with the same seed alternate and
begin with the same means. Seconds are processor time of one thread, unless ``--threads`` says otherwise.
Log-likelihoods are means per row, in nats. `to diag` compares with the diagonal mixture of the same seed.

Values of the sets marked ``+u`` are integers, to which uniform noise from 0 to 1 is added. Without noise, a
density of integers can be arbitrarily high, because columns that are constant within a component have
variances at their lower limits. MNIST is measured in both ways.
"""

from __future__ import annotations

import argparse
import resource
import sys
import warnings
from typing import Any

import _common as common
import numpy as np
import shoal

#: Set, components, maximum number of rows.
SETS: tuple[tuple[str, int, int], ...] = (
    ("letter_20k+u", 100, 20_000),
    ("usps_11k+u", 100, 11_000),
    ("fsdd_logmel40_spkA", 200, 60_000),
    ("sift_bsds_trainval+u", 200, 40_000),
    ("mnist_70k+u", 500, 70_000),
    ("mnist_70k", 500, 70_000),
)
FACTORS = (1, 5, 10)

COLUMNS = {
    "set": "",
    "columns": "d",
    "K": "d",
    "covariance": "",
    "factors": "d",
    "held out": ".2f",
    "to diag": "+.2f",
    "train": ".2f",
    "s": ".2f",
    "s to diag": ".2f",
    "iterations": ".1f",
    "iteration to diag": ".2f",
}


def processor() -> float:
    """Return the processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rows_of(spec: str, most: int, *, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Read training rows and held-out rows as float32."""
    name, plus, _ = spec.partition("+")
    X = common.raw(name).astype(np.float32)
    rng = np.random.default_rng(0)
    X = X[rng.permutation(len(X))[: most // 10 if quick else most]]
    if plus:
        X += rng.uniform(size=X.shape).astype(np.float32)
    held_out = len(X) // 7
    return X[held_out:], X[:held_out]


def measured(
    X: np.ndarray, held_out: np.ndarray, k: int, seed: int, args: Any, kind: Any
) -> dict[str, float]:
    """Fit a mixture; return its figures."""
    model = shoal.TruncatedGaussianMixture(k, random_state=seed, n_jobs=args.threads, **kind)
    begun = processor()
    model.fit(X)
    took = processor() - begun
    figures = {"held out": model.score(held_out), "train": model.lower_bound_, "s": took}
    return figures | {"iterations": model.n_iter_, "iteration": model.timings_["sweeps"] / model.n_iter_}


def compared(spec: str, k: int, most: int, args: Any) -> list[dict[str, Any]]:
    """Compare all covariances on one set."""
    X, held_out = rows_of(spec, most, quick=args.quick)
    k = k // 10 if args.quick else k
    kinds: list[dict[str, Any]] = [{"covariance_type": "diag"}]
    kinds += [{"covariance_type": name} for name in args.covariances]
    kinds += [{"covariance_type": "factor", "n_factors": h} for h in args.factors if h < X.shape[1]]
    found: list[list[dict[str, float]]] = [[] for _ in kinds]
    for seed in range(args.seeds):
        for kind, runs in zip(kinds, found, strict=True):
            runs.append(measured(X, held_out, k, seed, args, kind))
    table = []
    for kind, runs in zip(kinds, found, strict=True):
        row: dict[str, Any] = {"set": spec, "rows": len(X), "held-out rows": len(held_out)}
        row |= {"columns": X.shape[1], "K": k, "covariance": kind["covariance_type"]}
        row |= {"factors": kind.get("n_factors", 0), "seeds": args.seeds}
        row |= {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
        pairs = list(zip(runs, found[0], strict=True))
        row["to diag"] = float(np.mean([run["held out"] - diag["held out"] for run, diag in pairs]))
        row["least to diag"] = min(run["held out"] - diag["held out"] for run, diag in pairs)
        for name, to in (("s", "s to diag"), ("iteration", "iteration to diag")):
            row[to] = common.median(run[name] / diag[name] for run, diag in pairs)
        table.append(row)
    print(common.table(table, COLUMNS), file=sys.stderr, flush=True)
    return table


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--sets", nargs="+", default=[name for name, _, _ in SETS])
    parser.add_argument("--factors", nargs="+", type=int, default=list(FACTORS))
    parser.add_argument(
        "--covariances", nargs="*", default=[], choices=["spherical", "tied", "full"], help="further types"
    )
    parser.add_argument("--seeds", type=int, default=2, help="fits of each set (default 2)")
    parser.add_argument("--threads", type=int, default=1)
    common.add_options(parser, quick="a tenth of the rows and components, no result file")
    args: argparse.Namespace = parser.parse_args()
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "shoal"])
    table = [row for spec, k, most in SETS if spec in args.sets for row in compared(spec, k, most, args)]
    print("\n" + common.table(table, COLUMNS))
    for row in table:
        if row["factors"]:
            line = (
                f"{row['to diag']:+.2f} nats per held-out row to diag (least {row['least to diag']:+.2f}), "
            )
            line += f"in {row['s to diag']:.2f} of its seconds"
            head[f"{row['set']}, K = {row['K']}, {row['factors']} factors"] = line
    common.keep("factor-mixture", head, table, args.csv, args.quick)


if __name__ == "__main__":
    main()
