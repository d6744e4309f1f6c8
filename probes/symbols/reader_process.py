"""The server in the process that reads files of targets; its client is `reader.py`."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from tracer.probes.symbols.budget import Reason
from tracer.probes.symbols.debug_files import belongs, wanted
from tracer.probes.symbols.elf import ElfFile, open_elf
from tracer.probes.symbols.elf_file import ElfImage
from tracer.probes.symbols.opening import NUMBER
from tracer.probes.symbols.perf_map import perf_map
from tracer.probes.symbols.reading import UnreadableSymbols
from tracer.probes.symbols.table import SymbolTable
from tracer.probes.workers.confinement import Limits, confine
from tracer.probes.workers.process import Channel

MOST_PLACES = 1024
"""Most places in one request."""

Debug = Sequence[tuple[int, int | None]]
"""Candidates for a debug file: number, and required checksum (None: the build id must match)."""

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_MAX_TEXT = 1 << 12
_Text = Annotated[str, Field(max_length=_MAX_TEXT)]
_FileName = Annotated[str, Field(max_length=4096, pattern=r"^[^/\x00]+$")]


@checked_dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class Facts:
    """The reader's answer about a file.

    refused          True if the file has no table, and never will
    bytes_read       bytes read of the file and of its debug file
    symbols, nbytes  symbols and bytes of its table
    build_id         build id in hex digits
    wants            True if the file needs its debug file: there is no table yet
    link, checksum   name (bytes as Latin-1) and CRC-32 of that debug file, if it has a name
    problems         reasons for missing names, one line each
    left_out         limits for which parts were not read
    """

    refused: bool = False
    bytes_read: _Count = 0
    symbols: _Count = 0
    nbytes: _Count = 0
    build_id: Annotated[str, Field(max_length=128, pattern="^[0-9a-f]+$")] | None = None
    wants: bool = False
    link: _FileName | None = None
    checksum: _Count | None = None
    problems: Annotated[tuple[_Text, ...], Field(max_length=256)] = ()
    left_out: Annotated[tuple[Reason, ...], Field(max_length=16)] = ()


@dataclass
class _File:
    """A file of a target: open at first; later only its table is kept."""

    fd: int
    elf: ElfFile | None = None
    table: SymbolTable | None = None


class Tables:
    """The tables of files, by the number that came with the file."""

    def __init__(self, files: socket.socket, limits: Limits) -> None:
        self._incoming = files
        self._limits = limits
        self._files: dict[int, _File] = {}

    def serve(self, channel: Channel) -> None:
        """Drops every privilege, then answers requests."""
        confine(self._limits)
        while (request := channel.receive()) is not None:
            head, _, data = request.partition(b"\n")
            what, number, name, debug = json.loads(head)
            if what == "names":
                channel.send(self._names(number, data))
            elif what == "forget":
                self._forget(number)
                channel.send(b"")
            else:
                facts = self._read(what, number, name, debug)
                channel.send(json.dumps(asdict(facts)).encode())

    def _read(self, what: str, number: int, name: str, debug: Debug) -> Facts:
        try:
            if what == "map":
                return self._read_map(number, name)
            return self._read_elf(number, name, None if what == "elf" else debug)
        except UnreadableSymbols as error:
            reasons = (error.reason,) if error.reason else ()
            facts = Facts(refused=True, problems=(error.what[:_MAX_TEXT],), left_out=reasons)
        except MemoryError:
            facts = Facts(refused=True, left_out=(Reason.MEMORY,))
        for each in (number, *(candidate for candidate, _ in debug)):
            self._forget(each)
        return facts

    def _read_map(self, number: int, name: str) -> Facts:
        file = self._file(number)
        file.table = table = perf_map(file.fd, name)
        self._close(file)
        return Facts(symbols=len(table), nbytes=table.nbytes)

    def _read_elf(self, number: int, name: str, debug: Debug | None) -> Facts:
        """Reads a file. With `debug` None, asks for its debug file first if it may have one."""
        file = self._file(number)
        elf = file.elf = file.elf or open_elf(file.fd, name)
        build_id = elf.build_id
        if debug is None and elf.stripped and (sought := wanted(elf)) is not None:
            link = None if sought.name is None else sought.name.decode("latin-1")
            return Facts(build_id=build_id, wants=True, link=link, checksum=sought.checksum)
        others = [self._debug_file(elf, candidate, checksum) for candidate, checksum in debug or ()]
        file.table = table = elf.symbols()
        self._close(file)
        return Facts(
            bytes_read=elf.bytes_read + sum(other.bytes_read for other in others if other),
            symbols=len(table),
            nbytes=table.nbytes,
            build_id=build_id,
            problems=tuple(problem[:_MAX_TEXT] for problem in elf.problems),
            left_out=tuple(sorted(elf.left_out)),
        )

    def _debug_file(self, elf: ElfFile, number: int, checksum: int | None) -> ElfImage | None:
        """Gives `elf` a debug file if the file belongs to it and is the first that does."""
        try:
            if elf.debug is not None:
                return None
            debug = ElfImage(self._file(number).fd, f"the debug file of {elf.shown}")
            if belongs(debug, elf, checksum):
                elf.debug = debug
            else:
                debug.close()
                elf.problem("its debug file belongs to another build")
            return debug
        except UnreadableSymbols as error:
            elf.problem(error.what, error.reason)
            return None
        finally:
            self._forget(number)

    def _names(self, number: int, data: bytes) -> bytes:
        """Returns for each place the number of its name (-1: none), then the names, each with a
        NUL."""
        file = self._files[number]
        assert file.table is not None
        places = np.frombuffer(data, np.int64)
        if file.elf is None:
            index = file.table.index_of(places.view(np.uint64))
        else:
            addresses, loaded = file.elf.addresses_of(places)
            index = np.where(loaded, file.table.index_of(addresses), -1)
        known, which = np.unique(index, return_inverse=True)
        if len(known) and known[0] < 0:
            known, which = known[1:], which - 1
        names = (file.table.raw_name(row) + b"\0" for row in known.tolist())
        return which.astype(np.int32).tobytes() + b"".join(names)

    def _file(self, number: int) -> _File:
        """Returns a file. It was sent before the request, so it is ready to be received."""
        while number not in self._files:
            head, fds, _, _ = socket.recv_fds(self._incoming, NUMBER.size, 1)
            self._files[NUMBER.unpack(head)[0]] = _File(fds[0])
        return self._files[number]

    def _close(self, file: _File) -> None:
        """Closes the file itself; its table stays."""
        if file.elf is not None:
            if file.elf.debug is not None:
                file.elf.debug.close()
                file.elf.debug = None
            file.elf.close()
        if file.fd >= 0:
            os.close(file.fd)
            file.fd = -1

    def _forget(self, number: int) -> None:
        file = self._file(number)
        self._close(file)
        del self._files[number]
