"""All defaults against all defaults: ``KMeans`` and ``MiniBatchKMeans`` of shoal and of scikit-learn.

Both classes get the number of clusters, the random state and one thread, and nothing else. ``inertia``: the
mean final inertia of shoal relative to that of scikit-learn, both computed in float64 from the centers;
``low`` and ``high``: the same for the lowest and highest of the random states. ``seconds`` and ``theirs``:
mean processor seconds of a fit. ``time``: their ratio. Sets in `init.SCALED` have columns of very different
ranges and are standardized.

    python benches/python/against_sklearn.py
    python benches/python/against_sklearn.py --methods MiniBatchKMeans --data shuttle_49k:100
"""

from __future__ import annotations

import resource
import warnings
from typing import Any

import _common as common
import numpy as np
import shoal
import sklearn.cluster
from init import standardized
from threadpoolctl import threadpool_limits

SETS = (
    "mnist_70k:10",
    "usps_11k:50",
    "letter_20k:26",
    "letter_20k:500",
    "wordvec_ppmi_svd100:100",
    "fsdd_logmel40_spkA:50",
    "fsdd_logmel40_spkA:300",
    "sift_bsds_trainval:100",
    "resnet18_cifar_16k:20",
    "aloi_27d_50k:50",
    "campaign_41k:100",
    "cover_286k:100",
    "shuttle_49k:100",
    "shuttle_49k:1000",
    "http_567k:20",
    "kddcup99_10pct_494k:100",
    "skin_245k:50",
    "bsds_pixels_rgb:64",
    "uk_accidents_lnglat_140k:100",
    "uk_accidents_lnglat_140k:1000",
)
METHODS = ("KMeans", "MiniBatchKMeans")


def processor() -> float:
    """Return the processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# For the whole run: idle threads of BLAS spin, which counts as processor time.
@threadpool_limits.wrap(limits=1)
def measure(spec: str, method: str, rounds: int) -> dict[str, Any]:
    """Return the line of the table for one set, number of clusters and method."""
    name, X, k = common.load(f"{spec}:f32")
    X = standardized(name, X)
    ends: dict[str, list[float]] = {"shoal": [], "sklearn": []}
    seconds: dict[str, list[float]] = {"shoal": [], "sklearn": []}
    for seed in range(rounds):
        for library, module in (("shoal", shoal), ("sklearn", sklearn.cluster)):
            model = getattr(module, method)(k, random_state=seed)
            if library == "shoal":
                model.set_params(n_jobs=1)
            begun = processor()
            model.fit(X)
            seconds[library].append(processor() - begun)
            ends[library].append(common.objective(X, model.cluster_centers_))
    line: dict[str, Any] = {"method": method, "data": name, "n": len(X), "d": X.shape[1], "k": k}
    for column, of in (("inertia", np.mean), ("low", np.min), ("high", np.max)):
        line[column] = float(of(ends["shoal"]) / of(ends["sklearn"]))
    line |= {"seconds": float(np.mean(seconds["shoal"])), "theirs": float(np.mean(seconds["sklearn"]))}
    return line | {"time": line["seconds"] / line["theirs"]}


COLUMNS = {"method": "", "data": "", "n": "d", "d": "d", "k": "d"}
COLUMNS |= dict.fromkeys(("inertia", "low", "high"), ".4f") | {
    "seconds": ".2f",
    "theirs": ".2f",
    "time": ".2f",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="+", default=list(SETS), metavar="NAME:K")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--rounds", type=int, default=3, help="random states (default 3)")
    common.add_options(parser, quick="two sets, one random state, no result file")
    args = parser.parse_args()
    if args.quick:
        args.data, args.rounds = ["letter_20k:26", "shuttle_49k:100"], 1
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "scikit-learn", "shoal"])
    rows = []
    for spec in args.data:
        part = [measure(spec, method, args.rounds) for method in args.methods]
        print("\n" + common.table(part, COLUMNS), flush=True)
        rows += part
    common.keep("against-sklearn", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
