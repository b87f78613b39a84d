"""Checks parameters and converts them for the Rust code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias, TypeGuard, get_args

import numpy as np
import numpy.typing as npt

from shoal import _core

from .marked import ParameterError as ParameterError  # noqa: PLC0414 - other modules import it from here
from .marked import mark, marked_text
from .words import alternatives, suggest

UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}

#: The largest count that fits the columns of ``history_``.
MOST = 2**63 - 1
#: The largest number of bytes that fits the Rust code's type, a 64-bit integer.
MOST_BYTES = 2**64 - 1
#: The largest number of threads that a pool can have.
MOST_THREADS = 2**16 - 1
LONGEST_SHOWN = 100
#: Default of all memory parameters.
DEFAULT_MEMORY = "1GB"

#: Set by :func:`shoal.config_context`: threads for ``n_jobs=None``, bytes for memory parameters.
N_THREADS: ContextVar[int | None] = ContextVar("N_THREADS", default=None)
MEMORY: ContextVar[int | None] = ContextVar("MEMORY", default=None)


#: Checked weights of rows; None: each row counts 1.
RowWeights: TypeAlias = npt.NDArray[np.float64] | None


class Problems:
    """Collects the problems of all parameters, to raise them as one error."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def check(self, rule: Callable[..., Any], *given: Any, **more: Any) -> Any:
        """Return the result of `rule`; if it raises `ParameterError`, record the problem and return None."""
        try:
            return rule(*given, **more)
        except ParameterError as error:
            self._found.append((marked_text(error), str(error)))
            return None

    def add(self, problem: str, plain: str | None = None) -> None:
        """Record a problem, with what Python shows if this is another text."""
        error = ParameterError(problem, plain)
        self._found.append((marked_text(error), str(error)))

    def refuse(self) -> None:
        """Raise an error that lists all problems, if there are any."""
        if self._found:
            marked, plain = ("; ".join(texts) for texts in zip(*self._found, strict=True))
            raise ParameterError(marked, plain)


def shown(value: Any) -> str:
    """Format a value as one short line, for messages."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        # `repr` raises for integers of thousands of digits.
        return "an integer of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether `value` is an integer; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def is_real(value: Any) -> TypeGuard[float]:
    """Whether `value` is a real number, infinity or NaN; True and False are not."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
        value, (bool, np.bool_)
    )


def is_number(value: Any) -> TypeGuard[float]:
    """Whether `value` is a finite real number in the range of float64."""
    try:
        return is_real(value) and math.isfinite(value)
    except OverflowError:
        return False


def whole(name: str, value: Any, least: int, *, most: int = MOST, other: str = "") -> int:
    """Check that `value` is an integer from `least` to `most`; messages begin with `other`."""
    if not is_whole(value) or value < least:
        raise ParameterError(
            f"{mark(name)} must be {other}an integer of at least {least}, got {shown(value)}"
        )
    if value > most:
        raise ParameterError(
            f"{mark(name)} must be {other}an integer from {least} to {most}, got {shown(value)}"
        )
    return int(value)


class Number(NamedTuple):
    """The finite numbers that a parameter may have: in words, and their limits.

    Also an annotation of parameters of estimators.
    """

    allowed: str
    least: float = 0.0
    most: float = math.inf
    #: Whether `least` itself is not allowed.
    above: bool = False

    def check(self, name: str, value: Any, others: Sequence[str] = ()) -> float:
        """Check that `value` is one of the numbers; messages begin with `others`, which are allowed too."""
        fits = is_number(value) and self.least <= value <= self.most
        if not fits or (self.above and value == self.least):
            problem = f"{alternatives([*others, self.allowed])}, got {shown(value)}"
            raise ParameterError(f"{mark(name)} must be {problem}")
        return float(value)


FRACTION = Number("a number from 0 to 1", most=1.0)
POSITIVE_FRACTION = Number("a number above 0 and at most 1", most=1.0, above=True)
NOT_NEGATIVE = Number("a finite number of at least 0")
POSITIVE = Number("a finite number above 0", above=True)


def size(value: Any) -> int | float | None:
    """Return a count as an int, and a multiple, given as a float or as text such as ``"1.5x"``, as a float.

    None for other values.
    """
    if isinstance(value, str):
        number, x, rest = value.strip().partition("x")
        try:
            value = float(number) if x and not rest else None
        except ValueError:
            return None
    if not is_number(value) or value < 0:
        return None
    return int(value) if is_whole(value) else float(value)


