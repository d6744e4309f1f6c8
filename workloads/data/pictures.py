"""Pictures like photographs, drawn by seed: a tint and soft shapes of their class, others of
their own, then texture and grain.

Only numpy's integers are used, so that one seed gives one set of pixels everywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.data.idx import Bytes

_Field = NDArray[np.uint16]

# Shapes are drawn on a grid so coarse, and blown up to the picture.
_ROWS, _COLUMNS = 6, 8
_TEXTURE_CELL = 8
_TEXTURE = 48
# In the seed of a generator, where the split of a sample stands.
_CLASSES = 2


class Painter:
    """Draws the pictures of one set: `seed` is the set's, `classes` the number of its labels."""

    def __init__(self, seed: int, classes: int) -> None:
        self._seed = seed
        random = np.random.default_rng([seed, _CLASSES])
        tints = random.integers(0, 256, (classes, 1, 1, 3), dtype=np.uint16)
        shapes = random.integers(0, 256, (classes, _ROWS, _COLUMNS, 3), dtype=np.uint16)
        self._classes: _Field = (2 * tints + shapes) // 3

    def random(self, split: int, number: int) -> np.random.Generator:
        """The source of chance of one sample, or of one block of them, in a split (0 or 1)."""
        return np.random.default_rng([self._seed, split, number])

    def paint(
        self,
        random: np.random.Generator,
        labels: NDArray[np.integer],
        height: int,
        width: int,
        grain: int,
    ) -> Bytes:
        """Pictures [n, height, width, 3] of `labels` [n]; the grain decides how well they pack."""
        count = len(labels)
        own = random.integers(0, 256, (count, _ROWS, _COLUMNS, 3), dtype=np.uint16)
        colours = _blown_up((self._classes[labels] * 2 + own) // 3, height, width)

        coarse = (count, -(-height // _TEXTURE_CELL) + 1, -(-width // _TEXTURE_CELL) + 1, 1)
        texture = _blown_up(random.integers(0, _TEXTURE, coarse, dtype=np.uint16), height, width)

        fine = random.integers(0, grain, (count, height, width, 1), dtype=np.uint8)
        # Colours keep to what texture and grain leave of 256: nothing wraps around.
        colours *= 256 - (_TEXTURE + grain)
        colours >>= 8
        colours += texture + fine
        return colours.astype(np.uint8)


def _blown_up(field: _Field, height: int, width: int) -> _Field:
    """[n, rows, columns, c] to [n, height, width, c] between whose points the way is straight."""
    # Columns first: whole rows are then copied, which is several times quicker.
    return _stretched(_stretched(field, 2, width), 1, height)


def _stretched(field: _Field, axis: int, length: int) -> _Field:
    # In 256ths of a step between two points: values below 256 times 256 fit 16 bits.
    places: NDArray[np.int64] = np.arange(length) * (field.shape[axis] - 1) * 256 // length
    before, share = places // 256, places % 256
    shape = [1] * field.ndim
    shape[axis] = length
    weight = share.astype(np.uint16).reshape(shape)
    near: _Field = np.take(field, before, axis)
    far: _Field = np.take(field, before + 1, axis)
    # In place: at this size each further array costs more than the arithmetic.
    near *= 256 - weight
    far *= weight
    near += far
    near >>= 8
    return near
