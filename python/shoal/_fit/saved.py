"""What model files claim, checked before it is believed."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal._common.params import MOST, is_number, is_whole, shown

#: What a file holds, by name.
Arrays = dict[str, npt.NDArray[Any]]
Texts = dict[str, str]
#: What a parameter in a file may be.
PLAIN = (bool, int, float, str)


def need(holds: bool, problem: str) -> None:
    """Refuse a file of which something does not hold."""
    if not holds:
        raise ValueError(problem)


def floats(arrays: Arrays, name: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """Give an array of finite floating-point numbers of that shape; None is any length."""
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
    """Give arrays and texts under longer names, so that they can lie in one file with others."""
    return (
        {prefix + name: array for name, array in arrays.items()},
        {prefix + name: text for name, text in texts.items()},
    )


def part(prefix: str, arrays: Arrays, texts: Texts) -> tuple[Arrays, Texts]:
    """Give what was put there under that prefix, under its own names."""
    return (
        {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)},
        {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)},
    )


class Claims:
    """A JSON object out of a file; nothing comes out of it that is not of the type asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    @classmethod
    def read(cls, texts: dict[str, str], name: str) -> Self:
        """Read the object that is one of a file's texts."""
        need(name in texts, f"it lacks the text {name!r}")
        try:
            values = json.loads(texts[name])
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its text {name!r} is no JSON: {error}") from error
        need(isinstance(values, dict), f"its text {name!r} is no JSON object")
        return cls(values)

    def _get(self, name: str, optional: bool) -> Any:
        need(optional or self._values.get(name) is not None, f"it lacks {name!r}")
        return self._values.get(name)

    def _refuse(self, name: str, value: Any, wanted: str) -> ValueError:
        try:
            return ValueError(f"its {name!r} is no {wanted}: {shown(value)}")
        except RecursionError:
            return ValueError(f"its {name!r} is no {wanted}")

    def text(self, name: str, *, optional: bool = False) -> str | None:
        """Give a text."""
        value = self._get(name, optional)
        if value is None or isinstance(value, str):
            return value
        raise self._refuse(name, value, "text")

    def texts(self, name: str, *, optional: bool = False) -> list[str] | None:
        """Give a list of texts."""
        value = self._get(name, optional)
        if value is None or (isinstance(value, list) and all(isinstance(text, str) for text in value)):
            return value
        raise self._refuse(name, value, "list of texts")

    def flag(self, name: str) -> bool:
        """Give a truth value."""
        value = self._get(name, optional=False)
        if isinstance(value, bool):
            return value
        raise self._refuse(name, value, "truth value")

    def count(self, name: str) -> int:
        """Give a count."""
        value = self._get(name, optional=False)
        if is_whole(value) and 0 <= value <= MOST:
            return int(value)
        raise self._refuse(name, value, "count")

    def figure(self, name: str, *, optional: bool = False) -> float | None:
        """Give a finite number of at least 0."""
        value = self._get(name, optional)
        if value is None:
            return None
        if is_number(value) and value >= 0:
            return float(value)
        raise self._refuse(name, value, "figure of at least 0")

    def figures(self, name: str, keys: Collection[str]) -> dict[str, float]:
        """Give one figure a key, and no other."""
        value = self._get(name, optional=False)
        if isinstance(value, dict) and set(value) == set(keys):
            inner = Claims(value)
            return {key: inner.figure(key) or 0.0 for key in keys}
        raise self._refuse(name, value, f"table of {', '.join(keys)}")

    def parameters(self, known: Collection[str]) -> dict[str, Any]:
        """Give plain values by the names of parameters."""
        for name, value in self._values.items():
            need(name in known, f"there is no parameter {name!r}")
            if not (value is None or isinstance(value, PLAIN)):
                raise self._refuse(name, value, "parameter")
        return dict(self._values)