def one_of(name: str, value: Any, options: Any) -> str:
    """Check that `value` is one of the strings of a `Literal`, such as those of `shoal.typing`."""
    allowed = get_args(options)
    if isinstance(value, str) and value in allowed:
        return value
    meant = suggest(value, allowed) if isinstance(value, str) else ""
    raise ParameterError(f"{mark(name)} must be one of {', '.join(allowed)}, got {shown(value)}{meant}")


def seeding(init: str, allowed: tuple[str, ...]) -> None:
    """Check that `init` is the name of a seeding."""
    if init not in allowed:
        known, got = ", ".join(allowed), f"got {shown(init)}{suggest(init, allowed)}"
        raise ParameterError(
            f"`init` must be one of {known}, or `centers`, {got}",
            f"init must be one of {known}, an array or a callable, {got}",
        )


def verbosity(value: Any, name: str = "verbose") -> bool:
    """Whether `verbose`, or `progress` of a function, asks for a progress bar."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return whole(name, value, 0, other="True, False or ") > 0


def memory(name: str, value: Any, *, other: str = "") -> int:
    """Convert a memory budget to bytes; `other` names what else is allowed, for the error.

    ``"1GB"``, the default of all budgets, means the budget of :func:`shoal.config_context` if there is one.
    """
    set_for_all = MEMORY.get()
    if isinstance(value, str) and value == DEFAULT_MEMORY and set_for_all is not None:
        return set_for_all
    return n_bytes(name, value, other=other)


def n_bytes(name: str, value: Any, *, other: str = "") -> int:
    """Convert an amount of memory such as ``"1GB"``, ``"500 MiB"`` or an int to bytes."""
    amount = -1
    if is_whole(value):
        amount = int(value)
    elif isinstance(value, str):
        digits = value.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
        unit = value.strip()[len(digits) :].strip().upper()
        with suppress(KeyError, ValueError, OverflowError):
            amount = int(float(digits) * UNITS[unit])
    if 0 <= amount <= MOST_BYTES:
        return amount
    raise ParameterError(
        f"{mark(name)} must be {other}an amount of memory such as '1GB', '500MiB' or a number of bytes, at "
        f"most 2**64 - 1, got {shown(value)}"
    )


def check_callbacks(problems: Problems, callbacks: Any) -> None:
    """Record a problem if `callbacks` is not None or an iterable of callables."""
    if isinstance(callbacks, (str, bytes)) or not (callbacks is None or hasattr(callbacks, "__iter__")):
        problems.add(f"callbacks must be None or a list of callables, got {shown(callbacks)}")
    elif isinstance(callbacks, (list, tuple)):
        for callback in callbacks:
            if not callable(callback):
                problems.add(f"callbacks must be callables, got {shown(callback)}")


def threads(n_jobs: Any, *, tell: bool = True) -> int | None:
    """Return the number of threads; None means all that this process may use.

    With `tell=True`, warn if the number is too large.
    """
    if n_jobs is None:
        given = N_THREADS.get()
        # Raises for an invalid environment variable, also if the work is too small for threads.
        return _core.requested_threads() if given is None else given
    if not is_whole(n_jobs) or n_jobs == 0:
        raise threads_error("", n_jobs)
    if n_jobs > MOST_THREADS:
        raise threads_error(f" from 1 to {MOST_THREADS}", n_jobs)
    if n_jobs < 0:
        # As in scikit-learn.
        return max(1, _core.available_threads() + 1 + int(n_jobs))
    most: int = _core.at_most_threads(n_jobs)
    if n_jobs > most and tell:
        from .warn import warn

        warn(f"`n_jobs`={n_jobs} is more than {most} threads, the most that are used here", RuntimeWarning)
    return most


def too_many_clusters(name: str, k: int, n: int) -> ParameterError:
    """Return the error for more clusters than rows; Python shows the text of scikit-learn."""
    return ParameterError(
        f"{mark(name)} must be at most the number of rows, {n}, got {k}",
        f"n_samples={n} should be >= {name}={k}.",
    )


def missing_attribute(owner: Any, name: str, why: str = "it is not fitted yet") -> AttributeError:
    """Return the error for a fitted attribute that an estimator does not have now."""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}: {why}")


def threads_error(allowed: str, n_jobs: Any) -> ParameterError:
    """Return the error for a number of threads that is not `allowed`."""
    problem = f"a number of threads{allowed}, -1 for all cores or -2 for all but one, got {shown(n_jobs)}"
    return ParameterError(f"`n_jobs` must be {problem}", f"n_jobs must be None, {problem}")


def seed(random_state: Any) -> int:
    """Return a 64-bit seed: `random_state` itself if it is an int, else 8 bytes drawn from it."""
    if is_whole(random_state):
        if not 0 <= random_state < 2**64:
            raise ParameterError(f"`random_state` must be within 0..2**64 - 1, got {shown(random_state)}")
        return int(random_state)
    if random_state is None or random_state is np.random:
        # The global generator that `numpy.random.seed` seeds, as in scikit-learn.
        random_state = np.random.mtrand._rand
    if not isinstance(random_state, (np.random.RandomState, np.random.Generator)):
        raise ParameterError(
            "`random_state` must be `None`, an int, a numpy RandomState or Generator, got "
            f"{shown(random_state)}"
        )
    return int.from_bytes(random_state.bytes(8), "little")


def random_state_of(bits: int) -> np.random.RandomState:
    """Return a NumPy generator seeded with 64 bits, for callables of the user."""
    return np.random.RandomState(bits) if bits < 2**32 else np.random.RandomState(np.random.MT19937(bits))


def weights(sample_weight: Any, rows: int | None, *, may_be_0: bool = False) -> RowWeights:
    """Convert weights to float64; the Rust code checks the values, and the length for a stream.

    `may_be_0` allows that all weights are 0, as those of one partition may be.
    """
    if sample_weight is None:
        return None
    given = _array("sample_weight", sample_weight)
    values = _numbers("sample_weight", given, np.float64)
    if given.ndim == 0:
        if rows is None:
            raise ValueError(
                "sample_weight must be an array, one weight per row, for a stream whose number of rows is "
                f"not known, got {shown(sample_weight)}"
            )
        return np.full(rows, values)
    if given.ndim != 1:
        raise ValueError(f"sample_weight must be 1-D, one weight per row, got shape {given.shape}")
    if rows is not None and len(values) != rows:
        raise ValueError(f"sample_weight has {len(values)} values, X has {rows} rows")
    if not may_be_0 and not values.any():
        raise ValueError("sample_weight must be above 0 for at least one row, got zero for every row")
    return values


def centers(name: str, value: Any, dtype: npt.DTypeLike, shape: tuple[int | None, int]) -> npt.NDArray[Any]:
    """Check centers for shape and finite values, and convert them to a C-order array of `dtype`."""
    given = _array(name, value)
    rows, cols = shape
    if (
        given.ndim != 2
        or given.shape[1] != cols
        or (rows is not None and given.shape[0] != rows)
        or len(given) == 0
    ):
        wanted = f"({'any number of rows' if rows is None else rows}, {cols})"
        raise ParameterError(f"{mark(name)} must have shape {wanted}, got {given.shape}")
    with np.errstate(over="ignore"):
        values = _numbers(name, given, dtype)
    if not np.isfinite(values).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ParameterError(
            f"{mark(name)} must be finite, got {_not_finite(values[row, column])} at row {row}, column "
            f"{column}"
        )
    return values


def numbers(name: str, value: Any, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Check an array of finite real numbers for its shape, and convert it to float64."""
    given = _array(name, value)
    if given.shape != shape:
        raise ParameterError(f"{mark(name)} must have shape {shape}, got {given.shape}")
    values: npt.NDArray[np.float64] = np.array(_numbers(name, given, np.float64)).reshape(shape)
    if not np.isfinite(values).all():
        raise ParameterError(f"{mark(name)} must be finite, got {shown(value)}")
    return values


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    """Convert `value` to an array of any type but complex; errors name the parameter."""
    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{mark(name)} must hold numbers: {error}") from error
    if given.dtype.kind == "c":
        raise ParameterError(f"{mark(name)} must be real, got complex numbers")
    return given


def _numbers(name: str, given: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Convert an array to `dtype` in C order; errors, as for text, name the parameter."""
    try:
        return np.ascontiguousarray(given, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"{mark(name)} must hold numbers: {error}") from error


def _not_finite(value: Any) -> str:
    return "NaN" if math.isnan(value) else str(value)


def for_run(name: str, value: Any, *, auto: bool = False) -> Any:
    """Return the parameter `name` as the compiled half takes it.

    Plain numbers replace those of NumPy, a byte count replaces a text such as ``"1GB"``, and with `auto`
    None replaces ``"auto"``; for a memory budget, that of :func:`shoal.config_context` if there is one.
    """
    if auto and isinstance(value, str) and value == "auto":
        return MEMORY.get() if "memory" in name else None
    if "memory" in name and value is not None:
        return memory(name, value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, Integral):
        # Larger integers are values of parameters that are real numbers.
        return int(value) if -MOST <= int(value) <= MOST_BYTES else float(value)
    return float(value) if isinstance(value, Real) else value
