"""Images similar to MNIST's, drawn from a seed.

Each digit is a polyline, bent, thickened and made noisy. Only additions, products, quotients and
square roots are used, which IEEE 754 rounds the same on every machine, and no trigonometry or
matrix library. A seed thus gives the same bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tracer.workloads.data.idx import Bytes

SIDE = 28
CLASSES = 10
BLOCK = 256
"""Images drawn at once. Sample i of a split depends only on the seed and i."""

_Floats = NDArray[np.float32]

# Points (x, y) in a unit square, y downwards; neighbours are joined.
_STROKES = (
    ((0.5, 0.0), (0.8, 0.2), (0.8, 0.8), (0.5, 1.0), (0.2, 0.8), (0.2, 0.2), (0.5, 0.0)),
    ((0.3, 0.25), (0.55, 0.0), (0.55, 1.0)),
    ((0.2, 0.25), (0.4, 0.0), (0.7, 0.05), (0.8, 0.3), (0.2, 1.0), (0.85, 1.0)),
    ((0.2, 0.0), (0.75, 0.05), (0.45, 0.45), (0.8, 0.6), (0.75, 0.9), (0.45, 1.0), (0.15, 0.85)),
    ((0.7, 1.0), (0.7, 0.0), (0.15, 0.65), (0.9, 0.65)),
    ((0.8, 0.0), (0.25, 0.0), (0.25, 0.45), (0.65, 0.45), (0.8, 0.7), (0.6, 1.0), (0.2, 0.95)),
    ((0.7, 0.0), (0.3, 0.4), (0.2, 0.75), (0.45, 1.0), (0.75, 0.8), (0.7, 0.55), (0.25, 0.6)),
    ((0.15, 0.0), (0.85, 0.0), (0.4, 1.0)),
    (
        (0.5, 0.5),
        (0.25, 0.25),
        (0.5, 0.0),
        (0.75, 0.25),
        (0.5, 0.5),
        (0.2, 0.75),
        (0.5, 1.0),
        (0.8, 0.75),
        (0.5, 0.5),
    ),
    ((0.75, 0.4), (0.3, 0.45), (0.25, 0.15), (0.5, 0.0), (0.75, 0.15), (0.7, 0.6), (0.5, 1.0)),
)


def draw(seed: int, split: int, count: int) -> Iterator[tuple[Bytes, Bytes]]:
    """Yields images [n, 28, 28] and labels [n], n up to BLOCK, `count` images in all.

    Two splits of the same seed share no image.
    """
    for first in range(0, count, BLOCK):
        images, labels = _draw_block(np.random.default_rng([seed, split, first // BLOCK]))
        yield images[: count - first], labels[: count - first]


def _points() -> _Floats:
    """Returns the strokes as [digit, point, 2]; short ones repeat their last point."""
    longest = max(map(len, _STROKES))
    padded = [stroke + (stroke[-1],) * (longest - len(stroke)) for stroke in _STROKES]
    return np.array(padded, dtype=np.float32)


def _draw_block(random: np.random.Generator) -> tuple[Bytes, Bytes]:
    labels = random.integers(0, CLASSES, BLOCK, dtype=np.uint8)

    def between(low: float, high: float) -> _Floats:
        # One number per image, in a shape that broadcasts with [image, ...].
        drawn = random.random((BLOCK, 1), dtype=np.float32)
        return np.float32(low) + np.float32(high - low) * drawn

    centred = _points()[labels] - np.float32(0.5)
    across, down = centred[:, :, 0], centred[:, :, 1]
    middle = np.float32((SIDE - 1) / 2)
    x = middle + between(-2, 2) + between(14, 19) * across + between(-4, 4) * down
    y = middle + between(-2, 2) + between(17, 21) * down + between(-3, 3) * across

    thickness = between(0.7, 1.5)
    ink = np.clip(thickness + np.float32(0.5) - _distance(x, y), 0, 1) * between(150, 215)
    noise = random.random(ink.shape, dtype=np.float32) * np.float32(40)
    return (ink + noise).astype(np.uint8).reshape(BLOCK, SIDE, SIDE), labels


def _distance(x: _Floats, y: _Floats) -> _Floats:
    """Returns the distance of each pixel to the nearest stroke, in pixels.

    The points have the shape [image, point], the result [image, pixel].
    """
    row, column = np.divmod(np.arange(SIDE * SIDE, dtype=np.float32), np.float32(SIDE))
    nearest = np.full((len(x), SIDE * SIDE), np.inf, dtype=np.float32)
    for point in range(x.shape[1] - 1):
        from_x, from_y = x[:, point, None], y[:, point, None]
        along_x, along_y = x[:, point + 1, None] - from_x, y[:, point + 1, None] - from_y
        # The floor avoids a division by zero at a repeated point, a segment of no length.
        squared = np.maximum(along_x * along_x + along_y * along_y, np.float32(1e-6))
        to_x, to_y = column - from_x, row - from_y
        share = np.clip((to_x * along_x + to_y * along_y) / squared, 0, 1)
        off_x, off_y = to_x - share * along_x, to_y - share * along_y
        np.minimum(nearest, off_x * off_x + off_y * off_y, out=nearest)
    return np.sqrt(nearest)
