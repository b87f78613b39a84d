"""Parsing of argument values, and the options that several subcommands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .parsing import Parser

DATA_HELP = (
    "rows: one or more files, a folder, or a glob in quotes, read as one source. Files: .npy, .fvecs, "
    ".bvecs, .fbin, .u8bin, .i8bin, .parquet, .arrow, .feather, .h5, .zarr, .safetensors, .npz (an array, a "
    "sparse matrix or a coreset), or a raw file with --shape and --dtype; - reads an NPY or CSV file from "
    "standard input"
)

#: Formats of one value per row.
VALUES_HELP = ".npy, .csv, .txt, .parquet, .arrow or .feather"

#: The result of `add_subparsers`; argparse has no public name for its type.
Verbs = Any
Run = Callable[[argparse.Namespace], int]


def parse_shape(text: str) -> tuple[int, int]:
    """Parse ``N,D``."""
    rows, cols = (int(part) for part in text.replace("x", ",").split(","))
    if rows < 1 or cols < 1:
        raise ValueError
    return rows, cols


def parse_file(text: str) -> str:
    """Parse a file name, which must not be empty."""
    if not text:
        raise argparse.ArgumentTypeError("a file name must not be empty")
    return text


def parse_names(text: str) -> list[str]:
    """Parse ``A,B,...``."""
    return text.split(",")


def parse_value(text: str) -> Any:
    """Parse the value of a parameter: a number, true, false, none, or any other text."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_size(text: str) -> float | str:
    """Parse a size: a number of rows as an integer, or a multiple of the mean size."""
    size: float | str = parse_value(text)
    if isinstance(size, bool) or not (isinstance(size, (int, float)) or text.endswith("x")):
        raise argparse.ArgumentTypeError(
            f"must be a number of rows, or a multiple of the mean size such as 1.1 or 1.1x, got {text!r}"
        )
    return size


def parse_setting(text: str) -> tuple[str, Any]:
    """Parse ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    return name.replace("-", "_"), parse_value(value)


class OneOrMore(argparse.Action):
    """Stores a single file name as it is, and several as a list."""

    def __call__(self, _: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, values[0] if len(values) == 1 else values)


class Command(Parser):
    """The parser of a subcommand, with a method for every option that several subcommands share."""

    def add_option(
        self,
        names: str,
        metavar: str,
        about: str,
        kind: Callable[[str], Any] | None = None,
        *,
        sets: str | None = None,
        group: Any = None,
        **more: Any,
    ) -> None:
        """Add an option with a value; two names are separated by a space.

        `sets` is the parameter of the library that the option sets, if it has another name than the option.
        Messages about the parameter name the option (`options.py`). With `group`, the option is part of it.
        """
        if kind is not None:
            more["type"] = kind
        if sets is not None:
            more["dest"] = sets
        (self if group is None else group).add_argument(*names.split(), metavar=metavar, help=about, **more)

    def add_file(self, names: str, metavar: str, about: str, **more: Any) -> None:
        """Add an option whose value is the name of a file."""
        self.add_option(names, metavar, about, parse_file, **more)

    def add_flag(self, name: str, about: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=about)

    def add_rows(self, name: str = "data") -> None:
        """Add the argument for the input rows, and the options that say how to read them."""
        self.add_argument(
            name, type=parse_file, nargs="+", action=OneOrMore, metavar=name.upper(), help=DATA_HELP
        )
        self.add_layout()

    def add_layout(self) -> None:
        """Add the options for raw files, and for files that hold more than one array or column."""
        self.add_option("--shape", "N,D", "rows and columns of a raw file", parse_shape)
        about = (
            "number type of a raw file, for example u1, float32 or bfloat16; of a CSV or TSV file: float32 "
            "or float64 (default)"
        )
        self.add_option("--dtype", "TYPE", about)
        about = (
            "columns to read from an .arrow, .feather or .parquet file: columns of numbers, or one column of "
            "vectors (default: all)"
        )
        self.add_option("--columns", "A,B,...", about, parse_names)
        about = (
            "array to read from an .h5, .zarr, .safetensors or .npz file (default: the only one, or X of an "
            ".npz file)"
        )
        self.add_option("--key", "NAME", about)

    def add_common(self) -> None:
        """Add the options for threads, JSON output and progress."""
        about = (
            "number of threads (default: SHOAL_NUM_THREADS, else OMP_NUM_THREADS, else all available cores)"
        )
        self.add_option("--threads", "N", about, int, sets="n_jobs")
        self.add_json()
        self.add_quiet()

    def add_metric(self, default: str | None = None) -> None:
        """Add ``--metric``. Without a `default`, the method has one."""
        about = "euclidean, or cosine to scale rows to length 1 as they are read (default: euclidean)"
        self.add_option("--metric", "NAME", about, choices=("euclidean", "cosine"), default=default)

    def add_model(self) -> None:
        """Add the argument for a model."""
        self.add_argument(
            "model", type=parse_file, metavar="MODEL", help="model file written by `shoal fit -o`"
        )

    def add_output(self, metavar: str, about: str, *, required: bool = True) -> None:
        """Add ``--output``."""
        self.add_file("-o --output", metavar, about, required=required)

    def add_seed(self, default: int | None = 0) -> None:
        """Add ``--seed``; a `default` of None tells whether the option was given."""
        self.add_option("--seed", "N", "random seed (default: 0)", int, sets="random_state", default=default)

    def add_settings(
        self,
        about: str,
        kind: Callable[[str], Any] = parse_setting,
        metavar: str = "NAME=VALUE",
    ) -> None:
        """Add ``--set``."""
        about = f"{about}; may be repeated"
        self.add_option("--set", metavar, about, kind, sets="settings", action="append", default=[])

    def add_json(self) -> None:
        """Add ``--json``."""
        self.add_flag("--json", "print the result as one JSON object")

    def add_quiet(self) -> None:
        """Add ``--quiet``."""
        self.add_flag("--quiet", "show no progress")

    def add_clusters(self, about: str = "number of clusters") -> None:
        """Add ``-k``."""
        self.add_option("-k --clusters", "K", about, int, sets="n_clusters", required=True)

    def add_start(self) -> None:
        """Add the options for the number of clusters, the initialization and the seed."""
        self.add_clusters()
        about = (
            "seeding: auto, random, k-means++, plain-k-means++, afk-mc2, k-mc2, k-means||, hierarchical, or "
            "an .npy file of K centers (default: the method's default)"
        )
        self.add_option("--init", "HOW", about)
        self.add_seed(None)


def add_verb(verbs: Verbs, name: str, about: str, run: Run, *, details: str = "") -> Command:
    """Add a subcommand; `about` is one phrase without capital and full stop."""
    described = f"{about[0].upper()}{about[1:]}. {details}".strip()
    added: Command = verbs.add_parser(name, help=about, description=described)
    added.set_defaults(run=run, parser=added)
    return added
