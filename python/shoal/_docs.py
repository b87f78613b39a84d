"""Text that many docstrings share, filled in when a module is imported."""

from __future__ import annotations

import re
from typing import TypeVar

T = TypeVar("T")

#: A line of names in braces.
NAMES = re.compile(r"^( *)(\{\w+\}(?: \{\w+\})*)$", re.MULTILINE)


def documented(thing: T) -> T:
    """Replace lines of names in braces in a docstring, such as ``{n_jobs} {verbose}``, by their `TEXTS`.

    Works on a class or a function. Lines that follow with deeper indentation continue the last text. A text
    may hold names of others.
    """
    if thing.__doc__ is not None:
        thing.__doc__ = NAMES.sub(_texts, thing.__doc__)
    return thing


def _texts(found: re.Match[str]) -> str:
    """Return the texts of the names in one line, with its indentation."""
    whole = "\n".join(TEXTS[name].strip("\n") for name in re.findall(r"\w+", found[2]))
    lines = NAMES.sub(_texts, whole).split("\n")
    return "\n".join(found[1] + line if line else line for line in lines)


#: Parameters and attributes of estimators, then those of functions and of distributed estimators.
TEXTS = {
    "n_clusters": """
n_clusters : int, default=8
    Number of clusters, at least 1 and at most the number of rows.
""",
    "metric": """
metric : {"euclidean", "cosine"}, default="euclidean"
    ``"cosine"`` is spherical k-means: rows are scaled to length 1 as they are read, and centers lie on the
    unit sphere. See :class:`~shoal.KMeans` for rows of zeros.
""",
    "random_state": """
random_state : int, RandomState, Generator or None, default=None
    An int (0 to 2**64 - 1) makes results repeatable. A generator gives each fit another seed.
""",
    "random_state_of_stream": """
random_state : int, RandomState, Generator or None, default=None
    An int (0 to 2**64 - 1) makes results repeatable. Every fit, and the first :meth:`partial_fit`, draws 64
    bits from a generator.
""",
    "compute_labels": """
compute_labels : bool, default=True
    Whether :meth:`fit` ends with a pass over all rows that computes `labels_` and `inertia_`, and whether
    :meth:`partial_fit` provides both.
""",
    "expert": """
Expert parameters
    The parameters below are needed less often.
""",
    "n_jobs": """
n_jobs : int or None, default=None
    Number of threads. None: ``SHOAL_NUM_THREADS``, else ``OMP_NUM_THREADS``, else all cores that the process
    may use; -1: all cores that the process may use; -2: all but one, and so on, but at least one. At most 4
    threads per core, or 16 (see :func:`shoal.config_context`). Results do not depend on it.
""",
    "verbose": """
verbose : int, default=0
    1 shows a progress bar on stderr; in a file or a pipe, a line every few seconds.
""",
    "callbacks": """
callbacks : iterable of callables or None, default=None
    Called as ``cb(estimator, step)`` after every step. A true value ends the fit. See
    :mod:`shoal.callbacks`.
""",
    "cluster_centers_": """
cluster_centers_ : ndarray of shape (n_clusters, n_features), float32 or float64
    Centers, in the compute type of the rows.
""",
    "labels_": """
labels_ : ndarray of shape (n_samples,), int32
    Nearest center of every row; the lower index wins a tie. Equal to ``predict(X)``.
""",
    "labels_of_stream": """
labels_ : ndarray of shape (n_samples,), int32
    Nearest center of every row; the lower index wins a tie. Equal to ``predict(X)``. After
    :meth:`partial_fit`: labels of the last batch, or of the last block of a stream. Not available with
    ``compute_labels=False``: call :meth:`predict`. Can be assigned, as can `inertia_`.
""",
    "inertia_": """
inertia_ : float
    Weighted sum of squared distances of the rows to their centers; differences and sums in float64.
""",
    "counts_": """
counts_ : ndarray of shape (n_clusters,), float64
    Weight of the rows in each cluster.
""",
    "history_": """
history_ : structured ndarray of shape (n_steps,)
    One row per step: ``iteration, rows_seen, batch_size, objective, center_shift, n_changed, n_distances,
    elapsed`` (seconds) and ``stop_reason`` (empty during the fit).
""",
    "stop_reason_": """
stop_reason_ : str or None
    ``"labels-stable"``, ``"tolerance"``, ``"max-iter"``, ``"callback"``, ``"deadline"`` or ``"patience"``;
    None during the fit.
""",
    "timings_": """
timings_ : dict of str to float
    Seconds by phase: ``seeding``, ``sweeps``, ``final``.
""",
    "init_": """
init_ : str
    The seeding in use; ``"auto"`` resolved.
""",
    "n_zero_rows_": """
n_zero_rows_ : int
    Rows of zeros among the rows read; 0 with ``metric="euclidean"``.
""",
    "n_zero_rows_of_stream": """
n_zero_rows_ : int
    Rows of zeros among the rows read, also in all batches of :meth:`partial_fit`; 0 with
    ``metric="euclidean"``.
""",
    "features_in": """
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the features, if X has string names.
""",
    "X": """
X : rows of shape (n_samples, n_features)
    Any input of :meth:`shoal.KMeans.fit`.
""",
    "sample_weight": """
sample_weight : array-like of shape (n_samples,), float or None
    Weight of every row, finite, at least 0, not all 0. None: 1.
""",
    "threads": """
n_jobs : int or None
    Number of threads, as for :class:`shoal.KMeans`. The result does not depend on it.
""",
    "seeded": """
n_clusters : int
    Number of centers, at least 1 and at most the number of rows.
""",
    "seeded_metric": """
metric : {"euclidean", "cosine"}, default="euclidean"
    ``"cosine"`` chooses among the rows scaled to length 1, for a fit with the same metric. The returned
    centers are these scaled rows. A warning counts rows of zeros, which are not scaled.
""",
    "seed": """
random_state : int, RandomState, Generator or None
    An int makes the draw repeatable.
""",
    "seeded_centers": """
centers : ndarray of shape (n_clusters, n_features), float32 or float64
    The chosen rows, in their compute type; with ``metric="cosine"`` scaled to length 1.
indices : ndarray of shape (n_clusters,), int64
    Row numbers of the centers in X.
""",
    "invalid": """
ValueError
    If a parameter, shape or value is invalid.
TypeError
    If values are not numbers.
""",
    "coreset_rows": """
n_samples : int
    Rows in the coreset, at least 1. If there are no more rows than this, the coreset is all rows.
metric : {"euclidean", "cosine"}, default="euclidean"
    ``"cosine"``: a coreset of the rows scaled to length 1.
random_state : int, RandomState, Generator or None
    An int makes the draw repeatable.
""",
    "threads_of_task": """
n_jobs : int or None
    Threads per task, as for :class:`KMeans`.
""",
    "coreset_of_table": """
Fit any local estimator to it, for example a :class:`shoal.TruncatedGaussianMixture`.

Parameters
----------
X, features, sample_weight, weights
    As for :class:`KMeans`.
{coreset_rows} {threads_of_task}

Returns
-------
shoal.Coreset
    Points in the order of the rows; see :class:`shoal.distributed.CoresetPass`.

Raises
------
ImportError, ValueError, TypeError, RuntimeError
    As :meth:`KMeans.fit`.

See Also
--------
shoal.lightweight_coreset : On one machine.
""",
    "init_of_partitions": """
init : {"k-means++", "hierarchical", "k-means||"} or array-like, default="k-means++"
    How to choose the first centers.

    - ``"k-means++"``: greedy k-means++ among the rows of a coreset, which takes two passes. Choosing among
      them takes time proportional to the square of `n_clusters`.
    - ``"hierarchical"``: the leaves of a tree of small k-means fits to the coreset, as in
      :class:`shoal.HierarchicalKMeans`.
    - ``"k-means||"``: :class:`~shoal.distributed.SeedPass`, among all rows: about ``n_rounds + 2`` passes,
      which take the time of about 30 sweeps.
    - An array of shape (n_clusters, n_features).
""",
    "sweeps_of_partitions": """
max_iter : int, default=300
    Maximum number of sweeps, at least 1.
""",
    "tol_of_partitions": """
tol : float, default=1e-4
    The fit has converged when the squared length of the center shift is at most `tol` times the mean
    variance of the features (weighted, if the rows have weights), or when no center moves.
""",
    "expert_of_partitions": """
Expert parameters
    The parameters below are needed less often.
oversampling_factor, n_rounds : float, int
    As for :class:`shoal.distributed.SeedPass`.
coreset_size : int or None, default=None
    Rows of the coreset that ``"k-means++"`` and ``"hierarchical"`` choose from, in the memory of this
    process, at least `n_clusters`. None: 20 per cluster, at least 10,000.
compute_labels : bool, default=True
    Whether to label the rows at the end, in one more pass.
memory : str or int, default="1GB"
    Bytes that each worker process keeps between the sweeps of all fits: labels, and the bounds and sums by
    which later sweeps skip distances. With 0, every sweep measures all distances. Spark and Ray keep nothing.
    Results do not depend on it.
""",
    "fitted_to_partitions": """
cluster_centers_ : ndarray of shape (n_clusters, n_features), float32 or float64
    Centers, in the compute type of the rows, or of an array `init`.
inertia_ : float
    Weighted sum of squared distances of the rows to their centers.
n_iter_ : int
    Number of steps, each a pass over all rows.
history_ : structured ndarray of shape (n_iter_,)
    One row per step, as for :class:`shoal.KMeans`; ``n_changed`` is 0, and ``n_distances`` that of a full
    sweep.
stop_reason_ : str or None
    As for :class:`shoal.KMeans`.
init_ : str
    The seeding, or ``"array"``.
n_zero_rows_ : int
    Rows of zeros; 0 with ``metric="euclidean"``.
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the features, if the partitions have columns with string names.
""",
    "resume_from": """
resume_from : path, optional
    A checkpoint that :class:`shoal.callbacks.Checkpoint` wrote in a fit with the same parameters, to the
    same partitions. The result is bit-identical to that of a fit without interruption.
""",
}
