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

from shoal._common import params
from shoal._common.params import Problems
from shoal._docs import documented
from shoal.typing import Memory

T = TypeVar("T")
#: Checks the value of a parameter, given its name.
Rule = Callable[[str, Any], object]


@dataclass_transform(eq_default=False)
def estimator(cls: type[T]) -> type[T]:
    """Make the parameters of ``__init__`` of the fields of a class, and fill in its docstring.

    ``__init__`` only stores them, as scikit-learn asks for. Fitted attributes are no fields: they have no
    annotation in the body of the class.
    """
    return documented(dataclass(eq=False, repr=False, match_args=False)(cls))


class AtLeast(NamedTuple):
    """The least value of an integer parameter, as an annotation; 1 without one."""

    value: int


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


@cache
def _rules_of(cls: type[Any]) -> dict[str, Rule]:
    """Return the rules that follow from the types of the parameters."""
    hints = get_type_hints(cls, include_extras=True)
    # These two have rules of their own.
    names = [field.name for field in fields(cls) if field.name not in ("n_jobs", "verbose")]
    return {name: rule for name in names if (rule := _rule_of(hints[name])) is not None}


def _rule_of(hint: Any) -> Rule | None:
    """Return the rule of a type: a flag, an amount of memory, one of some names, or an integer."""
    if hint is bool:
        return params.flag
    if hint == Memory:
        return params.memory
    if get_origin(hint) is Literal:
        return partial(params.one_of, allowed=get_args(hint))
    least = 1
    if get_origin(hint) is Annotated:
        hint, least = hint.__origin__, hint.__metadata__[0].value
    among = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    others = {Literal["auto"]: "auto", NoneType: None}
    if int not in among or among - {int, *others}:
        return None
    return partial(_whole_or, least=least, others=[value for kind, value in others.items() if kind in among])


def _whole_or(name: str, value: Any, *, least: int, others: list[str | None]) -> None:
    """Check that `value` is an integer of at least `least`, or one of the others."""
    if any(value is other or (isinstance(value, str) and value == other) for other in others):
        return
    known = "".join(f"{'`None`' if other is None else repr(other)} or " for other in others)
    params.whole(name, value, least, other=known)
