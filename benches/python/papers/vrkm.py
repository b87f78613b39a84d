"""Variance-reduced k-means: the experiments of Zhao et al., "Variance reduced k-means clustering", 2018.

``speed``: seconds to the final inertia of batch k-means (scikit-learn's Lloyd), from the same distinct rows
and on the same threads; all methods run one after the other for every start. The time of a model is when it
was made; its inertia is measured in the next sweep, or in a pass that does not count.
``inner``: seconds of an epoch near the end with bounds, with a search at every step, and without steps: the
same epochs from the same centers, interleaved over several rounds.
``variants``: seconds of whole epochs of VRKM, which carries the batch gradient, divided by those of VRKM++:
the same epochs of the first `--variant-rows` rows, because each step of VRKM moves all centers.
``quality``: accuracy, NMI (geometric) and purity of all methods of the paper, with the last model within the
same time.
``rates``: inertia over epochs for several learning rates and epoch sizes.
``doc``: the numbers in the documentation of the class: the final inertia of VRKM++ and exact k-means, and the
epoch and sweep in which they reach the same inertia.
``random``: fits of VRKM++ and of exact k-means from the same random rows, some of which are equal. The
table has their final inertia over that of exact k-means with its default seeding, and clusters without rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common

SPEED = ("sift_bsds_trainval:1000", "cifar10_test10k_rgb:100", "resnet18_cifar_16k:257", "mnist_70k:256")
QUALITY = ("cifar10_test10k_rgb:10", "mnist_70k:10")
RATES = ("mnist_70k:256", "resnet18_cifar_16k:257")
DOC = ("resnet18_cifar_16k:257", "sift_bsds_trainval:1000")
RANDOM = (
    "shuttle_49k:50", "cover_286k:50", "kddcup99_10pct_494k:50", "gagolews_a/sipu/a3:50", "letter_20k:100",
    "skin_245k:100", "uk_accidents_lnglat_140k:100", "mnist_70k:100", "wordvec_ppmi_svd100:200",
)  # fmt: skip
#: Rows of a set of `random`, drawn from all.
RANDOM_ROWS = 50_000
PARTS = ("speed", "inner", "variants", "quality", "rates", "doc", "random")
#: Learning rates relative to `n_clusters / n`: the paper's, the default, and the one that the paper finds
#: faster.
MULTIPLES = (1.0, 3.0, 10.0, 100.0)
SIZES: tuple[float | str, ...] = (0.25, 0.5, 1.0, 2.0, "2^epoch")
#: Results of the paper for its most similar set: seconds of batch k-means divided by those of VRKM++ and
#: VRKM, to the final loss of batch k-means.
PAPER = {
    "sift_bsds_trainval": ("Oxford", 4.14, 2.07),
    "cifar10_test10k_rgb": ("CIFAR-100", 4.30, 2.04),
    "resnet18_cifar_16k": ("Caltech-256", 3.60, 2.00),
}
#: Accuracy, NMI and purity on CIFAR-100, 100 classes; VRKM and VRKM++ are the same.
PAPER_QUALITY = {
    "batch": (0.2148, 0.3701, 0.2410),
    "mini-batch": (0.2122, 0.3546, 0.2267),
    "SGD": (0.1968, 0.3357, 0.2079),
    "nested, no bounds": (0.2155, 0.3592, 0.2303),
    "vrkm": (0.2246, 0.3742, 0.2488),
    "vrkm++": (0.2246, 0.3742, 0.2488),
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "batch": ("KMeans", {"algorithm": "lloyd", "n_init": 1, "tol": 0.0, "max_iter": 100_000}),
    "mini-batch": (
        "MiniBatchKMeans",
        {"max_iter": 100_000, "max_no_improvement": None, "reassignment_ratio": 0.0},
    ),
    "SGD": (
        "MiniBatchKMeans",
        {"batch_size": 1, "max_iter": 100_000, "max_no_improvement": None, "reassignment_ratio": 0.0},
    ),
    "nested, no bounds": ("NestedMiniBatchKMeans", {"bounds": "none"}),
    "nested": ("NestedMiniBatchKMeans", {}),
    "vrkm": ("VarianceReducedKMeans", {"variant": "vrkm", "tol": 0.0, "max_iter": 100_000}),
    "vrkm++": ("VarianceReducedKMeans", {"tol": 0.0, "max_iter": 100_000}),
}

# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._X = np.empty((0, 0), dtype=np.float32)
        # Warnings of empty clusters, because some rows are equal.
        warnings.simplefilter("ignore")

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def data(self, spec: str, rows: int | None) -> None:
        """Read the rows; all methods get them as float32."""
        self._X = np.ascontiguousarray(common.load(spec)[1], dtype=np.float32)[:rows]
        # Warm up pools, kernels and caches.
        if self._library == "sklearn":
            self.sklearn(self._X[:20], 2)
        else:
            self.curve("VarianceReducedKMeans", {"max_iter": 1}, self._X[:20], 0, None, 60.0)

    def sklearn(self, start: np.ndarray, max_iter: int) -> tuple[float, float, int]:
        """Return seconds, inertia and iterations of scikit-learn's Lloyd."""
        from sklearn.cluster import KMeans

        model = KMeans(len(start), init=start, n_init=1, algorithm="lloyd", max_iter=max_iter)
        begun = time.perf_counter()
        model.fit(self._X)
        seconds = time.perf_counter() - begun
        return seconds, common.objective(self._X, model.cluster_centers_), model.n_iter_

    def curve(
        self,
        name: str,
        params: dict[str, Any],
        start: np.ndarray,
        seed: int,
        target: float | None,
        most: float,
        search_always: bool = False,
    ) -> tuple[list[float], list[float], np.ndarray]:
        """Return seconds and inertia after each step, up to a target or time limit, and the final centers."""
        import shoal

        model = getattr(shoal, name)(len(start), init=start, random_state=seed, **params)
        if search_always:
            model._search_always = True
        seconds, before = [], []
        for step in model.iter_fit(self._X):
            seconds.append(step.elapsed)
            before.append(step.objective)
            if step.elapsed >= most or (target is not None and step.objective <= target):
                break
        last = shoal.metrics.inertia(self._X, model.cluster_centers_)
        # A step measures the inertia of the previous model.
        return seconds, [*before[1:], last], model.cluster_centers_

    def budget(
        self, name: str, params: dict[str, Any], start: np.ndarray, seed: int, seconds: float
    ) -> tuple[np.ndarray, float, float, int]:
        """Return labels and inertia of the last centers within the time, the seconds used, and the steps.

        A first step that takes longer counts anyway.
        """
        import shoal

        model = getattr(shoal, name)(len(start), init=start, random_state=seed, **params)
        centers, used, steps = np.asarray(start), 0.0, 0
        for step in model.iter_fit(self._X):
            if steps and step.elapsed > seconds:
                break
            centers, used, steps = model.cluster_centers_, step.elapsed, steps + 1
        model.cluster_centers_ = centers
        return model.predict(self._X), -model.score(self._X), used, steps

    def growing(self, start: np.ndarray, seed: int, rate: float, epochs: int) -> list[float]:
        """Return the inertia after epochs of 2, 4, 8, ... steps."""
        import shoal

        centers, found = start, []
        for epoch in range(epochs):
            model = shoal.VarianceReducedKMeans(
                len(start),
                init=centers,
                learning_rate=rate,
                epoch_size=2 ** (epoch + 1),
                max_iter=1,
                polish=False,
                random_state=seed + epoch,
            ).fit(self._X)
            centers = model.cluster_centers_
            found.append(model.inertia_)
        return found


