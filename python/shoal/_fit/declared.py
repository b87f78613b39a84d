"""Declares an estimator: its parameters are the fields of a class, and most rules follow from their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from shoal._checks import params
from shoal._checks.marked import mark
from shoal._checks.params import Number, Problems
from shoal._checks.words import alternatives
from shoal._docs import documented
from shoal.typing import Memory

T = TypeVar("T")
#: Checks the value of a parameter, given its name.
Rule = Callable[[str, Any], object]


@dataclass_transform(eq_default=False)
def estimator(cls: type[T]) -> type[T]:
    """Turn the fields of a class into parameters of ``__init__``, and fill in its docstring.

    ``__init__`` only stores them, as scikit-learn requires. Fitted attributes do not become parameters,
    because they have no annotation in the body of the class.
    """
    made = dataclass(eq=False, repr=False, match_args=False)(cls)
    shown: dict[str, str] = vars(made)["__init__"].__annotations__
    for name, hint in shown.items():
        # Signatures show types, without the values that are allowed.
        if hint is not None and hint.startswith("Annotated["):
            shown[name] = hint.removeprefix("Annotated[").rpartition(", ")[0]
    return documented(made)


class AtLeast(NamedTuple):
    """The least value of an integer parameter, as an annotation; 1 without one."""

    value: int


#: Value of the earlier name of a parameter when it is not set, and its annotation.
UNSET = "deprecated"


class Checked:
    """Base class of estimators whose parameters are checked when a fit begins."""

    def _check(self) -> None:
        """Raise one error for all parameters of a wrong type or value."""
        problems = Problems()
        self._rules(problems)
        problems.refuse()

    def _rules(self, problems: Problems) -> None:
        """Check the parameters whose types say what is allowed; subclasses check the others."""
        # mypy takes classes with a declared `__hash__` for unhashable ones.
        for name, rule in _rules_of(type(self)).items():  # type: ignore[arg-type]
            problems.check(rule, name, getattr(self, name))


def is_unset(value: Any) -> bool:
    """Whether the value of the earlier name of a parameter is its default."""
    return isinstance(value, str) and value == UNSET


@cache
def _rules_of(cls: type[Any]) -> dict[str, Rule]:
    """Return the rules that follow from the types of the parameters."""
    hints = get_type_hints(cls, include_extras=True)
    # These two have rules of their own.
    names = [field.name for field in fields(cls) if field.name not in ("n_jobs", "verbose")]
    return {name: rule for name in names if (rule := _rule_of(hints[name])) is not None}


def _rule_of(hint: Any) -> Rule | None:
    """Return the rule of a type, which may also allow None or ``"auto"``; None for other types."""
    wanted: Any = AtLeast(1)
    if get_origin(hint) is Annotated:
        hint, wanted = hint.__origin__, hint.__metadata__[0]
    if get_origin(hint) is Literal:
        return partial(params.one_of, options=hint)
    among = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    words = {Literal["auto"]: "auto", NoneType: None}
    others = [word for kind, word in words.items() if kind in among]
    among -= words.keys()
    if is_unset(wanted):
        others.append(UNSET)
    if isinstance(wanted, Number):
        return partial(_one_of_or, others, wanted.check)
    if among == {bool}:
        return partial(_one_of_or, others, _flag)
    if among == {int}:
        return partial(_one_of_or, others, partial(_whole, wanted.value))
    return partial(_one_of_or, others, _memory) if among == set(get_args(Memory)) else None


def _one_of_or(others: list[str | None], rule: Callable[..., object], name: str, value: Any) -> None:
    """Check that `value` is one of the others, or follows the rule, whose message begins with them."""
    if not any(value is other or (isinstance(value, str) and value == other) for other in others):
        rule(name, value, ["`None`" if other is None else repr(other) for other in others])


def _flag(name: str, value: Any, others: list[str]) -> None:
    if not isinstance(value, (bool, np.bool_)):
        problem = f"{alternatives([*others, '`True`', '`False`'])}, got {params.shown(value)}"
        raise params.ParameterError(f"{mark(name)} must be {problem}")


def _whole(least: int, name: str, value: Any, others: list[str]) -> None:
    params.whole(name, value, least, other=f"{', '.join(others)} or " if others else "")


def _memory(name: str, value: Any, others: list[str]) -> None:
    known = [other for other in others if other != repr(UNSET)]
    params.memory(name, value, other=f"{', '.join(known)} or " if known else "")
