"""Model files and checkpoints: save, load and resume."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from . import _core
from ._checks.marked import MarkedError, marked_text
from ._checks.params import shown
from ._checks.warn import warn
from ._core import Step
from ._fit.estimator import Clusterer
from ._fit.models import save
from ._fit.saved import Claims, need
from .backward_euler import BackwardEulerKMeans
from .balanced import BalancedKMeans
from .breathing import BreathingKMeans
from .coreset import KIND as STREAMING_CORESET
from .coreset import StreamingCoreset
from .formats.stream import name_errors
from .hierarchical import HierarchicalKMeans
from .kmeans import KMeans
from .kmodes import LaplacianKModes
from .minibatch import MiniBatchKMeans
from .mixture import TruncatedGaussianMixture
from .nested import NestedMiniBatchKMeans
from .typing import PathName, Rows, Weights
from .variance_reduced import VarianceReducedKMeans

__all__ = ["load", "resume", "save"]

#: The estimators that files can hold.
ESTIMATORS: tuple[type[Clusterer], ...] = (
    KMeans,
    MiniBatchKMeans,
    NestedMiniBatchKMeans,
    TruncatedGaussianMixture,
    BackwardEulerKMeans,
    VarianceReducedKMeans,
    HierarchicalKMeans,
    BalancedKMeans,
    BreathingKMeans,
    LaplacianKModes,
)
#: Classes that restore a saved model, by the kind in the file.
KINDS: dict[str, Any] = {f"{cls._kind}-model": cls for cls in ESTIMATORS} | {
    STREAMING_CORESET: StreamingCoreset
}
#: Classes that resume a checkpoint, by the kind in the file.
CHECKPOINTS: dict[str, Any] = {f"{cls._kind}-checkpoint": cls for cls in ESTIMATORS}
#: Parameters that may change in a resumed fit.
OF_A_RUN = ("n_jobs", "verbose", "callbacks", "init")


def load(path: PathName) -> Any:
    """Read an estimator from a file, without running code from the file.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        A file that :meth:`~shoal.KMeans.save` wrote.

    Returns
    -------
    estimator
        Fitted; without `labels_`, which ``predict`` computes, and without callbacks. A warning names
        parameters that the file does not hold: an `init` that is a callable, and a generator as
        `random_state`. They have their defaults.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the file is damaged, of a later format, or not a model of shoal.

    See Also
    --------
    resume : Resume an unfinished fit.

    Examples
    --------
    >>> import numpy as np, shoal, tempfile
    >>> model = shoal.KMeans(2, random_state=0).fit(np.array([[0.0], [0.1], [9.0], [9.1]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.safetensors")
    ...     again = shoal.load(f"{folder}/model.safetensors")
    >>> bool((again.cluster_centers_ == model.cluster_centers_).all())
    True
    """
    name = os.fsdecode(path)
    kind, arrays, meta = _core.load_model(name)
    if kind in CHECKPOINTS:
        problem = f"{name}: holds the checkpoint of an unfinished fit."
        raise MarkedError(f"{problem} Finish it with `resume`.", f"{problem} Use shoal.resume instead.")
    if kind not in KINDS:
        raise ValueError(f"{name}: must hold a model of this version ({', '.join(KINDS)}), got {kind!r}")
    with name_errors(name, "is damaged"):
        model = KINDS[kind]._restored(arrays, meta)
        lost = Claims.read(meta, "fitted").texts("lost", optional=True) if "fitted" in meta else None
        need(lost is None or set(lost) <= model.get_params().keys(), "it names parameters that do not exist")
    if lost:
        now = ", ".join(f"{each}={shown(getattr(model, each))}" for each in lost)
        warn(
            f"{name}: holds neither callables nor generators, so the model has {now}. Set the parameters "
            "again with set_params before another fit.",
            UserWarning,
        )
    return model


def resume(
    path: PathName, X: Rows, *, sample_weight: Weights = None, features: Any = None, **run: Any
) -> Any:
    """Resume a fit from a checkpoint and finish it.

    A resumed fit gives bit-identical results. Only times differ, and the number of computed distances for
    methods with bounds, because bounds are computed anew. A callback or an interrupt that ended the first run
    has no effect on the resumed one. No code from the file is run.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        A file that :class:`~shoal.callbacks.Checkpoint` wrote.
    X : rows of shape (n_samples, n_features)
        The same rows, from the same kind of source: memory and memory-mapped files are one kind, re-readable
        streams another, an iterator that begins anew a third. Their shape and some of their values are
        checked; for an iterator, only the number of columns, and that it is not too short.
    sample_weight : array-like of shape (n_samples,), float or None
        The same weights.
    features : rows of shape (n_samples, n_features), optional
        The same rows, if X is a precomputed affinity of :class:`~shoal.LaplacianKModes`. The file holds the
        affinity, so X is not used then.
    **run
        How to run the rest of the fit: `n_jobs`, `verbose`, `callbacks` (for example a new
        :class:`~shoal.callbacks.Checkpoint`), and `init` if it was a callable.

    Returns
    -------
    estimator
        Fitted, with the parameters of the first run.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the file is damaged, of a later format, not a checkpoint, or belongs to other rows.
    TypeError
        If a parameter would change the fit.

    See Also
    --------
    shoal.callbacks.Checkpoint : Writes checkpoints.

    Examples
    --------
    See :class:`~shoal.callbacks.Checkpoint`.
    """
    name = os.fsdecode(path)
    changed = [key for key in run if key not in OF_A_RUN]
    if "init" in run and not callable(run["init"]):
        changed.append("init")
    if changed:
        raise TypeError(
            f"{', '.join(changed)} cannot be changed in a resumed fit. Only n_jobs, verbose, callbacks and a "
            "callable init can."
        )
    estimator, state = read_checkpoint(name)
    if features is not None and getattr(estimator, "affinity", None) != "precomputed":
        raise TypeError('features must be None except for LaplacianKModes(affinity="precomputed")')
    estimator.set_params(**run)
    finish(estimator, name, state, X if features is None else features, sample_weight)
    return estimator


def finish_from(estimator: Any, path: PathName, X: Rows) -> None:
    """Resume a checkpoint in an estimator that must have the same parameters, and finish the fit."""
    name = os.fsdecode(path)
    kept, state = read_checkpoint(name)
    if type(kept) is not type(estimator):
        raise MarkedError(
            f"{name}: must hold a fit of `{type(estimator).__name__}`, got one of `{type(kept).__name__}`"
        )
    estimator._compare_parameters(name, kept)
    finish(estimator, name, state, X, None)


def finish(estimator: Any, name: str, state: Any, X: Rows, sample_weight: Weights) -> None:
    """Make the remaining steps of a checkpoint; errors about the file name it."""
    with estimator._set_aside():
        taken = estimator._taken(X, sample_weight)
        try:
            steps: Iterator[Step] = estimator._go_on(state, *taken)
        except ValueError as error:
            raise MarkedError(f"{name}: {marked_text(error)}") from error
    estimator._resumed_from = name
    try:
        for _ in steps:
            pass
    finally:
        estimator._resumed_from = None


#: Upper limit of the counts in a checkpoint, so that the next steps do not overflow `history_`.
MOST_COUNT = 2**62


def read_checkpoint(name: str) -> tuple[Any, Any]:
    """Read a checkpoint; return the unfitted estimator and the state of the fit."""
    kind, arrays, meta = _core.load_model(name)
    if kind not in CHECKPOINTS:
        raise ValueError(
            f"{name}: must hold a checkpoint of this version ({', '.join(CHECKPOINTS)}), got {kind!r}"
        )
    with name_errors(name, "is damaged"):
        estimator = CHECKPOINTS[kind]._of_params(arrays, meta)
        estimator._check()
        for counts in (array for key, array in arrays.items() if key.endswith("history_counts")):
            need(bool((counts < MOST_COUNT).all()), "its steps hold counts beyond 62 bits")
    return estimator, (kind, arrays, meta)
