"""Reads the contents of model files, and checks types and shapes."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal._checks.params import MOST, is_number, is_whole, shown

#: The arrays and the texts of a file, by name.
Arrays = dict[str, npt.NDArray[Any]]
Texts = dict[str, str]
#: The contents of a model file or a checkpoint: its kind, arrays and texts.
State = tuple[str, Arrays, Texts]
#: Types that a parameter in a file may have.
PLAIN = (bool, int, float, str)


def need(holds: bool, problem: str) -> None:
    """Raise `ValueError` with `problem` unless `holds`."""
    if not holds:
        raise ValueError(problem)


def not_nan(value: Any) -> Any:
    """Return None for NaN, which JSON lacks; any other value as it is."""
    return None if isinstance(value, float) and math.isnan(value) else value


def floats(arrays: Arrays, name: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """Return a finite floating-point array of the file; None in `shape` is any length."""
    need(name in arrays, f"it lacks the array {name!r}")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(
        wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
    )
    need(fits, f"its array {name!r} has shape {array.shape}")
    need(
        array.dtype in (np.dtype(np.float32), np.dtype(np.float64)),
        f"its array {name!r} is of type {array.dtype}",
    )
    need(bool(np.isfinite(array).all()), f"its array {name!r} is not finite")
    return array


def put(prefix: str, arrays: Arrays, texts: Texts) -> tuple[Arrays, Texts]:
    """Prefix the names of arrays and texts, to store them in one file with others."""
    return (
        {prefix + name: array for name, array in arrays.items()},
        {prefix + name: text for name, text in texts.items()},
    )


def part(prefix: str, arrays: Arrays, texts: Texts) -> tuple[Arrays, Texts]:
    """Return the arrays and texts that `put` stored with a prefix, under their own names."""
    return (
        {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)},
        {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)},
    )


class Claims:
    """A JSON object of a file; every access checks the type of the value."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    @classmethod
    def read(cls, texts: Texts, name: str) -> Self:
        """Parse one of the texts of a file."""
        need(name in texts, f"it lacks the text {name!r}")
        try:
            values = json.loads(texts[name])
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its text {name!r} must be JSON: {error}") from error
        need(isinstance(values, dict), f"its text {name!r} must be a JSON object")
        return cls(values)

    def _get(self, name: str, optional: bool) -> Any:
        need(optional or self._values.get(name) is not None, f"it lacks {name!r}")
        return self._values.get(name)

    def _refuse(self, name: str, value: Any, wanted: str) -> ValueError:
        try:
            return ValueError(f"its {name!r} must be {wanted}, got {shown(value)}")
        except RecursionError:
            return ValueError(f"its {name!r} must be {wanted}")

    def text(self, name: str, *, optional: bool = False) -> str | None:
        """Return a string."""
        value = self._get(name, optional)
        if value is None or isinstance(value, str):
            return value
        raise self._refuse(name, value, "a text")

    def texts(self, name: str, *, optional: bool = False) -> list[str] | None:
        """Return a list of strings."""
        value = self._get(name, optional)
        if value is None or (isinstance(value, list) and all(isinstance(text, str) for text in value)):
            return value
        raise self._refuse(name, value, "a list of texts")

    def flag(self, name: str, *, missing: bool | None = None) -> bool:
        """Return a bool; `missing`, if it is one, in place of a missing value."""
        value = self._get(name, optional=missing is not None)
        if value is None:
            value = missing
        if isinstance(value, bool):
            return value
        raise self._refuse(name, value, "true or false")

    def count(self, name: str, *, optional: bool = False) -> int:
        """Return a non-negative integer; 0 if it is missing and `optional`."""
        value = self._get(name, optional)
        if value is None and optional:
            return 0
        if is_whole(value) and 0 <= value <= MOST:
            return int(value)
        raise self._refuse(name, value, "an integer of at least 0")

    def counts(self, name: str) -> list[int]:
        """Return a list of non-negative integers."""
        value = self._get(name, optional=False)
        if isinstance(value, list) and all(is_whole(each) and 0 <= each <= MOST for each in value):
            return value
        raise self._refuse(name, value, "a list of integers of at least 0")

    def figure(self, name: str, *, optional: bool = False) -> float | None:
        """Return a finite number of at least 0."""
        value = self._get(name, optional)
        if value is None:
            return None
        if is_number(value) and value >= 0:
            return float(value)
        raise self._refuse(name, value, "a finite number of at least 0")

    def figure_or_nan(self, name: str) -> float:
        """Return a finite number of at least 0; NaN if it is missing."""
        figure = self.figure(name, optional=True)
        return math.nan if figure is None else figure

    def figures(self, name: str, keys: Collection[str]) -> dict[str, float]:
        """Return a dict of finite numbers of at least 0 with exactly these keys."""
        value = self._get(name, optional=False)
        if isinstance(value, dict) and set(value) == set(keys):
            inner = Claims(value)
            return {key: inner.figure(key) or 0.0 for key in keys}
        raise self._refuse(name, value, f"a table of {', '.join(keys)}")

    def parameters(self, known: Collection[str]) -> dict[str, Any]:
        """Return all values, as parameters with one of the `known` names."""
        for name, value in self._values.items():
            need(name in known, f"there is no parameter {name!r}")
            if not (value is None or isinstance(value, PLAIN)):
                raise self._refuse(name, value, "None, a bool, a number or a text")
        return dict(self._values)
