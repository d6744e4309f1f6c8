"""The numbers of files by device and inode."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_NONE = -1


class FileNumbers:
    """The numbers of files, from 0, by device and inode."""

    def __init__(self, files: pa.Table) -> None:
        """Takes dev and ino of the files, in the order of their numbers."""
        self._of: dict[str, tuple[NDArray[np.uint64], NDArray[np.int64]]] = {}
        devs = np.array(files["dev"].to_pylist(), object)
        inos = files["ino"].to_numpy()
        for dev in dict.fromkeys(devs):
            mine = np.flatnonzero(devs == dev)
            order = mine[np.argsort(inos[mine])]
            self._of[dev] = inos[order], order

    def numbers(self, dev: pa.Array, ino: pa.Array) -> NDArray[np.int64]:
        """Returns the number of each row's file; -1 for none."""
        found = np.full(len(dev), _NONE, np.int64)
        names = dev.dictionary_encode() if not isinstance(dev, pa.DictionaryArray) else dev
        codes = names.indices.fill_null(_NONE).to_numpy(zero_copy_only=False)
        wanted = ino.fill_null(0).to_numpy(zero_copy_only=False)
        for code, name in enumerate(names.dictionary.to_pylist()):
            if name in self._of:
                inos, numbers = self._of[name]
                rows = np.flatnonzero(codes == code)
                places = np.minimum(np.searchsorted(inos, wanted[rows]), len(inos) - 1)
                same = inos[places] == wanted[rows]
                found[rows[same]] = numbers[places[same]]
        return found
