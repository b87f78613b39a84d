"""Versions of the installation and properties of the machine, for bug reports."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path

from . import _core
from ._checks.params import threads

__all__ = ["show_versions"]

PACKAGES = ("numpy", "scipy", "scikit-learn", "joblib", "pandas", "polars", "pyarrow", "tqdm", "matplotlib")


def processor() -> str:
    """Return the name of the CPU, if the system reports it."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        named = []
    return named[0] if named else platform.processor() or platform.machine()


def installed(package: str) -> str:
    """Return the version of a package, or "not installed"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def threads_in_use() -> str:
    """Return the number of threads, or the reason why it is unknown."""
    try:
        return str(threads(None) or _core.available_threads())
    except ValueError as error:
        return f"unknown: {error}"


def show_versions() -> None:
    """Print versions, the CPU, the instruction set in use and the number of threads.

    Examples
    --------
    >>> import shoal
    >>> shoal.show_versions()  # doctest: +SKIP
    """
    rows = {
        "shoal": _core.version,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "processor": processor(),
        "instruction set": f"{_core.isa()} (available: {', '.join(_core.available_isas())})",
        "threads": threads_in_use(),
        **{package: installed(package) for package in PACKAGES},
    }
    width = max(map(len, rows))
    print("\n".join(f"{name:>{width}}: {value}" for name, value in rows.items()))
