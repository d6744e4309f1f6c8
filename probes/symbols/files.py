"""Paths and file offsets into names: each file opened once, a bounded number of tables kept."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from probes.symbols.debug_files import DEBUG_ROOT
from probes.symbols.elf import ElfFile, open_elf
from probes.symbols.reading import UnreadableSymbols, shown

MAX_TABLES = 64
MAX_TABLE_BYTES = 1 << 29
_MAX_PROBLEMS = 1000


@dataclass(frozen=True)
class FileIdentity:
    """What is known of a file from when it was mapped; None: not known, not compared.

    build_id       in hex digits
    device, inode  as `stat` gives them
    latest_ctime   ns of real time: a file whose inode changed later is another one by now
    """

    build_id: str | None = None
    device: int | None = None
    inode: int | None = None
    latest_ctime: int | None = None


@dataclass
class _Opened:
    elf: ElfFile
    nbytes: int


class SymbolCache:
    """Looks up functions by path and file offset.

    problems   why names are missing: one line each, the first thousand
    """

    def __init__(
        self,
        max_tables: int = MAX_TABLES,
        max_bytes: int = MAX_TABLE_BYTES,
        debug_root: Path | None = DEBUG_ROOT,
    ) -> None:
        self._max_tables = max_tables
        self._max_bytes = max_bytes
        self._debug_root = debug_root
        self._opened: OrderedDict[bytes, _Opened | None] = OrderedDict()
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        return list(self._problems)

    def resolve(
        self,
        path: str | bytes | os.PathLike[str],
        offsets: NDArray[np.int64],
        mapped: FileIdentity | None = None,
    ) -> list[str | None]:
        """The function at each offset into the file at `path`; None where none is known.

        All None where the file cannot be read or is not the one that was `mapped`; `problems`
        then says why. Raises nothing for what the file is.
        """
        nothing: list[str | None] = [None] * len(offsets)
        opened = self._open(path)
        if opened is None:
            return nothing
        other = _difference(opened.elf, mapped)
        if other is not None:
            self._note(f"{shown(path)}: not the file that was mapped: {other}")
            return nothing
        return opened.elf.at_file_offsets(offsets)

    def _open(self, path: str | bytes | os.PathLike[str]) -> _Opened | None:
        key = os.fsencode(path)
        if key in self._opened:
            self._opened.move_to_end(key)
            return self._opened[key]
        self._opened[key] = opened = self._read(path)
        # The newest stays, however large: it is about to be used.
        while len(self._opened) > 1 and (
            len(self._opened) > self._max_tables
            or sum(o.nbytes for o in self._opened.values() if o is not None) > self._max_bytes
        ):
            self._opened.popitem(last=False)
        return opened

    def _read(self, path: str | bytes | os.PathLike[str]) -> _Opened | None:
        try:
            with open_elf(path, self._debug_root) as elf:
                nbytes = elf.symbols().nbytes
                _ = elf.build_id  # asked now, while the file is open
        except UnreadableSymbols as error:
            self._note(error.what)
            return None
        for problem in elf.problems:
            self._note(problem)
        return _Opened(elf, nbytes)

    def _note(self, problem: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.setdefault(problem)


def _difference(elf: ElfFile, mapped: FileIdentity | None) -> str | None:
    """What tells the file from the one that was mapped, or None."""
    if mapped is None:
        return None
    if mapped.build_id is not None and mapped.build_id != elf.build_id:
        return f"its build id is {elf.build_id}, not {mapped.build_id}"
    if mapped.device is not None and mapped.device != elf.status.st_dev:
        return "it lies on another device"
    if mapped.inode is not None and mapped.inode != elf.status.st_ino:
        return "it has another inode"
    if mapped.latest_ctime is not None and elf.status.st_ctime_ns > mapped.latest_ctime:
        return "it was changed since"
    return None
