"""The command line as a program: ``shoal``, and ``python -m shoal``."""

from __future__ import annotations

import io
import os
import signal
import sys


def main() -> int:
    """Run the command line; Ctrl-C ends it without a traceback from the first import on.

    Returns
    -------
    int
        The exit status.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        # There is nothing to clean up yet, and an exception would come out of an import as any other one.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from .cli import main as run

    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files need not be text: they are printed as they are.
        sys.stdout.reconfigure(errors="surrogateescape")
    try:
        signal.signal(signal.SIGINT, usual)
        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
