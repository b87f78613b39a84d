"""Warnings of the examples that readers need not see."""

import warnings
from typing import Any


def reset(gallery: dict[str, Any], file: str) -> None:
    """Start every example with the default figure size and without deprecations of other packages."""
    import matplotlib as mpl

    mpl.rcParams.update(
        {"figure.figsize": (6.4, 4.0), "figure.dpi": 100, "figure.constrained_layout.use": True}
    )
    warnings.filterwarnings("ignore", category=DeprecationWarning)
