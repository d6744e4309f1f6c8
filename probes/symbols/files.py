"""The look-up of the function at a path and place. Other processes open and read each file once.

One process opens files (`opening.py`), another one reads them (`reader.py`). A `Budget` limits the
cost of all files of a recording together.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tracer.probes.symbols.budget import Account, Budget, LeftOut, Reason
from tracer.probes.symbols.debug_files import DEBUG_ROOT, Wanted, candidates
from tracer.probes.symbols.demangle import Demangler
from tracer.probes.symbols.opening import Opener, Status
from tracer.probes.symbols.perf_map import refusal
from tracer.probes.symbols.reader import Reader
from tracer.probes.symbols.reader_process import MOST_PLACES, Facts
from tracer.probes.symbols.reading import UnreadableSymbols, shown
from tracer.probes.symbols.table import readable_names
from tracer.probes.workers.process import Unanswered

_MAX_PROBLEMS = 1000
_MOST_PATHS = 1 << 16
_BELOW = b"/./"
"""Stands between a folder and a path below it, so that no other path is the same."""

Names = list[str | None]


@dataclass(frozen=True)
class FileIdentity:
    """The identity of a file when it was mapped; None: not known, so not compared.

    build_id       build id in hex digits
    device, inode  device and inode of the mapping, from the kernel; on file systems without a
                   device of their own (btrfs, overlay) `stat` gives another device, which is not
                   compared
    latest_ctime   ns of real time; a file whose inode changed later counts as another file
    """

    build_id: str | None = None
    device: int | None = None
    inode: int | None = None
    latest_ctime: int | None = None


@dataclass
class _File:
    """A file at a path; `table` is the table's number at the reader, None if it has no table."""

    status: Status | None = None
    build_id: str | None = None
    table: int | None = None
    refused: bool = False


@dataclass(frozen=True)
class _Kind:
    """The way in which files of a kind are opened, checked and read."""

    follow: bool
    """True if a path may be a link."""
    unfit: Callable[[Status], str | None]
    """Function that returns why a file is not accepted, or None."""
    load: Callable[[bytes, int], Facts]
    """Function that has the reader make the file's table."""
    open: Callable[[int], Status | None]
    """Function that opens the file for the reader under a number."""


