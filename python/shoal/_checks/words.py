"""Words of messages: alternatives, and the name that a misspelt one was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def alternatives(words: Sequence[str]) -> str:
    """Join words as in ``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def suggest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is most similar to a misspelt one; an empty string if there is none."""
    known = list(known)
    longer, shorter = (
        [other for other in known if len(name) > 2 and begins(other, name)]
        for begins in (str.startswith, lambda other, name: name.startswith(other))
    )
    similar = longer or difflib.get_close_matches(name, known, n=1) or shorter
    return f". Did you mean {similar[0]!r}?" if similar else ""
