"""`labels_` and `inertia_`, which an unfinished fit computes when they are read."""

from __future__ import annotations

import sys
from abc import abstractmethod
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks import params as _params
from shoal._checks.params import RowWeights
from shoal._core import Source

from .deferred import Deferred, is_by_name
from .loop import RunLoop

#: Rows of files up to which a finished fit converts its labels at once. Labels of more rows stay in the run
#: until they are read: it holds them in less memory, and no rows of files.
CONVERTED_ROWS = 1 << 24


class LazyLabels(RunLoop):
    """Base class of the estimators whose labels and inertia may need another pass over the rows.

    After the last step, `_complete` takes both from the run. Before, reading one of them makes a pass over
    the rows of the fit, for the centers of the last step. Tools that list the attributes of an estimator get
    a `Deferred` value instead, which makes the pass when it is used.
    """

    #: Rows and weights, while the run is not finished.
    _visited: tuple[Source, RowWeights] | None = None

    def _forget(self) -> None:
        super()._forget()
        self._visited = None
        self._drop_labels()
        # Number of rows of the fit, if known.
        self._n_rows: int | None = None
        # Whether the rows were a stream that can be read only once.
        self._used_up = False

    def _drop_labels(self) -> None:
        """Forget labels and inertia, which belong to other centers or rows."""
        self._labels: npt.NDArray[np.int32] | None = None
        # The finished run, while it holds the labels.
        self._finished: Any = None
        self._inertia: float | None = None
        # Changes with the model, so that `Deferred` values of an earlier one are not computed with this one.
        self._moment = object()

    @abstractmethod
    def _measure(self, source: Source, weights: RowWeights) -> tuple[npt.NDArray[np.int32], float]:
        """Compute labels and inertia of rows for the current model."""

    def _complete(self, run: Any) -> None:
        run.finish()
        self._inertia = run.inertia()
        if self.__dict__.get("_of_files") and (self._n_rows or 0) > CONVERTED_ROWS:
            self._finished = run
        else:
            self._labels = run.labels()
        self._run = None

    def _needing_a_pass(self, name: str, asker: FrameType | None) -> Any:
        """Return `labels` or `inertia`; make a pass for it if `asker` names it, see `Deferred`."""
        value = self._known(name)
        if value is not None:
            return value
        self._require_rows(name)
        if not is_by_name(asker):
            return self._deferred(name)
        self._make_pass()
        return self._known(name)

    def _known(self, name: str) -> Any:
        """Return `labels` or `inertia`, `None` if a pass must compute it."""
        if name == "labels" and self.__dict__.get("_finished") is not None:
            self._labels, self._finished = self._finished.labels(), None
        return self.__dict__.get("_" + name)

    def _deferred(self, name: str) -> Deferred:
        """Return `labels` or `inertia` as a value that is computed when it is used."""
        moment = self._moment

        def compute() -> Any:
            if self.__dict__.get("_moment") is not moment:
                raise RuntimeError(
                    f"{name}_ was not computed before the estimator changed. Read model.{name}_ earlier, or "
                    "use predict(X) or score(X)."
                )
            if self._known(name) is None:
                try:
                    self._require_rows(name)
                except AttributeError as error:
                    raise RuntimeError(str(error)) from error
                self._make_pass()
            return self._known(name)

        if name == "inertia":
            return Deferred(compute, float, {})
        n = self._n_labels()
        shape = None if n is None else (n,)
        return Deferred(
            compute, np.ndarray, {"dtype": np.dtype(np.int32), "ndim": 1, "shape": shape, "size": n}
        )

    def _n_labels(self) -> int | None:
        """Return the number of labels of the available rows, if it is known."""
        return self._n_rows

    def _make_pass(self) -> None:
        """Compute labels and inertia of the available rows."""
        visited = self._visited
        if visited is None:
            self._complete(self._run)
        else:
            # The run may continue, and completing it would change its next step.
            self._labels, self._inertia = self._measure(*visited)

    def _require_rows(self, name: str) -> None:
        """Raise `AttributeError` if no pass for `labels` or `inertia` is possible."""
        if self.__dict__.get("_run") is not None and len(self._history) and not self._used_up:
            return
        if "_history" not in self.__dict__:
            raise _params.missing_attribute(self, name + "_")
        dropped = not getattr(self, "compute_labels", True)
        reason = "compute_labels is False" if dropped else "the rows are no longer available"
        why = f"{reason}. Use predict(X) or score(X) instead."
        raise _params.missing_attribute(self, name + "_", why)

    @property
    def labels_(self) -> npt.NDArray[np.int32]:
        """Label of every row, an int32 array of shape (n_samples,)."""
        labels: npt.NDArray[np.int32] = self._needing_a_pass("labels", sys._getframe().f_back)
        return labels

    @labels_.setter
    def labels_(self, labels: Any) -> None:
        self._labels, self._finished = labels, None

    @property
    def inertia_(self) -> float:
        """Weighted sum of squared distances of the rows to their centers."""
        inertia: float = self._needing_a_pass("inertia", sys._getframe().f_back)
        return inertia

    @inertia_.setter
    def inertia_(self, inertia: float) -> None:
        self._inertia = float(inertia)
