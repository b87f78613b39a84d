"""The distributed estimators without their engine: parameters, the first pass, the rules."""

from __future__ import annotations

from shoal._common import params as _params
from shoal.typing import Callbacks, Centers, Metric, RandomState

from .engine import Engine
from .fitting import DistributedClusterer
from .passes import KMeansPass, MiniBatchPass
from .seeding import first_sweep, rules_of_init


class KMeansOnEngine(DistributedClusterer):
    """Exact k-means over an engine. Adapters add ``fit`` and ``predict``."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | Centers = "k-means++",
        max_iter: int = 300,
        tol: float = 1e-4,
        metric: Metric = "euclidean",
        oversampling_factor: float = 2.0,
        n_rounds: int = 5,
        coreset_size: int | None = None,
        compute_labels: bool = True,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.metric = metric
        self.oversampling_factor = oversampling_factor
        self.n_rounds = n_rounds
        self.coreset_size = coreset_size
        self.compute_labels = compute_labels
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _rules(self, problems: _params.Problems) -> None:
        super()._rules(problems)
        rules_of_init(self, problems)

    def _first(self, engine: Engine) -> KMeansPass:
        task, self.init_ = first_sweep(self, engine)
        return task

    def _of_bytes(self, data: bytes) -> KMeansPass:
        return KMeansPass.from_bytes(data)


class MiniBatchKMeansOnEngine(DistributedClusterer):
    """Mini-batch k-means over an engine. Adapters add ``fit`` and ``predict``."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | Centers = "k-means++",
        batch_size: int = 1024,
        max_iter: int = 10,
        tol: float = 1e-4,
        metric: Metric = "euclidean",
        oversampling_factor: float = 2.0,
        n_rounds: int = 5,
        coreset_size: int | None = None,
        compute_labels: bool = True,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.metric = metric
        self.oversampling_factor = oversampling_factor
        self.n_rounds = n_rounds
        self.coreset_size = coreset_size
        self.compute_labels = compute_labels
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _rules(self, problems: _params.Problems) -> None:
        super()._rules(problems)
        rules_of_init(self, problems)
        problems.check(_params.whole, "batch_size", self.batch_size, 1)

    def _first(self, engine: Engine) -> MiniBatchPass:
        task, self.init_ = first_sweep(self, engine)
        return MiniBatchPass(task.centers, batch_size=self.batch_size, metric=self.metric)._after(task)

    def _of_bytes(self, data: bytes) -> MiniBatchPass:
        return MiniBatchPass.from_bytes(data)
