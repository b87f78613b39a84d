"""Pictures of results: energy curves and images of centers.

:func:`curves` draws energies over time and over rows read; it needs matplotlib (extra ``plot``).
:func:`centers_picture` arranges centers that are images, and :func:`write_png` writes grayscale images; both
need only NumPy.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._files.staged import replace_file
from .typing import PathName

__all__ = ["Curve", "centers_picture", "curves", "png", "require_matplotlib", "write_png"]

#: Largest number of points that are drawn with markers.
MOST_MARKERS = 200


def write_png(path: PathName, gray: npt.NDArray[np.uint8]) -> None:
    """Write a grayscale image to a PNG file, by way of a temporary file.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file. An existing file is replaced.
    gray : ndarray of shape (height, width), uint8
        The image; 0 is black, 255 is white.

    Raises
    ------
    ValueError
        If `gray` has another type or shape.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from shoal.plot import write_png
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_png(f"{folder}/ramp.png", np.arange(256, dtype="uint8").reshape(16, 16))
    """
    if gray.ndim != 2 or gray.dtype != np.uint8 or 0 in gray.shape:
        raise ValueError(f"gray must be a 2-D array of uint8, got shape {gray.shape} of {gray.dtype}")
    with replace_file(path) as file:
        file.write(png(gray))


def png(image: npt.NDArray[np.uint8]) -> bytes:
    """Encode an image as PNG.

    Parameters
    ----------
    image : ndarray of shape (height, width) or (height, width, 3), uint8
        Grayscale or RGB; 0 is dark.

    Returns
    -------
    bytes
        The contents of a PNG file.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.plot import png
    >>> png(np.zeros((2, 2), dtype="uint8"))[1:4]
    b'PNG'
    """
    height, width = image.shape[:2]

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    # Every line of a PNG begins with its filter type; 0 is none.
    lines = np.zeros((height, 1 + image[0].size), dtype=np.uint8)
    lines[:, 1:] = image.reshape(height, -1)
    color = 0 if image.ndim == 2 else 2
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def centers_picture(
    centers: npt.NDArray[Any], shape: tuple[int, int], columns: int = 8, scale: int = 3
) -> npt.NDArray[np.uint8]:
    """Arrange centers that are images on one grayscale image.

    Parameters
    ----------
    centers : ndarray of shape (n_centers, height * width)
        The images. The lowest value becomes black, the highest white.
    shape : tuple of (int, int)
        Height and width of a center.
    columns : int, default=8
        Number of centers per line.
    scale : int, default=3
        Width and height, in pixels, of one pixel of a center.

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
    gray = np.rint((centers - low) * (255.0 / (high - low or 1.0))).astype(np.uint8)
    gap, rows = 1, -(-len(centers) // columns)
    page = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap), 96, dtype=np.uint8)
    for index, image in enumerate(gray.reshape(-1, height, width)):
        row, column = divmod(index, columns)
        top, left = gap + row * (height + gap), gap + column * (width + gap)
        page[top : top + height, left : left + width] = image
    return np.kron(page, np.ones((scale, scale), dtype=np.uint8))


def require_matplotlib() -> None:
    """Raise if matplotlib is not installed.

    Raises
    ------
    ValueError
        If matplotlib is missing. The message says how to install it.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ValueError("curves need matplotlib: pip install 'shoal-cluster[plot]'")


@dataclass(frozen=True)
class Curve:
    """Energies of a model during a fit, with time and rows read.

    Parameters
    ----------
    label : str
        Label in the legend.
    seconds, rows, energy : array-like of shape (n_points,)
        Seconds spent, rows read, and the mean squared distance of a row to its center at that point.
    """

    label: str
    seconds: Any
    rows: Any
    energy: Any

    @classmethod
    def of(cls, label: str, points: Iterable[Any]) -> Curve:
        """Make a curve from objects with the attributes `seconds`, `rows` and `energy`."""
        every = [(point.seconds, point.rows, point.energy) for point in points]
        return cls(label, *zip(*every, strict=True))


def curves(path: PathName, lines: Sequence[Curve], title: str, *, excess: bool = False) -> None:
    """Draw energies over time and over rows read to a PNG file.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file. It is written to a temporary name and renamed. An existing file is replaced.
    lines : sequence of Curve
        One or more curves.
    title : str
        Title of the figure.
    excess : bool, default=False
        Draw ``energy / lowest - 1`` on a logarithmic scale instead, where `lowest` is the lowest energy of
        all curves. Ignored if all energies are equal.

    Raises
    ------
    ValueError
        If matplotlib is missing.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> from shoal.plot import Curve, curves
    >>> drawn = [Curve("k-means", [0.1, 0.2], [1000, 2000], [3.0, 2.5])]
    >>> curves("curve.png", drawn, "two sweeps")  # doctest: +SKIP
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Not pyplot, which would change the state of the user's session and may need a display.
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    lowest = min(float(np.min(line.energy)) for line in lines)
    # If all energies are equal, a logarithmic scale shows nothing.
    excess_of_some = excess and max(float(np.max(line.energy)) for line in lines) > lowest
    for line in lines:
        energy = np.asarray(line.energy, dtype=np.float64)
        if excess_of_some:
            # The logarithm of the lowest energy is minus infinity.
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
    left.set_ylabel("validation energy above the lowest, relative" if excess_of_some else "energy per row")
    right.legend()
    figure.suptitle(title)
    with replace_file(path) as file:
        figure.savefig(file, format="png", dpi=130)
