"""Instructions into the functions that they belong to, wherever their code came from.

A file is looked up by the path that it was mapped by, on the file system that it was mapped from:
a container's files lie under its own root. Whatever is not the file that was mapped, by device,
inode and time of its last change, has no names rather than another file's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from probes.symbols.files import FileIdentity, SymbolCache
from probes.symbols.kernel import KernelSymbols, kernel_symbols
from probes.symbols.mappings import NOWHERE, MappedFile
from probes.symbols.perf_map import read_perf_map
from probes.symbols.reading import UnreadableSymbols
from probes.symbols.table import SymbolTable
from probes.symbols.vdso import open_vdso

_ANONYMOUS, _VDSO = "[anon]", "[vdso]"
_MOST_JITS = 256


class Resolver:
    """Names of functions, each asked for once."""

    def __init__(
        self,
        latest_ctime: int | None = None,
        roots: Callable[[MappedFile], list[str]] = lambda file: [""],
    ) -> None:
        """`latest_ctime`: ns of real time, a file that changed later is another one by now.

        `roots` are the folders under which a file's path may be found, best first.
        """
        self._latest_ctime = latest_ctime
        self._roots = roots
        self._cache = SymbolCache()
        self._known: dict[MappedFile, dict[int, str | None]] = {}
        self._kernel: KernelSymbols | None = None
        self._kernel_asked = False
        self._jits: dict[int, SymbolTable | None] = {}

    def of_kernel(self, addresses: NDArray[np.uint64]) -> list[str | None]:
        """The kernel's functions at these addresses."""
        if not self._kernel_asked:
            self._kernel_asked = True
            try:
                self._kernel = kernel_symbols()
            except UnreadableSymbols:
                self._kernel = None
        if self._kernel is None:
            return [None] * len(addresses)
        unique, back = np.unique(addresses, return_inverse=True)
        names = self._kernel.table.names_of(unique)
        return [names[i] for i in back.tolist()]

    def of_file(self, file: MappedFile, offsets: NDArray[np.int64]) -> list[str | None]:
        """The functions at these offsets of a mapped file."""
        known = self._known.setdefault(file, {})
        fresh = np.unique(offsets)
        fresh = fresh[[offset not in known for offset in fresh.tolist()]]
        if len(fresh):
            known.update(zip(fresh.tolist(), self._look_up(file, fresh), strict=True))
        return [known[offset] for offset in offsets.tolist()]

    def _look_up(self, file: MappedFile, offsets: NDArray[np.int64]) -> list[str | None]:
        nothing: list[str | None] = [None] * len(offsets)
        if file.path == _VDSO:
            try:
                vdso = open_vdso()
            except UnreadableSymbols:
                return nothing
            return vdso.at_file_offsets(offsets) if vdso is not None else nothing
        if not file.is_file:
            return nothing
        for root in self._roots(file):
            path = Path(root + file.path)
            identity = self._identity(path, file)
            if identity is not None:
                return self._cache.resolve(path, offsets, identity)
        return nothing

    def _identity(self, path: Path, file: MappedFile) -> FileIdentity | None:
        """What the file at `path` must be to have been mapped; None: it is another one."""
        try:
            found = path.stat()
        except OSError:
            return None
        # File systems without a device of their own (btrfs, overlay) show another one in stat.
        device = os.makedev(*file.dev) if os.major(found.st_dev) and any(file.dev) else None
        inode = file.ino or None
        if device not in (None, found.st_dev) or inode not in (None, found.st_ino):
            return None
        return FileIdentity(device=device, inode=inode, latest_ctime=self._latest_ctime)

    def of_code_made_at_run_time(self, pid: int, addresses: NDArray[np.uint64]) -> list[str | None]:
        """The functions that a JIT compiler of process `pid` told of (/tmp/perf-PID.map)."""
        if pid not in self._jits and len(self._jits) < _MOST_JITS:
            try:
                self._jits[pid] = read_perf_map(f"/tmp/perf-{pid}.map", _user_of(pid))
            except UnreadableSymbols:
                self._jits[pid] = None
        table = self._jits.get(pid)
        return table.names_of(addresses) if table is not None else [None] * len(addresses)

    def names(
        self,
        files: list[MappedFile],
        where: Mapping[str, NDArray[np.int64]],
        kernel: NDArray[np.bool_],
    ) -> list[str | None]:
        """The function of each instruction.

        `where` has arrays `pid`, `ip`, `ip_file` (number in `files`, or NOWHERE) and `ip_offset`;
        `kernel` says which instructions are the kernel's.
        """
        found: list[str | None] = [None] * len(kernel)

        def put(rows: NDArray[np.int64], names: list[str | None]) -> None:
            for row, name in zip(rows.tolist(), names, strict=True):
                found[row] = name

        rows = np.flatnonzero(kernel)
        put(rows, self.of_kernel(where["ip"][rows].astype(np.int64).view(np.uint64)))
        user = ~kernel & (where["ip_file"] != NOWHERE)
        for number in np.unique(where["ip_file"][user]).tolist():
            rows = np.flatnonzero(user & (where["ip_file"] == number))
            file = files[number]
            if file.path != _ANONYMOUS:
                put(rows, self.of_file(file, where["ip_offset"][rows]))
                continue
            for pid in np.unique(where["pid"][rows]).tolist():
                mine = rows[where["pid"][rows] == pid]
                addresses = where["ip"][mine].astype(np.int64).view(np.uint64)
                put(mine, self.of_code_made_at_run_time(pid, addresses))
        return found


def _user_of(pid: int) -> int:
    """The user of a process, or who called sudo, or this process's own."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return int(os.environ.get("SUDO_UID") or os.geteuid())
