"""Entry point of the command line, for ``shoal`` and ``python -m shoal``."""

from __future__ import annotations

import io
import os
import signal
import sys


def main() -> int:
    """Run the command line; Ctrl-C never prints a traceback, not even during imports.

    Returns
    -------
    int
        The exit status.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        # Nothing needs cleanup yet, and an import could turn KeyboardInterrupt into another error.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from .cli import main as run

    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names that are not valid UTF-8 are printed unchanged.
        sys.stdout.reconfigure(errors="surrogateescape")
    try:
        signal.signal(signal.SIGINT, usual)
        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
