"""The pages of documentation, and how their examples run."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
#: A call of `print` with its output as a comment; "..." stands for any text.
PRINT = re.compile(r"^ *print\(.*\)  # (.*)$")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")


def blocks(page, language):
    """The code blocks of a page in a language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def examples(page):
    """The Python code blocks of a page."""
    return blocks(page, "python")


def agrees(stated, printed):
    """Whether a page states what was printed, up to white space and 0.1% of numbers that are not whole."""
    parts = [NUMBER.split(part) for part in " ".join(stated.split()).split("...")]
    number = f"({NUMBER.pattern})"
    pattern = ".*".join(number.join(map(re.escape, part)) for part in parts)
    match = re.fullmatch(pattern, " ".join(printed.split()))
    expected = NUMBER.findall(stated)
    return match is not None and all(
        found == value if value.isdigit() else float(found) == pytest.approx(float(value), rel=1e-3)
        for value, found in zip(expected, match.groups(), strict=True)
    )


def run(page):
    """Run the examples of a page one after the other; each call of `print` has its output as a comment."""
    names = {}
    for example in examples(page):
        lines, printed = example.splitlines(), {}

        def note(*values, lines=lines, printed=printed):
            at = sys._getframe(1).f_lineno - 1
            printed[at] = [*printed.get(at, []), *map(str, values)]

        names["print"] = note
        exec(compile(example, str(page), "exec"), names)
        assert printed.keys() == {at for at, line in enumerate(lines) if line.lstrip().startswith("print(")}
        for at, values in printed.items():
            found, stated = " ".join(values), PRINT.match(lines[at])
            assert stated, f"{page.name}: the page must state the output of {lines[at]!r}: {found}"
            assert agrees(stated[1], found), f"{page.name}: {lines[at]!r} prints {found}"
    return names
