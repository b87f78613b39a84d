"""The compiled extension module of shoal; private."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from ._rows.prefetch import Prefetch

__all__ = [
    "LightweightCoreset",
    "Mixture",
    "ModesRun",
    "NpyWriter",
    "Run",
    "ShuffledWriter",
    "Source",
    "Step",
    "StreamingCoreset",
    "TemporaryFile",
    "TemporaryFolder",
    "at_most_threads",
    "available_isas",
    "available_threads",
    "backward_euler",
    "first_centers",
    "inertia",
    "isa",
    "kmeans",
    "kmodes",
    "kmodes_responsibilities",
    "knn_graph",
    "leftovers",
    "load_model",
    "minibatch",
    "mixture",
    "nearest",
    "nested",
    "predict",
    "requested_threads",
    "save_model",
    "transform",
    "variance_reduced",
    "version",
]

version: str

@final
class Source:
    @staticmethod
    def from_array(array: npt.NDArray[Any]) -> Source: ...
    @staticmethod
    def from_csr(
        indptr: npt.NDArray[Any], indices: npt.NDArray[Any], data: npt.NDArray[Any], shape: tuple[int, int]
    ) -> Source: ...
    @staticmethod
    def open_npy(path: str) -> Source: ...
    @staticmethod
    def open_vecs(path: str) -> Source: ...
    @staticmethod
    def open_bin(path: str) -> Source: ...
    @staticmethod
    def open_raw(path: str, dtype: str, rows: int, cols: int, offset: int = 0) -> Source: ...
    @staticmethod
    def from_stream(
        make: Callable[[], Prefetch], once: bool, cols: int, dtype: str, rows: int | None
    ) -> Source: ...
    @property
    def shape(self) -> tuple[int | None, int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def compute(self) -> str: ...
    @property
    def access(self) -> str: ...
    @property
    def nbytes(self) -> int | None: ...
    @property
    def sparse(self) -> bool: ...
    def read_csr(self, start: int, stop: int) -> list[npt.NDArray[Any]]: ...
    def read(self, start: int, stop: int) -> npt.NDArray[Any]: ...
    def take(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]: ...
    def slice(self, start: int, stop: int) -> Source: ...
    def glance(self) -> int: ...

@final
class Step:
    def __new__(
        cls,
        *,
        iteration: int,
        rows_seen: int,
        batch_size: int,
        objective: float,
        center_shift: float,
        n_changed: int,
        n_distances: int,
        elapsed: float,
        stop_reason: str | None,
    ) -> Step: ...
    @property
    def iteration(self) -> int: ...
    @property
    def rows_seen(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def objective(self) -> float: ...
    @property
    def center_shift(self) -> float: ...
    @property
    def n_changed(self) -> int: ...
    @property
    def n_distances(self) -> int: ...
    @property
    def elapsed(self) -> float: ...
    @property
    def stop_reason(self) -> str | None: ...
    def after(self, earlier: Step) -> Step: ...
    def with_reason(self, stop_reason: str | None) -> Step: ...

@final
class NpyWriter:
    def __new__(cls, path: str, dtype: str, cols: int | None) -> NpyWriter: ...
    def append(self, rows: npt.NDArray[Any]) -> None: ...
    def finish(self) -> int: ...
    def close(self) -> None: ...

@final
class ShuffledWriter:
    def __new__(
        cls, path: str, dtype: str, cols: int, rows: int | None, seed: int, memory: int
    ) -> ShuffledWriter: ...
    def append(self, rows: npt.NDArray[Any]) -> None: ...
    def write_some(self) -> int | None: ...
    def finish(self) -> int: ...
    def close(self) -> None: ...

@final
class TemporaryFile:
    def __new__(cls, path: str | os.PathLike[str]) -> TemporaryFile: ...
    @property
    def name(self) -> Path: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...

@final
class TemporaryFolder:
    def __new__(cls, path: str | os.PathLike[str]) -> TemporaryFolder: ...
    @property
    def name(self) -> Path: ...
    def close(self) -> None: ...

def leftovers(folder: str | os.PathLike[str], remove: bool) -> list[Path]: ...

@final
class LightweightCoreset:
    def __new__(
        cls,
        source: Source,
        n_samples: int,
        seed: int,
        weights: npt.NDArray[np.float64] | None,
        threads: int | None,
    ) -> LightweightCoreset: ...
    def step(self) -> int | None: ...
    def result(self) -> tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.int64]]: ...

@final
class StreamingCoreset:
    def __new__(cls, n_samples: int, seed: int, compute: str) -> StreamingCoreset: ...
    @staticmethod
    def of_state(
        compute: str, kind: str, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, str]
    ) -> StreamingCoreset: ...
    def partial_fit(
        self, source: Source, weights: npt.NDArray[np.float64] | None, threads: int | None
    ) -> None: ...
    def merge(self, other: StreamingCoreset, threads: int | None) -> None: ...
    def result(self, threads: int | None) -> tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.int64]]: ...
    def state(self) -> tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]]: ...
    @property
    def compute(self) -> str: ...
    @property
    def size(self) -> tuple[int, int, int]: ...

class Run:
    def step(self) -> Step | None: ...
    def stop(self, reason: str) -> None: ...
    def partial_fit(self, source: Source, weights: npt.NDArray[np.float64] | None) -> Step | None: ...
    def state(self) -> tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]]: ...
    def merge(self, kind: str, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, str]) -> None: ...
    def know_rows(self) -> None: ...
    def checkpoint(self) -> tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]]: ...
    def write_checkpoint(
        self, path: str, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, str]
    ) -> None: ...
    def details(self) -> dict[str, Any]: ...
    def history(self) -> list[Step]: ...
    def centers(self) -> npt.NDArray[Any]: ...
    def counts(self) -> npt.NDArray[np.float64]: ...
    def finish(self) -> None: ...
    def labels(self) -> npt.NDArray[np.int32]: ...
    def inertia(self) -> float: ...
    @property
    def n_iter(self) -> int: ...
    @property
    def n_steps(self) -> int: ...
    @property
    def init(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    def timings(self) -> dict[str, float]: ...

@final
class MixtureRun(Run):
    def coreset(self) -> tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.int64]] | None: ...

@final
class ModesRun(Run):
    def prepare(self) -> None: ...
    def begin_with(self, labels: npt.NDArray[np.int32], name: str, seconds: float) -> None: ...
    def affinity(self) -> list[npt.NDArray[Any]]: ...

def kmeans(
    source: Source,
    *,
    n_clusters: int,
    seeding: str,
    centers: npt.NDArray[Any] | None,
    n_init: int,
    max_iter: int,
    tol: float,
    metric: str,
    algorithm: str,
    bounds_memory: int,
    seed: int,
    threads: int | None,
    weights: npt.NDArray[np.float64] | None,
    state: tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]] | None,
) -> Run: ...
def minibatch(
    source: Source | None,
    *,
    n_clusters: int,
    seeding: str,
    centers: npt.NDArray[Any] | None,
    batch_size: int,
    max_iter: int,
    tol: float,
    max_no_improvement: int | None,
    reassignment_ratio: float,
    half_life: float | None,
    n_init: int,
    init_size: int | None,
    seed: int,
    threads: int | None,
    weights: npt.NDArray[np.float64] | None,
    stream: bool,
    state: tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]] | None,
) -> Run: ...
def nested(
    source: Source | None,
    *,
    n_clusters: int,
    seeding: str,
    centers: npt.NDArray[Any] | None,
    batch_size: int,
    rho: float,
    bounds: str,
    bounds_memory: int,
    buffer_memory: int,
    max_iter: int | None,
    tol: float,
    shuffle: bool,
    seed: int,
    threads: int | None,
    weights: npt.NDArray[np.float64] | None,
    stream: bool,
    state: tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]] | None,
) -> Run: ...
def backward_euler(
    source: Source | None,
    *,
    n_clusters: int,
    seeding: str,
    centers: npt.NDArray[Any] | None,
    batch_size: int,
    step_size: float | None,
    step_decay: float | None,
    averaging: float,
    n_inner: int,
    max_iter: int,
    step_cap: float | None,
    polish: bool | None,
    seed: int,
    threads: int | None,
    weights: npt.NDArray[np.float64] | None,
    stream: bool,
    state: tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]] | None,
) -> Run: ...
def variance_reduced(
    source: Source,
    *,
    n_clusters: int,
    seeding: str,
    centers: npt.NDArray[Any] | None,
    variant: str,
    learning_rate: float | None,
    epoch_share: float | None,
    epoch_steps: int | None,
    max_iter: int,
    tol: float,
    polish: bool,
    search_always: bool,
    seed: int,
    threads: int | None,
    weights: npt.NDArray[np.float64] | None,
    state: tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]] | None,
) -> Run: ...

@final
class Mixture:
    def __new__(
        cls,
        means: npt.NDArray[Any],
        variances: npt.NDArray[np.float64],
        weights: npt.NDArray[np.float64],
        covariance: str,
        n_active: int,
        neighbors: npt.NDArray[np.int32] | None,
    ) -> Mixture: ...
    def predict(
        self, source: Source, walk: bool, threads: int | None, first_row: int = 0
    ) -> npt.NDArray[np.int32]: ...
    def shares(
        self, source: Source, walk: bool, threads: int | None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]: ...
    def log_densities(self, source: Source, threads: int | None) -> npt.NDArray[np.float64]: ...
    def log_likelihood(
        self, source: Source, weights: npt.NDArray[np.float64] | None, threads: int | None
    ) -> tuple[float, float]: ...

def mixture(
    source: Source,
    *,
    n_components: int,
    n_active: int,
    n_neighbors: int,
    explore: int | None,
    coreset_rows: int | None,
    coreset_share: float | None,
    covariance: str,
    seeding: str,
    centers: npt.NDArray[Any] | None,
    chain: int,
    start: str,
    n_initial_e_steps: int,
    n_init: int,
    stopping: str,
    max_iter: int,
    tol: float,
    seed: int,
    threads: int | None,
    weights: npt.NDArray[np.float64] | None,
    state: tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]] | None,
) -> MixtureRun: ...
def nearest(
    source: Source,
    centers: npt.NDArray[Any],
    n_nearest: int,
    metric: str,
    threads: int | None,
    first_row: int = 0,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]: ...
def kmodes(
    source: Source,
    *,
    n_clusters: int,
    laplacian_weight: float | None,
    mode_update: str,
    n_neighbors: int,
    bandwidth: float | None,
    gaussian: bool,
    diagonal_shift: float | None,
    on_collapse: str,
    normalize: bool,
    seeding: str,
    centers: npt.NDArray[Any] | None,
    max_iter: int,
    graph_method: str,
    responsibilities_memory: int | None,
    seed: int,
    threads: int | None,
    affinity: tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float64]] | None,
    state: tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]] | None,
) -> ModesRun: ...
def kmodes_responsibilities(
    source: Source,
    known: Source,
    modes: npt.NDArray[Any],
    responsibilities_of_known: tuple[npt.NDArray[Any], npt.NDArray[np.int32]],
    n_neighbors: int,
    pull: float | None,
    bandwidth: float,
    laplacian_weight: float,
    normalize: bool,
    threads: int | None,
) -> npt.NDArray[Any]: ...
def knn_graph(
    source: Source, n_neighbors: int, method: str, recall: float, threads: int | None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], str, dict[str, float]]: ...
def predict(
    source: Source, centers: npt.NDArray[Any], metric: str, threads: int | None, first_row: int = 0
) -> npt.NDArray[np.int32]: ...
def transform(
    source: Source, centers: npt.NDArray[Any], metric: str, threads: int | None
) -> npt.NDArray[Any]: ...
def inertia(
    source: Source,
    centers: npt.NDArray[Any],
    weights: npt.NDArray[np.float64] | None,
    labels: npt.NDArray[np.int32] | None,
    metric: str,
    threads: int | None,
) -> float: ...
def first_centers(
    source: Source,
    *,
    n_clusters: int,
    seeding: str,
    chain: int | None,
    oversampling: float | None,
    rounds: int | None,
    seed: int,
    weights: npt.NDArray[np.float64] | None,
    threads: int | None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], int]: ...
def save_model(path: str, kind: str, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, str]) -> None: ...
def load_model(path: str) -> tuple[str, dict[str, npt.NDArray[Any]], dict[str, str]]: ...
def isa() -> str: ...
def available_isas() -> list[str]: ...
def available_threads() -> int: ...
def at_most_threads(n: int) -> int: ...
def requested_threads() -> int | None: ...
