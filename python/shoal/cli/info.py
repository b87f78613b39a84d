"""``shoal info``: describe a file of rows, a model, a checkpoint or a coreset."""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any

from .arguments import Verbs, add_verb, parse_file
from .errors import FailedError, UsageError
from .files import STDIN, open_data, shown_shape
from .methods import NOT_SET
from .results import show


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    info = add_verb(verbs, "info", "describe a file of rows, a model, a checkpoint or a coreset", run)
    info.add_argument(
        "file",
        type=parse_file,
        metavar="FILE",
        help="file of rows, folder or glob of such files, model, checkpoint, coreset, or a raw file with "
        "--shape and --dtype; with --clean a folder",
    )
    about = "remove the temporary files that killed processes left in the folder FILE, and list them"
    info.add_flag("--clean", about)
    info.add_layout()
    info.add_json()


def run(args: argparse.Namespace) -> int:
    """Describe the file."""
    from shoal import _core
    from shoal._rows.opening import describes_itself

    described = not (args.shape is args.dtype is args.key is None)
    if args.clean:
        if described:
            raise UsageError("--clean takes a folder. Leave out --shape, --dtype and --key.")
        return clean(args)
    if not described and args.file != STDIN and may_be_a_model(args.file):
        try:
            kind, arrays, meta = _core.load_model(args.file)
        except ValueError:
            # A .safetensors file of another program can hold rows.
            if not describes_itself(args.file) or not has_rows(args.file):
                raise
        else:
            from shoal.io import CHECKPOINTS

            if kind in CHECKPOINTS:
                show_checkpoint(args, kind, arrays, meta)
            else:
                show_model(args, kind, meta)
            return 0
    found = None if described else coreset(args.file)
    if found is not None:
        show_array(args, found)
        return 0
    try:
        opened = open_data(args, args.file)
    except ValueError as error:
        array = None
        if args.shape is None and Path(args.file).is_file():
            array = other_array(args.file, str(error))
        if array is None:
            raise
        show_array(args, array)
        return 0
    with opened as source:
        rows, cols = source.shape
        dtype = source._source.dtype
        result = {
            "file": args.file,
            "kind": "rows",
            "shape": [rows, cols] if args.json else shown_shape(rows, cols),
            "dtype": dtype,
            **({"stored": "sparse"} if source.sparse else {}),
            "computed_as": source._source.compute,
            "bytes": source.nbytes,
            "access": source.access,
        }
    show(args, result)
    return 0


def clean(args: argparse.Namespace) -> int:
    """Remove the temporary files that killed processes left in a folder."""
    from shoal import _core

    removed = [str(path) for path in _core.leftovers(args.file, remove=True)]
    show(
        args,
        {"folder": args.file, "removed": removed},
        "\n".join(f"removed {name}" for name in removed) or f"{args.file}: no temporary files",
    )
    return 0


def may_be_a_model(name: str) -> bool:
    """Whether a file may hold a model; raises an error if it can hold neither a model nor rows."""
    from shoal._files.staged import open_regular
    from shoal._rows.opening import describes_itself
    from shoal._rows.paths import list_files

    if describes_itself(name) or list_files(name, describes_itself) is not None:
        return name.lower().endswith(".safetensors")
    with open_regular(name) as file:
        start = file.read(9)
    if start.startswith(b"\x93NUMPY"):
        return False
    if start[8:] != b"{":
        raise FailedError(f"{name}: is neither rows nor a model. A raw file needs --shape and --dtype.")
    return True


def has_rows(name: str) -> bool:
    """Whether a file can be opened as rows."""
    import shoal

    try:
        shoal.open(name).close()
    except ValueError:
        return False
    return True


def show_array(args: argparse.Namespace, array: dict[str, Any]) -> None:
    """Print the description of an array or a coreset."""
    show(args, array if args.json else array | {"shape": str(array["shape"])})


