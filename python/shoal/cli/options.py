"""Errors and warnings of the library with the options of the command line in place of its parameters.

Messages of the library mark the names of parameters (`shoal._checks.marked`). An error about a parameter that
an option sets is wrong usage.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from shoal._checks.marked import ParameterError, marked_text, marks, replaced

from .errors import line_of

#: Options of several commands, by the parameter that they set; commands by function; other words.
SHARED = {
    "n_clusters": "-k",
    "n_components": "-k",
    "ks": "--k",
    "random_state": "--seed",
    "n_jobs": "--threads",
    "memory_limit": "--memory-limit",
    "recall": "--recall",
    "shape": "--shape",
    "dtype": "--dtype",
    "columns": "--columns",
    "key": "--key",
    "centers": "an .npy file of K centers",
    "resume": "shoal fit --checkpoint FILE --resume",
    "lightweight_coreset": "shoal coreset",
    "knn_graph": "shoal knn",
    "select_n_clusters": "shoal select",
}
#: Options that only some commands have. Elsewhere the parameter is set by ``--set``, if at all.
OWN: Mapping[str, Mapping[str, str]] = {
    "fit": {
        "init": "--init",
        "max_iter": "--max-iter",
        "tol": "--tol",
        "metric": "--metric",
        "n_factors": "--n-factors",
        "size_min": "--size-min",
        "size_max": "--size-max",
        "every": "--checkpoint-every",
        "path": "--checkpoint",
        "resume": "--resume",
    },
    "compare": {"init": "--init", "metric": "--metric"},
    "select": {"criterion": "--criterion", "metric": "--metric", "n_resamples": "--resamples"},
    "report": {
        "n_exemplars": "--exemplars",
        "n_outliers": "--outliers",
        "n_features": "--features",
        "image_shape": "--image",
    },
    "seed": {
        "chain_length": "--chain-length",
        "oversampling_factor": "--oversampling-factor",
        "n_rounds": "--n-rounds",
        "metric": "--metric",
    },
    "coreset": {"n_samples": "-m", "metric": "--metric"},
    "knn": {"n_neighbors": "-m", "method": "--method", "metric": "--metric"},
}
#: Commands with ``--set``.
SETTING = ("fit", "compare", "select")
#: Literals of Python and how they are typed.
LITERALS = {"True": "true", "False": "false", "None": "none", "[...]": "A,B,..."}


class Options:
    """The options of one command, by parameter; `args` holds what is parsed so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        given = vars(args)
        verb = given.get("verb") or ""
        data = given.get("data", given.get("file"))
        self._data = data if isinstance(data, str) else None
        self._options = dict(SHARED)
        if verb in SETTING:
            from .methods import METHODS, available, settable

            for method in available():
                self._options[METHODS[method].estimator] = method
                for parameter in settable(method):
                    self._options.setdefault(parameter, f"--set {parameter}")
            if given.get("method") in METHODS:
                # Two methods have one class.
                self._options[METHODS[given["method"]].estimator] = given["method"]
        self._options |= OWN.get(verb, {})
        for entry in given.get("settings") or ():
            # Speak of the option that was typed.
            self._options[entry[-2]] = f"--set {entry[-2]}"

    def of(self, told: BaseException) -> str:
        """Return the message of an error or a warning on one line."""
        if isinstance(told, OSError | MemoryError):
            return line_of(told)
        text = " ".join(marked_text(told).split())
        return replaced(text, self._said) if text else line_of(told)

    def are_wrong_in(self, error: BaseException) -> bool:
        """Whether an error is about a parameter that an option sets."""
        return isinstance(error, ParameterError) and any(
            self._options.get(name, "").startswith("-") for name in marks(marked_text(error))
        )

    def _said(self, name: str, value: str | None) -> str:
        """Return the option of a parameter, with its value as the user types it."""
        if name == "X" and self._data is not None:
            return self._data
        option = self._options.get(name)
        if option is None:
            return LITERALS.get(name, name) if value is None else f"{name}={value}"
        if not value:
            return option
        typed = LITERALS.get(value, value.translate(str.maketrans("", "", "[]'\"")).replace(", ", ","))
        return f"{option}{'=' if option.startswith('--set') else ' '}{typed}"
