"""Write the measured figures of the pages, and draw the pictures, from the tables in ``benches/results``.

``claims_list.py`` has the sentences. A claim is a sentence with places for numbers (``{:.1f}``) and a formula
for them. ``make claims`` finds each sentence in its page and writes its numbers; a picture is drawn again
when one of its tables has changed. With ``--check``, nothing is written, and differences are an error.

A table is named by its program: the newest file ``<date>-<name>.csv`` of the page's machine counts. The
machine of a page is the first of `MACHINES` that has all tables of the page, so a page never mixes machines.
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
import string
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches" / "results"
#: Folders of results, in order of preference, and the names of the processors in the pages.
MACHINES = {
    "amd-epyc": "AMD EPYC (Zen 4)",
    "intel-xeon-processor": "Intel Xeon (with AMX)",
    "intel-xeon-processor-2-50ghz": "Intel Xeon (2.5 GHz)",
}
#: A number in a page.
DIGITS = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?"
#: Columns that count the rounds of a row.
ROUNDS, LEAST_ROUNDS = ("rounds", "seeds", "starts"), 3


class ClaimError(Exception):
    """A page and its tables do not agree."""


class MissingTableError(ClaimError):
    """A machine has no such table, or none with enough rounds."""


@dataclass(frozen=True)
class Table:
    """A result file, or some of its rows."""

    path: Path
    rows: tuple[dict[str, str], ...]

    def where(self, **values: object) -> Table:
        """Keep the rows with these values."""
        some = tuple(row for row in self.rows if all(row.get(name) == str(v) for name, v in values.items()))
        if not some:
            raise ClaimError(f"{self.path.name} has no row with {values}")
        return Table(self.path, some)

    def __getitem__(self, column: str) -> list[float]:
        """Return a column as numbers, without empty cells."""
        if column not in self.rows[0]:
            raise MissingTableError(f"{self.path.name} has no column {column!r}")
        return [float(row[column]) for row in self.rows if row[column]]

    def one(self, column: str) -> float:
        """Return a column of a single row."""
        (value,) = self[column]
        return value


def newest(machine: str, name: str) -> Path:
    """Return the newest file of a program."""
    found = {}
    for path in (RESULTS / machine).glob("*.csv"):
        parts = re.fullmatch(rf"(\d{{4}}-\d\d-\d\d)-{re.escape(name)}(?:-(\d+))?\.csv", path.name)
        if parts:
            found[parts[1], int(parts[2] or 1)] = path
    if not found:
        raise MissingTableError(f"benches/results/{machine} has no table of {name}")
    return found[max(found)]


@dataclass(frozen=True)
class Results:
    """The tables of one machine; ``results(name)`` reads one."""

    machine: str

    def __call__(self, name: str) -> Table:
        """Read the newest table of a program, which must have at least three rounds if it has rounds."""
        path = newest(self.machine, name)
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = tuple(csv.DictReader(line for line in lines if line and not line.startswith("#")))
        counts = [int(row[name]) for row in rows for name in ROUNDS if row.get(name)]
        counts += [
            int(n) for n in re.findall(r"^# command: .*--rounds (\d+)", "\n".join(lines), re.MULTILINE)
        ]
        if min(counts, default=LEAST_ROUNDS) < LEAST_ROUNDS:
            raise MissingTableError(f"{path.name} has {min(counts)} rounds, fewer than {LEAST_ROUNDS}")
        return Table(path, rows)

    @property
    def processor(self) -> str:
        """The name of the processor in the pages."""
        return MACHINES[self.machine]


#: Computes the numbers of a sentence.
Formula = Callable[[Results], Sequence[float | str]]
#: The claims of a page: a sentence, and its formula.
Claims = dict[str, list[tuple[str, Formula]]]


@dataclass(frozen=True)
class Picture:
    """A picture of ``docs/images``: the pages that show it, its tables, its function in ``pictures.py``."""

    file: str
    pages: tuple[str, ...]
    tables: tuple[str, ...]
    draw: str

    @property
    def path(self) -> Path:
        """The file."""
        return ROOT / "docs" / "images" / self.file

    def stamp(self, results: Results) -> str:
        """Name the tables and their contents; the file has it as a text."""
        paths = [newest(results.machine, name) for name in self.tables]
        return "; ".join(f"{results.machine}/{p.name} {zlib.crc32(p.read_bytes()):08x}" for p in paths)


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


def blank(match: re.Match[str]) -> str:
    """Replace a match by spaces, so that positions stay."""
    return re.sub(r"[^\n]", " ", match[0])


def prose(path: Path) -> str:
    """Return a page, or the documentation in a source file, with spaces in place of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
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
    found = {path for pattern in patterns for path in ROOT.glob(pattern)} - {ROOT / "src" / "tuning.rs"}
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
    from claims_list import CLAIMS, EXEMPT, PICTURES

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
