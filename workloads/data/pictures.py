"""Pictures similar to photographs, drawn from a seed.

A picture has the tint and soft shapes of its class, further shapes of its own, texture and grain.
Only numpy's integers are used, so that a seed gives the same pixels on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.workloads.data.idx import Bytes

_Field = NDArray[np.uint16]

# Shapes are drawn on a coarse grid of this size, then enlarged to the picture.
_ROWS, _COLUMNS = 6, 8
_TEXTURE_CELL = 8
_TEXTURE = 48
# Takes the place of the split number in the seed of the generator for the classes.
_CLASSES = 2


class Painter:
    """The painter of one set's pictures. `seed` is the set's, `classes` its number of labels."""

    def __init__(self, seed: int, classes: int) -> None:
        self._seed = seed
        random = np.random.default_rng([seed, _CLASSES])
        tints = random.integers(0, 256, (classes, 1, 1, 3), dtype=np.uint16)
        shapes = random.integers(0, 256, (classes, _ROWS, _COLUMNS, 3), dtype=np.uint16)
        self._classes: _Field = (2 * tints + shapes) // 3

    def random(self, split: int, number: int) -> np.random.Generator:
        """Returns the random generator of one sample, or one block of samples, in split 0 or 1."""
        return np.random.default_rng([self._seed, split, number])

    def paint(
        self,
        random: np.random.Generator,
        labels: NDArray[np.integer],
        height: int,
        width: int,
        grain: int,
    ) -> Bytes:
        """Returns pictures [n, height, width, 3] of `labels` [n]. More grain compresses worse."""
        count = len(labels)
        own = random.integers(0, 256, (count, _ROWS, _COLUMNS, 3), dtype=np.uint16)
        colours = _blown_up((self._classes[labels] * 2 + own) // 3, height, width)

        coarse = (count, -(-height // _TEXTURE_CELL) + 1, -(-width // _TEXTURE_CELL) + 1, 1)
        texture = _blown_up(random.integers(0, _TEXTURE, coarse, dtype=np.uint16), height, width)

        fine = random.integers(0, grain, (count, height, width, 1), dtype=np.uint8)
        # Colours use the range that texture and grain leave of 256, so that no sum wraps around.
        colours *= 256 - (_TEXTURE + grain)
        colours >>= 8
        colours += texture + fine
        return colours.astype(np.uint8)


def _blown_up(field: _Field, height: int, width: int) -> _Field:
    """Enlarges [n, rows, columns, c] to [n, height, width, c] by linear interpolation."""
    # Columns first: the second step then copies whole rows, which is several times faster.
    return _stretched(_stretched(field, 2, width), 1, height)


def _stretched(field: _Field, axis: int, length: int) -> _Field:
    # Weights in 256ths of a step between two points: values below 256 times 256 fit in 16 bits.
    places: NDArray[np.int64] = np.arange(length) * (field.shape[axis] - 1) * 256 // length
    before, share = places // 256, places % 256
    shape = [1] * field.ndim
    shape[axis] = length
    weight = share.astype(np.uint16).reshape(shape)
    near: _Field = np.take(field, before, axis)
    far: _Field = np.take(field, before + 1, axis)
    # In place, since at this size a further array costs more than the arithmetic.
    near *= 256 - weight
    far *= weight
    near += far
    near >>= 8
    return near
