"""The command line: ``shoal fit``, ``compare``, ``predict``, ``seed``, ``coreset``, ``knn`` and the rest.

Progress and messages go to stderr, results to stdout. Exit status: 0 done, 1 failed (one line on stderr that
begins with ``shoal: error:``), 2 wrong usage, 130 interrupted, by Ctrl-C or SIGTERM. Files appear whole or
not at all. With ``SHOAL_TRACEBACK=1`` in the environment a failure shows where it came from.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import compare, coreset, demo, fit, info, knn, predict, seed, shuffle
from .errors import FailedError, UsageError, line_of, was_interrupted

__all__ = ["main"]

#: In the order of the help.
VERBS = {
    "fit": fit,
    "compare": compare,
    "predict": predict,
    "seed": seed,
    "coreset": coreset,
    "knn": knn,
    "shuffle": shuffle,
    "info": info,
    "demo": demo,
}


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="shoal",
        description="Fast clustering of data larger than memory: exact, streaming and deterministic.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=False)
    for module in VERBS.values():
        module.add(verbs)
    return top


@contextlib.contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does, so that what is to be kept is kept."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread hears signals.
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
        Arguments without the program's name. Default: those of the process.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    SystemExit
        For wrong usage (2) and ``--help`` (0), as argparse does.

    Examples
    --------
    >>> from shoal.cli import main
    >>> main(["info", "no-such-file.npy"])
    1
    """
    if sys.stderr is None:
        # It was closed: `print` would take standard output in its place.
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the program runs
    args = argparse.Namespace()
    try:
        top = parser()
        top.parse_args(argv, args)
        if args.version:
            from shoal import __version__

            print(f"shoal {__version__}")
            return 0
        if args.verb is None:
            top.print_usage(sys.stderr)
            *others, last = VERBS
            print(f"shoal: error: say what to do: {', '.join(others)} or {last}", file=sys.stderr)
            return 2
        if sys.stdout is None:
            raise FailedError("standard output is closed: redirect it to /dev/null if you do not need it")
        with stopped_by_sigterm(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(
                f"shoal: warning: {line_of(message) if isinstance(message, Warning) else message}",
                file=sys.stderr,
            )
            status: int = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("shoal: interrupted", file=sys.stderr)
        return 130
    except UsageError as error:
        args.parser.error(str(error))
    except BrokenPipeError:
        # Who read the output has gone, and the interpreter must not try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if was_interrupted(error):
            print("shoal: interrupted", file=sys.stderr)
            return 130
        if os.environ.get("SHOAL_TRACEBACK") == "1":
            raise
        print(f"shoal: error: {line_of(error)}", file=sys.stderr)
        return 1
    return status
