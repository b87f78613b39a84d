"""Aligned tables of text."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """Replace characters that change what a terminal or a page shows: white space, control and others."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def format_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Format a table: columns of equal width, aligned to the right."""
    lines = [head, *body]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )
