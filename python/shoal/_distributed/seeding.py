"""First centers of the distributed estimators: k-means||, or AFK-MC2 on a coreset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._common import params as _params
from shoal._fit.centers import METRICS
from shoal.coreset import Coreset
from shoal.seeding import afkmc2
from shoal.typing import Metric, RandomState

from .draws import CoresetPass, SeedPass, rules_of_seeding
from .engine import Engine
from .fitting import total_of
from .passes import checked_centers

#: The names of the seedings.
INITS = ("k-means||", "afk-mc2")

#: Rows of the coreset that AFK-MC2 chooses from, at least, and per center.
LEAST_CORESET, CORESET_PER_CENTER = 10_000, 20

NOTHING = "No centers are chosen yet."


def first_centers(estimator: Any, engine: Engine) -> tuple[npt.NDArray[Any], str]:
    """Choose the first centers by the parameters of an estimator; return them and the name of the method."""
    k, seed, metric = int(estimator.n_clusters), estimator._seed, estimator.metric
    if not isinstance(estimator.init, str):
        centers = checked_centers(estimator.init)
        if len(centers) != k:
            raise ValueError(f"init must have shape ({k}, n_features), got {centers.shape}")
        return centers, "array"
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
        assert task.centers is not None
        return task.centers, "k-means||"
    size = estimator.coreset_size or max(LEAST_CORESET, CORESET_PER_CENTER * k)
    coreset = coreset_of_rows(engine, size, metric, seed)
    if np.count_nonzero(coreset.weights) < k:
        raise ValueError(f"n_samples={len(coreset.weights)} should be >= n_clusters={k}.")
    # The points of a coreset of scaled rows are scaled already; scaling them again could change a bit.
    centers, _ = afkmc2(coreset, k, random_state=seed, n_jobs=1)
    return centers, "afk-mc2"


def coreset_of_rows(engine: Engine, n_samples: int, metric: Metric, seed: int) -> Coreset:
    """Draw a lightweight coreset of the rows of an engine."""
    task = CoresetPass(n_samples, metric=metric, random_state=seed)
    while not task.done:
        task, _ = task.commit(total_of(engine, task, "The coreset is not complete."))
    assert task.coreset is not None
    return task.coreset


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
    problems.check(p.one_of, "metric", metric, METRICS)
    problems.check(p.threads, n_jobs)
    problems.refuse()
    engine = opened()
    try:
        return coreset_of_rows(engine, int(n_samples), metric, p.seed(random_state))
    finally:
        engine.close()


def rules_of_init(estimator: Any, problems: _params.Problems) -> None:
    """Check `init` and the parameters of the seedings."""
    p = _params
    if isinstance(estimator.init, str) and estimator.init not in INITS:
        problems.add(
            f"init must be one of {', '.join(INITS)} or an array of shape (n_clusters, n_features), got "
            f"{p.shown(estimator.init)}"
        )
    elif callable(estimator.init):
        problems.add("init must not be a callable: it would need all rows. Pass the centers as an array.")
    rules_of_seeding(problems, estimator.oversampling_factor, estimator.n_rounds)
    if estimator.coreset_size is not None:
        problems.check(p.whole, "coreset_size", estimator.coreset_size, 1, other="None or ")
