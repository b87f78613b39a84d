"""Models as files."""

from __future__ import annotations

import os
from typing import Any

from sklearn.utils.validation import check_is_fitted

from . import _core
from .kmeans import KMeans
from .minibatch import MiniBatchKMeans
from .nested import NestedMiniBatchKMeans

__all__ = ["load", "save"]

#: What can be kept, by the kind that files name.
KINDS: dict[str, Any] = {
    "kmeans-model": KMeans,
    "minibatch-kmeans-model": MiniBatchKMeans,
    "nested-kmeans-model": NestedMiniBatchKMeans,
}


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one safetensors file, which appears whole or not at all.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    path : str or os.PathLike
        The file; one that exists is replaced.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        When there are no centers yet.
    OSError
        When the file cannot be written.
    """
    check_is_fitted(
        estimator,
        "cluster_centers_",
        msg="this %(name)s is not fitted yet: it has no centers to save",
    )
    # A class derived from one of ours is kept as ours.
    kind = next(kind for kind, cls in KINDS.items() if isinstance(estimator, cls))
    arrays, meta = estimator._kept()
    _core.save_model(os.fsdecode(path), kind, arrays, meta)


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that :meth:`~shoal.KMeans.save` wrote.

    No code is run by it, whatever the file holds.

    Parameters
    ----------
    path : str or os.PathLike
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
    if kind not in KINDS:
        raise ValueError(
            f"{name}: holds a {kind!r}, which this version cannot load: it knows {', '.join(KINDS)}"
        )
    try:
        return KINDS[kind]._restored(arrays, meta)
    except ValueError as error:
        raise ValueError(f"{name}: is damaged: {error}") from error
