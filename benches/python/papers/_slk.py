"""The part ``defaults`` of ``slk.py``, and functions that its parts share."""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common

#: Sets on which the rule for the default weight was tuned, and other sets.
TUNED = (
    "digits",
    "usps_11k",
    "mnist_70k",
    "fsdd_logmel40_spkA",
    "resnet18_cifar_16k",
    "coil20_1440",
    "letter_20k",
    "words by speakers",
    "news20_counts",
    "sipu/a1",
    "sipu/d31",
    "sipu/a3",
)
OTHERS = (
    "cifar10_test10k_rgb",
    "pairs of digits, 25",
    "pairs of digits, 40",
    "stc_stackoverflow_counts",
    "dblp_titles_counts",
    "uci/statlog",
    "uci/yeast",
    "other/chameleon_t7_10k",
    "sipu/r15",
    "sipu/s4",
    "sipu/worms_2",
    "shuttle_49k",
)
#: Suites of small sets, whose rows are standardized instead of scaled to length 1.
BATTERIES = ("sipu", "fcps", "uci", "other")


def timed(work: Callable[..., Any], *args: Any, **more: Any) -> tuple[float, Any]:
    """Return the seconds of a call, and its result."""
    begun = time.perf_counter()
    result = work(*args, **more)
    return time.perf_counter() - begun, result


