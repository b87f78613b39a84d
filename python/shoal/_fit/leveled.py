"""The base class of estimators with several levels of clusters."""

from __future__ import annotations

import json
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal._checks import params as _params
from shoal._core import Source
from shoal._rows.arrays import source_of_values

from .clusterer import CenterClusterer
from .estimator import seed_of
from .levels import Level, counts_of_levels, fit_centers, is_several, levels_of
from .saved import Arrays, Claims, State, Texts, floats, need

#: The text of a file with the numbers of clusters of several levels.
LEVELS = "levels"
#: Centers of all levels, and parents of all but the last.
Hierarchy = tuple[list[npt.NDArray[Any]], list[npt.NDArray[np.int32]]]


class LeveledClusterer(CenterClusterer):
    """Base class of estimators whose `n_clusters` may be numbers of clusters of several levels.

    The rows are clustered with the first number. Every further level is a clustering of the centers of the
    level below. A subclass calls `_conclude_levels` at the end of a fit.
    """

    _counts_of_fit: list[int] | None
    #: Valid while the centers of its first level are those of the model.
    _hierarchy: Hierarchy | None

    @property
    def _k(self) -> Any:
        return self._counts[0] if is_several(self.n_clusters) else self.n_clusters

    @property
    def _counts(self) -> Any:
        """The numbers of clusters of all levels."""
        return self.n_clusters if is_several(self.n_clusters) else [self.n_clusters]

    def _rules(self, problems: _params.Problems) -> None:
        super()._rules(problems)
        if is_several(self.n_clusters):
            problems.check(counts_of_levels, "n_clusters", self.n_clusters, other="an integer or ")
        else:
            problems.check(_params.whole, "n_clusters", self.n_clusters, 1)

    def _run_params(self, init: Any, seed: int, **other: Any) -> dict[str, Any]:
        n_clusters = _params.for_run("n_clusters", self._k)
        return super()._run_params(init, seed, **{"n_clusters": n_clusters, **other})

    def _resumed_run(self, source: Source, rows: Any, weights: Any, state: State) -> Any:
        run = super()._resumed_run(source, rows, weights, state)
        # The further levels are made with the seed of the fit.
        self._seed = seed_of(state)
        return run

    @property
    def _fitted_counts(self) -> Any:
        """The numbers of clusters of all levels of the fit, whatever the parameter is now."""
        fitted = self.__dict__.get("_counts_of_fit")
        return self._counts if fitted is None else fitted

    def _conclude_levels(self) -> None:
        """Cluster the centers for the further levels, if there are enough of them."""
        self._counts_of_fit = [int(k) for k in self._counts]
        if self._is_grown():
            self._make_levels()

    def _is_grown(self) -> bool:
        """Whether there are enough centers for the next level: a fit may end while the tree grows."""
        return len(self._fitted_counts) == 1 or len(self.cluster_centers_) > self._fitted_counts[1]

    def _make_levels(self) -> Hierarchy:
        """Return the centers and parents of all levels, which are made once."""
        first = self.cluster_centers_
        made = self._hierarchy
        if made is None or made[0][0] is not first:
            centers, parents = [first], list[npt.NDArray[np.int32]]()
            for k in self._fitted_counts[1:]:
                below = source_of_values(centers[-1])
                of_level, above = fit_centers(
                    below, int(k), metric=self.metric, seed=self._seed, threads=self._threads
                )
                centers.append(of_level)
                parents.append(above)
            made = self._hierarchy = centers, parents
        return made

    @property
    def levels_(self) -> list[Level]:
        """The levels of the hierarchy, the first one first."""
        if "_history" not in self.__dict__:
            raise _params.missing_attribute(self, "levels_")
        if not self._is_grown():
            raise _params.missing_attribute(
                self,
                "levels_",
                f"the model has {len(self.cluster_centers_)} clusters, not more than the "
                f"{self._fitted_counts[1]} of the second level, because the fit ended early or clusters "
                "joined in an update",
            )
        return levels_of(*self._make_levels(), self._known("labels"))

    def _forget(self) -> None:
        super()._forget()
        self._hierarchy = self._counts_of_fit = None

    # ---------------------------------------------------------------- keeping

    def _plain_params(self) -> dict[str, Any]:
        # Rust and scikit-learn have a single number.
        return super()._plain_params() | {"n_clusters": self._k}

    def _described(self) -> tuple[Arrays, Texts]:
        arrays, texts = super()._described()
        return arrays, texts | self._text_of_levels()

    def _text_of_levels(self) -> Texts:
        counts = self._fitted_counts
        if len(counts) == 1:
            return {}
        return {LEVELS: json.dumps({"n_clusters": [int(k) for k in counts], "seed": str(self._seed)})}

    @classmethod
    def _of_params(cls, arrays: Arrays, meta: Texts) -> Self:
        model = super()._of_params(arrays, meta)
        if LEVELS in meta:
            claims = Claims.read(meta, LEVELS)
            model.n_clusters = counts_of_levels("n_clusters", claims.counts("n_clusters"))
            seed = claims.text("seed") or ""
            need(seed.isdecimal() and int(seed) < 2**64, f"its seed of levels is {seed!r}")
            model._seed = int(seed)
        return model

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = super()._kept()
        if self._is_grown():
            centers, parents = self._make_levels()
            arrays |= {f"levels.{i}.parents": above for i, above in enumerate(parents)}
            arrays |= {f"levels.{i}.cluster_centers": of_level for i, of_level in enumerate(centers) if i}
        return arrays, texts | self._text_of_levels()

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        model = super()._restored(arrays, meta)
        if "levels.0.parents" in arrays:
            centers, all_parents = [model.cluster_centers_], []
            for i, k in enumerate(model._counts[1:]):
                name = f"levels.{i}.parents"
                parents = arrays.get(name, np.empty(0))
                need(
                    parents.dtype == np.int32 and parents.shape == (len(centers[-1]),),
                    f"its array {name!r} is not of one int32 per cluster",
                )
                need(bool(((parents >= 0) & (parents < k)).all()), f"its array {name!r} names no clusters")
                all_parents.append(parents)
                shape = (k, model.n_features_in_)
                centers.append(floats(arrays, f"levels.{i + 1}.cluster_centers", shape))
            model._hierarchy = centers, all_parents
        return model
