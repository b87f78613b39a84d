"""Labels and inertia that a pass over the rows computes when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from opcode import opmap
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

#: The instruction for ``model.labels_``, and the instruction of the caches that follow it.
BY_NAME, CACHE = opmap["LOAD_ATTR"], opmap["CACHE"]


def is_by_name(frame: FrameType | None) -> bool:
    """Whether a frame evaluates an expression such as ``model.labels_``.

    `hasattr` and `getattr`, which tools that inspect objects use, are function calls instead. A property can
    tell an expression from such a call only by the bytecode of its caller. The answer decides when a pass is
    made, never what it computes: a `Deferred` value has the same numbers.
    """
    if frame is None:
        return False
    code, at = frame.f_code.co_code, frame.f_lasti
    # Python 3.12 is at the last cache of an instruction that it has specialized.
    while at > 0 and code[at] == CACHE:
        at -= 2
    return code[at] == BY_NAME


class Deferred(np.lib.mixins.NDArrayOperatorsMixin):
    """A value that is computed when it is used, but not when it is displayed.

    `getattr` and inspections get this in place of an array or a number that needs a pass over the rows.
    Expressions such as ``model.labels_`` get the array or the number itself: extension modules, pandas and
    ``isinstance`` tell an array from an object that behaves like one.

    `compute` returns the value, of type `kind`, and is called once. `known` holds attributes of the value
    that inspections read. Those that are None are missing until it is computed.
    """

    def __init__(self, compute: Callable[[], Any], kind: type, known: dict[str, Any]) -> None:
        self._compute: Callable[[], Any] | None = compute
        self._kind, self._known = kind, known
        self._found: Any = None

    def _value(self) -> Any:
        if self._compute is not None:
            self._found = self._compute()
            self._compute = None
        return self._found

    def __repr__(self) -> str:
        return "<not computed yet>" if self._compute is not None else repr(self._found)

    def __getattr__(self, name: str) -> Any:
        known = self.__dict__.get("_known", {})
        if known.get(name) is not None:
            return known[name]
        # Inspections look for methods with an underscore, and for the shape. They must not compute the value.
        unknown = name in known and self._compute is not None
        if name.startswith("_") or not hasattr(self._kind, name) or unknown:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._value(), name)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found = np.asarray(self._value(), dtype=dtype)
        return found.copy() if copy else found

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:
        if "out" in given:
            given["out"] = tuple(map(_value_of, given["out"]))
        return getattr(ufunc, method)(*map(_value_of, inputs), **given)

    def __len__(self) -> int:
        shape = self._known.get("shape")
        return len(self._value()) if shape is None else int(shape[0])

    def __getitem__(self, index: Any) -> Any:
        return self._value()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._value()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value())

    def __bool__(self) -> bool:
        return bool(self._value())

    def __float__(self) -> float:
        return float(self._value())

    def __int__(self) -> int:
        return int(self._value())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._value(), digits)

    def __format__(self, text: str) -> str:
        return format(self._value(), text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _value_of, (self._value(),)


def _value_of(thing: Any) -> Any:
    """Return the value of a `Deferred`; anything else as it is."""
    return thing._value() if isinstance(thing, Deferred) else thing
