"""How the pictures of the gallery look, and warnings of its programs that readers need not see."""

import warnings
from typing import Any

#: The colors of the measured pictures (``benches/python/pictures.py``), then others.
COLORS = ("#2f6f9f", "#d9822b", "#5a9e6f", "#a5537e", "#7f7f7f")


def reset(gallery: dict[str, Any], file: str) -> None:
    """Start every example with our colors and sizes, and without deprecations of other packages."""
    import matplotlib as mpl

    mpl.rcParams.update(
        {
            "axes.prop_cycle": mpl.cycler(color=COLORS),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "figure.constrained_layout.use": True,
            "figure.dpi": 100,
            "figure.figsize": (6.4, 4.0),
            # Readable in a thumbnail.
            "font.size": 14,
            "legend.frameon": False,
            "lines.linewidth": 2.5,
        }
    )
    warnings.filterwarnings("ignore", category=DeprecationWarning)
