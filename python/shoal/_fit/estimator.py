"""The base class of the estimators on one machine: lazy attributes, pickling and saving."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks import params as _params
from shoal._checks.marked import MarkedError
from shoal._checks.params import RowWeights
from shoal._checks.warn import warn_of_name
from shoal._core import Source, Step
from shoal._rows.checked import checked_rows, source_of
from shoal._rows.features import names_of
from shoal.formats.stream import name_errors
from shoal.typing import Metric, PathName, Rows

from .declared import UNSET, is_unset
from .history import STEP_DTYPE, STEP_FIELDS, read_history, record, rows_of_history, stored_history
from .labels import LazyLabels
from .models import save
from .saved import Arrays, Claims, State, Texts, floats, need
from .watch import watching

#: Parameters that may be arrays of initial centers.
CENTER_PARAMETERS = ("init", "means_init")
#: Parameters that may be other arrays, which files hold as float64 of any shape.
ARRAY_PARAMETERS = ("weights_init", "precisions_init")

#: Attributes that a fit sets before its first step.
OF_A_START = (
    "n_features_in_",
    "feature_names_in_",
    "_seed",
    "_chosen_factors",
    "_by_callable",
    "_of_files",
)

#: Parameters that are not saved: code cannot be.
OF_A_RUN = ("callbacks",)

#: Budgets in the compiled half, all set by the parameter `memory`.
BUDGETS = ("bounds_memory", "buffer_memory", "memory_limit", "responsibilities_memory")

#: Keys of `timings_`.
PHASES = ("seeding", "sweeps", "final")
#: The text of a checkpoint with the seed of the run, and what else `_at_begin` returns.
BEGIN = "begin"


def seed_of(state: State) -> int:
    """Return the seed in a checkpoint, which may have 64 bits."""
    text = Claims.read(state[2], BEGIN).text("seed") or ""
    need(text.isascii() and text.isdigit() and len(text) <= 20, f"its seed is {text!r}")
    return int(text)


def has_begun(state: State) -> bool:
    """Whether a checkpoint holds at least initial centers."""
    # Several starts of a callable are written only after a step, without the text of a single run.
    if len(state[1].get("history_counts", ())) or not {BEGIN, "run"} <= state[2].keys():
        return True
    return Claims.read(state[2], "run").flag("begun")


class Clusterer(LazyLabels):
    """Base class of the estimators on one machine."""

    #: The kind in files of the estimator: ``{_kind}-model`` or ``{_kind}-checkpoint``.
    _kind: ClassVar[str]

    #: The method of the compiled half.
    _method: ClassVar[str]
    #: Parameters of the method that are no parameters of the estimator.
    _hidden: ClassVar[tuple[str, ...]] = ()

    #: Name of the parameter for the number of clusters.
    _count: ClassVar[str] = "n_clusters"
    #: Keys of `timings_`.
    _phases: ClassVar[tuple[str, ...]] = PHASES
    #: Name of `n_iter_` in `repr`.
    _iterations: ClassVar[str] = "n_iter"

    _set_early = ("n_features_in_", "feature_names_in_")

    n_features_in_: int
    feature_names_in_: npt.NDArray[Any]
    n_iter_: int
    timings_: dict[str, float]
    init_: str
    init: Any
    memory: Any
    random_state: Any

    @property
    @abstractmethod
    def _representatives(self) -> npt.NDArray[Any]:
        """Centers, means or modes, one per cluster, in the type that the rows are computed in."""

    @property
    @abstractmethod
    def _metric_of_rows(self) -> Metric:
        """The metric that says how rows are read: ``"cosine"`` scales them to length 1."""

    def _rows(self, X: Rows, *, reset: bool) -> Source:
        """Open `X` as a source; check its features or, with `reset`, store them."""
        return source_of(self._checked(X, reset=reset))

    def _checked(self, X: Rows, *, reset: bool) -> Any:
        """Return `X` as an array of numbers, a CSR matrix or a `DataSource`, checked as by `_rows`."""
        return checked_rows(self, X, reset=reset)

    def _run_params(self, init: Any, seed: int, **other: Any) -> dict[str, Any]:
        """Return the parameters of a run: those of the estimator, and `other` in place of some."""
        self._seed = seed
        given = {
            "init": init,
            "random_state": seed,
            "n_jobs": self._threads,
        } | other
        for name, default in _core.parameters(self._method).items():
            if name in given:
                continue
            if name in BUDGETS:
                asked, value = self._budget(name)
                if asked == name:
                    warn_of_name(name, "memory")
                given[name] = _params.for_run(asked, value, auto=default is None)
            elif name not in self._hidden:
                # A default of None stands for "auto".
                given[name] = _params.for_run(name, getattr(self, name), auto=default is None)
        return given

    def _budget(self, name: str) -> tuple[str, Any]:
        """Return the parameter that sets a budget, and its value: `name` if it is set, else ``"memory"``."""
        value = getattr(self, name, UNSET)
        return ("memory", self.memory) if is_unset(value) else (name, value)

    # ---------------------------------------------------------------- the loop

    @contextmanager
    def _set_aside(self) -> Generator[None]:
        """Restore what a fit sets before its first step, which it may never make."""
        before = self._of_a_start()
        try:
            yield
        finally:
            for name in self._of_a_start():
                delattr(self, name)
            vars(self).update(before)

    def _of_a_start(self) -> dict[str, Any]:
        """Return the attributes that a fit sets before its first step."""
        return {name: vars(self)[name] for name in OF_A_START if name in vars(self)}

    def _iterate(
        self,
        run: Any,
        source: Source,
        weights: RowWeights,
        prepare: Callable[[], object] | None = None,
        **more: Any,
    ) -> Iterator[Step]:
        """Return an iterator that calls `prepare`, then advances `run` to its end, one step per `next()`.

        The first `next()` replaces the attributes of an earlier fit, and sets those in `more` too. If an
        exception prevents the first step, the earlier fit comes back.
        """
        return self._iterated(run, source, weights, prepare, self._of_a_start() | more)

    def _iterated(
        self,
        run: Any,
        source: Source,
        weights: RowWeights,
        prepare: Callable[[], object] | None,
        begun: dict[str, Any],
    ) -> Iterator[Step]:
        parameters = self._get_param_names()
        before = {name: value for name, value in vars(self).items() if name not in parameters}
        try:
            self._forget()
            for name in self._of_a_start():
                delattr(self, name)
            vars(self).update(begun)
            self._run, self._visited, self._n_rows = run, (source, weights), source.shape[0]
            self._used_up = source.access == "once"
            if done := run.history():
                self._history.extend(map(record, done))
                self.stop_reason_ = done[-1].stop_reason
                self._update(run, done[-1])
            with watching(self) as watchers:
                try:
                    with closing(self._driven(run, watchers, prepare)) as steps:
                        for step in steps:
                            # Releases the labels and the run of the earlier fit.
                            before.clear()
                            yield step
                finally:
                    if self._run is run:
                        self._visited = None
        except BaseException:
            if self._run is run and not len(self._history):
                for name in vars(self).keys() - parameters:
                    delattr(self, name)
                vars(self).update(before)
            raise

    def _write_checkpoint(self, path: str) -> None:
        arrays, texts = self._described()
        self._run.write_checkpoint(path, arrays, texts | {BEGIN: json.dumps(self._at_begin())})

    def _at_begin(self) -> dict[str, Any]:
        """Return what was drawn or chosen when the fit began, for a resumed fit."""
        return {"seed": str(self._seed)}

    def _compare_checkpoint(self, name: str, state: State) -> None:
        kind, arrays, texts = state
        if kind != f"{self._kind}-checkpoint":
            raise MarkedError(f"{name}: must hold a fit of `{type(self).__name__}`, got {kind!r}")
        with name_errors(name, "is damaged"):
            kept = self._of_params(arrays, texts)
        self._compare_parameters(name, kept)
        # Several starts of a callable are not one run, which would know the rows.
        if hasattr(self._run, "compare_rows"):
            self._run.compare_rows(*state)

    def _compare_parameters(self, name: str, kept: Self) -> None:
        """Raise an error if a checkpoint is of an estimator with other parameters."""
        before, now = (model.get_params(deep=False) for model in (kept, self))
        for parameter in sorted(before.keys() - {"n_jobs", "verbose", "callbacks", *self._lost()}):
            was, given = before[parameter], now[parameter]
            if isinstance(was, np.ndarray):
                # Arrays are stored in the compute type of the rows.
                given = np.asarray(given, dtype=was.dtype)
            if not np.array_equal(was, given):
                shown = _params.shown
                raise _params.ParameterError(
                    f"{name}: `{parameter}` must be {shown(was)}, as in the checkpoint, got {shown(given)}"
                )

    def _is_before_first_step(self) -> bool:
        return super()._is_before_first_step() and hasattr(self._run, "compare_rows")

    def _made_anew(self, state: State, make: Callable[[], Any]) -> Any:
        """Make the run of a checkpoint that was written before the initial centers were chosen."""
        if self._by_callable and not callable(self.init):
            raise ValueError("init was a callable, which a checkpoint cannot hold: pass it again as init=")
        given, self.random_state = self.random_state, seed_of(state)
        try:
            run = make()
        finally:
            self.random_state = given
        run.compare_rows(*state)
        return run

    def _conclude(self, run: Any) -> None:
        # The last pass may move the centers.
        self._moment = object()
        self._complete(run)
        self._visited = None
        self._history = self.history_

    def _describe_init(self, init: Any, run: Any) -> str:
        """Return `init_`: the seeding of a run, or that `init` was an array or a callable."""
        if self._by_callable or callable(init):
            return "callable"
        seeding: str = run.init
        return seeding if isinstance(init, str) else "array"

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Show the parameters, and after a fit also clusters, rows, inertia and iterations."""
        parameters: str = super().__repr__(N_CHAR_MAX)
        figures = ", ".join(f"{name}={value}" for name, value in self._figures().items())
        return f"{parameters} <{figures}>" if figures else parameters

    def _figures(self) -> dict[str, str]:
        """Return the figures of a fit for `repr` that are known without another pass."""
        known = self.__dict__
        if "_history" not in known:
            return {}
        labels = known.get("_labels")
        rows = known.get("_n_rows") if labels is None else len(labels)
        inertia, n_iter = known.get("_inertia"), getattr(self, "n_iter_", None)
        return {
            "k": str(len(known.get("counts_", known.get("modes_", ())))),
            **({} if rows is None else {"n": str(rows)}),
            **({} if inertia is None else {"inertia": f"{inertia:.6g}"}),
            **({} if n_iter is None else {self._iterations: str(n_iter)}),
        }

    # ---------------------------------------------------------------- keeping

    #: The seed of the last run.
    _seed = 0
    #: Whether the fit was resumed, and its initial centers came from a callable.
    _by_callable = False

    def _described(self) -> tuple[Arrays, Texts]:
        """Return the parameters and feature names for a file, as arrays and texts."""
        params, arrays = self._plain_params(), {}
        for name in OF_A_RUN:
            params.pop(name)
        for name, value in params.items():
            if isinstance(value, np.generic):
                params[name] = value.item()
            elif not (value is None or isinstance(value, (bool, int, float, str))):
                is_array = name in CENTER_PARAMETERS + ARRAY_PARAMETERS and not callable(value)
                params[name] = "array" if is_array else None
                if name in ARRAY_PARAMETERS:
                    arrays[name] = np.ascontiguousarray(value, dtype=np.float64)
                elif is_array:
                    visited = self.__dict__.get("_visited")
                    dtype = visited[0].compute if visited else self._representatives.dtype
                    arrays[name] = np.ascontiguousarray(value, dtype=dtype)
        if params.get("init", "auto") is None:
            params["init"] = "auto"
        about = {
            "feature_names": names_of(self),
            "callable_init": self._by_callable or callable(self.init),
        }
        return arrays, {"params": json.dumps(params), "features": json.dumps(about)}

    def _plain_params(self) -> dict[str, Any]:
        """Return the parameters as files and other libraries take them."""
        return self.get_params(deep=False)

    def _lost(self) -> list[str]:
        """Return the names of parameters whose values a file cannot hold: callables and generators."""
        return [
            name
            for name, value in self.get_params(deep=False).items()
            if name not in OF_A_RUN
            and (callable(value) or isinstance(value, (np.random.RandomState, np.random.Generator)))
        ]

    @classmethod
    def _of_params(cls, arrays: Arrays, meta: Texts) -> Self:
        """Make an estimator from the parameters that `_described` returned."""
        given = Claims.read(meta, "params").parameters(cls._get_param_names())
        # Files of other versions may hold these parameters.
        given = {name: value for name, value in given.items() if name not in OF_A_RUN}
        if given.get("n_jobs") is not None:
            _params.threads(given["n_jobs"], tell=False)
        for name in CENTER_PARAMETERS:
            if given.get(name) == "array":
                given[name] = floats(arrays, name, (None, None))
        for name in ARRAY_PARAMETERS:
            if given.get(name) == "array":
                need(name in arrays, f"it lacks the array {name!r}")
                given[name] = floats(arrays, name, (None,) * arrays[name].ndim)
        return cls(**given)

    def _same_features(self, meta: Texts) -> bool:
        """Check feature names against a checkpoint; return whether a callable chose the initial centers."""
        features = Claims.read(meta, "features")
        names, known = features.texts("feature_names", optional=True), names_of(self)
        if names != known:
            raise ValueError(f"X must have the features of the checkpoint, {names}, got {known}")
        return features.flag("callable_init")

    def _kept_fit(self, texts: Texts) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
        """Return what all files hold of a fit: the numbers of `history_`, and plain values."""
        table, reasons = stored_history(self.history_)
        return table, {
            "stop_reason": self.stop_reason_,
            "stop_reasons": reasons,
            "n_iter": self.n_iter_,
            "n_zero_rows": self.n_zero_rows_,
            "timings": self.timings_,
            "init": self.init_,
            "feature_names": json.loads(texts["features"])["feature_names"],
            "lost": self._lost(),
        }

    def _recall_fit(self, arrays: Arrays, about: Claims, n_features: int) -> None:
        """Restore what `_kept_fit` returned."""
        self.n_features_in_ = n_features
        names = about.texts("feature_names", optional=True)
        if names is not None:
            need(len(names) == n_features, f"it has names for {len(names)} columns of {n_features}")
            self.feature_names_in_ = np.array(names, dtype=object)
        self.n_iter_ = about.count("n_iter")
        self.n_zero_rows_ = about.count("n_zero_rows", optional=True)
        self.timings_ = about.figures("timings", self._phases)
        self.init_ = str(about.text("init"))
        self.stop_reason_ = about.text("stop_reason", optional=True)
        steps, reasons = read_history(arrays, about)
        whole = [kind.startswith("i") for _, kind in STEP_FIELDS[:-1]]
        need(bool((np.abs(steps[:, whole]) < 2.0**63).all()), "its steps hold counts beyond 64 bits")
        self._history = np.array(rows_of_history(steps, reasons), dtype=STEP_DTYPE)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle plain values and arrays, without the run and the rows."""
        if self.__dict__.get("_finished") is not None:
            self._needing_a_pass("labels", None)
        state = dict(super().__getstate__())
        if "_history" in state:
            state["_history"] = self.history_
            state["_run"] = state["_visited"] = None
        return state

    def save(self, path: PathName) -> None:
        """Write the fitted model to a file that :func:`shoal.load` reads.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            One safetensors file, written to a temporary name and renamed. Labels are not saved: use
            ``predict``.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If there are no centers yet.
        ValueError
            If the suffix is that of another known format, such as ``.npy``.
        OSError
            If the file cannot be written.
        """
        save(self, path)

    @classmethod
    @abstractmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        """Make a fitted estimator from the contents of a file."""

    @abstractmethod
    def _kept(self) -> tuple[Arrays, Texts]:
        """Return the contents of a file of this estimator."""
