"""The elbow of a decreasing curve, by Kneedle (Satopaa and others, 2011)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def differences(x: npt.ArrayLike, y: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return how far a convex, decreasing curve lies below the line between its ends.

    Both axes are scaled to 0..1 first. All values are 0 if `x` or `y` is constant.
    """
    across, down = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    width, height = np.ptp(across), np.ptp(down)
    if width == 0.0 or height == 0.0:
        return np.zeros(len(across))
    found: npt.NDArray[np.float64] = (down.max() - down) / height - (across - across.min()) / width
    return found


def elbow(x: npt.ArrayLike, y: npt.ArrayLike, sensitivity: float = 1.0) -> int | None:
    """Return the position of the elbow of a convex, decreasing curve; None if there is none.

    A local maximum of :func:`differences` is an elbow if the differences fall below it by more than
    `sensitivity` mean steps of `x` before the next local maximum. Of several elbows, the one with the largest
    difference is returned.
    """
    across = np.asarray(x, dtype=np.float64)
    found = differences(x, y)
    if len(found) < 3 or not found.any():
        return None
    inner = np.arange(1, len(found) - 1)
    peaks = inner[(found[inner] >= found[inner - 1]) & (found[inner] > found[inner + 1])]
    steps = np.diff(across) / np.ptp(across)
    elbows = []
    for peak, until in zip(peaks, [*peaks[1:], len(found)], strict=False):
        threshold = found[peak] - sensitivity * steps.mean()
        if (found[peak + 1 : until] < threshold).any():
            elbows.append(int(peak))
    return max(elbows, key=lambda at: found[at], default=None)