# ---------------------------------------------------------------- the parent's side


def seconds_to(seconds: list[float], inertia: list[float], target: float) -> float | None:
    """Return the time until the inertia was first as low; None if never."""
    return next((s for s, f in zip(seconds, inertia, strict=True) if f <= target * (1 + 1e-7)), None)


def verdict(holds: bool, text: str) -> str:
    """Format whether a claim holds."""
    return f"{'holds' if holds else 'does not hold'}: {text}"


#: A table, and lines about the claims.
Found = tuple[list[dict[str, Any]], list[str]]


def speed(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> Found:
    """Measure the seconds of each method to the final inertia of batch k-means."""
    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    n = len(X)
    for worker in workers.values():
        worker.call("data", spec, args.rows)
    methods: dict[str, tuple[str, dict[str, Any]]] = {
        "own lloyd": ("KMeans", {"n_init": 1, "tol": 0.0, "max_iter": 300}),
        "vrkm++": ("VarianceReducedKMeans", {"tol": 0.0}),
    }
    for multiple in (1.0, 10.0, 100.0):
        rate = min(1.0, multiple * k / n)
        methods[f"vrkm++ {multiple:g} K/n"] = ("VarianceReducedKMeans", {"tol": 0.0, "learning_rate": rate})
    methods["vrkm++ T=n/2"] = ("VarianceReducedKMeans", {"tol": 0.0, "epoch_size": 0.5})
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(args.seeds):
        start = common.distinct_rows(X, k, seed)
        theirs, target, iterations = workers["sklearn"].call("sklearn", start, 300)
        print(
            f"{name}, seed {seed}: scikit-learn {theirs:.2f} s, {iterations} iterations, {target:.8g}",
            flush=True,
        )
        own = None
        for method, (kind, params) in methods.items():
            seconds, inertia, _ = workers["shoal"].call(
                "curve", kind, params, start, seed, target, 4 * theirs + 1
            )
            took = seconds_to(seconds, inertia, target)
            own = took if method == "own lloyd" else own
            steps = len(seconds)
            row = {"took": took, "steps": steps, "ratio": None if took is None else theirs / took}
            row["own"] = None if took is None or own is None else own / took
            row["end"] = inertia[-1] / target
            found.setdefault(method, []).append(row)
            print(f"  {method}: {took} s, {steps} steps, end {row['end']:.5f}", flush=True)
        found.setdefault("sklearn", []).append(
            {"took": theirs, "steps": iterations, "ratio": 1.0, "end": 1.0}
        )
    table = []
    for method, rows in found.items():
        line: dict[str, Any] = {"data": name, "n": n, "d": X.shape[1], "k": k, "method": method}
        for field in ("took", "ratio", "own"):
            values = [row[field] for row in rows if row.get(field) is not None]
            line[field] = common.median(values) if values else None
            if field != "took" and values:
                line[f"{field} low"], line[f"{field} high"] = min(values), max(values)
        line["never"] = sum(row["took"] is None for row in rows)
        line["steps"] = common.median(row["steps"] for row in rows)
        line["end"] = common.median(row["end"] for row in rows)
        if name in PAPER and method == "vrkm++":
            line["paper"], line["paper ratio"], _ = PAPER[name]
        table.append(line)
    ours = next(line for line in table if line["method"] == "vrkm++")
    lines = []
    for field, wanted, whose in (("ratio", 4.0, "scikit-learn's Lloyd"), ("own", 1.5, "our own Lloyd")):
        value = ours[field]
        text = f"{name}, k = {k}: VRKM++ comes to the inertia that batch k-means ends with "
        text += f"{wanted:g} times as early as {whose}"
        shown = "never" if value is None else f"{value:.2f} times"
        if value is not None:
            shown += f", {ours[f'{field} low']:.2f} to {ours[f'{field} high']:.2f}"
        if ours["never"]:
            shown += f"; {ours['never']} of {args.seeds} starts never did"
        lines.append(
            verdict(value is not None and not ours["never"] and value >= wanted, f"{text} ({shown})")
        )
    return table, lines


def epochs_from(
    worker: common.Worker,
    centers: np.ndarray,
    programs: dict[str, tuple[dict[str, Any], bool]],
    epochs: int,
    rounds: int,
) -> dict[str, list[float]]:
    """Return the seconds of an epoch from given centers per round: the median of all but the first epoch.

    All programs run the same epochs, interleaved in every round.
    """
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, (params, search) in programs.items():
            given = {"tol": 0.0, "max_iter": epochs, **params}
            seconds, _, _ = worker.call(
                "curve", "VarianceReducedKMeans", given, centers, 1, None, float("inf"), search
            )
            found[name].append(float(np.median(np.diff(seconds))))
    return found


def spread_of(ratios: list[float], name: str) -> dict[str, float]:
    """Return the median, minimum and maximum of the ratios over the rounds."""
    return {name: common.median(ratios), f"{name} low": min(ratios), f"{name} high": max(ratios)}


def inner(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> Found:
    """Measure the seconds of epochs near the end, for the ways of finding labels in steps."""
    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    worker = workers["shoal"]
    worker.call("data", spec, args.rows)
    start = common.distinct_rows(X, k, 0)
    late = {"tol": 0.0, "max_iter": 12}
    _, _, centers = worker.call("curve", "VarianceReducedKMeans", late, start, 0, None, float("inf"))
    programs: dict[str, tuple[dict[str, Any], bool]] = {
        "none": ({"epoch_size": 0}, False),
        "bounds": ({}, False),
        "search": ({}, True),
    }
    found = epochs_from(worker, centers, programs, 5, args.rounds)
    rounds = list(zip(found["none"], found["bounds"], found["search"], strict=True))
    ratios = [(search - none) / max(bounds - none, 1e-9) for none, bounds, search in rounds]
    line: dict[str, Any] = {"data": name, "n": len(X), "k": k, "rounds": len(rounds)}
    line |= {f"{program} s": common.median(values) for program, values in found.items()}
    line |= spread_of(ratios, "search / bounds")
    text = f"{name}, k = {k}: steps with bounds are 5 times as fast as with searches "
    text += f"({line['search / bounds']:.1f}, {min(ratios):.1f} to {max(ratios):.1f})"
    return [line], [verdict(line["search / bounds"] >= 5, text)]


def variants(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> Found:
    """Measure the seconds of whole epochs of VRKM and VRKM++ over the same rows."""
    rows = min(args.rows or args.variant_rows, args.variant_rows)
    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[:rows]
    worker = workers["shoal"]
    worker.call("data", spec, rows)
    start = common.distinct_rows(X, k, 0)
    programs: dict[str, tuple[dict[str, Any], bool]] = {
        "vrkm++": ({}, False),
        "vrkm": ({"variant": "vrkm"}, False),
    }
    # The pass of VRKM and all moves of its steps: two whole epochs after a first one.
    found = epochs_from(worker, start, programs, 3, args.rounds)
    ratios = [plain / plus for plus, plain in zip(found["vrkm++"], found["vrkm"], strict=True)]
    line: dict[str, Any] = {"data": name, "n": len(X), "d": X.shape[1], "k": k, "rounds": len(ratios)}
    line |= {f"{program} s": common.median(values) for program, values in found.items()}
    line |= spread_of(ratios, "vrkm / vrkm++")
    if name in PAPER:
        theirs, plus, plain = PAPER[name]
        line |= {"paper": theirs, "paper vrkm / vrkm++": plus / plain}
    text = f"{name}, k = {k}, {len(X)} rows: an epoch of VRKM takes longer than one of VRKM++ "
    text += f"({line['vrkm / vrkm++']:.1f} times, {min(ratios):.1f} to {max(ratios):.1f})"
    return [line], [verdict(line["vrkm / vrkm++"] > 1, text)]


def quality(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> Found:
    """Measure the agreement with the classes after equal time: all methods in turn, start by start."""
    from shoal.metrics import clustering_accuracy, normalized_mutual_info_score, purity

    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    with np.load(Path(os.environ["SHOAL_DATA"]) / f"{name}.npz") as archive:
        y = archive["y"][: args.rows]
    workers["shoal"].call("data", spec, args.rows)
    scores: dict[str, list[tuple[float, ...]]] = {method: [] for method in METHODS}
    for seed in range(args.quality_seeds):
        start = common.distinct_rows(X, k, seed)
        for method, (kind, params) in METHODS.items():
            labels, inertia, used, steps = workers["shoal"].call(
                "budget", kind, params, start, seed, args.budget
            )
            nmi = normalized_mutual_info_score(y, labels, average_method="geometric")
            accuracy = clustering_accuracy(y, labels)
            scores[method].append((accuracy, nmi, purity(y, labels), inertia, used, steps))
    table = []
    for method, rows in scores.items():
        mean = np.mean(rows, axis=0)
        spread = np.std(rows, axis=0, ddof=1) if len(rows) > 1 else np.zeros(len(mean))
        line: dict[str, Any] = {"data": name, "k": k, "method": method, "budget": args.budget}
        for i, score in enumerate(("ACC", "NMI", "purity", "inertia")):
            line[score], line[f"{score} std"] = float(mean[i]), float(spread[i])
        line["used"], line["most used"] = float(mean[4]), max(row[4] for row in rows)
        line["steps"] = float(mean[5])
        if name.startswith("cifar10_") and method in PAPER_QUALITY:
            theirs = zip(("paper ACC", "paper NMI", "paper purity"), PAPER_QUALITY[method], strict=True)
            line |= dict(theirs)
        table.append(line)
    lines = []
    by_method = {line["method"]: line for line in table}
    for score in ("ACC", "NMI", "purity"):
        ours, others = by_method["vrkm++"][score], [m for m in METHODS if not m.startswith("vrkm")]
        best = max(others, key=lambda method: by_method[method][score])
        text = (
            f"{name}, k = {k}, {args.budget:g} s: {score} of VRKM++, {ours:.4f}, is above that of all other"
        )
        text += f" methods ({best} {by_method[best][score]:.4f})"
        lines.append(verdict(ours > by_method[best][score], text))
    late = [m for m, line in by_method.items() if line["most used"] > args.budget]
    text = f"{name}, k = {k}: no method used more than {args.budget:g} s"
    lines.append(verdict(not late, text + (f" ({', '.join(late)} did, for a first step)" if late else "")))
    return table, lines


def rates(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> Found:
    """Measure the inertia over epochs, for rates and epoch sizes."""
    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    workers["shoal"].call("data", spec, args.rows)
    start = common.distinct_rows(X, k, 0)
    table = []
    for multiple in MULTIPLES:
        rate = min(1.0, multiple * k / len(X))
        for size in SIZES:
            if isinstance(size, str):
                epochs = int(np.log2(2 * len(X)))
                curve = workers["shoal"].call("growing", start, 0, rate, epochs)
                seconds: list[float | None] = [None] * len(curve)
            else:
                given = {"tol": 0.0, "max_iter": args.epochs, "learning_rate": rate, "epoch_size": size}
                seconds, curve, _ = workers["shoal"].call(
                    "curve", "VarianceReducedKMeans", given, start, 0, None, 600.0
                )
            # A sweep and its steps.
            made = [2.0**e for e in range(1, len(curve) + 1)] if isinstance(size, str) else None
            made = made or [size * len(X)] * len(curve)
            visited = np.cumsum(made) + len(X) * np.arange(1, len(curve) + 1)
            table += [
                {
                    "data": name,
                    "k": k,
                    "K/n": multiple,
                    "rate": rate,
                    "T/n": size,
                    "epoch": e + 1,
                    "passes": float(visited[e] / len(X)),
                    "s": s,
                    "inertia": f,
                }
                for e, (s, f) in enumerate(zip(seconds, curve, strict=True))
            ]
            print(f"{name}: {multiple:g} K/n, T = {size}: {curve[-1]:.8g}", flush=True)
    ends = {
        multiple: [r for r in table if (r["K/n"], r["T/n"]) == (multiple, 1.0)][-1]["inertia"]
        for multiple in MULTIPLES
    }
    best = min(ends, key=lambda multiple: ends[multiple])
    text = (
        f"{name}, k = {k}: after {args.epochs} epochs of n steps the default, 3 K/n, has the lowest inertia"
    )
    others = ", ".join(f"{multiple:g} K/n {end / ends[3.0]:.5f}" for multiple, end in ends.items())
    return table, [verdict(best == 3.0, f"{text} (over it: {others})")]


def doc(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> Found:
    """Compare the final inertia of VRKM++ and exact k-means from the same start, and sweeps per epoch."""
    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    workers["shoal"].call("data", spec, args.rows)
    table, lines = [], []
    for seed in range(args.seeds):
        start = common.distinct_rows(X, k, seed)
        given = {"n_init": 1, "tol": 0.0, "max_iter": 300}
        exact, lloyd, _ = workers["shoal"].call("curve", "KMeans", given, start, seed, None, float("inf"))
        given = {"tol": 0.0, "max_iter": args.epochs}
        ours, curve, _ = workers["shoal"].call(
            "curve", "VarianceReducedKMeans", given, start, seed, None, float("inf")
        )
        for epoch, (seconds, inertia) in enumerate(zip(ours, curve, strict=True), 1):
            sweep = next((i for i, f in enumerate(lloyd, 1) if f <= inertia), None)
            line: dict[str, Any] = {"data": name, "n": len(X), "k": k, "seed": seed, "epoch": epoch}
            line |= {"s": seconds, "inertia": inertia, "same sweep": sweep}
            line |= {"s of it": None if sweep is None else exact[sweep - 1]}
            line |= {"sweeps": len(lloyd), "over lloyd's": inertia / lloyd[-1]}
            table.append(line)
        below = next((row for row in table if row["seed"] == seed and row["over lloyd's"] <= 1), None)
        last = table[-1]["over lloyd's"]
        text = f"{name}, k = {k}, seed {seed}: VRKM++ ends below exact k-means"
        when = "never" if below is None else f"from epoch {below['epoch']} on, after {below['s']:.2f} s"
        text += f" ({len(lloyd)} sweeps, {exact[-1]:.2f} s; {when}; at last {last:.5f})"
        lines.append(verdict(last < 1, text))
    return table, lines


def random(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> Found:
    """Compare fits from random rows with exact k-means from the same rows, and from its default seeds."""
    import shoal

    name, X, k = common.load(spec)
    draws = np.random.default_rng(0)
    X = np.ascontiguousarray(X, dtype=np.float32)
    X = X[np.sort(draws.permutation(len(X))[: args.rows or RANDOM_ROWS])]
    table, lines = [], []
    for seed in range(args.seeds):
        start = X[np.random.default_rng(seed).choice(len(X), k, replace=False)]
        given: dict[str, Any] = {"random_state": seed, "n_jobs": args.threads}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seeded = shoal.KMeans(k, n_init=1, **given).fit(X)
            plain = shoal.KMeans(k, init=start, n_init=1, **given).fit(X)
            ours = shoal.VarianceReducedKMeans(k, init=start, **given).fit(X)
        line: dict[str, Any] = {"data": name, "n": len(X), "k": k, "seed": seed}
        line |= {"k-means over seeded": plain.inertia_ / seeded.inertia_}
        line |= {
            "over seeded": ours.inertia_ / seeded.inertia_,
            "over k-means": ours.inertia_ / plain.inertia_,
        }
        line |= {"epochs": ours.n_iter_, "sweeps": plain.n_iter_}
        line |= {"without rows": k - len(np.unique(ours.labels_))}
        table.append(line)
    ratio = common.median(line["over k-means"] for line in table)
    text = f"{name}, k = {k}: from random rows VRKM++ ends at {ratio:.3f} times exact k-means from them"
    lines.append(verdict(ratio < 1.1, text))
    return table, lines


def picture(path: Path, table: list[dict[str, Any]]) -> None:
    """Draw the figure of `rates`: one panel per set and rate."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["data"] for row in table))
    figure = Figure(figsize=(13, 4 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(names), len(MULTIPLES), squeeze=False, sharey="row")
    for line, name in zip(panels, names, strict=True):
        best = min(row["inertia"] for row in table if row["data"] == name)
        for axes, multiple in zip(line, MULTIPLES, strict=True):
            for size in SIZES:
                mine = [r for r in table if (r["data"], r["K/n"], r["T/n"]) == (name, multiple, size)]
                excess = [max(r["inertia"] / best - 1, 1e-5) for r in mine]
                axes.plot(
                    [r["passes"] for r in mine], excess, label=f"T = {size} n" if size != "2^epoch" else size
                )
            axes.set_yscale("log")
            axes.set_title(f"{name}, rate {multiple:g} K/n")
            axes.set_xlabel("rows visited, over all rows")
            axes.grid(alpha=0.3, which="both")
        line[0].set_ylabel("inertia over the lowest, less 1")
        line[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn as {path}")


COLUMNS = {
    "speed": {
        "data": "", "k": "d", "method": "", "took": ".2f", "ratio": ".2f", "ratio low": ".2f",
        "ratio high": ".2f", "own": ".2f", "own low": ".2f", "own high": ".2f", "never": "d", "steps": ".0f",
        "end": ".5f", "paper": "", "paper ratio": ".2f",
    },
    "inner": {
        "data": "", "k": "d", "none s": ".3f", "bounds s": ".3f", "search s": ".2f", "rounds": "d",
        "search / bounds": ".1f", "search / bounds low": ".1f", "search / bounds high": ".1f",
    },
    "random": {
        "data": "", "n": "d", "k": "d", "seed": "d", "k-means over seeded": ".3f", "over seeded": ".3f",
        "over k-means": ".3f", "epochs": "d", "sweeps": "d", "without rows": "d",
    },
    "variants": {
        "data": "", "n": "d", "d": "d", "k": "d", "vrkm++ s": ".3f", "vrkm s": ".3f", "rounds": "d",
        "vrkm / vrkm++": ".1f", "vrkm / vrkm++ low": ".1f", "vrkm / vrkm++ high": ".1f", "paper": "",
        "paper vrkm / vrkm++": ".2f",
    },
    "quality": {
        "data": "", "method": "", "ACC": ".4f", "ACC std": ".4f", "NMI": ".4f", "NMI std": ".4f",
        "purity": ".4f", "purity std": ".4f", "inertia": ".6g", "used": ".2f", "most used": ".2f",
        "steps": ".0f", "paper ACC": ".4f", "paper NMI": ".4f", "paper purity": ".4f",
    },
    "doc": {
        "data": "", "k": "d", "seed": "d", "epoch": "d", "s": ".2f", "inertia": ".8g", "same sweep": "d",
        "s of it": ".2f", "sweeps": "d", "over lloyd's": ".5f",
    },
}  # fmt: skip


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--data", nargs="+", help="sets and clusters, as name:k (default: those of the part)")
    parser.add_argument("--seeds", type=int, default=3, help="starts of `speed` (default 3)")
    parser.add_argument("--quality-seeds", type=int, default=10)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of `quality` (default 2)")
    parser.add_argument("--epochs", type=int, default=15, help="epochs of `rates` (default 15)")
    parser.add_argument("--threads", type=int, default=common.cores())
    parser.add_argument("--rounds", type=int, default=3, help="of `inner` and `variants` (default 3)")
    parser.add_argument("--rows", type=int, help="only so many rows")
    parser.add_argument(
        "--variant-rows", type=int, default=10_000, help="rows of `variants` at most (default 10,000)"
    )
    parser.add_argument(
        "--csv", help="where to keep the table of the one part (default: benches/results/<processor>/)"
    )
    parser.add_argument("--quick", action="store_true", help="2000 rows, few starts, no result file")
    parser.add_argument("--worker", choices=["shoal", "sklearn"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler(args.worker))
        return
    if args.quick:
        args.rows, args.seeds, args.quality_seeds, args.budget, args.epochs = 2000, 1, 2, 0.2, 3
        args.rounds = 1
    head = common.description(["numpy", "shoal", "scikit-learn"])
    head["threads"] = str(args.threads)
    common.announce(head)
    workers = {
        "shoal": common.Worker(__file__, "shoal", threads=args.threads),
        "sklearn": common.Worker(__file__, "sklearn", threads=args.threads, env=common.blas_settings()),
    }
    sets = {"speed": SPEED, "inner": SPEED, "variants": SPEED, "quality": QUALITY, "rates": RATES, "doc": DOC,
            "random": RANDOM}  # fmt: skip
    programs = {
        "speed": speed, "inner": inner, "variants": variants, "quality": quality, "rates": rates, "doc": doc,
        "random": random,
    }  # fmt: skip
    with common.closing(workers.values()):
        for part in args.parts:
            table, lines = [], []
            for spec in args.data or sets[part]:
                more, said = programs[part](spec, workers, args)
                table += more
                lines += said
            if part in COLUMNS:
                print("\n" + common.table(table, COLUMNS[part]), flush=True)
            elif not args.quick:
                picture(common.results(f"vrkm-{part}", "png"), table)
            print("\n".join(lines), flush=True)
            about = head | {f"{part}, {number}": line for number, line in enumerate(lines, 1)}
            common.keep(f"vrkm-{part}", about, table, args.csv, args.quick)


if __name__ == "__main__":
    main()
