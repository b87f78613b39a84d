"""Centers as an index of faiss."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from shoal._checks import params as _params
from shoal.formats.stream import required

from .fitted import fitted, is_cosine, is_mixture, off_sphere

Index = Literal["flat", "ivf"]


def to_faiss(model: Any, *, index: Index = "flat") -> Any:
    """Convert centers to a faiss index.

    Needs the extra ``faiss``.

    Parameters
    ----------
    model : estimator
        A fitted estimator of shoal with centers, or a mixture with ``covariance_type="tied_spherical"``.
    index : {"flat", "ivf"}, default="flat"
        - ``"flat"``: an index that holds the centers. A search finds the nearest centers; the ids are the
          labels.
        - ``"ivf"``: a trained, empty inverted file, whose lists are the clusters. Add rows to it.

    Returns
    -------
    faiss.IndexFlatL2, faiss.IndexFlatIP or faiss.IndexIVFFlat
        With ``metric="cosine"`` the index compares inner products: normalize the rows that you add. A query
        of any length finds the same rows; its inner products are cosines if it is normalized.

    Raises
    ------
    TypeError
        If `model` is not an estimator with centers.
    sklearn.exceptions.NotFittedError
        Before :meth:`~shoal.KMeans.fit`.
    ValueError
        If `index` has another value, if the label of a row is not the nearest center (other mixtures), or if
        the centers do not fit float32.
    ImportError
        If faiss is missing.

    See Also
    --------
    to_onnx : A network that computes labels and distances.

    Notes
    -----
    faiss stores float32. Centers in float64 are rounded, so a row whose two nearest centers are almost
    equally far may get the other label.

    For 20 queries and more, faiss expands squares: ``|x|^2 - 2 x.c + |c|^2`` in float32. Far from the origin
    the result is imprecise. Subtract the mean from the rows before the fit.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(1000, 8)).astype("float32")
    >>> model = shoal.KMeans(10, random_state=0).fit(X)
    >>> distances, ids = shoal.convert.to_faiss(model).search(X, 1)
    >>> bool((ids[:, 0] == model.labels_).all())
    True
    >>> lists = shoal.convert.to_faiss(model, index="ivf")
    >>> lists.add(X)
    >>> (lists.is_trained, lists.ntotal, lists.nlist)
    (True, 1000, 10)
    """
    source = fitted(model)
    _params.one_of("index", index, Index)
    if is_mixture(source) and model.covariance_type != "tied_spherical":
        raise ValueError(
            f"model must have covariance_type='tied_spherical', got {model.covariance_type!r}: the mean of "
            "the most likely component is not always the nearest one. Use to_onnx instead."
        )
    faiss = required("faiss", "faiss", "shoal.convert.to_faiss")
    with np.errstate(over="ignore"):
        centers = np.ascontiguousarray(source.cluster_centers_, dtype=np.float32)
    if not np.isfinite(centers).all():
        raise ValueError(
            "model must have centers in the range of float32, because faiss stores float32. Scale the rows "
            "before the fit."
        )
    k, d = centers.shape
    if is_cosine(source):
        if off := off_sphere(source):
            raise ValueError(
                f"model must have centers of length 1, got {len(off)} others (the first is center {off[0]}): "
                "inner products do not find the nearest center then. Drop the rows of zeros before the fit."
            )
        flat, metric = faiss.IndexFlatIP(d), faiss.METRIC_INNER_PRODUCT
    else:
        flat, metric = faiss.IndexFlatL2(d), faiss.METRIC_L2
    flat.add(centers)
    if index == "flat":
        return flat
    # Trained from the beginning, because the quantizer holds as many centers as there are lists.
    lists = faiss.IndexIVFFlat(flat, d, k, metric)
    assert lists.is_trained
    return lists
