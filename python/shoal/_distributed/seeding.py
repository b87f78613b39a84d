"""First centers of the distributed estimators: k-means++ or a tree on a coreset, or k-means||."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, get_args

from shoal._checks import params as _params
from shoal._checks.warn import warn
from shoal._checks.words import alternatives, suggest
from shoal.coreset import Coreset
from shoal.seeding import How, choose_centers
from shoal.typing import Metric, RandomState, Seeding

from .draws import CoresetPass, SeedPass
from .engine import Engine, total_of
from .passes import KMeansPass, checked_centers

#: The names of the seedings.
INITS = ("k-means++", "hierarchical", "k-means||")

#: The seedings that use a parameter.
USED_BY = {
    "coreset_size": ("k-means++", "hierarchical"),
    "oversampling_factor": ("k-means||",),
    "n_rounds": ("k-means||",),
}

#: Rows of the coreset that k-means++ and the tree choose from, at least, and per center.
LEAST_CORESET, CORESET_PER_CENTER = 10_000, 20

NOTHING = "No centers are chosen yet."


def first_sweep(estimator: Any, engine: Engine) -> tuple[KMeansPass, str]:
    """Choose the first centers by the parameters of an estimator; return the first sweep and the method."""
    warn_of_unused(estimator)
    k, seed, metric = int(estimator.n_clusters), estimator._seed, estimator.metric
    if not isinstance(estimator.init, str):
        centers = checked_centers(estimator.init)
        if len(centers) != k:
            raise ValueError(f"init must have shape ({k}, n_features), got {centers.shape}")
        return KMeansPass(centers, metric=metric), "array"
    if estimator.init == "k-means||":
        task = SeedPass(
            k,
            oversampling_factor=estimator.oversampling_factor,
            n_rounds=estimator.n_rounds,
            metric=metric,
            random_state=seed,
        )
        while not task.done:
            task, _ = task.commit(total_of(engine, task, NOTHING))
        return task.first_sweep(), "k-means||"
    size = estimator.coreset_size or max(LEAST_CORESET, CORESET_PER_CENTER * k)
    drawn = coreset_pass(engine, size, metric, seed)
    coreset = coreset_of_pass(drawn)
    if len(coreset.weights) < k:
        raise ValueError(f"n_clusters must be at most the number of rows, {len(coreset.weights)}, got {k}")
    # The points of a coreset of scaled rows are scaled already; scaling them again could change a bit.
    centers, _, _ = choose_centers("fit", How(estimator.init), coreset, k, None, seed, None)
    return KMeansPass(centers, metric=metric)._after(drawn), estimator.init


def warn_of_unused(estimator: Any) -> None:
    """Warn of parameters that are not at their defaults, but that the seeding does not use."""
    init = repr(estimator.init) if isinstance(estimator.init, str) else "an array"
    for name, seedings in USED_BY.items():
        value, known = getattr(estimator, name), [repr(seeding) for seeding in seedings]
        if init not in known and value != getattr(type(estimator), name):
            warn(
                f"`{name}`={value!r} is ignored: it is for `init`={alternatives(known)}, got {init}",
                RuntimeWarning,
            )


def coreset_pass(engine: Engine, n_samples: int, metric: Metric, seed: int) -> CoresetPass:
    """Draw a lightweight coreset of the rows of an engine; return the last pass, which holds it."""
    task = CoresetPass(n_samples, metric=metric, random_state=seed)
    while not task.done:
        task, _ = task.commit(total_of(engine, task, "The coreset is not complete."))
    return task


def coreset_of_pass(task: CoresetPass) -> Coreset:
    """Return the coreset of a complete pass."""
    coreset = task.coreset
    assert coreset is not None
    return coreset


def drawn_coreset(
    opened: Callable[[], Engine],
    n_samples: int,
    metric: Metric,
    random_state: RandomState,
    n_jobs: int | None,
) -> Coreset:
    """Check the parameters of `lightweight_coreset`, and draw the coreset from an engine."""
    p, problems = _params, _params.Problems()
    problems.check(p.whole, "n_samples", n_samples, 1)
    problems.check(p.one_of, "metric", metric, Metric)
    problems.check(p.threads, n_jobs)
    problems.refuse()
    with closing(opened()) as engine:
        return coreset_of_pass(coreset_pass(engine, int(n_samples), metric, p.seed(random_state)))


def instead_of(init: str) -> str:
    """Say which seeding to use instead of one that is not known."""
    if init in get_args(Seeding):
        return ". Use 'k-means++', which chooses among the rows of a coreset, instead"
    return suggest(init, INITS)


def rules_of_init(estimator: Any, problems: _params.Problems) -> None:
    """Check `init`, and `coreset_size` against the number of clusters."""
    p = _params
    if isinstance(estimator.init, str) and estimator.init not in INITS:
        problems.add(
            f"init must be one of {', '.join(INITS)} or an array of shape (n_clusters, n_features), got "
            f"{p.shown(estimator.init)}{instead_of(estimator.init)}"
        )
    elif callable(estimator.init):
        problems.add("init must not be a callable: it would need all rows. Pass the centers as an array.")
    k, size = estimator.n_clusters, estimator.coreset_size
    # Compared only if both values are valid by themselves.
    if p.is_whole(k) and p.is_whole(size) and 1 <= size < k:
        problems.check(p.whole, "coreset_size", size, int(k), other="`None` or ")
