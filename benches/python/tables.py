"""Read the newest table of a program from ``benches/results``; ``claims.py`` and ``pictures.py`` use it.

A table is named by its program: the newest file ``<date>-<name>.csv`` of a machine counts.
"""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches" / "results"
#: Folders of results, in order of preference, and the names of the processors in the pages.
MACHINES = {
    "amd-epyc": "AMD EPYC (Zen 5)",
    "intel-xeon-processor": "Intel Xeon (with AMX)",
    "intel-xeon-processor-2-50ghz": "Intel Xeon (2.5 GHz)",
}
#: What the pages call the data sets.
TITLES = {
    "uk_accidents_lnglat_140k": "accidents",
    "cover_286k": "terrain",
    "letter_20k": "letters",
    "letter_20k+u": "letters",
    "aloi_27d_50k": "images of objects",
    "sift_bsds_trainval": "SIFT descriptors",
    "sift_bsds_trainval+u": "SIFT descriptors",
    "rootsift": "RootSIFT",
    "resnet18_cifar_16k": "deep features",
    "wordvec_ppmi_svd100": "word vectors",
    "mnist_70k": "MNIST",
    "mnist_70k+u": "MNIST",
    "usps_11k+u": "USPS",
    "fsdd_logmel40_spkA": "spoken digits",
    "bsds_pixels_rgb": "pixels",
    "cifar10_test10k_rgb": "CIFAR-10",
    "shuttle_49k": "shuttle",
    "skin_245k": "skin colors",
    "usps_11k": "USPS",
    "duplicates": "duplicates",
}
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
