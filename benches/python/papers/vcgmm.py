"""Truncated mixtures: the experiments of Hirschberger, Forster & Lücke (arXiv 1810.00803, 2018).

``methods``: time, quantization error on all rows (relative to k-means++ with Lloyd's algorithm, equation 9)
and distances of var-GMM-S (all rows), vc-GMM and weighted k-means on the same lightweight coresets, our own
k-means and that of scikit-learn; then the vc-GMM that is nearest to an error of 10%, and each vc-GMM against
k-means on the same coreset, with its own seeding and with that of vc-GMM.
``growth``: seconds of an iteration as the number of components doubles, on a coreset and on all rows.
``initial``: searches before the first means are moved, and the random component, with few features.
``densities``: log-likelihood of held-out rows against scikit-learn's ``GaussianMixture``, which gets float64
rows.
``defaults``: every stop rule of the mixture, our k-means with its default seeds and with AFK-MC2 seeds, and
both on a coreset, on ten sets. The defaults of the mixture were tuned on the first three. Errors are relative
to our k-means.

`random start` is the start of the paper; all others start in cells. `hard` assigns every row to one
component, which makes it k-means with few distances. `k-means++` marks mixtures with plain k-means++ seeds,
which heavy tails need; the others have AFK-MC2 seeds with a chain of 20.

Time includes seeding and coresets. Mixtures stop by the rule of the paper (a change of the bound by 1e-4),
except in `densities` and `defaults`, where they stop by the default rule or the rule that a line names.
Errors and ratios are taken seed by seed, in one run. `distances saved` counts ``n k`` for every sweep of
k-means and for plain k-means++ seeding, as the paper does. `measured saved` counts the distances that our
k-means measured with its bounds (without seeding). The table is saved after every set, so an interrupt loses
only the current set.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common
import datasets

#: Sets and numbers of components of the experiment, those with the shortest sweeps first.
SETS = (
    "uk_accidents_lnglat_140k:500",
    "fsdd_logmel40_spkA:500",
    "kddcup:500",
    "cifar10_test10k_rgb:500",
    "sift_bsds_trainval:1000",
    "sift_bsds_trainval:4000",
    "patches:2000",
)
#: Sets of the comparison of defaults, some cut to a number of rows. The default stop rule and its tolerance
#: were tuned on the first three.
DEFAULTS = (
    "sift_bsds_trainval@60000:1000",
    "fsdd_logmel40_spkA:500",
    "uk_accidents_lnglat_140k:500",
    "sift_bsds_trainval@60000:4000",
    "cover_286k@100000:4000",
    "mnist_70k@20000:200",
    "aloi_27d_50k:300",
    "wordvec_ppmi_svd100:300",
    "cover_286k@100000:500",
    "letter_20k:200",
)
#: Sets of densities, with few components.
DENSITIES = (
    "letter_20k:26",
    "fsdd_logmel40_spkA:50",
    "aloi_27d_50k:50",
    "cover_286k:50",
    "wordvec_ppmi_svd100:30",
    "skin_245k:20",
)
#: Cached by `datasets.py`, which also scales them.
MADE = ("kddcup", "patches")
CORESETS = tuple(2**power for power in range(12, 17))


def rows_of(name: str, quick: bool) -> np.ndarray:
    """Read the rows of a set as float32, as the experiment uses them; of ``name@n`` the first n."""
    name, _, most = name.partition("@")
    if name in MADE:
        return np.asarray(datasets.parts_of(name, quick=quick)[0])
    X = common.raw(name).astype(np.float32)
    if name.startswith("cifar10"):
        # As in the paper: pixels are integers, and many are equal.
        X += np.random.default_rng(0).uniform(size=X.shape).astype(np.float32)
    n = 4000 if quick else int(most or len(X))
    return np.ascontiguousarray(X[np.random.default_rng(0).permutation(len(X))[:n]])


# ---------------------------------------------------------------- the worker's side


class Handler:
    """The worker: fits of one library."""

    def __init__(self, library: str, threads: int) -> None:
        self._library, self._threads = library, threads
        self._rows: dict[tuple[str, bool], np.ndarray] = {}
        # Imports at the first fit do not count as its time.
        few = np.random.default_rng(0).uniform(size=(200, 2)).astype(np.float32)
        for method in ("mixture", "lloyd") if library == "shoal" else ("sklearn",):
            getattr(self, method)(few, 5, 0)
        self.density(few, 2, 0, "diag")

    def __call__(self, name: str, quick: bool, method: str, k: int, seed: int, given: dict[str, Any]) -> Any:
        """Fit once: seconds, steps, distances (None if unknown), and quantization error."""
        key = (name, quick)
        if key not in self._rows:
            self._rows = {key: rows_of(name, quick)}
        X = self._rows[key]
        begun = time.perf_counter()
        centers, steps, distances, phases = getattr(self, method)(X, k, seed, **given)
        seconds = time.perf_counter() - begun
        if self._library == "shoal":
            import shoal

            error = shoal.metrics.inertia(X, centers)
        else:
            error = common.objective(X, centers)
        return {"s": seconds, "steps": steps, "distances": distances, "error": error, **phases}

    def sklearn(self, X: Any, k: int, seed: int) -> Any:
        """Lloyd's algorithm after greedy k-means++."""
        from sklearn.cluster import KMeans

        model = KMeans(k, n_init=1, random_state=seed).fit(X)
        return model.cluster_centers_, model.n_iter_, len(X) * k * (1 + model.n_iter_), {}

    def lloyd(self, X: Any, k: int, seed: int, weights: Any = None, **params: Any) -> Any:
        """Our k-means, with plain sweeps or with the bounds that it chooses."""
        import shoal

        given = {"init": "k-means++", "random_state": seed, "n_jobs": self._threads, **params}
        model = shoal.KMeans(k, **given).fit(X, sample_weight=weights)
        # Bounds skip most of the later distances. Distances of the seeding are not counted.
        measured = {"measured": int(model.history_["n_distances"].sum())}
        measured["converged"] = model.stop_reason_ != "max-iter"
        plain = len(weights if weights is not None else X) * k * (1 + model.n_iter_)
        return model.cluster_centers_, model.n_iter_, plain, {**model.timings_, **measured}

    def mixture(self, X: Any, k: int, seed: int, **params: Any) -> Any:
        """Truncated EM."""
        import shoal

        given = {"stopping": "relative", "random_state": seed, "n_jobs": self._threads, **params}
        model = shoal.TruncatedGaussianMixture(k, **given).fit(X)
        measured = {"measured": model.n_distances_, "converged": model.converged_}
        return model.means_, model.n_iter_, model.n_distances_, {**model.timings_, **measured}

    def coreset(self, X: Any, k: int, seed: int, size: int, **params: Any) -> Any:
        """Weighted k-means on a lightweight coreset."""
        import shoal

        drawn = shoal.lightweight_coreset(X, size, random_state=seed, n_jobs=self._threads)
        return self.lloyd(drawn.points, k, seed, drawn.weights, **params)

    def density(self, X: Any, k: int, seed: int, kind: str) -> Any:
        """Return the mean log-likelihood of a held-out tenth of the rows, and seconds."""
        held_out = len(X) // 10
        if self._library == "sklearn":
            # With float32 rows its covariances can become negative.
            X = X.astype(np.float64)
        begun = time.perf_counter()
        if self._library == "shoal":
            import shoal

            kinds = {"covariance_type": kind, "n_jobs": self._threads}
            model: Any = shoal.TruncatedGaussianMixture(k, random_state=seed, **kinds)
        else:
            from sklearn.mixture import GaussianMixture

            model = GaussianMixture(k, covariance_type=kind, random_state=seed)
        model.fit(X[held_out:])
        seconds = time.perf_counter() - begun
        found = {"fit s": seconds, "score": float(np.mean(model.score_samples(X[:held_out])))}
        return X[:k], model.n_iter_, None, found


