"""Models of scikit-learn from models of shoal, and back."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.cluster import MiniBatchKMeans as SklearnMiniBatchKMeans
from sklearn.mixture import GaussianMixture
from sklearn.utils.validation import check_is_fitted

from shoal._checks import params as _params
from shoal._checks.warn import warn
from shoal._fit.centers import CenterFitter
from shoal._fit.estimator import PHASES
from shoal._fit.history import STEP_DTYPE
from shoal._rows.checked import source_of
from shoal.kmeans import KMeans
from shoal.minibatch import MiniBatchKMeans

from .fitted import copy_feature_names, fitted, is_cosine, is_mixture
from .mixtures import mixture_of_sklearn, mixture_to_sklearn, shared_random_state

#: Parameters that have the same name and meaning in both libraries.
SHARED = ("n_clusters", "max_iter", "tol", "n_init", "copy_x")
SHARED_BY_BATCHES = (
    *("batch_size", "max_no_improvement", "reassignment_ratio", "init_size", "n_init", "compute_labels"),
    *("n_clusters", "max_iter", "tol"),
)
#: Seedings that both libraries have.
SEEDINGS = ("k-means++", "random")


def to_sklearn(model: Any) -> Any:
    """Convert a fitted model to one of scikit-learn.

    The result does not need shoal, also when it is unpickled.

    Parameters
    ----------
    model : estimator
        A fitted estimator of shoal with centers, or a mixture.

    Returns
    -------
    sklearn.cluster.KMeans or sklearn.mixture.GaussianMixture
        Fitted, with the same centers. It has `labels_` and `inertia_` if `model` has them: a loaded model has
        no labels. Parameters that scikit-learn shares are copied, so that ``clone(result).fit(X)`` is the
        corresponding fit. A mixture keeps its `covariance_type`, except that ``"tied_spherical"`` becomes
        ``"spherical"`` and ``"factor"`` ``"full"``; its parameters are in float64.

    Raises
    ------
    TypeError
        If `model` is not an estimator with centers.
    sklearn.exceptions.NotFittedError
        Before :meth:`~shoal.KMeans.fit`.

    Warns
    -----
    UserWarning
        If the model has ``metric="cosine"``. scikit-learn does not normalize rows: use
        ``make_pipeline(Normalizer(), to_sklearn(model))``.

    See Also
    --------
    from_sklearn : The reverse.

    Notes
    -----
    The ``predict`` of :class:`sklearn.cluster.KMeans` takes rows of the type of `cluster_centers_` only.
    Labels agree with those of `model` except for rows whose two nearest centers are equally far up to
    rounding. scikit-learn computes ``transform`` and densities by expanded squares, so they are less precise
    far from the origin.

    ``predict_proba`` of a mixture shares each row among all components instead of the `n_active` nearest.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(1000, 8))
    >>> model = shoal.KMeans(10, random_state=0).fit(X)
    >>> exported = shoal.convert.to_sklearn(model)
    >>> exported
    KMeans(n_clusters=10, random_state=0)
    >>> bool((exported.predict(X) == model.labels_).all())
    True
    """
    source = fitted(model)
    if is_cosine(source):
        warn(
            "metric='cosine' is not part of the result: scikit-learn does not normalize rows. Use "
            "make_pipeline(Normalizer(), model), with Normalizer from sklearn.preprocessing.",
            UserWarning,
        )
    if is_mixture(source):
        return mixture_to_sklearn(source)
    centers = source.cluster_centers_
    # A fit to one row sets the attributes that are private to scikit-learn.
    made = SklearnKMeans(1, n_init=1).fit(np.zeros_like(centers[:1]))
    made.set_params(**{"n_init": "auto", **_sklearn_params(source)})
    del made.labels_, made.inertia_
    made.cluster_centers_ = centers.copy()
    made.n_iter_ = int(source.n_iter_)
    made._n_features_out = len(centers)
    copy_feature_names(made, source)
    # Without rows there are none.
    with suppress(AttributeError):
        made.labels_ = source.labels_.copy()
    with suppress(AttributeError):
        made.inertia_ = source.inertia_
    return made


def _sklearn_params(source: CenterFitter) -> dict[str, Any]:
    """Return the parameters of scikit-learn's KMeans for a model."""
    given = source._plain_params()
    params = {name: given[name] for name in SHARED if name in given and given[name] is not None}
    init = source.init
    if not isinstance(init, str) or init in SEEDINGS:
        params["init"] = init
    params["random_state"] = shared_random_state(source)
    if getattr(source, "algorithm_", None) == "elkan":
        params["algorithm"] = "elkan"
    return params


