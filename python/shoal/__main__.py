"""The command line as ``python -m shoal``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
