"""Parameters as users give them, checked and made what the compiled half takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from shoal import _core

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
#: The most bytes that the compiled half can be told.
MOST_BYTES = 2**64 - 1
#: As many threads as a pool can have.
MOST_THREADS = 2**16 - 1
LONGEST_SHOWN = 100
#: The default of parameters that are amounts of memory.
DEFAULT_MEMORY = "1GB"

#: What :func:`shoal.config_context` sets: threads that ``n_jobs=None`` stands for, bytes that budgets have.
N_THREADS: ContextVar[int | None] = ContextVar("N_THREADS", default=None)
MEMORY: ContextVar[int | None] = ContextVar("MEMORY", default=None)


class ParameterError(ValueError, TypeError):
    """One or more parameters are of the wrong type or outside their range; all of them are listed."""


class Problems:
    """What is wrong with parameters, collected so that all of it is said at once."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def check(self, rule: Callable[..., object], *given: Any, **more: Any) -> None:
        """Note what `rule` refuses."""
        try:
            rule(*given, **more)
        except ParameterError as error:
            self._found.append(str(error))

    def add(self, problem: str) -> None:
        """Note a problem."""
        self._found.append(problem)

    def refuse(self) -> None:
        """Raise an error that lists all problems, if there are any."""
        if self._found:
            raise ParameterError("; ".join(self._found))


def shown(value: Any) -> str:
    """Give a value as one short line, for messages."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        # Python does not print integers of thousands of digits.
        return "an integer of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether `value` is an integer; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def is_real(value: Any) -> TypeGuard[float]:
    """Whether `value` is a real number, infinite ones and NaN included; True and False are not."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
        value, (bool, np.bool_)
    )


def is_number(value: Any) -> TypeGuard[float]:
    """Whether `value` is a real number that a float can hold, and finite."""
    try:
        return is_real(value) and math.isfinite(value)
    except OverflowError:
        return False


def whole(name: str, value: Any, least: int, *, most: int = MOST, other: str = "") -> int:
    """Give `value` as an int, if it is one of `least` to `most`; `other` says what else may be given."""
    if not is_whole(value) or value < least:
        raise ParameterError(f"{name} must be {other}an integer of at least {least}, got {shown(value)}")
    if value > most:
        raise ParameterError(f"{name} must be {other}an integer from {least} to {most}, got {shown(value)}")
    return int(value)


def at_least_0(name: str, value: Any) -> float:
    """Give `value` as a float, if it is a finite number of at least 0."""
    if not is_number(value) or value < 0:
        raise ParameterError(f"{name} must be a finite number of at least 0, got {shown(value)}")
    return float(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...], later: tuple[str, ...] = ()) -> str:
    """Give `value`, if it is one of the texts allowed; those of a later version are refused as such."""
    if isinstance(value, str) and value in allowed:
        return value
    known = ", ".join(allowed)
    if isinstance(value, str) and value in later:
        raise ParameterError(f"{name}={value!r} is not implemented in this version, use one of {known}")
    raise ParameterError(f"{name} must be one of {known}, got {shown(value)}")


