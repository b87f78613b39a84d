"""Entry point of the commands ``shoal`` and ``python -m shoal``."""

from __future__ import annotations

import io
import os
import signal
import sys


def main() -> int:
    """Run the command line, without a traceback on Ctrl-C.

    Returns
    -------
    int
        The exit status.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        # During imports there is nothing to clean up, and KeyboardInterrupt would print a traceback.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from .cli import main as run

    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names need not be valid text.
        sys.stdout.reconfigure(errors="surrogateescape")
    try:
        signal.signal(signal.SIGINT, usual)
        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
