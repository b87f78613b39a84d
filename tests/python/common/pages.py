"""The pages of documentation, and how their examples run."""

import io
import re
import shlex
import sys
from pathlib import Path

import pytest
from shoal import cli

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
#: A call of `print` with its output as a comment; "..." stands for any text.
PRINT = re.compile(r"^ *print\(.*\)  # (.*)$")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
#: A code block: its language, and its lines.
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What code blocks with lines of a shell are marked with.
SHELL = ("", "sh")


def blocks(page):
    """The code blocks of a page, in their order: languages and lines."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def examples(page):
    """The Python code blocks of a page."""
    return [block for language, block in blocks(page) if language == "python"]


def commands_in(block):
    """The lines of a block that run `shoal` in a shell, without comments."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line.partition(" #")[0].strip() for line in lines if line.startswith("shoal ")]


def commands(page):
    """The lines of a page that run `shoal` in a shell."""
    return [line for language, block in blocks(page) if language in SHELL for line in commands_in(block)]


def run_command(command):
    """Run a line of a shell in this process; it may read a file as standard input."""
    arguments, _, rest = command.partition(" <")
    with pytest.MonkeyPatch.context() as patched:
        if rest:
            patched.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(rest.strip()).read_bytes())))
        assert cli.main(shlex.split(arguments)[1:]) == 0, command


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
    """Run the examples and the shell lines of a page one after the other, in the working folder.

    Each call of `print` has its output as a comment.
    """
    names = {}
    for language, example in blocks(page):
        if language in SHELL:
            for command in commands_in(example):
                run_command(command)
        if language != "python":
            continue
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