def show_model(args: argparse.Namespace, kind: str, meta: dict[str, str]) -> None:
    """Print a description of a model."""
    import shoal

    model = shoal.load(args.file)
    if isinstance(model, shoal.StreamingCoreset):
        result = {
            "file": args.file,
            "kind": kind,
            "columns": model.n_features_in_,
            "samples": model.n_samples,
            "rows": model.n_rows_,
            "rows_kept": model.n_kept_,
            "bytes": Path(args.file).stat().st_size,
            "version": meta.get("version"),
        }
        show(args, result)
        return
    centers = model._representatives
    k, d = centers.shape
    params = settings_of(model)
    result = {
        "file": args.file,
        "kind": kind,
        "clusters": k,
        "columns": d,
        "dtype": centers.dtype.name,
        "iterations": model.n_iter_,
        "inertia": model.__dict__.get("_inertia"),
        "bytes": Path(args.file).stat().st_size,
        "version": meta.get("version"),
        "params": params if args.json else format_params(params),
    }
    show(args, result)


def show_checkpoint(
    args: argparse.Namespace, kind: str, arrays: dict[str, Any], meta: dict[str, str]
) -> None:
    """Print the parameters and the progress of a checkpointed fit."""
    from shoal.io import read_checkpoint

    params = settings_of(read_checkpoint(args.file)[0])
    try:
        run = json.loads(meta["run"])
        steps, rows, columns = len(arrays["history_counts"]), run["rows"], run["columns"]
        access, stop_reason = run["access"], run["stop_reason"]
    except (ValueError, LookupError, TypeError) as error:
        raise FailedError(f"{args.file}: is damaged: {error}") from error
    result = {
        "file": args.file,
        "kind": kind,
        "rows": rows,
        "columns": columns,
        "access": access,
        "steps": steps,
        "stop_reason": stop_reason,
        "bytes": Path(args.file).stat().st_size,
        "version": meta.get("version"),
        "params": params if args.json else format_params(params),
    }
    show(args, result)


def settings_of(model: Any) -> dict[str, Any]:
    """Collect the parameters of a model that a user can set."""
    from shoal._fit.declared import is_unset

    return {
        name: value if value is None or isinstance(value, (bool, int, float, str)) else "array"
        for name, value in model.get_params(deep=False).items()
        if name not in NOT_SET and not is_unset(value)
    }


def format_params(params: dict[str, Any]) -> str:
    """Format parameters on one line."""
    return ", ".join(f"{name}={value}" for name, value in params.items())


def coreset(name: str) -> dict[str, Any] | None:
    """Describe a coreset file; None for any other file."""
    import shoal

    if not name.lower().endswith(".npz"):
        return None
    try:
        found = shoal.Coreset.load(name)
    except ValueError:
        return None
    return {
        "file": name,
        "kind": "coreset",
        "shape": list(found.points.shape),
        "dtype": found.points.dtype.name,
        "weight": float(found.weights.sum()),
        "bytes": Path(name).stat().st_size,
    }


def other_array(name: str, problem: str) -> dict[str, Any] | None:
    """Describe an intact ``.npy`` file that cannot be clustered; None for a damaged file."""
    import numpy as np

    from shoal.formats.npz import HEADERS

    with Path(name).open("rb") as file:
        try:
            shape, _, dtype = HEADERS[np.lib.format.read_magic(file)](file)
        except Exception:  # noqa: BLE001 - Python's parser raises many kinds of errors on a damaged header
            return None
        begin, size = file.tell(), os.fstat(file.fileno()).st_size
    # The size of pickled objects is unknown.
    if min(shape, default=0) < 0 or (
        not dtype.hasobject and size < begin + math.prod(shape) * dtype.itemsize
    ):
        return None
    return {
        "file": name,
        "kind": "array",
        "shape": list(shape),
        "dtype": str(dtype),
        "bytes": size - begin,
        "clustering": f"not possible: {problem.removeprefix(name + ': ')}",
    }