def verbosity(value: Any) -> bool:
    """Whether `verbose` asks for a progress bar."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return whole("verbose", value, 0, other="True, False or ") > 0


def memory(name: str, value: Any) -> int:
    """Bytes of a memory budget.

    ``"1GB"``, the default of all budgets, stands for what :func:`shoal.config_context` sets.
    """
    set_for_all = MEMORY.get()
    if isinstance(value, str) and value == DEFAULT_MEMORY and set_for_all is not None:
        return set_for_all
    return n_bytes(name, value)


def n_bytes(name: str, value: Any) -> int:
    """Bytes of an amount of memory such as ``"1GB"``, ``"500 MiB"`` or a number of bytes."""
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
        f"{name} must be an amount of memory such as '1GB', '500MiB' or a number of bytes, at most "
        f"2**64 - 1, got {shown(value)}"
    )


def check_callbacks(problems: Problems, callbacks: Any) -> None:
    """Note what is wrong with callbacks: any iterable of callables will do."""
    if isinstance(callbacks, (str, bytes)) or not (callbacks is None or hasattr(callbacks, "__iter__")):
        problems.add(f"callbacks must be None or a list of callables, got {shown(callbacks)}")
    elif isinstance(callbacks, (list, tuple)):
        for callback in callbacks:
            if not callable(callback):
                problems.add(f"callbacks must be callables, got {shown(callback)}")


def threads(n_jobs: Any, *, tell: bool = True) -> int | None:
    """Give the number of threads; None is as many as this process may use.

    With `tell` a number that is too large warns.
    """
    if n_jobs is None:
        given = N_THREADS.get()
        # A variable that is no number is refused with the parameters, however short the work is.
        return _core.requested_threads() if given is None else given
    if not is_whole(n_jobs) or n_jobs == 0:
        raise ParameterError(f"n_jobs must be None, -1 or a number of threads, got {shown(n_jobs)}")
    if n_jobs > MOST_THREADS:
        raise ParameterError(
            f"n_jobs must be None, -1 or a number of threads from 1 to {MOST_THREADS}, got {shown(n_jobs)}"
        )
    if n_jobs < 0:
        return max(1, _core.available_threads() + 1 + int(n_jobs))
    most: int = _core.at_most_threads(n_jobs)
    if n_jobs > most and tell:
        from .warn import warn

        warn(f"n_jobs={n_jobs} is more than {most} threads, the most that are used here", RuntimeWarning)
    return most


def seed(random_state: Any) -> int:
    """Give 64 random bits: an int itself, eight bytes drawn from anything else."""
    if is_whole(random_state):
        if not 0 <= random_state < 2**64:
            raise ParameterError(f"random_state must be within 0..2**64 - 1, got {shown(random_state)}")
        return int(random_state)
    if random_state is None or random_state is np.random:
        # The generator that numpy.random.seed sets, as in scikit-learn.
        random_state = np.random.mtrand._rand
    if not isinstance(random_state, (np.random.RandomState, np.random.Generator)):
        raise ParameterError(
            f"random_state must be None, an int, a numpy RandomState or Generator, got {shown(random_state)}"
        )
    return int.from_bytes(random_state.bytes(8), "little")


def random_state_of(bits: int) -> np.random.RandomState:
    """Give the NumPy generator for 64 random bits, to hand to functions of the user."""
    return np.random.RandomState(bits) if bits < 2**32 else np.random.RandomState(np.random.MT19937(bits))


def weights(sample_weight: Any, rows: int | None) -> npt.NDArray[np.float64] | None:
    """Give weights as the compiled half takes them; it checks the values, and the length if it is unknown."""
    if sample_weight is None:
        return None
    given = _array("sample_weight", sample_weight)
    if given.dtype.kind == "c":
        raise ValueError("sample_weight must be real, got complex numbers")
    values = _numbers("sample_weight", given, np.float64)
    if given.ndim == 0:
        if rows is None:
            raise ValueError(
                "sample_weight must be an array, one weight a row, for a stream whose number of rows is not "
                f"known, got {shown(sample_weight)}"
            )
        return np.full(rows, values)
    if given.ndim != 1:
        raise ValueError(f"sample_weight must be 1-D, one weight a row, got shape {given.shape}")
    if rows is not None and len(values) != rows:
        raise ValueError(f"sample_weight has {len(values)} values, X has {rows} rows")
    if not values.any():
        raise ValueError("sample_weight must not be zero for every row")
    return values


def centers(name: str, value: Any, dtype: npt.DTypeLike, shape: tuple[int | None, int]) -> npt.NDArray[Any]:
    """Give centers as a C-order array of `dtype`, if they are finite and of that shape."""
    given = _array(name, value)
    if given.dtype.kind == "c":
        raise ValueError(f"{name} must be real, got complex numbers")
    rows, cols = shape
    if (
        given.ndim != 2
        or given.shape[1] != cols
        or (rows is not None and given.shape[0] != rows)
        or len(given) == 0
    ):
        wanted = f"({'any number of rows' if rows is None else rows}, {cols})"
        raise ValueError(f"{name} must have shape {wanted}, got {given.shape}")
    with np.errstate(over="ignore"):
        values = _numbers(name, given, dtype)
    if not np.isfinite(values).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(
            f"{name} holds {_not_finite(values[row, column])} at row {row}, column {column}: "
            "NaN and infinity are refused"
        )
    return values


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    """Give an array of any type; what is none, for example a list of uneven lists, is refused by name."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error


def _numbers(name: str, given: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Give an array in C order of `dtype`; what holds no numbers is refused by name."""
    try:
        return np.ascontiguousarray(given, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error


def _not_finite(value: Any) -> str:
    return "NaN" if math.isnan(value) else str(value)
