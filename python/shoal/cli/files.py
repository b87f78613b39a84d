"""Checks of output files before any work, and opening of the input rows."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import FailedError, UsageError

#: An option, its file name, and the suffixes that the file may have.
Output = tuple[str, str | None, tuple[str, ...]]
#: The name of standard input as DATA.
STDIN = "-"


def check_outputs(inputs: Sequence[str | list[str]], outputs: Sequence[Output]) -> None:
    """Check, before any work, that every output can be written and overwrites no input or other output."""
    from shoal._files.outputs import PICTURES, VALUES, check_suffix
    from shoal._files.staged import SPECIAL, check_place, is_special
    from shoal._rows.opening import describes_itself
    from shoal._rows.paths import list_files
    from shoal.formats import suffix_of

    taken = {}
    # Folders that are read, with the kind of their files.
    folders: dict[Path, str] = {}
    for given in inputs:
        files = list_files(given, describes_itself)
        if files is not None:
            items = [given] if isinstance(given, str) else given
            folders |= {Path(item).resolve(): suffix_of(files[0]) for item in items if Path(item).is_dir()}
        names = [str(given)] if files is None else files
        taken.update({Path(name).resolve(): "is also read" for name in names})
    for option, name, allowed in outputs:
        if name is None:
            continue
        path = Path(name)
        if path.is_dir():
            raise FailedError(f"{name}: is a directory, not a file to write")
        if is_special(path):
            raise FailedError(f"{name}: {SPECIAL}")
        folder = path.parent
        if not folder.is_dir():
            raise FailedError(f"{name}: there is no folder {str(folder)!r} to write it to")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise FailedError(f"{name}: no permission to write into {str(folder)!r}")
        real = path.resolve()
        if real in taken:
            raise FailedError(f"{name}: {taken[real]}: choose another name")
        # One-dimensional .npy files may lie beside rows of another kind.
        beside = real.suffix == ".npy" and allowed is VALUES and folders.get(real.parent) != ".npy"
        if real.parent in folders and describes_itself(real.name) and not beside:
            raise FailedError(f"{name}: lies in the folder that is read: choose another name")
        taken[real] = "is written twice"
        try:
            check_place(name)
        except OSError as error:
            raise FailedError(f"{name}: cannot be written: {error.strerror or error}") from error
        try:
            check_suffix(option, name, allowed)
        except ValueError as error:
            raise UsageError(str(error)) from error
        if allowed is PICTURES:
            from shoal.plot import require_matplotlib

            require_matplotlib()


def label_of(data: str | list[str]) -> str:
    """Return the name of the rows for messages."""
    return data if isinstance(data, str) else f"{len(data)} files, {data[0]} to {data[-1]}"


def shown_shape(rows: int | None, cols: int) -> str:
    """Format a shape; the number of rows of a stream is unknown."""
    return f"{'unknown' if rows is None else rows} x {cols}"


def describe(data: str | list[str], source: Any) -> dict[str, Any]:
    """Return the name, the shape and the type of rows, as the first entries of a result."""
    rows, cols = source.shape
    return {"data": data, "rows": rows, "columns": cols, "dtype": source.dtype.name}


def open_data(args: argparse.Namespace, name: str | list[str]) -> Any:
    """Open files of rows with the layout options of the command line."""
    import shoal

    if (args.shape is None) != (args.dtype is None) and not (args.shape is None and is_text(name)):
        raise UsageError("a raw file needs both --shape and --dtype")
    if name == STDIN:
        if any(option is not None for option in (args.shape, args.key)):
            raise UsageError("--shape, --dtype and --key do not belong to standard input (-)")
        return shoal.open(sys.stdin.buffer, columns=args.columns)
    return shoal.open(
        name, shape=args.shape, dtype=check_dtype(args.dtype), columns=args.columns, key=args.key
    )


def refuse_other_width(model: Any, source: Any, data: str | list[str]) -> None:
    """Raise an error if rows do not have the columns of the model."""
    if source.shape[1] != model.n_features_in_:
        raise FailedError(
            f"{label_of(data)} has {source.shape[1]} columns, but the model has {model.n_features_in_}"
        )


def refuse_other_columns(rows: Any, held_out: Any) -> None:
    """Raise an error if the rows of ``--validation`` do not have the columns of the rows of a fit."""
    if rows.shape[1] != held_out.shape[1]:
        raise FailedError(
            f"--validation must have as many columns as DATA, {rows.shape[1]}, got {held_out.shape[1]}"
        )


def is_text(data: str | list[str]) -> bool:
    """Whether the rows are files of text, for which --dtype alone is enough."""
    from shoal._rows.opening import describes_itself
    from shoal._rows.paths import list_files
    from shoal.formats import TEXT, suffix_of

    files = [STDIN] if data == STDIN else list_files(data, describes_itself) or [str(data)]
    return all(suffix_of(file) in TEXT for file in files)


def check_dtype(name: str | None) -> str | None:
    """Check that a type name is known to NumPy or shoal, and return it."""
    import numpy as np

    if name is None or name in ("bfloat16", "bf16"):
        return name and "bfloat16"
    try:
        np.dtype(name)
    except TypeError:
        raise UsageError(
            f"--dtype must be a number type such as u1, i2, float32, float64 or bfloat16, got {name!r}"
        ) from None
    return name