def labeled(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in their compute type, and their classes."""
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return digits.data.astype(np.float32), digits.target
    with np.load(Path(os.environ["SHOAL_DATA"]) / f"{name}.npz") as archive:
        return np.ascontiguousarray(archive["X"], dtype=np.float32), archive["y"]


def of_length_1(X: np.ndarray) -> np.ndarray:
    """Return rows as a fit uses them."""
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)


def verdict(holds: bool, text: str) -> str:
    """Format whether a claim holds."""
    return f"{'holds' if holds else 'does not hold'}: {text}"


#: Columns of the table of means.
SHOWN = {
    "data": "",
    "what": "",
    "start": "",
    "neighbors": "d",
    "weight": "g",
    "runs": "d",
    "collapsed": "d",
    "nmi": ".3f",
    "best nmi": ".3f",
    "acc": ".3f",
    "best acc": ".3f",
    "energy": ".6g",
    "seconds": ".2f",
}


def scores(y: np.ndarray, model: Any) -> dict[str, Any]:
    """Return scores of the labels, their energy, and whether a cluster was lost."""
    from shoal.metrics import clustering_accuracy, normalized_mutual_info_score

    return {
        "nmi": normalized_mutual_info_score(y, model.labels_, average_method="geometric"),
        "acc": clustering_accuracy(y, model.labels_),
        "energy": getattr(model, "energy_", None),
        "collapsed": getattr(model, "collapsed_", None),
    }


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Summarize each method, graph and weight: mean and best over the seeds, and collapsed runs."""
    same: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    names = ("data", "what", "start", "neighbors", "weight")
    for row in rows:
        same.setdefault(tuple(row[name] for name in names), []).append(row)
    table = []
    for about, runs in same.items():
        row: dict[str, Any] = {"part": "quality, means", **dict(zip(names, about, strict=True))}
        row |= {"runs": len(runs), "collapsed": sum(bool(run["collapsed"]) for run in runs)}
        for name in ("nmi", "acc"):
            values = [run[name] for run in runs]
            row |= {name: float(np.mean(values)), f"best {name}": max(values)}
        if runs[0]["energy"] is not None:
            row["energy"] = float(np.mean([run["energy"] for run in runs]))
        row["seconds"] = float(np.mean([run["seconds"] for run in runs]))
        table.append(row)
    return table


def classes(name: str, most: int) -> tuple[Any, np.ndarray, bool]:
    """Return at most a number of random rows, their classes, and whether they are scaled to length 1."""
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfTransformer

    folder = Path(os.environ["SHOAL_DATA"])
    rng = np.random.default_rng(0)
    scaled = True
    if name.startswith("pairs of digits"):
        images, digits = labeled("usps_11k")
        pairs = rng.choice(100, int(name.rsplit(maxsplit=1)[-1]), replace=False)
        y = np.repeat(np.arange(len(pairs)), 150)
        halves = [
            [rng.choice(np.flatnonzero(digits == digit)) for digit in side[y]]
            for side in (pairs // 10, pairs % 10)
        ]
        X = np.hstack([images[half] for half in halves])
    elif name.endswith("_counts"):
        with np.load(folder / f"{name}.npz") as archive:
            parts = (archive["data"].astype(np.float64), archive["indices"], archive["indptr"])
            counts, y = csr_matrix(parts, shape=tuple(archive["shape"])), archive["y"]
        X = csr_matrix(TfidfTransformer().fit_transform(counts), dtype=np.float32)
    elif name.split("/", maxsplit=1)[0] in BATTERIES:
        with np.load(folder / "gagolews_a.npz") as archive:
            X, y = archive[f"{name}/X"].astype(np.float64), archive[f"{name}/y0"]
        X, y = X[y > 0], y[y > 0]
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
        scaled = False
    elif name == "words by speakers":
        with np.load(folder / "fsdd_logmel40_spkA.npz") as archive:
            X, y = archive["X"].astype(np.float32), 3 * archive["y"].astype(int) + archive["spk"]
    else:
        X, y = labeled(name)
    picked = np.sort(rng.permutation(X.shape[0])[:most])
    return X[picked], np.unique(y[picked], return_inverse=True)[1], scaled


def defaults(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare fits with default parameters with their starts, and with k-means."""
    import shoal
    from scipy.sparse import csr_matrix
    from shoal._kmodes.spectral import spectral_labels
    from sklearn.preprocessing import normalize

    rows: list[dict[str, Any]] = []
    for name in args.default_sets:
        X, y, scaled = classes(name, args.most_rows)
        seen = normalize(X) if scaled else X
        k = len(np.unique(y))
        about = {"part": "defaults", "data": name, "found on": name in TUNED}
        about |= {"rows": X.shape[0], "columns": X.shape[1], "clusters": k}
        for seed in range(args.default_seeds):

            def kept(
                what: str,
                seconds: float,
                model: Any,
                about: dict[str, Any] = about,
                y: np.ndarray = y,
                seed: int = seed,
            ) -> None:
                row = {**about, "what": what, "start": None, "neighbors": None, "seed": seed}
                row |= {"weight": getattr(model, "laplacian_weight_", None), "seconds": seconds}
                rows.append({**row, **scores(y, model)})

            model = shoal.KMeans(k, random_state=seed, n_jobs=args.threads)
            kept("k-means", *timed(model.fit, seen))
            begun = time.perf_counter()
            graph = shoal.knn_graph(seen, 5, n_jobs=args.threads)
            graph.data[:] = 1
            labels = spectral_labels(csr_matrix((graph + graph.T) / 2), k, seed=seed, n_jobs=args.threads)
            if labels is not None:
                found = labels >= 0
                if not found.all():
                    shares = csr_matrix((np.ones(found.sum()), (labels[found], np.flatnonzero(found))))
                    middles = shares @ csr_matrix(seen)[: shares.shape[1]]
                    middles = np.asarray(middles.todense()) / np.bincount(labels[found])[:, None]
                    labels[~found] = shoal.nearest(seen[~found], middles)[0]
                plain = argparse.Namespace(labels_=labels)
                kept("spectral", time.perf_counter() - begun, plain)
            fits = {"SLK": {}, "SLK from seeds": {"init": "k-means++"}}
            fits["SLK from seeds, weight 1"] = {"init": "k-means++", "laplacian_weight": 1.0}
            for what, given in fits.items():
                model = shoal.LaplacianKModes(
                    k, normalize=scaled, random_state=seed, n_jobs=args.threads, **given
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    kept(what, *timed(model.fit, X))
        mine = [row for row in rows if row["data"] == name]
        shown = {**SHOWN, "rows": "d", "clusters": "d", "found on": ""}
        shown = {key: shown[key] for key in DEFAULTS_SHOWN}
        table = [{**row, **about, "part": "defaults, means"} for row in means(mine)]
        for row in table:
            row["weight"] = next(one["weight"] for one in mine if one["what"] == row["what"])
        print(common.table(table, shown), flush=True)
    return rows


#: Columns of the table of defaults.
DEFAULTS_SHOWN = (
    "data",
    "found on",
    "rows",
    "clusters",
    "what",
    "weight",
    "runs",
    "collapsed",
    "nmi",
    "acc",
    "seconds",
)


def about_defaults(rows: list[dict[str, Any]]) -> list[str]:
    """Count on how many sets the defaults beat the other methods, by means over the seeds."""
    values: dict[tuple[bool, str], dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        of_set = values.setdefault((row["found on"], row["data"]), {})
        of_set.setdefault(row["what"], []).append((row["nmi"], row["acc"]))
    lines = []
    for tuned, kind in ((True, "on which the weight was found"), (False, "others")):
        sets = [of_set for (found, _), of_set in values.items() if found == tuned]
        for other in ("spectral", "k-means", "SLK from seeds", "SLK from seeds, weight 1"):
            both = [of_set for of_set in sets if other in of_set]
            if not both:
                continue
            for at, score in enumerate(("NMI", "accuracy")):
                gaps = [
                    np.mean([one[at] for one in of_set["SLK"]]) - np.mean([one[at] for one in of_set[other]])
                    for of_set in both
                ]
                ahead, behind = sum(gap > 0.001 for gap in gaps), sum(gap < -0.001 for gap in gaps)
                text = (
                    f"SLK against {other}, {len(both)} sets ({kind}), {score}: ahead on {ahead}, behind on "
                )
                text += f"{behind}; in the mean {np.mean(gaps):+.3f}"
                lines.append(verdict(ahead > behind, text))
    return lines
