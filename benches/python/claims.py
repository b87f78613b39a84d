"""Write the measured figures of the pages, and draw the pictures, from the tables in ``benches/results``.

``claims_list.py`` has the sentences. A claim is a sentence with places for numbers (``{:.1f}``) and a formula
for them. ``make claims`` finds each sentence in its page and writes its numbers; a picture is drawn again
when one of its tables has changed. With ``--check``, nothing is written, and differences are an error.

The machine of a page is the first of `MACHINES` that has all tables of the page: a page never mixes machines.
"""

from __future__ import annotations

import argparse
import ast
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from claims_list import CLAIMS, EXEMPT, PICTURES
from tables import MACHINES, ROOT, ClaimError, Claims, MissingTableError, Picture, Results, newest

#: A number in a page.
DIGITS = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?"


@dataclass(frozen=True)
class Number:
    """A number in a page: where it is, and what it should be."""

    start: int
    end: int
    text: str


def results_of(page: str, claims: Claims, pictures: Sequence[Picture]) -> Results:
    """Choose the first machine that has all tables of a page."""
    missing: list[str] = []
    for machine in MACHINES:
        results = Results(machine)
        try:
            for _, formula in claims.get(page, ()):
                formula(results)
            for name in (name for picture in pictures if page in picture.pages for name in picture.tables):
                newest(machine, name)
        except MissingTableError as error:
            missing.append(str(error))
        else:
            return results
    raise ClaimError(f"{page}: no machine has all tables: {'; '.join(missing)}")


def numbers(page: str, text: str, sentence: str, values: Sequence[float | str]) -> Iterator[Number]:
    """Find a sentence in a page, and yield its numbers."""
    pattern, formats = "", []
    for literal, _, form, _ in string.Formatter().parse(sentence):
        # Line breaks of the page, also in a docstring, count as spaces.
        pattern += r"\s+".join(map(re.escape, re.split(r"\s+", literal)))
        if form is not None:
            pattern += r"([^\n|]+?)" if form == "s" else rf"({DIGITS}%?)"
            formats.append(form)
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        raise ClaimError(f"{page}: found {len(found)} times instead of once: {sentence!r}")
    for number, (form, value) in enumerate(zip(formats, values, strict=True), 1):
        yield Number(*found[0].span(number), format(value, form))


def numbers_of(page: str, text: str, claims: Claims, results: Results) -> list[Number]:
    """Return the numbers of all claims of a page, in their order."""
    sentences = claims.get(page, ())
    found = [n for sentence, formula in sentences for n in numbers(page, text, sentence, formula(results))]
    return sorted(found, key=lambda number: number.start)


def written(text: str, found: Sequence[Number]) -> str:
    """Write numbers into a page."""
    for number in reversed(found):
        text = text[: number.start] + number.text + text[number.end :]
    return text


# ---------------------------------------------------------------- figures without a claim

WORDS = "two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|hundred"
UNITS = r" ?%|-fold\b| (?:ms|µs|ns|s|seconds|minutes|hours|[kMG]B|[GT]FLOP/s|GB/s|nats)\b"
#: A number with a unit, a multiple, or a decimal number in a cell of a table.
FIGURE = re.compile(
    rf"(?<![\w.-])(?:{DIGITS}(?:{UNITS}| times\b)|\b(?:{WORDS}) times as\b)|(?<=\| )[-+]?\d+\.\d+(?= \|)"
)
#: Code and addresses of links; lines of a session.
CODE = re.compile(r"```.*?^ *```|``.+?``|`[^`]+`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
CODE_LINE = re.compile(r"^ *(?:>>>|\.\.\.) .*$", re.MULTILINE)

#: The documentation of a private constant of Rust, which says how the constant was measured.
THRESHOLD = re.compile(r"(?:^ *///.*\n)+(?=(?:pub\([^)]*\) )?const [A-Z])", re.MULTILINE)


def blank(match: re.Match[str]) -> str:
    """Replace a match by spaces, so that positions stay."""
    return re.sub(r"[^\n]", " ", match[0])


def prose(path: Path) -> str:
    """Return a page, or the documentation in a source file, with spaces in place of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        text = re.sub(THRESHOLD, blank, text)
        text = re.sub(r"^(?! *//[/!]).*$", blank, text, flags=re.MULTILINE)
    elif path.suffix == ".py":
        lines = text.splitlines(keepends=True)
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        inside: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, documented) and ast.get_docstring(node) is not None:
                inside.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        kept = [line if at in inside else re.sub(r"[^\n]", " ", line) for at, line in enumerate(lines, 1)]
        text = "".join(kept)
    return re.sub(CODE, blank, re.sub(CODE_LINE, blank, text))


def pages() -> list[str]:
    """List the pages and the source files whose documentation may name figures."""
    patterns = ("README.md", "docs/*.md", "docs/inside/*.md", "python/shoal/**/*.py", "src/**/*.rs")
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def uncovered(page: str, found: Sequence[Number], exempt: Sequence[str]) -> list[str]:
    """Return figures without a claim, and exempt phrases that the page does not have."""
    text = prose(ROOT / page)
    spans = [(number.start, number.end) for number in found]
    wrong = []
    for phrase in exempt:
        places = list(re.finditer(r"\s+".join(map(re.escape, phrase.split())), text))
        spans += [place.span() for place in places]
        if not places:
            wrong.append(f"{page}: the exempt phrase {phrase!r} is not there")
    for figure in FIGURE.finditer(text):
        if not any(start <= figure.start() < end for start, end in spans):
            around = " ".join(text[max(0, figure.start() - 40) : figure.end() + 20].split())
            wrong.append(f"{page}: no claim for {figure[0]!r} in {around!r}")
    return wrong


def run(*, write: bool) -> list[str]:
    """Write or check all pages and pictures; return what is wrong."""
    wrong: list[str] = []
    for page in pages():
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        try:
            found: list[Number] = []
            if page in CLAIMS or any(page in picture.pages for picture in PICTURES):
                results = results_of(page, CLAIMS, PICTURES)
                found = numbers_of(page, text, CLAIMS, results)
                wrong += update(page, text, found, results, PICTURES, write=write)
                if write:
                    text = path.read_text(encoding="utf-8")
                    found = numbers_of(page, text, CLAIMS, results)
            exempt = [phrase for phrases in EXEMPT.values() for phrase in phrases.get(page, ())]
            wrong += uncovered(page, found, exempt)
        except ClaimError as error:
            wrong.append(str(error))
    return wrong


def update(
    page: str, text: str, found: list[Number], results: Results, pictures: Sequence[Picture], *, write: bool
) -> list[str]:
    """Bring a page and its pictures up to date, or say what is out of date."""
    wrong = [
        f"{page}: {text[n.start : n.end]} must be {n.text}" for n in found if text[n.start : n.end] != n.text
    ]
    if wrong and write:
        (ROOT / page).write_text(written(text, found), encoding="utf-8")
    for picture in pictures:
        if page in picture.pages:
            stamp = picture.stamp(results)
            if not picture.path.exists() or stamp.encode() not in picture.path.read_bytes():
                wrong.append(f"{page}: {picture.file} is not drawn from {stamp}")
                if write:
                    from pictures import draw

                    draw(picture.draw, results).savefig(picture.path, dpi=120, metadata={"Source": stamp})
    return [] if write else wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; differences are an error")
    wrong = run(write=not parser.parse_args().check)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
