"""The ``shoal`` command line: the parser, warnings, signals and exit statuses.

Results go to stdout, progress and messages to stderr. Exit statuses: 0 for success, 1 for a failure (one line
on stderr that begins with ``shoal: error:``), 2 for wrong usage (such a line too), 130 for an interrupt by
Ctrl-C or SIGTERM. Output files are written to a temporary file and then renamed. ``SHOAL_TRACEBACK=1`` in the
environment shows the traceback of a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Generator, Sequence
from pathlib import Path

from . import compare, convert, coreset, dedup, demo, fit, info, knn, predict, report, seed, select, shuffle
from .arguments import Command
from .errors import FailedError, UsageError, note_of, was_interrupted
from .options import Options
from .parsing import Parser

__all__ = ["main"]

#: Subcommands by name, in the order of the help.
VERBS = {
    "fit": fit,
    "compare": compare,
    "select": select,
    "predict": predict,
    "report": report,
    "convert": convert,
    "seed": seed,
    "coreset": coreset,
    "knn": knn,
    "dedup": dedup,
    "shuffle": shuffle,
    "info": info,
    "demo": demo,
}

EXAMPLES = """examples:
  shoal demo                                               cluster images that ship with scikit-learn
  shoal fit vectors.npy -k 50 -o model.safetensors         cluster the rows of a file
  shoal predict model.safetensors more.npy -o labels.npy   label other rows
  shoal compare vectors.npy -k 50 --plot curves.png        try all methods on the same rows
  shoal select vectors.npy --k 2:50 --plot k.png           choose the number of clusters
"""


def parser() -> argparse.ArgumentParser:
    """Build the argument parser."""
    top = Parser(
        prog="shoal",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Fast clustering of data larger than memory: exact, streaming and deterministic.",
        epilog=f"{EXAMPLES}\nRun `shoal COMMAND --help` for the options of a command.\n"
        "Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted.",
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = top.add_subparsers(dest="verb", title="commands", metavar="COMMAND", parser_class=Command)
    for module in VERBS.values():
        module.add(verbs)
    return top


@contextlib.contextmanager
def sigterm_interrupts() -> Generator[None]:
    """Handle SIGTERM like Ctrl-C, so that a last checkpoint is written and temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        # Python delivers signals to the main thread only.
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program name. Default: ``sys.argv[1:]``.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    SystemExit
        With status 2 for wrong usage, and 0 for ``--help``, as argparse does.

    Examples
    --------
    >>> from shoal.cli import main
    >>> main(["info", "no-such-file.npy"])
    1
    """
    if sys.stderr is None:
        # Standard error was closed, and `print(file=None)` would write to standard output.
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until the program ends
    args = argparse.Namespace()
    try:
        top = parser()
        top.parse_args(argv, args)
        if args.version:
            from shoal import __version__

            print(f"shoal {__version__}")
            return 0
        if args.verb is None:
            print(EXAMPLES, file=sys.stderr)
            top.error(f"shoal needs a COMMAND, one of {', '.join(VERBS)}. See shoal --help")
        if sys.stdout is None:
            raise FailedError("standard output is closed. Redirect it to /dev/null if you do not need it.")
        with sigterm_interrupts(), warnings.catch_warnings():
            options = Options(args)
            warnings.showwarning = lambda message, *_, **__: print(
                f"shoal: warning: {options.of(Warning(message) if isinstance(message, str) else message)}",
                file=sys.stderr,
            )
            status: int = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        print(f"shoal: interrupted{note_of(interrupt)}", file=sys.stderr)
        return 130
    except UsageError as error:
        command: argparse.ArgumentParser = args.parser
        command.error(str(error))
    except BrokenPipeError:
        # The reader has closed the pipe. Python would flush again at exit and print an error.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if was_interrupted(error):
            print("shoal: interrupted", file=sys.stderr)
            return 130
        if os.environ.get("SHOAL_TRACEBACK") == "1":
            raise
        options = Options(args)
        print(f"shoal: error: {options.of(error)}", file=sys.stderr)
        return 2 if options.are_wrong_in(error) else 1
    return status
