"""Declares an estimator: its parameters are the fields of a class, which has rules for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

from shoal._common.params import Problems
from shoal._docs import documented

T = TypeVar("T")


@dataclass_transform(eq_default=False)
def estimator(cls: type[T]) -> type[T]:
    """Make the parameters of ``__init__`` of the fields of a class, and fill in its docstring.

    ``__init__`` only stores them, as scikit-learn asks for. Fitted attributes are no fields: they have no
    annotation in the body of the class.
    """
    return documented(dataclass(eq=False, repr=False, match_args=False)(cls))


class Checked(ABC):
    """Base class of estimators whose parameters are checked when a fit begins."""

    def _check(self) -> None:
        """Raise one error for all parameters of a wrong type or value."""
        problems = Problems()
        self._rules(problems)
        problems.refuse()

    @abstractmethod
    def _rules(self, problems: Problems) -> None:
        """Check the parameters; subclasses add their own."""
