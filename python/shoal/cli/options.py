"""Errors and warnings of the library with the options of the command line in place of its parameters.

Messages of the library mark the names of parameters (`shoal._checks.marked`). An error about a parameter that
an option sets is wrong usage.
"""

from __future__ import annotations

import argparse

from shoal._checks.marked import ParameterError, marked_text, marks, replaced

from .errors import line_of

#: Parameters that are set by an option with the name of another parameter.
OTHER_NAMES = {
    "n_clusters": "ks",
    "n_components": "n_clusters",
    "path": "checkpoint",
    "every": "checkpoint_every",
}
#: Commands by function, and other words.
WORDS = {
    "centers": "an .npy file of K centers",
    "resume": "shoal fit --checkpoint FILE --resume",
    "lightweight_coreset": "shoal coreset",
    "knn_graph": "shoal knn",
    "select_n_clusters": "shoal select",
}
#: Commands with ``--set``.
SETTING = ("fit", "compare", "select")
#: Literals of Python and how they are typed.
LITERALS = {"True": "true", "False": "false", "None": "none", "[...]": "A,B,..."}


def options_of(parser: argparse.ArgumentParser | None) -> dict[str, str]:
    """Return the options of a command by the parameters that they set; ``--resume`` is a flag."""
    if parser is None:
        return {}
    actions = [action for action in parser._actions if action.option_strings]
    named = {
        action.dest: action.option_strings[0]
        for action in actions
        if action.nargs != 0 or action.dest == "resume"
    }
    return named | {name: named[same] for name, same in OTHER_NAMES.items() if same in named}


class Options:
    """The options of one command, by parameter; `args` holds what is parsed so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        given = vars(args)
        verb = given.get("verb") or ""
        data = given.get("data", given.get("file"))
        self._data = data if isinstance(data, str) else None
        self._options = dict(WORDS)
        if verb in SETTING:
            from .methods import METHODS, available, settable

            for method in available():
                self._options[METHODS[method].estimator] = method
                for parameter in settable(method):
                    self._options.setdefault(parameter, f"--set {parameter}")
            if given.get("method") in METHODS:
                # Two methods have one class.
                self._options[METHODS[given["method"]].estimator] = given["method"]
        self._options |= options_of(given.get("parser"))
        for entry in given.get("settings") or ():
            # Name the option that was typed.
            self._options[entry[-2]] = f"--set {entry[-2]}"

    def of(self, problem: BaseException) -> str:
        """Return the message of an error or a warning on one line."""
        if isinstance(problem, OSError | MemoryError):
            return line_of(problem)
        text = " ".join(marked_text(problem).split())
        return replaced(text, self._option_of) if text else line_of(problem)

    def are_wrong_in(self, error: BaseException) -> bool:
        """Whether an error is about a parameter that an option sets."""
        return isinstance(error, ParameterError) and any(
            self._options.get(name, "").startswith("-") for name in marks(marked_text(error))
        )

    def _option_of(self, name: str, value: str | None) -> str:
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
