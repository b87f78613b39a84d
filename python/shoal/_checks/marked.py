"""Messages that mark the names of parameters, so that the command line can name its options instead.

A marked message holds names in backticks, as in ``"`tol` must be ..., got ..."``. Python shows it without the
backticks. A value may follow a name: ``"`shuffle`=False"``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: A marked name, and its value.
MARK = re.compile(
    r"`(?P<name>[A-Za-z_]\w*)`(?:=(?P<value>'[^']*'|\"[^\"]*\"|\[[^\]]*\]|(?:[\w.+-]*[\w+-])?))?", re.ASCII
)


class MarkedError(ValueError):
    """An error with a marked message; Python shows `plain`, by default the message without marks."""

    # Tracebacks show this module, and pickles look the class up there.
    __module__ = "shoal"

    def __init__(self, marked: str, plain: str | None = None) -> None:
        super().__init__(unmarked(marked) if plain is None else plain)
        self.marked = marked


class ParameterError(MarkedError, TypeError):
    """One or more parameters have a wrong type or value; the message lists all of them."""

    __module__ = "shoal"


def mark(name: str) -> str:
    """Mark the name of a parameter; options and other names stay as they are."""
    return f"`{name}`" if name.isidentifier() else name


def unmarked(message: str) -> str:
    """Remove the marks of a message."""
    return MARK.sub(lambda mark: mark[0].replace("`", "", 2), message)


def marked_text(problem: BaseException | Warning) -> str:
    """Return the message of an error or a warning, with its marks if it has any."""
    return str(getattr(problem, "marked", problem))


def marks(message: str) -> list[str]:
    """List the marked names of a message."""
    return [mark["name"] for mark in MARK.finditer(message)]


def replaced(message: str, replacement: Callable[[str, str | None], str]) -> str:
    """Replace every mark by the result of `replacement` for its name and its value, None without a value."""
    return MARK.sub(lambda mark: replacement(mark["name"], mark["value"]), message)