class SymbolCache:
    """Looks up functions by path and place.

    problems  reasons for missing names, one line each, at most the first thousand
    """

    def __init__(self, budget: Budget | None = None, debug_root: Path | None = DEBUG_ROOT) -> None:
        self._account = Account(budget or Budget())
        self._debug_root = debug_root
        self._problems: dict[str, None] = {}
        self._files: dict[bytes, _File] = {}
        self._inodes: dict[tuple[bool, Status], _File] = {}
        self._tables: OrderedDict[int, tuple[_File, int]] = OrderedDict()
        """Tables that the reader holds, with their bytes; the least recently used comes first."""
        self._numbers = itertools.count(1)
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._opener = Opener(self._account.budget, self._ours)
        self._reader = Reader(self._account.budget, self._theirs)
        self._demangler = Demangler()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the processes now, while this one is small; else they start when first needed."""
        with suppress(Unanswered):
            self._opener.start()
            self._reader.start()

    def close(self) -> None:
        """Ends the processes."""
        for worker in (self._opener, self._reader, self._demangler):
            worker.close()
        self._ours.close()
        self._theirs.close()

    @property
    def problems(self) -> list[str]:
        return list(self._problems)

    @property
    def left_out(self) -> Counter[Reason]:
        """Number of files whose functions were left out, by reason; for NAMES, number of names."""
        return self._account.left_out

    def resolve(
        self,
        path: str | bytes | os.PathLike[str],
        offsets: NDArray[np.int64],
        mapped: FileIdentity | None = None,
    ) -> Names | None:
        """Returns the function at each offset into the ELF file at `path`; None if not known.

        Returns None instead of a list if there is no such file, or it is not the `mapped` one;
        `problems` has the reason. The content of the file never raises an error.
        """
        return self._resolve(os.fsencode(path), b"", offsets, mapped)

    def resolve_below(
        self, folder: str, path: str, offsets: NDArray[np.int64], mapped: FileIdentity | None = None
    ) -> Names | None:
        """Returns the same for `path` below a folder that may be another one's, such as an image's.

        No link is followed, and no other mount is entered.
        """
        return self._resolve(os.fsencode(folder), os.fsencode(path.lstrip("/")), offsets, mapped)

    def _resolve(
        self, path: bytes, below: bytes, offsets: NDArray[np.int64], mapped: FileIdentity | None
    ) -> Names | None:
        def open_file(number: int) -> Status | None:
            if below:
                return self._opener.open_below(path, below, number)
            return self._opener.open(path, number)

        key = path + _BELOW + below if below else path
        kind = _Kind(True, lambda s: _difference(s, mapped), self._load_elf, open_file)
        file = self._file(key, kind)
        if file is None:
            return None
        if mapped is not None and mapped.build_id not in (None, file.build_id):
            what = f"its build id is {file.build_id}, not {mapped.build_id}"
            self._note(f"{shown(key)} is not the file that was mapped: {what}")
            return None
        return self._names(file, offsets)

    def at_run_time(
        self, path: str | bytes | os.PathLike[str], uid: int, addresses: NDArray[np.uint64]
    ) -> Names:
        """Returns the functions at `addresses` by the map at `path` of a process of user `uid`."""
        key = os.fsencode(path)

        def open_file(number: int) -> Status | None:
            return self._opener.open(key, number, follow=False)

        kind = _Kind(False, lambda s: refusal(s.uid, s.mode, uid), self._load_map, open_file)
        file = self._file(key, kind)
        return [None] * len(addresses) if file is None else self._names(file, addresses)

    def _file(self, key: bytes, kind: _Kind) -> _File | None:
        """Returns the file at a path, with its table at the reader; None if there is no table."""
        file = self._files.get(key)
        if file is None:
            if len(self._files) >= _MOST_PATHS:
                self.left_out[Reason.FILES] += 1
                return None
            file = self._files[key] = _File()
        try:
            if file.status is not None:
                _check(key, file.status, kind)
            if file.table is None and not file.refused:
                file = self._read(key, file, kind)
        except UnreadableSymbols as error:
            self._note(error.what)
            return None
        except LeftOut as error:
            self._leave_out(file, error.reason)
        return None if file.refused else file

    def _read(self, key: bytes, file: _File, kind: _Kind) -> _File:
        """Has a file opened and read; it may also be another path of the same inode.

        Raises LeftOut, or UnreadableSymbols if the file does not exist or is not accepted.
        """
        self._account.check()
        with self._reading():
            self._reader.start()  # an open file needs a process that takes it
        number = next(self._numbers)
        try:
            with self._account.waiting(Reason.SILENT):
                status = kind.open(number)
        except UnreadableSymbols:
            file.refused = True
            raise
        if status is None:
            file.refused = True
            raise UnreadableSymbols(f"{shown(key)} does not exist")
        file.status = status
        self._account.files += 1
        same = self._inodes.setdefault((kind.follow, status), file)
        try:
            _check(key, status, kind)
            if same is not file and (same.refused or same.table is not None):
                self._forget(number)
                self._files[key] = same
                return same
        except UnreadableSymbols:
            self._forget(number)
            raise
        self._take(file, number, kind.load(key, number))
        return file

    def _take(self, file: _File, number: int, facts: Facts) -> None:
        """Counts the cost of reading a file, and notes its table if it has one."""
        self._account.bytes_read += facts.bytes_read
        self._account.symbols += facts.symbols
        for problem in facts.problems:
            self._note(problem)
        for reason in facts.left_out:
            self.left_out[reason] += 1
        file.build_id = facts.build_id
        file.refused = facts.refused
        if facts.refused:
            return
        file.table = number
        self._tables[number] = file, facts.nbytes
        budget = self._account.budget
        # The newest table always stays, because it is used next.
        while len(self._tables) > 1 and (
            len(self._tables) > budget.tables
            or sum(size for _, size in self._tables.values()) > budget.table_bytes
        ):
            oldest, (other, _) = self._tables.popitem(last=False)
            other.table = None
            self._forget(oldest)

    def _load_elf(self, key: bytes, number: int) -> Facts:
        name = shown(key)
        with self._reading():
            facts = self._reader.load(number, name)
        if not facts.wants:
            return facts
        link = None if facts.link is None else facts.link.encode("latin-1")
        sought = Wanted(facts.build_id, link, facts.checksum)
        debug = list(self._debug_files(sought, Path(os.fsdecode(key)).parent))
        with self._reading():
            return self._reader.load_with(number, name, debug)

    def _debug_files(self, sought: Wanted, folder: Path) -> Iterator[tuple[int, int | None]]:
        """Opens the files that may be the debug file; yields each with its required checksum."""
        places = candidates(sought, folder, self._debug_root) if self._debug_root else ()
        for place in places:
            number = next(self._numbers)
            path = os.fsencode(place.path)
            try:
                with self._account.waiting(Reason.SILENT):
                    if place.below:
                        status = self._opener.open_below(path, place.below, number)
                    else:
                        status = self._opener.open(path, number)
            except UnreadableSymbols as error:
                self._note(error.what)
                continue
            if status is not None:
                self._account.files += 1
                yield number, place.checksum

    def _load_map(self, key: bytes, number: int) -> Facts:
        with self._reading():
            return self._reader.load_map(number, shown(key))

    def _names(self, file: _File, places: NDArray[np.int64] | NDArray[np.uint64]) -> Names:
        found: Names = []
        # Names in the file are up to 32 times as long as shown names.
        for at in range(0, len(places), MOST_PLACES):
            assert file.table is not None
            self._tables.move_to_end(file.table)
            try:
                with self._reading():
                    part = places[at : at + MOST_PLACES]
                    which, raw = self._reader.names(file.table, part)
            except LeftOut as error:
                self._leave_out(file, error.reason)
                return [None] * len(places)
            names = [self._account.name(name) for name in readable_names(raw, self._demangler)]
            found += [names[number] if number >= 0 else None for number in which]
        return found

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Counts the time of requests to the reader; if the reader ends, its tables are lost."""
        try:
            with self._account.waiting(Reason.TIME):
                yield
        except LeftOut:
            for file, _ in self._tables.values():
                file.table = None
            self._tables.clear()
            raise

    def _forget(self, number: int) -> None:
        with self._reading():
            self._reader.forget(number)

    def _leave_out(self, file: _File, reason: Reason) -> None:
        file.refused = True
        self.left_out[reason] += 1

    def _note(self, problem: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.setdefault(problem)


def _check(key: bytes, status: Status, kind: _Kind) -> None:
    why = kind.unfit(status)
    if why is not None:
        raise UnreadableSymbols(f"{shown(key)} {why}")


def _difference(status: Status, mapped: FileIdentity | None) -> str | None:
    """Returns the difference between the file and the mapped one, or None."""
    what = None
    if mapped is None:
        return None
    if os.major(status.device) and mapped.device not in (None, status.device):
        what = "it is on another device"
    elif mapped.inode not in (None, status.inode):
        what = "it has another inode"
    elif mapped.latest_ctime is not None and status.ctime_ns > mapped.latest_ctime:
        what = "it was changed later"
    return None if what is None else f"is not the file that was mapped: {what}"
