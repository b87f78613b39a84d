"""How the text of arguments is read, and the options that several verbs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

DATA_HELP = (
    "rows: an .npy, .fvecs, .fbin (or the like), .parquet, .arrow, .feather, .h5, .zarr or .safetensors "
    "file, an .npz one with a sparse matrix, or a raw one together with --shape and --dtype"
)

Verbs = Any
Run = Callable[[argparse.Namespace], int]


def shape_of(text: str) -> tuple[int, int]:
    """Read ``N,D``."""
    rows, cols = (int(part) for part in text.replace("x", ",").split(","))
    if rows < 1 or cols < 1:
        raise ValueError
    return rows, cols


def file_of(text: str) -> str:
    """Read the name of a file."""
    if not text:
        raise argparse.ArgumentTypeError("the name of a file must not be empty")
    return text


def names_of(text: str) -> list[str]:
    """Read ``A,B,...``."""
    return text.split(",")


def value_of(text: str) -> Any:
    """Read the value of a parameter: a number, true, false, none, or else a text."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def setting_of(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name.replace("-", "_"), value_of(value)


def add_verb(verbs: Verbs, name: str, about: str, run: Run, *, details: str = "") -> argparse.ArgumentParser:
    """Add a verb: `about` is one line without its capital and full stop."""
    described = f"{about[0].upper()}{about[1:]}. {details}".strip()
    added: argparse.ArgumentParser = verbs.add_parser(name, help=about, description=described)
    added.set_defaults(run=run, parser=added)
    return added


def add_rows(to: argparse.ArgumentParser, name: str = "data") -> None:
    """Add the rows that a verb works on."""
    to.add_argument(name, type=file_of, metavar=name.upper(), help=DATA_HELP)
    add_layout(to)


def add_layout(to: argparse.ArgumentParser) -> None:
    """Add what is to be known of a raw file, and of one that holds more than the rows."""
    to.add_argument("--shape", type=shape_of, metavar="N,D", help="rows and columns of a raw file")
    to.add_argument("--dtype", help="type of a raw file's numbers, for example u1, float32 or bfloat16")
    to.add_argument(
        "--columns",
        type=names_of,
        metavar="A,B,...",
        help="columns of an .arrow, .feather or .parquet file: numbers, or one of vectors",
    )
    to.add_argument("--key", metavar="NAME", help="which array of an .h5, .zarr or .safetensors file")


def add_common(to: argparse.ArgumentParser) -> None:
    """Add how a verb works and how it reports."""
    to.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="default: SHOAL_NUM_THREADS, else OMP_NUM_THREADS, else all that the process may use",
    )
    add_json(to)
    to.add_argument("--quiet", action="store_true", help="no progress on stderr")


def add_json(to: argparse.ArgumentParser) -> None:
    """Add the form of the result."""
    to.add_argument("--json", action="store_true", help="print the result as one JSON object")


def add_start(to: argparse.ArgumentParser) -> None:
    """Add the number of clusters, the first centers and the seed."""
    to.add_argument("-k", "--clusters", type=int, required=True, metavar="K", help="number of clusters")
    to.add_argument(
        "--init",
        metavar="HOW",
        help="auto, random, k-means++, plain-k-means++, afk-mc2, k-mc2, k-means||, or an .npy file of K "
        "centers (default: the method's)",
    )
    to.add_argument("--seed", type=int, metavar="N", help="seed of all random draws (default: 0)")
