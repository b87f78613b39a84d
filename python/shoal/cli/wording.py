"""Errors and warnings of the library, in the words of the command line.

The library names parameters, classes and functions of Python. `Words` replaces them by options, methods and
commands. File names of the user are never changed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping

from .errors import line_of
from .nearest import nearest

#: Options of several commands, by the parameter that they set.
SHARED = {
    "n_clusters": "-k",
    "n_components": "-k",
    "random_state": "--seed",
    "n_jobs": "--threads",
    "memory_limit": "--memory-limit",
    "recall": "--recall",
    "shape": "--shape",
    "dtype": "--dtype",
    "columns": "--columns",
    "key": "--key",
}
#: Options that only some commands have. Elsewhere the parameter is set by ``--set``, if at all.
OWN: Mapping[str, Mapping[str, str]] = {
    "fit": {
        "init": "--init",
        "max_iter": "--max-iter",
        "tol": "--tol",
        "metric": "--metric",
        "n_factors": "--n-factors",
        "every": "--checkpoint-every",
    },
    "compare": {"init": "--init", "metric": "--metric"},
    "seed": {
        "chain_length": "--chain-length",
        "oversampling_factor": "--oversampling-factor",
        "n_rounds": "--n-rounds",
        "metric": "--metric",
    },
    "coreset": {"n_samples": "-m", "metric": "--metric"},
    "knn": {"n_neighbors": "-m", "method": "--method", "metric": "--metric"},
}
#: Whole phrases, replaced before single words. They hold what a user of the command line cannot do.
PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        r"n_samples=(\d+) should be >= (?:n_clusters|n_components)=(\d+)\.?",
        r"-k must be at most the number of rows, \1, got \2",
    ),
    (
        r"n_neighbors=(\d+) must be less than n_samples=(\d+)",
        r"n_neighbors must be less than the number of rows, \2, got \1",
    ),
    (r"n_factors must be None with", "n_factors must be left out with"),
    (r", an array or a callable, got", ", or an .npy file of K centers, got"),
    (r"an array or a callable", "an .npy file of K centers"),
    (r"must be None, -1 or a number of threads", "must be -1 or a number of threads"),
    (r"must be None or an? ", "must be none or a "),
    (
        r"holds the checkpoint of an unfinished fit\. Use shoal\.resume instead",
        "holds the checkpoint of an unfinished fit. Finish it with shoal fit --checkpoint FILE --resume",
    ),
    (r"with shoal\.open\(\.\.\., chunk_limit=\) or the environment", "with the environment"),
    (
        r"pass a callable that returns a fresh iterator, or write the rows to .+ pass its path",
        "write the rows to a .npy file first",
    ),
    (
        r"pass a callable that returns a fresh iterator, or write it to a \.npy file and open that",
        "write the rows to a .npy file first",
    ),
    (r"write it to a \.npy file and open that", "write the rows to a .npy file with shoal shuffle"),
    (r"Use shoal\.shuffle first, or shuffle=False", "Use shoal shuffle first, or --set shuffle=false"),
    (r": pass the first centers instead", ": use --init with an .npy file of K centers instead"),
    (r"Use predict\(X\) or score\(X\) instead", "Use shoal predict instead"),
    (r"\bPossibly due to duplicate points in X\b", "Possibly due to duplicate rows"),
    (
        r"Explicit initial center position passed: performing only one init in \w+ instead of n_init=(\d+)",
        r"the initial centers are given, so n_init=\1 is ignored",
    ),
    (
        r"X has (\d+) features, but \w+ is expecting (\d+) features as input",
        r"X has \1 columns, but the model has \2",
    ),
    (r"\bChoose one with key=", "Choose one with --key"),
    (r"\bpass coreset\.points, or open the file with key='points'", "use --key points"),
    (r"\bPass coreset\.points to silence this", "Use --key points to silence this"),
    (
        r"\bWrite coreset\.points, or save the coreset with coreset\.save",
        "Use --key points to write the points without weights",
    ),
    (r"\bcolumns=\[\.\.\.\]", "--columns A,B,..."),
    (r"\bcolumns=\[([^\]]*)\]", lambda found: "--columns " + found[1].replace("'", "").replace(" ", "")),
    (r"shoal\.Coreset\.load", "numpy.load"),
    (r"shoal\.(fit|predict|seed|coreset|knn|shuffle|info)\b", r"shoal \1"),
    (r"\bknn_graph\b", "shoal knn"),
    (r"\blightweight_coreset\b", "shoal coreset"),
    (r"the source \((.+?)\)", r"\1"),
    (r"\bDataSource\b", "source"),
    (r"\bn_samples=(\d+)", r"\1 rows"),
)
#: Literals of Python and how they are typed.
LITERALS = {"True": "true", "False": "false", "None": "none"}


class Words:
    """The words of one command.

    Parameters
    ----------
    args : argparse.Namespace
        The parsed arguments, as far as they are known.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        given = vars(args)
        self._verb: str | None = given.get("verb")
        self._data = next(
            (name for name in (given.get("data"), given.get("file")) if isinstance(name, str)), None
        )
        #: Arguments of the user, which are not words of the library.
        self._names = sorted(
            {value for value in given.values() if isinstance(value, str) and re.search(r"[./]", value)},
            key=len,
            reverse=True,
        )
        self._options = dict(SHARED)
        self._classes: dict[str, str] = {}
        if self._verb in ("fit", "compare"):
            self._add_methods(given.get("method"))
        self._options |= OWN.get(self._verb or "", {})
        for entry in given.get("settings") or ():
            # Speak of the option that was typed.
            self._options[entry[-2]] = f"--set {entry[-2]}"

    def _add_methods(self, method: str | None) -> None:
        from .methods import METHODS, available, settable

        for name in available():
            self._classes[METHODS[name].estimator] = name
            for parameter in settable(name):
                self._options.setdefault(parameter, f"--set {parameter}")
        if method is not None and method in METHODS:
            self._classes[METHODS[method].estimator] = method

    def of(self, error: BaseException | str) -> str:
        """Return the message of an error or a warning on one line."""
        text = " ".join(error.split()) if isinstance(error, str) else line_of(error)
        # Names of the user become private characters, which no rule matches.
        held = [self._data or "", *(name for name in self._names if name in text)]
        for at, name in enumerate(held[1:], 1):
            text = text.replace(name, chr(0xE000 + at))
        for phrase, instead in PHRASES:
            text = re.sub(phrase, instead, text)
        text = self._named(text)
        for at, name in enumerate(held):
            text = text.replace(chr(0xE000 + at), name)
        return suggested(text)

    def _named(self, text: str) -> str:
        """Replace names of parameters and classes."""
        if self._data is not None:
            text = re.sub(r"(?<![\w'\"(])X(?=(?:'s)? |$)", chr(0xE000), text)
        for name, method in self._classes.items():
            text = re.sub(rf"\b{name}\b(?!\()", method, text)
        names = "|".join(sorted(map(re.escape, self._options), key=len, reverse=True))
        word = rf"(?<!--set )(?<![\w'\"./-])(?:{names})(?![\w'\"/]|\.\w)"
        # With a value: an option as it is typed.
        value = r"'(?P<text>[^']*)'|\"(?P<other>[^\"]*)\"|(?P<bare>[\w.+-]*[\w+-])"
        text = re.sub(rf"(?P<name>{word})=(?:{value})", self._typed, text)
        # Without one: only where a parameter is meant, not the English word.
        plain = {name for name in self._options if "_" not in name and name not in ("init", "tol")}
        return re.sub(word, lambda found: self._spoken(found, plain), text)

    def _typed(self, found: re.Match[str]) -> str:
        """Return ``name=value`` as the user types it."""
        value = next(part for part in (found["text"], found["other"], found["bare"]) if part is not None)
        option = self._options[found["name"]]
        return f"{option}{'=' if option.startswith('--set') else ' '}{LITERALS.get(value, value)}"

    def _spoken(self, found: re.Match[str], plain: set[str]) -> str:
        """Return the option of a parameter, unless an English word of the same letters is meant."""
        name, rest = found[0], found.string[found.end() :]
        if name in plain and not rest.startswith((" must ", ", or ")):
            return name
        return self._options[name]


#: The message for a name that is none of the allowed ones.
CHOICE = re.compile(r"must be (?:one of )?(?P<known>.+?),? got ['\"](?P<given>[^'\"]+)['\"]")


def is_choice(text: str) -> bool:
    """Whether a message is about a name that is none of the allowed ones."""
    return "must be one of " in text and CHOICE.search(text) is not None


def suggested(text: str) -> str:
    """Add the nearest allowed name to a message that lists them."""
    found = CHOICE.search(text)
    if not is_choice(text) or found is None or "id you mean" in text:
        return re.sub(r": did you mean \"([^\"]*)\"\?", r". Did you mean '\1'?", text)
    known = [word.strip("'\" ") for word in re.split(r", | or ", found["known"])]
    return text + nearest(found["given"], known)
