"""Pictures: grey images without any package, curves with matplotlib."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._files import whole

__all__ = ["Curve", "centers_picture", "curves", "require_matplotlib", "write_png"]

#: Points of a curve that can still be told apart.
MOST_MARKERS = 200


def write_png(path: str | os.PathLike[str], grey: npt.NDArray[np.uint8]) -> None:
    """Write a grey image as a PNG file, which appears whole or not at all.

    Parameters
    ----------
    path : str or os.PathLike
        The file; one that exists is replaced.
    grey : ndarray of shape (height, width), uint8
        0 is black, 255 is white.

    Raises
    ------
    ValueError
        For an array of another type or shape.
    OSError
        When the file cannot be written.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from shoal.plot import write_png
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_png(f"{folder}/ramp.png", np.arange(256, dtype="uint8").reshape(16, 16))
    """
    if grey.ndim != 2 or grey.dtype != np.uint8 or 0 in grey.shape:
        raise ValueError(f"grey must be a 2-D array of uint8, got shape {grey.shape} of {grey.dtype}")
    height, width = grey.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    # Every line begins with the number of its filter; 0 is none.
    lines = np.zeros((height, width + 1), dtype=np.uint8)
    lines[:, 1:] = grey
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    with whole(path) as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
        file.write(chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + chunk(b"IEND", b""))


def centers_picture(
    centers: npt.NDArray[Any], shape: tuple[int, int], columns: int = 8, scale: int = 3
) -> npt.NDArray[np.uint8]:
    """Lay out centers that are images, row by row, on one grey image.

    Parameters
    ----------
    centers : ndarray of shape (n_centers, height * width)
        Dark is low; the lowest value of all becomes black, the highest white.
    shape : tuple of (int, int)
        Height and width of a center.
    columns : int, default=8
        Centers side by side.
    scale : int, default=3
        Pixels of the image for one of a center, each way.

    Returns
    -------
    ndarray of shape (image_height, image_width), uint8

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.plot import centers_picture
    >>> centers_picture(np.eye(4), (2, 2), columns=2, scale=1).shape
    (7, 7)
    """
    height, width = shape
    low, high = float(np.min(centers)), float(np.max(centers))
    grey = np.rint((centers - low) * (255.0 / (high - low or 1.0))).astype(np.uint8)
    gap, rows = 1, -(-len(centers) // columns)
    page = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap), 96, dtype=np.uint8)
    for index, image in enumerate(grey.reshape(-1, height, width)):
        row, column = divmod(index, columns)
        top, left = gap + row * (height + gap), gap + column * (width + gap)
        page[top : top + height, left : left + width] = image
    return np.kron(page, np.ones((scale, scale), dtype=np.uint8))


def require_matplotlib() -> None:
    """Say what to install where matplotlib is missing.

    Raises
    ------
    ValueError
        When it is.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ValueError("curves need matplotlib: pip install 'shoal-cluster[plot]'")


@dataclass(frozen=True)
class Curve:
    """Energies of a model on its way, over what they cost.

    Parameters
    ----------
    label : str
        What the legend says.
    seconds, rows, energy : array-like of shape (n_points,)
        Seconds spent, rows read, and the mean squared distance of a row to its center at that point.
    """

    label: str
    seconds: Any
    rows: Any
    energy: Any

    @classmethod
    def of(cls, label: str, points: Iterable[Any]) -> Curve:
        """Make one of points that have `seconds`, `rows` and `energy`."""
        every = [(point.seconds, point.rows, point.energy) for point in points]
        return cls(label, *zip(*every, strict=True))


def curves(path: str | os.PathLike[str], lines: Sequence[Curve], title: str, *, excess: bool = False) -> None:
    """Draw energies over seconds and over rows read as a PNG file, which appears whole or not at all.

    Parameters
    ----------
    path : str or os.PathLike
        The file; one that exists is replaced.
    lines : sequence of Curve
        At least one.
    title : str
        What stands above.
    excess : bool, default=False
        Draw what the energies lie above the lowest of all instead, relative to it and on a logarithmic scale;
        not where all are the same.

    Raises
    ------
    ValueError
        When matplotlib is missing.
    OSError
        When the file cannot be written.

    Examples
    --------
    >>> from shoal.plot import Curve, curves
    >>> drawn = [Curve("k-means", [0.1, 0.2], [1000, 2000], [3.0, 2.5])]
    >>> curves("curve.png", drawn, "two sweeps")  # doctest: +SKIP
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Without pyplot: nothing of the user's session is touched, and no screen is needed.
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    lowest = min(float(np.min(line.energy)) for line in lines)
    # All of them may be the same, and then there is nothing that a logarithm could show.
    excess_of_some = excess and max(float(np.max(line.energy)) for line in lines) > lowest
    for line in lines:
        energy = np.asarray(line.energy, dtype=np.float64)
        if excess_of_some:
            # The lowest of all lies at minus infinity.
            energy = np.where(energy > lowest, energy / (lowest or 1.0) - 1.0, np.nan)
        for axes, cost in ((left, line.seconds), (right, line.rows)):
            marker = "o" if len(energy) <= MOST_MARKERS else None
            axes.plot(cost, energy, marker=marker, markersize=3, linewidth=1.4, label=line.label)
    for axes, name in ((left, "seconds"), (right, "rows read")):
        axes.set_xlabel(name)
        axes.set_xscale("log")
        axes.grid(alpha=0.3, which="both")
    if excess_of_some:
        left.set_yscale("log")
    left.set_ylabel("validation energy above the lowest, relative" if excess_of_some else "energy a row")
    right.legend()
    figure.suptitle(title)
    with whole(path) as file:
        figure.savefig(file, format="png", dpi=130)