def from_sklearn(model: Any) -> Any:
    """Convert a fitted model of scikit-learn to one of shoal.

    Parameters
    ----------
    model : sklearn.cluster.KMeans, sklearn.cluster.MiniBatchKMeans or sklearn.mixture.GaussianMixture
        Fitted.

    Returns
    -------
    KMeans, MiniBatchKMeans or TruncatedGaussianMixture
        Fitted, with the same centers and parameters. It predicts, and it can be saved and pickled.
        :class:`~shoal.MiniBatchKMeans` continues with ``partial_fit``, with the counts of `model`.

    Raises
    ------
    TypeError
        If `model` is not one of these classes. The labels of a :class:`sklearn.cluster.BisectingKMeans` are
        not those of the nearest center.
    sklearn.exceptions.NotFittedError
        If `model` is not fitted.
    ValueError
        If shoal has no such covariance, or does not allow the value of a parameter.

    See Also
    --------
    to_sklearn : The reverse.

    Notes
    -----
    scikit-learn stores neither the history of a fit nor the weights of the rows. `history_` is empty,
    `timings_` are 0, and `counts_` of a :class:`~shoal.KMeans` are numbers of rows by label, or 0 without
    labels. A mixture gets ``n_active=n_components``, textbook EM, and its `counts_` are the `weights_`.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> from sklearn.cluster import MiniBatchKMeans
    >>> X = np.random.default_rng(0).normal(size=(1000, 8))
    >>> theirs = MiniBatchKMeans(10, random_state=0).fit(X)
    >>> model = shoal.convert.from_sklearn(theirs)
    >>> bool((model.predict(X) == theirs.labels_).all())
    True
    >>> float(model.partial_fit(X).counts_.sum() - theirs._counts.sum())
    1000.0
    """
    if isinstance(model, SklearnMiniBatchKMeans):
        make: Any = _of_minibatch
    elif isinstance(model, SklearnKMeans):
        make = _of_kmeans
    elif isinstance(model, GaussianMixture):
        make = mixture_of_sklearn
    else:
        raise TypeError(
            "model must be a fitted KMeans, MiniBatchKMeans or GaussianMixture of scikit-learn, got "
            f"{_params.shown(model)}"
        )
    check_is_fitted(model)
    return make(model)


def _of_kmeans(given: SklearnKMeans) -> KMeans:
    """Make the estimator from a KMeans of scikit-learn."""
    params = {name: getattr(given, name) for name in (*SHARED, "init", "algorithm", "random_state")}
    made = KMeans(**params, verbose=given.verbose)
    made._check()
    centers = _centers_of(given)
    labels = getattr(given, "labels_", None)
    made._forget()
    made.cluster_centers_ = centers
    made.counts_ = np.bincount([] if labels is None else labels, minlength=len(centers)).astype(np.float64)
    made.n_iter_ = int(given.n_iter_)
    made.n_zero_rows_ = 0
    made.timings_ = dict.fromkeys(PHASES, 0.0)
    made.algorithm_ = params["algorithm"]
    _finish(made, given)
    return made


def _of_minibatch(given: SklearnMiniBatchKMeans) -> MiniBatchKMeans:
    """Make the estimator from a MiniBatchKMeans of scikit-learn, with the state for the next batch."""
    params = {name: getattr(given, name) for name in (*SHARED_BY_BATCHES, "init", "random_state")}
    made = MiniBatchKMeans(**params, verbose=given.verbose)
    made._check()
    centers = _centers_of(given)
    counts = np.asarray(given._counts, dtype=np.float64)
    # The state of a run after one row, with the centers and sums of all batches.
    made.set_params(init=centers)
    source = source_of(made._checked(centers[:1], reset=True))
    begun = made._first_stream(source, centers[:1])
    begun.partial_fit(source, None)
    kind, arrays, texts = begun.state()
    made.set_params(init=params["init"])
    arrays |= {"centers": centers, "weights": counts, "sums": centers.astype(np.float64) * counts[:, None]}
    figures = {
        "n_steps": int(given.n_steps_),
        "n_iter": int(getattr(given, "n_iter_", 0)),
        "rows_seen": round(float(counts.sum())),
        "since_reassigned": int(given._n_since_last_reassign),
    }
    texts["state"] = json.dumps(json.loads(texts["state"]) | figures)
    made._forget()
    made._use_stream(made._stream_from((kind, arrays, texts)), begun=True)
    _finish(made, given)
    return made


def _centers_of(given: Any) -> npt.NDArray[Any]:
    """Return a copy of the centers of a model of scikit-learn."""
    centers = np.array(given.cluster_centers_, order="C")
    return _params.centers(
        "cluster_centers_", centers, centers.dtype, (given.n_clusters, given.n_features_in_)
    )


def _finish(made: Any, given: Any) -> None:
    """Set what both estimators take from a model of scikit-learn."""
    made.n_features_in_ = int(given.n_features_in_)
    copy_feature_names(made, given)
    made.init_ = (
        given.init if isinstance(given.init, str) else "callable" if callable(given.init) else "array"
    )
    made._history = np.empty(0, STEP_DTYPE)
    labels, inertia = getattr(given, "labels_", None), getattr(given, "inertia_", None)
    made._labels = None if labels is None else np.array(labels, dtype=np.int32)
    made._inertia = None if inertia is None else float(inertia)
