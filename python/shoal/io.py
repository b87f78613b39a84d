"""Models as files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _core
from ._common.params import shown
from ._fit.estimator import Clusterer
from ._fit.models import save
from ._fit.saved import need
from .backward_euler import BackwardEulerKMeans
from .formats.stream import told_of
from .kmeans import KMeans
from .kmodes import LaplacianKModes
from .minibatch import MiniBatchKMeans
from .mixture import TruncatedGaussianMixture
from .nested import NestedMiniBatchKMeans
from .streaming_coreset import KIND as STREAMING_CORESET
from .streaming_coreset import StreamingCoreset
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
    LaplacianKModes,
)
#: What reads a saved model, by the kind that the file names.
KINDS: dict[str, Any] = {f"{cls._kind}-model": cls for cls in ESTIMATORS} | {
    STREAMING_CORESET: StreamingCoreset
}
#: What resumes a checkpoint, by the kind that the file names.
CHECKPOINTS: dict[str, Any] = {f"{cls._kind}-checkpoint": cls for cls in ESTIMATORS}
#: Parameters of an estimator that only say how its fit is run.
OF_A_RUN = ("n_jobs", "verbose", "callbacks", "init")


def load(path: PathName) -> Any:
    """Read an estimator that :meth:`~shoal.KMeans.save` wrote.

    No code is run by it, whatever the file holds.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file.

    Returns
    -------
    estimator
        Fitted; without `labels_`, which ``predict`` gives, and without callbacks.

    Raises
    ------
    OSError
        When the file cannot be read.
    ValueError
        When it is damaged, of a later format, or no model of shoal.

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
        raise ValueError(f"{name}: holds a fit on its way, go on with it by shoal.resume")
    if kind not in KINDS:
        raise ValueError(
            f"{name}: holds a {kind!r}, which this version cannot load: it knows {', '.join(KINDS)}"
        )
    with told_of(name, "is damaged"):
        return KINDS[kind]._restored(arrays, meta)


def resume(
    path: PathName, X: Rows, *, sample_weight: Weights = None, features: Any = None, **run: Any
) -> Any:
    """Go on with a fit that :class:`~shoal.callbacks.Checkpoint` has kept, to its end.

    The result is that of the fit that was never interrupted, bit for bit; only times differ, and the number
    of distances measured where a method keeps bounds, which begin anew. What ended the fit from outside, a
    callback or an interrupt, does not end it now. No code is run by the file, whatever it holds.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file.
    X : rows of shape (n_samples, n_features)
        The same rows, from the same kind of source: memory and memory-mapped files are one, streams that can
        be repeated another, an iterator that begins anew a third. Their shape and some of their values are
        checked; of an iterator only the number of columns, and that it is not too short.
    sample_weight : array-like of shape (n_samples,), float or None
        The same weights.
    features : rows of shape (n_samples, n_features), optional
        The same rows, where X is a precomputed affinity of :class:`~shoal.LaplacianKModes`. The affinity is
        in the file, so that X is not looked at then.
    **run
        How it is run from now on: `n_jobs`, `verbose`, `callbacks` (a new
        :class:`~shoal.callbacks.Checkpoint` among them, to be safe again), and `init`, where it was a
        callable.

    Returns
    -------
    estimator
        Fitted, with the parameters that it was made with.

    Raises
    ------
    OSError
        When the file cannot be read.
    ValueError
        When it is damaged, of a later format, no checkpoint, or one of other rows.
    TypeError
        For a parameter that would change the fit.

    Examples
    --------
    See :class:`~shoal.callbacks.Checkpoint`.
    """
    name = os.fsdecode(path)
    changed = [key for key in run if key not in OF_A_RUN]
    if "init" in run and not callable(run["init"]):
        changed.append("init")
    if changed:
        raise TypeError(f"{', '.join(changed)} would change the fit: it goes on with the parameters it has")
    estimator, state = begun(name)
    if features is not None and getattr(estimator, "affinity", None) != "precomputed":
        raise TypeError('features are for LaplacianKModes(affinity="precomputed")')
    estimator.set_params(**run)
    finish(estimator, name, state, X if features is None else features, sample_weight)
    return estimator


def go_on(estimator: Any, path: PathName, X: Rows) -> None:
    """Go on with a checkpoint in an estimator that must have the parameters that it was kept with."""
    name = os.fsdecode(path)
    kept, state = begun(name)
    if type(kept) is not type(estimator):
        raise ValueError(
            f"{name}: holds a fit of a {type(kept).__name__}, not of a {type(estimator).__name__}"
        )
    before, now = (model.get_params(deep=False) for model in (kept, estimator))
    for parameter in sorted(before.keys() - {"n_jobs", "verbose", "callbacks"}):
        was, given = before[parameter], now[parameter]
        if isinstance(was, np.ndarray):
            # Kept as it was used: in the type that rows are computed in.
            given = np.asarray(given, dtype=was.dtype)
        if not np.array_equal(was, given):
            raise ValueError(f"{name}: was kept with {parameter}={shown(was)}, not {shown(given)}")
    finish(estimator, name, state, X, None)


def finish(estimator: Any, name: str, state: Any, X: Rows, sample_weight: Weights) -> None:
    """Make the steps that are left; what is wrong with the file names it."""
    taken = estimator._taken(X, sample_weight)
    try:
        steps = estimator._go_on(state, *taken)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    for _ in steps:
        pass


#: Counts of a checkpoint are below this, so that those of the next steps fit the columns of `history_`.
MOST_COUNT = 2**62


def begun(name: str) -> tuple[Any, Any]:
    """Read a checkpoint: an estimator with its parameters, and the state of its fit."""
    kind, arrays, meta = _core.load_model(name)
    if kind not in CHECKPOINTS:
        raise ValueError(
            f"{name}: holds a {kind!r}, which is no checkpoint of this version: "
            f"it knows {', '.join(CHECKPOINTS)}"
        )
    with told_of(name, "is damaged"):
        estimator = CHECKPOINTS[kind]._of_params(arrays, meta)
        estimator._check()
        for counts in (array for key, array in arrays.items() if key.endswith("history_counts")):
            need(bool((counts < MOST_COUNT).all()), "its steps hold counts beyond 62 bits")
    return estimator, (kind, arrays, meta)
