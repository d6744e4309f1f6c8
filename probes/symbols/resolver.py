"""The look-up of an instruction's function, for code of any origin.

A file is looked up by the path and on the file system of its mapping: a container's files are under
the container's root. A file is used only if its device, inode and time of last change match the
mapped file; otherwise its instructions get no names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tracer.probes.rights import caller_of_sudo
from tracer.probes.symbols.budget import Budget, Reason
from tracer.probes.symbols.files import FileIdentity, Names, SymbolCache
from tracer.probes.symbols.kernel import KernelSymbols, kernel_symbols
from tracer.probes.symbols.mappings import NOWHERE, MappedFile
from tracer.probes.symbols.reading import UnreadableSymbols
from tracer.probes.symbols.vdso import open_vdso

_ANONYMOUS, _VDSO = "[anon]", "[vdso]"
_MOST_JITS = 256
_MOST_PLACES = 1 << 20
"""Most places remembered for all files together."""


class Resolver:
    """A cache of function names, each looked up once. Its processes end when it is closed."""

    def __init__(
        self,
        latest_ctime: int | None = None,
        roots: Callable[[MappedFile], list[str]] = lambda file: [""],
        budget: Budget | None = None,
        layers: Callable[[MappedFile], list[tuple[str, str]]] = lambda file: [],
    ) -> None:
        """Makes a resolver.

        latest_ctime  ns of real time; a file whose inode changed later counts as another file
        roots         returns the folders under which a file's path may be found, best first
        layers        returns foreign folders, and the path below each, where it may be found else
        """
        self._latest_ctime = latest_ctime
        self._roots = roots
        self._layers = layers
        self._cache = SymbolCache(budget)
        self._known: dict[MappedFile, dict[int, str | None]] = {}
        self._places = 0
        self._kernel: KernelSymbols | None = None
        self._kernel_asked = False
        self._jits: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cache.close()

    def start(self) -> None:
        """Starts the processes that open and read files; else they start when first needed."""
        self._cache.start()

    @property
    def left_out(self) -> Counter[Reason]:
        """Number of files whose functions were left out, by reason; for NAMES, number of names."""
        return self._cache.left_out

    def of_kernel(self, addresses: NDArray[np.uint64]) -> Names:
        """Returns the kernel's functions at these addresses."""
        if not self._kernel_asked:
            self._kernel_asked = True
            try:
                self._kernel = kernel_symbols()
            except UnreadableSymbols:
                self._kernel = None
        if self._kernel is None:
            return [None] * len(addresses)
        return self._kernel.table.names_of(addresses)

    def of_file(self, file: MappedFile, offsets: NDArray[np.int64]) -> Names:
        """Returns the functions at these offsets of a mapped file."""
        if self._places > _MOST_PLACES or len(self._known) > _MOST_PLACES:
            self._known.clear()
            self._places = 0
        known = self._known.setdefault(file, {})
        fresh = [offset for offset in dict.fromkeys(offsets.tolist()) if offset not in known]
        if fresh:
            names = self._look_up(file, np.array(fresh, np.int64))
            known.update(zip(fresh, names, strict=True))
            self._places += len(fresh)
        return [known[offset] for offset in offsets.tolist()]

    def _look_up(self, file: MappedFile, offsets: NDArray[np.int64]) -> Names:
        nothing: Names = [None] * len(offsets)
        if file.path == _VDSO:
            try:
                vdso = open_vdso()
            except UnreadableSymbols:
                return nothing
            return vdso.at_file_offsets(offsets) if vdso is not None else nothing
        if not file.is_file:
            return nothing
        device = os.makedev(*file.dev) if any(file.dev) else None
        identity = FileIdentity(None, device, file.ino or None, self._latest_ctime)
        for root in self._roots(file):
            names = self._cache.resolve(root + file.path, offsets, identity)
            if names is not None:
                return names
        if not file.dev[0]:
            # An overlay has no major number. It keeps the inode of a layer's file, not its device.
            identity = replace(identity, device=None)
        for folder, below in self._layers(file) if file.ino else ():
            names = self._cache.resolve_below(folder, below, offsets, identity)
            if names is not None:
                return names
        return nothing

    def of_code_made_at_run_time(self, pid: int, addresses: NDArray[np.uint64]) -> Names:
        """Returns functions from the map of process `pid`'s JIT compiler (/tmp/perf-PID.map)."""
        if pid not in self._jits:
            if len(self._jits) >= _MOST_JITS:
                self.left_out[Reason.MAPS] += 1
                return [None] * len(addresses)
            self._jits.add(pid)
        return self._cache.at_run_time(f"/tmp/perf-{pid}.map", _user_of(pid), addresses)

    def names(
        self,
        files: list[MappedFile],
        where: Mapping[str, NDArray[np.int64]],
        kernel: NDArray[np.bool_],
    ) -> tuple[NDArray[np.int32], list[str]]:
        """Returns each instruction's function, as an index into the names (-1: not known), and the
        names.

        `where` has arrays `pid`, `ip`, `ip_file` (index in `files`, or NOWHERE) and `ip_offset`;
        `kernel` is True for instructions of the kernel.
        """
        found = np.full(len(kernel), -1, np.int32)
        numbers: dict[str, int] = {}

        def put(
            rows: NDArray[np.int64],
            places: NDArray[np.int64],
            names_of: Callable[[NDArray[np.int64]], Names],
        ) -> None:
            each, which = np.unique(places[rows], return_inverse=True)
            codes = [
                -1 if name is None else numbers.setdefault(name, len(numbers))
                for name in names_of(each)
            ]
            found[rows] = np.array(codes, np.int32)[which]

        ips = where["ip"].astype(np.int64)
        put(np.flatnonzero(kernel), ips, lambda ip: self.of_kernel(ip.view(np.uint64)))
        user = ~kernel & (where["ip_file"] != NOWHERE)
        for number in np.unique(where["ip_file"][user]).tolist():
            rows = np.flatnonzero(user & (where["ip_file"] == number))
            file = files[number]
            if file.path != _ANONYMOUS:
                put(rows, where["ip_offset"], partial(self.of_file, file))
                continue
            for pid in np.unique(where["pid"][rows]).tolist():
                mine = rows[where["pid"][rows] == pid]
                put(mine, ips, partial(self._at_run_time, pid))
        return found, list(numbers)

    def _at_run_time(self, pid: int, addresses: NDArray[np.int64]) -> Names:
        return self.of_code_made_at_run_time(pid, addresses.view(np.uint64))


def _user_of(pid: int) -> int:
    """Returns the user of a process; if it is gone, the caller of sudo or this process's user."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        caller = caller_of_sudo()
        return caller[0] if caller else os.geteuid()
