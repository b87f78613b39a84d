"""Search for duplicate rows."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks import params as _params
from shoal._docs import documented
from shoal._files.outputs import ARRAYS, MODELS, check_output, write_values
from shoal._rows.checked import as_weighted
from shoal._rows.spool import with_random_access
from shoal._terminal.progress import showing
from shoal.typing import Keep, Linkage, Memory, Metric, PathName, RandomState, Rows, Weights

__all__ = ["Duplicates", "deduplicate"]

#: Least time between two checkpoints, in seconds.
CHECKPOINT_PAUSE = 60.0


@dataclass(frozen=True, repr=False, eq=False)
class Duplicates:
    """Groups of duplicate rows, from :func:`shoal.curation.deduplicate`.

    Attributes
    ----------
    keep_ : ndarray of shape (n_samples,), bool
        Whether each row is kept: ``X[found.keep_]`` has no duplicates.
    groups_ : ndarray of shape (n_samples,), int64
        For every row the number of the kept row of its group; its own number for kept rows.
    n_pairs_ : int
        Number of pairs of rows within the threshold.
    n_clusters_ : int
        Number of cells into which the rows were divided.
    compared_ : float
        Computed distances, as a fraction of the number of pairs of different rows. Above 1 with too many
        cells: rows that visit each other's cells are compared twice.
    recall_ : float
        Fraction of the pairs of different rows that was found: 1.0 with ``exact=True``, else as measured on
        1,024 rows.
    weights_ : ndarray of shape (n_kept,), float64
        Weight of each kept row with its duplicates; without `sample_weight`, their number. For a weighted
        fit of the kept rows.
    """

    keep_: npt.NDArray[np.bool_]
    groups_: npt.NDArray[np.int64]
    n_pairs_: int
    n_clusters_: int
    compared_: float
    recall_: float
    weights_: npt.NDArray[np.float64] = field(repr=False)

    def __repr__(self) -> str:
        """Show the numbers of rows, kept rows and pairs."""
        kept = f"{len(self.weights_):,} of {len(self.keep_):,} rows are kept"
        return f"<Duplicates: {kept}, {self.n_pairs_:,} pairs>"

    def to_frame(self) -> Any:
        """Return the duplicates as a table of pandas.

        Returns
        -------
        pandas.DataFrame
            One row per row that is removed: ``row``, and ``representative``, the kept row of its group.

        Raises
        ------
        ImportError
            If pandas is not installed.

        Examples
        --------
        >>> import numpy as np, shoal
        >>> found = shoal.curation.deduplicate(np.array([[0.0, 1], [1, 0], [0, 2]]), 0.01)
        >>> found.to_frame().to_numpy().tolist()
        [[2, 0]]
        """
        import pandas as pd

        removed = np.flatnonzero(~self.keep_)
        return pd.DataFrame({"row": removed, "representative": self.groups_[removed]})


@documented
def deduplicate(
    X: Rows,
    threshold: float,
    *,
    metric: Metric = "cosine",
    keep: Keep = "first",
    n_clusters: int | str = "auto",
    linkage: Linkage = "leader",
    exact: bool = True,
    n_probes: int = 4,
    sample_weight: Weights = None,
    out: PathName | None = None,
    checkpoint: PathName | None = None,
    random_state: RandomState = None,
    memory: Memory = "1GB",
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Duplicates:
    """Find rows that are near-duplicates of each other, and keep one of each group.

    All pairs of rows within the threshold are found, also where they are in different cells of the
    partition that makes the search fast.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Any input of :meth:`shoal.KMeans.fit`. An array, a sparse matrix and a mapped file are read in place.
        Sequential sources (Parquet, a callable that returns blocks) are written to a temporary file first.
    threshold : float
        Rows at most this far from each other are duplicates: a cosine distance (1 minus the cosine
        similarity), or a Euclidean distance. 0 finds equal rows; with ``"cosine"``, rows that are parallel
        may differ by rounding, which ``1e-6`` allows for.
    metric : {"cosine", "euclidean"}, default="cosine"
        With ``"cosine"`` rows are scaled to length 1 as they are read, in their compute type. A row of
        zeros has no duplicates.
    keep : {"first", "nearest-to-center", "farthest-from-center"}, default="first"
        The row of a group that is kept: the first in this order. ``"first"``: the order of X. Or the
        distance to the center of the row's cell, ascending or descending: typical or unusual rows. Equal
        distances keep the order of X; rows of weight 0 come last.
    n_clusters : int or "auto", default="auto"
        Number of cells. It changes the time; with ``keep="first"`` and ``exact=True`` it never changes
        the result. ``"auto"``: one cell up to 4,096 rows; then half of the square root of the number of
        rows, and twice as many as long as that saves work, as estimated on samples.
    linkage : {"leader", "components", "semdedup"}, default="leader"
        How pairs become groups.

        - ``"leader"``: in the order of `keep`, a row is kept unless it is within the threshold of a kept
          row. Kept rows are never duplicates of each other, and a removed row is a duplicate of its kept
          row.
        - ``"components"``: one row of every connected component of the graph of pairs is kept. A chain of
          near rows is one group, although its ends may be far from each other.
        - ``"semdedup"``: in the order of `keep`, a row is removed if it is within the threshold of any
          earlier row, kept or removed. It may then have no kept row within the threshold; `groups_`
          follows the chain.
    exact : bool, default=True
        Whether all pairs must be found. If not, rows are compared with the rows of the nearest `n_probes`
        cells only, and `recall_` is measured.
    n_probes : int, default=4
        With ``exact=False``: number of cells, the row's own included. 1 compares rows within their cells
        only, as SemDeDup and NeMo Curator do; ``exact=False, n_probes=1, linkage="semdedup",
        keep="farthest-from-center"`` is the rule of SemDeDup.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row. Rows of weight 0 come last in the order of `keep`.
    out : path, optional
        Write `keep_` to this ``.npy`` file, as ``bool``. The file appears whole or not at all.
    checkpoint : path, optional
        Write the state of the search to this file every minute, and at Ctrl-C. If the file exists, the
        search resumes from it: call the function again with the same rows and parameters. The file is
        removed when the search ends. It holds all pairs, 8 bytes each, which are in memory while it is
        written.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the cells.
    memory : int or str, default="1GB"
        Memory for pairs, for visits to cells and for the rows to which cells are fitted. Pairs beyond it are
        kept in a temporary file.
    {threads}
    verbose : int, default=0
        1 shows on stderr which fraction of all pairs must be compared, as estimated on a sample of 1,024
        rows, and then the progress.

    Returns
    -------
    Duplicates
        Kept rows, groups, and the number of pairs.

    Raises
    ------
    ValueError
        If a parameter, shape or value is invalid, or X is an iterator, which can be read only once.
    TypeError
        If values are not numbers.
    MemoryError
        If the result is larger than memory.
    KeyboardInterrupt
        On Ctrl-C.

    See Also
    --------
    shoal.curation.sample : A sample that is balanced over clusters.
    shoal.knn_graph : The nearest neighbors of every row.

    Notes
    -----
    Of byte-identical rows, only one is compared. Rows are divided into cells by k-means. A row is compared
    with the rows of its cell, and it visits the cells whose bisector with its own is within half of the
    threshold: of two rows within the threshold, at least one visits the cell of the other, so that no pair is
    missed. Distances are differences and sums in float64.

    Costs ``2 n k d`` operations for `k` cells and ``2 d`` for each compared pair. The fraction of pairs
    grows with the threshold. Memory beyond X and `memory`: about 60 bytes per row and the centers; with
    ``exact=False`` also ``12 n_probes`` bytes per row.

    References
    ----------
    A. Abbas, K. Tirumala, D. Simig, S. Ganguli and A. S. Morcos, "SemDeDup:
    Data-efficient learning at web-scale through semantic deduplication", 2023 (arXiv:2303.09540).

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.01], [0.0, 5.0]])
    >>> found = shoal.curation.deduplicate(X, 0.001)
    >>> found.keep_.tolist(), found.groups_.tolist(), found.n_pairs_
    ([True, True, False, False], [0, 1, 0, 1], 2)
    """
    threshold = _params.NOT_NEGATIVE.check("threshold", threshold)
    _params.one_of("metric", metric, Metric)
    _params.one_of("keep", keep, Keep)
    _params.one_of("linkage", linkage, Linkage)
    k = None if n_clusters == "auto" else _params.whole("n_clusters", n_clusters, 1, other="'auto' or ")
    if not isinstance(exact, (bool, np.bool_)):
        raise _params.ParameterError(f"`exact` must be True or False, got {_params.shown(exact)}")
    probes = _params.whole("n_probes", n_probes, 1)
    limit, seed = _params.memory("memory", memory), _params.seed(random_state)
    threads, shows = _params.threads(n_jobs), _params.verbosity(verbose)
    if out is not None:
        check_output("out", out, ARRAYS)
    file = None
    if checkpoint is not None:
        check_output("checkpoint", checkpoint, MODELS)
        file = os.fsdecode(checkpoint)
    source, weights = as_weighted(with_random_access(X, "deduplicate"), sample_weight)
    seen = source.seen_by(metric)
    with showing("deduplicate", on=shows) as show:
        search = _core.DuplicateSearch(
            seen,
            threshold,
            metric=metric,
            keep=keep,
            linkage=linkage,
            n_clusters=k,
            n_probes=None if exact else probes,
            seed=seed,
            memory=max(limit, 1),
            weights=weights,
            threads=threads,
            checkpoint=file if file is not None and Path(file).exists() else None,
        )
        due = time.monotonic() + CHECKPOINT_PAUSE
        left = True
        while left:
            show(f"{search.done:.0%} of about {search.expected:.2%} of all pairs")
            try:
                left = search.advance(seen, threads)
            except KeyboardInterrupt:
                if file is not None:
                    search.write(file)
                raise
            if left and file is not None and time.monotonic() >= due:
                search.write(file)
                due = time.monotonic() + CHECKPOINT_PAUSE
        groups, n_pairs, n_cells, compared, recall = search.finish(seen, threads)
    keeps = groups == np.arange(len(groups))
    total = np.bincount(groups, weights=weights, minlength=len(groups))[keeps].astype(np.float64)
    if out is not None:
        write_values("out", out, "keep", keeps)
    if file is not None:
        Path(file).unlink(missing_ok=True)
    return Duplicates(keeps, groups, n_pairs, n_cells, compared, recall, total)
