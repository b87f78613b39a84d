"""Directives that show the result files in ``benches/results`` as tables."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective
from tables import RESULTS, TITLES

#: Significant digits of the figures shown.
DIGITS = 3


@dataclass(frozen=True)
class Table:
    """A result file: the lines of its head by name, and its rows."""

    path: Path
    head: dict[str, str]
    columns: list[str]
    rows: list[dict[str, str]]

    @classmethod
    def read(cls, path: Path) -> "Table":
        """Read a file; a line of the head without a name is a remark."""
        lines = path.read_text(encoding="utf-8").splitlines()
        head: dict[str, str] = {}
        for line in lines:
            if line.startswith("#"):
                name, colon, value = line[1:].strip().partition(": ")
                if colon and re.fullmatch(r"[a-z][\w ,]*", name):
                    head.setdefault(name, value)
        rows = csv.DictReader(line for line in lines if line and not line.startswith("#"))
        return cls(path, head, list(rows.fieldnames or ()), list(rows))

    @property
    def date(self) -> str:
        """The day of the run, which the name of the file has."""
        return self.path.name[:10]

    @property
    def machine(self) -> str:
        """The processor, of the head or else of the folder."""
        cpu = self.head.get("cpu") or self.path.parent.name.replace("-", " ")
        return cpu.replace("(R)", "")


def shown(value: str | None) -> str:
    """Round numbers, and write the plain names of data sets; keep everything else."""
    value = value or ""
    name, colon, clusters = value.partition(":")
    if name in TITLES:
        return TITLES[name] + (f", k = {clusters}" if colon else "")
    if re.fullmatch(r"-?\d+", value):
        return f"{int(value):,}"
    try:
        number = float(value)
    except ValueError:
        return value
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.{DIGITS}g}"


def table_of(columns: list[str], lines: list[list[nodes.Node]]) -> nodes.Node:
    """Return a table in a box that scrolls on narrow screens."""
    group = nodes.tgroup(cols=len(columns))
    group.extend(nodes.colspec(colwidth=1) for _ in columns)

    def row(cells: list[nodes.Node]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))

    group += nodes.thead("", row([nodes.Text(column) for column in columns]))
    group += nodes.tbody("", *(row(line) for line in lines))
    return nodes.container("", nodes.table("", group), classes=["pst-scrollable-table-container"])


class ResultTable(SphinxDirective):
    """``{results} FOLDER/FILE.csv`` shows columns of a file with its date and machine.

    ``columns`` are ``name`` or ``name = title``, separated by semicolons. ``pivot`` is ``name: value``: each
    value of the column `name` becomes a column with the figures of the column `value`, and the rows that
    agree in `columns` become one.
    """

    required_arguments = 1
    option_spec: ClassVar = {"columns": directives.unchanged_required, "pivot": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Return the table and its caption."""
        path = RESULTS / self.arguments[0]
        if not path.is_file():
            raise self.error(f"benches/results has no file {self.arguments[0]}")
        self.env.note_dependency(str(path))
        table = Table.read(path)
        pairs = [part.partition("=") for part in self.options["columns"].split(";")]
        titles = {name.strip(): (title or name).strip() for name, _, title in pairs}
        names = list(titles)
        across, _, value = (part.strip() for part in self.options.get("pivot", "").partition(":"))
        if missing := {*names, across, value} - {*table.columns, ""}:
            raise self.error(f"{path.name} has no column {', '.join(sorted(missing))}")
        lines = [[shown(row[name]) for name in names] for row in table.rows]
        heads = list(titles.values())
        if across:
            added = list(dict.fromkeys(row[across] for row in table.rows))
            cells: dict[tuple[str, ...], dict[str, str]] = {}
            for row, line in zip(table.rows, lines, strict=True):
                cells.setdefault(tuple(line), {})[row[across]] = shown(row[value])
            lines = [[*line, *(found.get(name, "") for name in added)] for line, found in cells.items()]
            heads += added
        if not lines:
            raise self.error(f"{path.name} has no rows")
        caption = [nodes.Text(f"{table.date}, {table.machine}. "), nodes.literal("", path.name)]
        if "command" in table.head:
            caption += [nodes.Text(", by "), nodes.literal("", table.head["command"])]
        return [
            table_of(heads, [[nodes.Text(cell) for cell in line] for line in lines]),
            nodes.paragraph("", "", *caption, classes=["results-caption"]),
        ]


class ResultList(SphinxDirective):
    """``{results-list}`` lists all files, the latest first."""

    def run(self) -> list[nodes.Node]:
        """Return the list."""
        tables = []
        for path in RESULTS.glob("*/*.csv"):
            self.env.note_dependency(str(path))
            tables.append(Table.read(path))
        if not tables:
            raise self.error("benches/results has no files")
        tables.sort(key=lambda table: (table.date, table.path.name), reverse=True)
        lines = [
            [
                nodes.Text(t.date),
                nodes.literal("", f"{t.path.parent.name}/{t.path.name[11:]}"),
                nodes.Text(t.machine.split("@")[0].strip(", ")),
                nodes.Text(shown(str(len(t.rows)))),
                nodes.Text(t.head.get("commit", "")[:24]),
            ]
            for t in tables
        ]
        return [table_of(["date", "file", "processor", "rows", "commit"], lines)]


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("results", ResultTable)
    app.add_directive("results-list", ResultList)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
