"""The base class of estimators with `partial_fit`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError

from shoal import _core
from shoal._checks import params as _params
from shoal._checks.params import RowWeights
from shoal._checks.warn import may_raise
from shoal._core import Run, Source, Step
from shoal._rows.checked import learn_blocks, refuse_weights_of_stream, weighted
from shoal._rows.source import DataSource
from shoal._rows.zeros import warn_of_zeros
from shoal.typing import Rows, Weights

from .clusterer import CenterClusterer
from .saved import Arrays, Claims, State, Texts, need, part, put
from .watch import watching_batches

#: Prefix of the names of a state in a file.
PREFIX = "state."


class StreamClusterer(CenterClusterer):
    """Base class of the estimators that also learn from batches.

    A subclass sets `_method`, the method of the compiled half, and may override `_options`.

    The next batch goes to a run, the *stream*, which is kept in `_stream` between batches. After a fit, a
    load or a change of parameters, a stream is made from the *state* of the estimator: that of the old
    stream, that of the unfinished fit, or the one in `_state`.
    """

    n_steps_: int
    compute_labels: Any
    #: The run that learned the last batch, and the parameters that it was made with.
    _stream: Run | None = None
    _made_with: dict[str, Any] | None = None
    #: The state after a fit or a load.
    _state: State | None = None
    #: The last batch, its weights, and a fingerprint of its rows.
    _batch: tuple[Source, RowWeights, int] | None = None
    #: Rows of the first batches that wait for more rows, before there are centers.
    _n_waiting: int = 0
    _saved_attributes: ClassVar = {"n_steps_": "count"}

    def partial_fit(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> Self:
        """Learn from one batch of rows, of any size.

        The first batch initializes the centers. (`n_init` and `init_size` apply to :meth:`fit` only.) A first
        batch with fewer rows than clusters is kept until there are enough rows; until then, :meth:`predict`
        raises an error that says how many rows there are. Later batches continue from the previous state,
        also after :meth:`fit`, with the current parameter values. Memory does not grow with the number of
        batches: `history_` stays that of the last fit.

        If a batch raises, the estimator does not change, with one exception. A signal handler, such as that
        of Ctrl-C, can raise in the instant after a batch was learned and before the attributes are set. The
        next call then continues from the learned batch. Where each batch must count exactly once, set a flag
        in the handler and check it between two calls.

        Afterwards `labels_` and `inertia_` are those of this batch for the updated centers. They are computed
        on first access, or when the estimator is pickled, in a pass over the batch. The batch is not copied:
        access them before you overwrite its array. With ``compute_labels=False`` they do not exist, and the
        batch is not kept.

        Callbacks are called after each batch, once there are centers. Their results are ignored: a true
        value ends only a fit. Progress bars count rows.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`fit`. Later batches are computed in the type of the first. Each block of a stream or
            an iterator is one batch. If a block raises, the blocks before it have been learned.
        y : ignored
        sample_weight : array-like of shape (n_samples,), float or None
            Weight of every row: finite, at least 0, not all 0. None means 1. Must be None for a stream.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        ValueError, TypeError, OSError, KeyboardInterrupt
            As for :meth:`fit`. Also if the number of features differs from that of earlier batches, or if
            `callbacks` hold a :class:`~shoal.callbacks.Checkpoint`: use :meth:`save` between batches.
        """
        self._check()
        rows = self._checked(X, reset=self._current_stream() is None)
        with watching_batches(self) as watchers:
            if not isinstance(rows, DataSource) or rows.access == "random":
                self._learn(rows, sample_weight, watchers)
                return self
            refuse_weights_of_stream(sample_weight)
            with rows._batches() as blocks:
                learn_blocks(rows, blocks, lambda block, own: self._learn(block, own, watchers))
        return self

    def _learn(self, rows: Any, sample_weight: Weights, watchers: list[Any]) -> None:
        """Learn from one batch with checked features, and call the callbacks."""
        known = self._current_stream()
        source, weights = weighted(rows, sample_weight)
        if known is None:
            stream = self._first_stream(source, rows)
        elif known is self._stream and may_raise():
            # A run learns in place. A warning that is raised leaves the original as it was.
            stream = self._stream_from(known.state())
        else:
            stream = known
        before = stream.zero_rows
        step = stream.partial_fit(source, weights)
        # All attributes change at once, after everything that may raise.
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        if known is None:
            made._forget()
        made._use_stream(stream, step is not None)
        if step is None:
            made._n_waiting += source.shape[0] or 0
        elif self.compute_labels:
            made._batch = (source, weights, source.glance())
        warn_of_zeros(stream.zero_rows - before)
        if step is not None:
            made._warn_of(step)
        self.__dict__ = made.__dict__
        if step is not None:
            for watcher in watchers:
                watcher(self, step)

    def _warn_of(self, step: Step) -> None:
        """Warn about the result of a batch; for subclasses."""

    def _make_run(self, source: Source, rows: Any, weights: RowWeights) -> Run:
        seed = _params.seed(self.random_state)
        return self._start(source, weights, self._seeding_of_fit(source, rows, seed, weights), seed)

    def _first_stream(self, source: Source, rows: Any) -> Run:
        """Make the stream for a first batch."""
        seed = _params.seed(self.random_state)
        params = self._run_params(self._seeding(source, rows, seed), seed, **self._options(source))
        return _core.start(self._method, source, params, stream=True)

    def _stream_from(self, state: State) -> Run:
        """Make the stream that continues from a state."""
        return self._start(None, None, self._seeding_by_name(), 0, state)

    def _seeding_of_fit(
        self, source: Source, rows: Any, seed: int, weights: RowWeights
    ) -> str | npt.NDArray[Any]:
        """Return the seeding of a fit, which may differ from that of a first batch."""
        return self._seeding(source, rows, seed)

    def _settings(self) -> dict[str, Any]:
        """Return all parameters of a run of batches, to detect changes."""
        return self._run_params(self._seeding_by_name(), 0, **self._options(None))

    def _current_stream(self) -> Run | None:
        """Return the run that takes the next batch; None before the first one."""
        known = len(self.__dict__.get("counts_", ()))
        if known not in (0, self.n_clusters):
            raise ValueError(
                f"n_clusters={self.n_clusters} differs from the {known} centers that there are: call fit, or "
                "clone the estimator"
            )
        if self._stream is not None and self._made_with == self._settings():
            return self._stream
        state = self._current_state()
        if state is None:
            return None
        metric = Claims.read(state[2], "stream").text("metric", optional=True) or "euclidean"
        if metric != self.metric:
            raise ValueError(
                f"metric={self.metric!r} differs from {metric!r}, the metric of the centers that there are: "
                "call fit, or clone the estimator"
            )
        return self._stream_from(state)

    def _current_state(self) -> State | None:
        """Return the state that the next batch starts from; None before the first one."""
        run = self._run if self._stream is None else self._stream
        state: State | None = self._state if run is None else run.state()
        return state

    def _use_stream(self, stream: Run, begun: bool) -> None:
        """Update the estimator after a batch; `begun` says that the run has centers."""
        self._stream, self._state, self._made_with = stream, None, self._settings()
        # Labels of an earlier fit do not belong to the new centers.
        self._batch = self._run = self._visited = None
        if begun:
            self._n_waiting = 0
            self._update(stream, None)

    # ---------------------------------------------------------------- a fit

    def _forget(self) -> None:
        super()._forget()
        self._stream = self._state = self._made_with = self._batch = None
        self._n_waiting = 0

    def _require_fitted(self) -> None:
        if self._n_waiting:
            raise NotFittedError(
                f"this {type(self).__name__} has no centers yet: partial_fit has {self._n_waiting} of "
                f"{self.n_clusters} rows so far. Call it with more rows."
            )
        super()._require_fitted()

    def _require_rows(self, name: str) -> None:
        if self._batch is None:
            super()._require_rows(name)
            return
        rows, _, fingerprint = self._batch
        if rows.glance() != fingerprint:
            why = (
                "the rows of the last batch have changed since partial_fit. Use predict(X) or score(X) "
                "instead."
            )
            raise _params.missing_attribute(self, name + "_", why)

    def _n_labels(self) -> int | None:
        return self._n_rows if self._batch is None else self._batch[0].shape[0]

    def _make_pass(self) -> None:
        if self._batch is None:
            super()._make_pass()
            return
        labels, inertia = self._measure(*self._batch[:2])
        # The user may have assigned one of them.
        self._labels = labels if self._labels is None else self._labels
        self._inertia = inertia if self._inertia is None else self._inertia

    def _update(self, run: Any, step: Step | None) -> None:
        super()._update(run, step)
        self.n_steps_ = run.n_steps

    def _complete(self, run: Any) -> None:
        self._state = run.state()
        super()._complete(run)

    def _conclude(self, run: Any) -> None:
        if self.compute_labels and not self._used_up:
            super()._conclude(run)
            return
        self._state = run.state()
        self._conclude_without_labels(run)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle plain values and arrays, with the labels of the last batch and the state."""
        if self._batch is not None and self._labels is None:
            # The rows are not pickled. If they have changed, there are no labels.
            with suppress(AttributeError):
                self._require_rows("labels")
                self._make_pass()
        state = super().__getstate__()
        if "_history" in state:
            state["_state"] = self._current_state()
            state["_stream"] = state["_made_with"] = state["_batch"] = None
        return state

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = super()._kept()
        state = self._current_state()
        assert state is not None
        kind, more, meta = state
        more, meta = put(PREFIX, more, {"kind": kind, **meta})
        return arrays | more, texts | meta

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        model = super()._restored(arrays, meta)
        more, texts = part(PREFIX, arrays, meta)
        need("kind" in texts, "it lacks the state")
        model._state = (texts.pop("kind"), more, texts)
        stream = model._stream_from(model._state)
        need(
            np.array_equal(stream.centers(), model.cluster_centers_),
            "its state has other centers",
        )
        return model
