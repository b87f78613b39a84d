"""Checkpoints of distributed fits: the next pass, the history and the parameters, in one safetensors file."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, NamedTuple

import numpy as np

from shoal import _core
from shoal._checks.params import shown
from shoal._fit.history import STEP_DTYPE, read_history, rows_of_history, stored_history
from shoal._fit.saved import Arrays, Claims, need
from shoal.formats.stream import name_errors
from shoal.typing import PathName

#: The kind of file.
KIND = "distributed-checkpoint"

#: Parameters that may differ in a resumed fit.
OF_A_RUN = frozenset({"callbacks", "verbose", "n_jobs", "memory"})


class FitState(NamedTuple):
    """How far a fit has come: everything that the next step depends on."""

    #: The next pass, as bytes.
    task: bytes
    #: The limit of the squared length of the move of the centers; None before the first step.
    threshold: float | None
    #: The rows of `history_`.
    history: list[tuple[Any, ...]]
    #: How the first centers were chosen.
    init: str
    #: Number of rows of zeros in the last step.
    n_zero_rows: int


def plain(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON values; the array of `init` becomes its shape and a digest."""
    kept: dict[str, Any] = {}
    for name, value in params.items():
        if name in OF_A_RUN:
            continue
        known = value is None or isinstance(value, (bool, int, float, str))
        if known:
            kept[name] = value
        elif isinstance(value, np.generic):
            kept[name] = value.item()
        else:
            kept[name] = digest(value) if name == "init" else None
    return kept


def digest(array: Any) -> dict[str, Any]:
    """Return the shape of an array, and the SHA-256 digest of its values as float64."""
    values = np.ascontiguousarray(array, dtype="<f8")
    return {"shape": list(values.shape), "sha256": hashlib.sha256(values.tobytes()).hexdigest()}


def write(path: PathName, who: str, params: dict[str, Any], progress: FitState) -> None:
    """Write a checkpoint, by way of an atomic rename."""
    table, reasons = stored_history(np.array(progress.history, dtype=STEP_DTYPE))
    arrays: Arrays = {"pass": np.frombuffer(progress.task, np.uint8), "history": table}
    about = {
        "estimator": who,
        "threshold": progress.threshold,
        "init": progress.init,
        "n_zero_rows": progress.n_zero_rows,
        "steps": len(reasons),
        "stop_reasons": reasons,
    }
    texts = {"params": json.dumps(plain(params)), "run": json.dumps(about)}
    _core.save_model(os.fsdecode(path), KIND, arrays, texts)


def read(path: PathName, who: str, params: dict[str, Any]) -> FitState:
    """Read a checkpoint of an estimator with the same parameters.

    Raises `ValueError` if the file is damaged, no checkpoint of a distributed fit, or of other parameters.
    """
    name = os.fsdecode(path)
    kind, arrays, texts = _core.load_model(name)
    if kind != KIND:
        raise ValueError(f"{name}: must hold a checkpoint of a distributed fit ({KIND}), got {kind!r}")
    with name_errors(name, "is damaged"):
        about, kept = Claims.read(texts, "run"), json.loads(texts.get("params", "null"))
        need(isinstance(kept, dict), "its parameters are no JSON object")
        steps, reasons = read_history(arrays, about)
        need(bool((np.abs(steps) < 2.0**62).all()), "its steps hold counts beyond 62 bits")
        task = arrays.get("pass", np.zeros(0))
        need(task.dtype == np.uint8 and task.ndim == 1, "it lacks the pass")
        found = FitState(
            task.tobytes(),
            about.figure("threshold", optional=True),
            rows_of_history(steps, reasons),
            str(about.text("init")),
            about.count("n_zero_rows"),
        )
        of = about.text("estimator")
    if of != who:
        raise ValueError(f"{name}: must hold a fit of {who}, got one of {of}")
    for parameter, given in plain(params).items():
        was = kept.get(parameter)
        if was != given:
            raise ValueError(
                f"{name}: {parameter} must be {shown(was)}, as in the checkpoint, got {shown(given)}"
            )
    return found