# ---------------------------------------------------------------- experiments


def methods(k: int, n: int, args: argparse.Namespace) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """List label, library, method and parameters of all methods to compare."""
    yield "km++ Lloyd", "shoal", "lloyd", {}
    if not args.without_sklearn:
        yield "scikit-learn", "sklearn", "sklearn", {}
    yield "var-GMM-S", "shoal", "mixture", {}
    yield "var-GMM-S, random start", "shoal", "mixture", {"start": "random"}
    yield "var-GMM-S, hard", "shoal", "mixture", {"n_active": 1, "n_neighbors": 15}
    for size in (1024,) if args.quick else CORESETS:
        # Coresets of fewer than four rows per component are left out.
        if 4 * k <= size < n:
            yield f"vc-GMM {size}", "shoal", "mixture", {"coreset_size": size}
            seeded = {"coreset_size": size, "init": "plain-k-means++"}
            yield f"vc-GMM k-means++ {size}", "shoal", "mixture", seeded
            yield f"coreset k-means {size}", "shoal", "coreset", {"size": size}
            yield f"coreset afk-mc2 k-means {size}", "shoal", "coreset", {"size": size, "init": "afk-mc2"}


def compare(workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the main table."""
    table = []
    for spec in args.data or SETS:
        name, k = spec.split(":")[0], int(spec.split(":")[1])
        n = len(rows_of(name, args.quick))
        found: dict[str, list[dict[str, Any]]] = {}
        begun = time.monotonic()
        for seed in range(args.seeds):
            if seed > 0 and time.monotonic() - begun > args.budget:
                print(f"{spec}: no further seed, {args.budget:g} s are over", flush=True)
                break
            for label, library, method, params in methods(k, n, args):
                if library == "sklearn" and seed >= args.sklearn_seeds:
                    continue
                run = workers[library].call(name, args.quick, method, k, seed, params)
                found.setdefault(label, []).append(run)
                print(f"{spec} {seed} {label}: {run['s']:.2f} s, error {run['error']:.6g}", flush=True)
        base, other = found["km++ Lloyd"], found.get("scikit-learn", [])
        part = [summary(spec, label, runs, base, other) for label, runs in found.items()]
        part += compared(spec, found, part)
        print("\n" + common.table(part, COLUMNS) + "\n", flush=True)
        table += part
        args.keep(table)
    return table


def compared(spec: str, found: dict[str, list[Any]], part: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the vc-GMM at about 10% of error, and each vc-GMM with k-means on the same coreset."""
    lines = [line for line in part if line["method"].startswith("vc-GMM ")]
    if not lines:
        return []
    near = min(lines, key=lambda line: abs(line["relative error"] - 0.1))
    table = [{**near, "method": f"about 10% error: {near['method']}"}]
    for line in lines:
        mine, size = line["method"], line["method"].split()[-1]
        others = (f"coreset k-means {size}", f"coreset afk-mc2 k-means {size}")
        table += [summary(spec, f"{mine} against {it}", found[mine], found[it], []) for it in others]
    return table


def summary(spec: str, label: str, runs: list[Any], base: list[Any], other: list[Any]) -> dict[str, Any]:
    """Make a line of the main table, with ratios to `base` and to scikit-learn, seed by seed."""
    pairs = list(zip(base, runs, strict=False))
    errors = [b["error"] / a["error"] - 1 for a, b in pairs]
    measured = all("measured" in run for run in (*runs, *base))
    return {
        "data": spec,
        "method": label,
        "seeds": len(runs),
        "s": common.median(run["s"] for run in runs),
        "seeding s": common.median(run.get("seeding", float("nan")) for run in runs),
        "relative error": float(np.mean(errors)),
        "time saved": common.median(a["s"] / b["s"] for a, b in pairs),
        "against scikit-learn": common.median(a["s"] / b["s"] for a, b in zip(other, runs, strict=False))
        if other
        else None,
        "distances saved": common.median(a["distances"] / b["distances"] for a, b in pairs),
        "measured saved": common.median(a["measured"] / b["measured"] for a, b in pairs)
        if measured
        else None,
        "steps": common.median(run["steps"] for run in runs),
        "distances": common.median(run["distances"] for run in runs),
        "errors seed by seed": " ".join(f"{error:.2%}" for error in errors),
    }


def growth(workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the seconds per iteration, on a coreset and on all rows, as the components double."""
    table: list[dict[str, Any]] = []
    name = "sift_bsds_trainval"
    n = len(rows_of(name, args.quick))
    for size in (min(n, 4000 if args.quick else 2**16), None):
        before = None
        for k in (1000, 2000, 4000, 8000, 16_000, 32_000):
            if args.quick and k > 1000:
                break
            # The start of the paper, whose first search is like all others.
            params = {"coreset_size": size, "max_iter": 12, "tol": 0.0, "init": "random", "start": "random"}
            # All rows take so long that there is only one seed.
            runs = [
                workers["shoal"].call(name, args.quick, "mixture", k, seed, params)
                for seed in range(args.seeds if size else 1)
            ]
            each = common.median(run["sweeps"] / run["steps"] for run in runs)
            looks = [run["distances"] / run["steps"] / (size or n) for run in runs]
            line = {
                "rows": f"coreset of {size}" if size else f"all {n}",
                "components": k,
                "s an iteration": each,
            }
            line |= {"times the one before": each / before if before else None}
            table.append({**line, "distances a row": common.median(looks)})
            print(common.table(table[-1:], GROWTH), flush=True)
            before = each
            args.keep(table)
    print("\n" + common.table(table, GROWTH) + "\n")
    return table


def initial(workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure initial searches and the random component, with few features."""
    table = []
    for name in ("uk_accidents_lnglat_140k", "http_567k"):
        k = 500
        seeds = range(args.seeds)
        # On the larger set a fit to all rows takes minutes.
        size = {} if name.startswith("uk") else {"coreset_size": 2**12 if args.quick else 2**16}
        base = [workers["shoal"].call(name, args.quick, "lloyd", k, seed, {}) for seed in seeds]
        for start in ("random", "cells"):
            for active, explore in ((5, 0), (5, 1), (3, 0), (3, 1)):
                for searches in range(5) if start == "random" else (0, 2):
                    params = {"n_active": active, "n_neighbors": active, "explore": explore, "start": start}
                    params |= {"n_initial_e_steps": searches, **size}
                    runs = [
                        workers["shoal"].call(name, args.quick, "mixture", k, seed, params) for seed in seeds
                    ]
                    line = summary(f"{name}:{k}", f"{active} + {explore}, {start}", runs, base, [])
                    table.append({"initial searches": searches, **line})
                args.keep(table)
    print("\n" + common.table(table, {"initial searches": "d", **COLUMNS}) + "\n")
    return table


def defaults(workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare the stop rules by error and time, next to k-means."""
    table = []
    for spec in args.data or DEFAULTS:
        name, k = spec.split(":")[0], int(spec.split(":")[1])
        k = min(k, 100) if args.quick else k
        n = len(rows_of(name, args.quick))
        # At least four rows per component, and a small share of all rows if that is enough.
        size = max(4 * k, min(2**14, n // 4))
        rivals: list[tuple[str, str, dict[str, Any]]] = [
            ("KMeans", "lloyd", {"init": "auto"}),
            ("KMeans, afk-mc2", "lloyd", {"init": "afk-mc2"}),
            *(
                (f"mixture, {rule}", "mixture", {"stopping": rule})
                for rule in ("auto", "relative", "per-weight")
            ),
            *(
                (f"KMeans{seeds} on a coreset of {size}", "coreset", {"size": size, "init": init})
                for seeds, init in (("", "auto"), (", afk-mc2,", "afk-mc2"))
            ),
            (f"mixture on a coreset of {size}", "mixture", {"stopping": "auto", "coreset_size": size}),
        ]
        found: dict[str, list[dict[str, Any]]] = {}
        begun = time.monotonic()
        for seed in range(args.seeds):
            if seed > 0 and time.monotonic() - begun > args.budget:
                break
            for label, method, params in rivals:
                run = workers["shoal"].call(name, args.quick, method, k, seed, params)
                found.setdefault(label, []).append(run)
        base = found["KMeans"]
        for label, runs in found.items():
            line = summary(spec, label, runs, base, [])
            table.append({**line, "converged": sum(run["converged"] for run in runs)})
        print(common.table(table[-len(rivals) :], DEFAULT) + "\n", flush=True)
        args.keep(table)
    return table


def densities(workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure log-likelihoods of held-out rows."""
    table = []
    for spec in args.data or DENSITIES:
        name, k = spec.split(":")[0], int(spec.split(":")[1])
        for kind in ("spherical", "diag"):
            pairs, failed = [], []
            for seed in range(args.seeds):
                given = (name, args.quick, "density", k, seed, {"kind": kind})
                ours = workers["shoal"].call(*given)
                try:
                    pairs.append((ours, workers["sklearn"].call(*given)))
                except RuntimeError as error:
                    # scikit-learn can fail on a set; our mixture must not.
                    failed.append(f"seed {seed}: {error}")
                    pairs.append((ours, None))
            whole = [(a, b) for a, b in pairs if b is not None]
            line: dict[str, Any] = {"data": spec, "kind": kind, "seeds": len(pairs)}
            line["ours"] = float(np.mean([a["score"] for a, _ in pairs]))
            line["s"] = common.median(a["fit s"] for a, _ in pairs)
            if whole:
                theirs = float(np.mean([b["score"] for _, b in whole]))
                line["scikit-learn"] = theirs
                # Over the seeds that both have.
                line["better by"] = (float(np.mean([a["score"] for a, _ in whole])) - theirs) / abs(theirs)
                line["times faster"] = common.median(b["fit s"] / a["fit s"] for a, b in whole)
            line["failed"] = "; ".join(failed)
            table.append(line)
            print(common.table(table[-1:], DENSITY), flush=True)
        args.keep(table)
    print("\n" + common.table(table, DENSITY) + "\n")
    return table


COLUMNS = {
    "data": "",
    "method": "",
    "seeds": "d",
    "s": ".3f",
    "seeding s": ".3f",
    "relative error": ".2%",
    "time saved": ".1f",
    "against scikit-learn": ".1f",
    "distances saved": ".1f",
    "measured saved": ".1f",
    "steps": ".0f",
    "distances": ".3g",
    "errors seed by seed": "",
}
DEFAULT = {
    "data": "",
    "method": "",
    "seeds": "d",
    "s": ".3f",
    "relative error": ".2%",
    "time saved": ".2f",
    "steps": ".0f",
    "converged": "d",
    "errors seed by seed": "",
}
GROWTH = {
    "rows": "",
    "components": "d",
    "s an iteration": ".4f",
    "times the one before": ".2f",
    "distances a row": ".1f",
}
DENSITY = {
    "data": "",
    "kind": "",
    "seeds": "d",
    "ours": ".4f",
    "scikit-learn": ".4f",
    "better by": ".2%",
    "s": ".2f",
    "times faster": ".1f",
    "failed": "",
}


def picture(path: Path, table: list[dict[str, Any]]) -> None:
    """Draw time saved over relative error, with one panel per set."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line["data"] for line in table))
    figure = Figure(figsize=(4.2 * len(names), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        lines = [
            line
            for line in table
            if line["data"] == name and "against" not in line["method"] and ":" not in line["method"]
        ]
        for kind, style in (
            ("vc-GMM", "o-"),
            ("vc-GMM k-means++", "o:"),
            ("coreset k-means", "s--"),
            ("coreset afk-mc2 k-means", "d:"),
            ("var-GMM-S", "*"),
            ("var-GMM-S, random start", "<"),
            ("var-GMM-S, hard", ">"),
            ("scikit-learn", "x"),
        ):
            mine = [line for line in lines if line["method"].rstrip("0123456789 ") == kind]
            axes.plot(
                [100 * line["relative error"] for line in mine],
                [line["time saved"] for line in mine],
                style,
                label=kind if mine else None,
            )
        axes.axhline(1.0, color="gray", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_title(name, fontsize="small")
        axes.set_xlabel("relative error, %")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize="x-small")
    figure.axes[0].set_ylabel("time saved against k-means++ with Lloyd")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"drawn as {path}")


def growth_picture(path: Path, table: list[dict[str, Any]]) -> None:
    """Draw the seconds of an iteration over the number of components."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for rows in dict.fromkeys(line["rows"] for line in table):
        lines = [line for line in table if line["rows"] == rows]
        k = np.array([line["components"] for line in lines])
        seconds = np.array([line["s an iteration"] for line in lines])
        axes.plot(k, seconds, "o-", label=f"truncated EM, {rows}")
        axes.plot(k, seconds[0] * k / k[0], "--", color="gray")
    axes.plot([], [], "--", color="gray", label="in proportion")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("components")
    axes.set_ylabel("seconds an iteration")
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"drawn as {path}")


EXPERIMENTS = {
    "methods": compare,
    "growth": growth,
    "initial": initial,
    "densities": densities,
    "defaults": defaults,
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("experiment", choices=list(EXPERIMENTS), nargs="?", default="methods")
    parser.add_argument("--data", nargs="+", metavar="NAME:K", help="sets and numbers of components")
    parser.add_argument("--seeds", type=int, help="seeds of a method (default 5, of defaults 3)")
    parser.add_argument(
        "--sklearn-seeds", type=int, default=1, help="seeds of scikit-learn's k-means (default 1)"
    )
    parser.add_argument("--without-sklearn", action="store_true", help="leave out scikit-learn's k-means")
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="begin no further seed of a set after so long (default: never, of defaults 20)",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plots", help="folder of the figures (default: likewise)")
    common.add_options(parser, quick="4000 rows, 1 seed, no result file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        warnings.simplefilter("ignore")
        common.serve(Handler(args.worker, args.threads))
        return
    short = args.experiment == "defaults"
    args.seeds = args.seeds or (3 if short else 5)
    args.budget = args.budget or (20.0 if short else float("inf"))
    if args.quick:
        args.seeds = 1
    head = common.description(["numpy", "shoal", "scikit-learn"]) | {"threads": str(args.threads)}
    common.announce(head)
    kind = f"vcgmm-{args.experiment}" + ("" if args.threads == 1 else f"-{args.threads}-threads")
    path = args.csv or (None if args.quick else str(common.results(kind, "csv")))
    args.keep = lambda table: common.keep(kind, head, table, path, args.quick) if path else None
    workers = {}
    with common.closing(workers.values()):
        for library in ("shoal", "sklearn"):
            arguments = (library, "--threads", str(args.threads))
            workers[library] = common.Worker(__file__, *arguments, threads=args.threads)
        table = EXPERIMENTS[args.experiment](workers, args)
    common.keep(kind, head, table, path, args.quick)
    if args.experiment in ("methods", "growth") and (args.plots or not args.quick):
        draw = picture if args.experiment == "methods" else growth_picture
        draw(common.results(kind, "png", folder=args.plots), table)


if __name__ == "__main__":
    main()
