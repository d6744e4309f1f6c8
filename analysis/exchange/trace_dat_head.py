"""The header of a trace.dat: event formats, names of threads, and the places of the pages.

Version 6 has it at the beginning of the file; version 7 has it in sections that options point to,
which may be compressed. Formats: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from tracer.analysis.exchange.reading import MOST_TEXT, Fields, Reader, text
from tracer.probes.catalogue import PROBES
from tracer.probes.errors import BadTrace
from tracer.probes.limits import CPU_LIMIT

_MOST_EVENTS = 1 << 16
_MOST_CPUS = 1 << 14
"""Limit for all instances together."""
_MOST_OPTIONS = 1 << 14
_MOST_OPTION = _MOST_HEADER_PAGE = 1 << 16
_MOST_FORMAT = 1 << 18
_MOST_NAMES = 1 << 20
"""Limit of names: the kernel keeps at most 32,768 (PID_MAX_DEFAULT), in lines of 25 bytes."""
_COMPRESSED = 1
_SECTION = struct.Struct("<HH4xQ")
"""Layout: id, flags, size. The manual gives 4 bytes for the size; the files have 8."""
_DONE, _CPUSTAT, _BUFFER, _TRACECLOCK, _UNAME, _OFFSET, _TSC2NSEC = 0, 2, 3, 4, 5, 7, 14
_HEADER_INFO, _EVENT_FORMATS, _CMDLINES = 16, 18, 21
_TOLD = (_CPUSTAT, _TRACECLOCK, _UNAME, _OFFSET, _TSC2NSEC)
"""Options that are read as text."""
LOST = ("overrun", "commit overrun", "dropped events")
_COUNTED = ("CPU", *LOST)
_NAME_BYTES = 256
_WANTED = {event.name for probe in PROBES.values() for event in probe.events}


@dataclass
class CpuPages:
    """The place of one CPU's pages in the file."""

    cpu: int
    offset: int
    size: int
    buffer: str = ""
    compressed: bool = False


@dataclass
class DatHead:
    """The contents of a trace.dat's header."""

    header_page: str = ""
    formats: dict[str, str] = field(default_factory=dict)
    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    clock: str = ""
    machine: str | None = None
    shift_ns: int = 0
    cycles: bool = False
    stats: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    """The kernel's counters, by instance and CPU."""
    counted: str = ""
    """The instance of the next counters."""
    cpus: list[CpuPages] = field(default_factory=list)
    options: int = 0
    """The number of instances."""


def c_string(reader: Reader) -> bytes:
    found = b""
    while (one := reader.take(1, "its head")) != b"\0":
        found += one
        if len(found) > 64:
            raise reader.cut("its head")
    return found


Decompress = Callable[[bytes, int], bytes]


def version6(reader: Reader) -> DatHead:
    found = DatHead()
    take = reader.take

    def number(size: int, what: str) -> int:
        return int.from_bytes(take(size, what), "little")

    _expect(reader, b"header_page\0")
    size = _bounded(reader, number(8, "header_page"), _MOST_HEADER_PAGE, "bytes of header_page")
    found.header_page = text(take(size, "header_page"))
    _expect(reader, b"header_event\0")
    take(number(8, "header_event"), "header_event")
    for _ in range(_bounded(reader, number(4, "formats"), _MOST_EVENTS, "formats")):
        take(number(8, "formats"), "formats")
    total = 0
    for _ in range(_bounded(reader, number(4, "formats"), _MOST_EVENTS, "formats")):
        system = text(c_string(reader))
        for _ in range(_bounded(reader, number(4, "formats"), _MOST_EVENTS, "formats")):
            total += 1
            _bounded(reader, total, _MOST_EVENTS, "formats")
            _add_format(reader, found, system, take(number(8, "formats"), "formats"))
    reader.seek(number(4, "kallsyms") + reader.file.tell(), "kallsyms")
    reader.seek(number(4, "printk formats") + reader.file.tell(), "printk formats")
    size = _bounded(reader, number(8, "names of threads"), _MOST_NAMES, "bytes of names")
    _add_threads(found, take(size, "names of threads"))
    cpus = _bounded(reader, number(4, "CPUs"), _MOST_CPUS, "CPUs")
    kind = take(10, "its options")
    buffers = []
    if kind == b"options  \0":
        while (option := number(2, "its options")) != 0:
            data = take(number(4, "its options"), "its options")
            if option == _BUFFER:
                buffers.append(Fields(data, reader.cut))
            _add_option(reader, found, option, data)
        kind = take(10, "its options")
    if kind != b"flyrecord\0":
        raise BadTrace(
            f"{reader.path} contains text, not pages", "import the text: trace-cmd report > FILE"
        )
    for cpu in range(cpus):
        found.cpus.append(CpuPages(cpu, number(8, "CPU data"), number(8, "CPU data")))
    _bounded(reader, cpus * (1 + len(buffers)), _MOST_CPUS, "CPUs")
    for fields in buffers:  # an instance; the option points to the list of its pages
        offset = fields.number(8, "a buffer")
        name = text(fields.string("a buffer"))
        reader.seek(offset, "a buffer")
        _expect(reader, b"flyrecord\0")
        for cpu in range(cpus):
            found.cpus.append(CpuPages(cpu, number(8, "CPU data"), number(8, "CPU data"), name))
    return found


def version7(reader: Reader) -> tuple[DatHead, Decompress | None]:
    name = c_string(reader)
    c_string(reader)  # its version
    decompress = _decompressor(reader, text(name))
    found = DatHead()
    contents = _Sections(reader, decompress)
    offset = int.from_bytes(reader.take(8, "its head"), "little")
    sections: dict[int, int] = {}
    while offset:
        fields = contents.read(offset, 0)
        offset = 0
        while fields.left:
            option = fields.number(2, "its options")
            data = fields.take(fields.number(4, "its options"), "its options")
            if option == _DONE:
                offset = int.from_bytes(data[:8], "little")
                break
            if option in (_HEADER_INFO, _EVENT_FORMATS, _CMDLINES):
                sections[option] = int.from_bytes(data[:8], "little")
            elif option == _BUFFER:
                _add_buffer(reader, found, data)
            _add_option(reader, found, option, data)
    if _HEADER_INFO not in sections or _EVENT_FORMATS not in sections:
        raise reader.cut("it has no event formats")
    fields = contents.read(sections[_HEADER_INFO], 16)
    if fields.take(12, "header_page") != b"header_page\0":
        raise reader.cut("header_page")
    size = fields.number(8, "header_page")
    _bounded(reader, size, _MOST_HEADER_PAGE, "bytes of header_page")
    found.header_page = text(fields.take(size, "header_page"))
    fields = contents.read(sections[_EVENT_FORMATS], 18)
    total = 0
    for _ in range(_bounded(reader, fields.number(4, "formats"), _MOST_EVENTS, "formats")):
        system = text(fields.string("formats"))
        for _ in range(_bounded(reader, fields.number(4, "formats"), _MOST_EVENTS, "formats")):
            total += 1
            _bounded(reader, total, _MOST_EVENTS, "formats")
            _add_format(reader, found, system, fields.take(fields.number(8, "formats"), "formats"))
    if _CMDLINES in sections:
        fields = contents.read(sections[_CMDLINES], 21)
        size = fields.number(8, "names of threads")
        _bounded(reader, size, _MOST_NAMES, "bytes of names")
        _add_threads(found, fields.take(size, "names of threads"))
    return found, decompress


class _Sections:
    """A reader of sections: each is read once, and together they have at most MOST_TEXT bytes."""

    def __init__(self, reader: Reader, decompress: Decompress | None) -> None:
        self._reader = reader
        self._decompress = decompress
        self._seen: set[int] = set()
        self._left = MOST_TEXT

    def read(self, offset: int, kind: int) -> Fields:
        """Returns the contents of the section at `offset`, which must be of this kind."""
        reader = self._reader
        if offset in self._seen:
            raise reader.cut("a section follows itself")
        self._seen.add(offset)
        reader.seek(offset, "a section")
        identity, flags, size = _SECTION.unpack(reader.take(_SECTION.size, "a section"))
        if identity != kind:
            raise reader.cut("a section is of the wrong kind")
        packed = size
        if flags & _COMPRESSED:
            packed, size = struct.unpack("<II", reader.take(8, "a section"))
        self._left -= size
        if self._left < 0:
            raise reader.cut("sections are too large")
        data = reader.take(packed, "a section")
        if flags & _COMPRESSED:
            if self._decompress is None:
                raise reader.cut("a compressed section")
            data = self._decompress(data, size)
        return Fields(data, reader.cut)


def _add_buffer(reader: Reader, found: DatHead, data: bytes) -> None:
    """Adds an instance: its pages by CPU."""
    fields = Fields(data, reader.cut)
    section = fields.number(8, "a buffer")
    name = text(fields.string("a buffer"))
    clock = text(fields.string("a buffer"))
    found.clock = found.clock or clock
    fields.number(4, "a buffer")  # the page size
    place = reader.file.tell()
    reader.seek(section, "a buffer")
    flags = _SECTION.unpack(reader.take(_SECTION.size, "a buffer"))[1]
    reader.seek(place, "a buffer")
    cpus = fields.number(4, "a buffer")
    _bounded(reader, len(found.cpus) + cpus, _MOST_CPUS, "CPUs")
    for _ in range(cpus):
        cpu, offset, size = (fields.number(n, "a buffer") for n in (4, 8, 8))
        _bounded(reader, cpu, CPU_LIMIT - 1, "as the number of a CPU")
        found.cpus.append(CpuPages(cpu, offset, size, name, bool(flags & _COMPRESSED)))


def _decompressor(reader: Reader, name: str) -> Decompress | None:
    def checked(packed: bytes, plain: int) -> bytes:
        try:
            if name == "zlib":
                # For zlib, a limit of 0 bytes means no limit.
                data = zlib.decompressobj().decompress(packed, max(1, plain))
            else:
                import pyarrow as pa

                data = pa.Codec("zstd").decompress(packed, plain, asbytes=True)
        except (zlib.error, OSError, ValueError) as error:
            raise reader.cut(f"compressed data: {error}") from None
        if len(data) != plain:
            raise reader.cut("compressed data")
        return data

    if name == "none":
        return None
    if name not in ("zlib", "zstd"):
        raise BadTrace(
            f"{reader.path} is compressed by {name[:20]}; zlib and zstd are supported",
            "convert it: trace-cmd convert --compression none",
        )
    return checked


def _bounded(reader: Reader, value: int, limit: int, what: str) -> int:
    if value > limit:
        raise reader.cut(f"{value} {what}")
    return value


def _expect(reader: Reader, what: bytes) -> None:
    if reader.take(len(what), text(what[:-1])) != what:
        raise reader.cut(f"no {text(what[:-1]).strip()}")


def _add_format(reader: Reader, found: DatHead, system: str, data: bytes) -> None:
    name = text(data[:_NAME_BYTES]).partition("\n")[0].removeprefix("name:").strip()
    if f"{system}:{name}" in _WANTED:
        _bounded(reader, len(data), _MOST_FORMAT, "bytes of a format")
        found.formats[f"{system}:{name}"] = text(data)


def _add_threads(found: DatHead, data: bytes) -> None:
    """Adds lines of `saved_cmdlines`: a thread's number and its name."""
    for line in text(data.rstrip(b"\0")).splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdecimal() and len(number) < 8:
            found.threads[int(number)] = (0, name[:64])


def _add_option(reader: Reader, found: DatHead, option: int, data: bytes) -> None:
    found.options += 1
    _bounded(reader, found.options, _MOST_OPTIONS, "options")
    if option not in _TOLD:
        return
    raw = data.partition(b"\0")[0]
    _bounded(reader, len(raw), _MOST_OPTION, "bytes of an option")
    line = text(raw)
    if option == _TRACECLOCK:
        # The one in use is in brackets.
        _, bracket, rest = line.partition("[")
        found.clock = rest.partition("]")[0] if bracket else line.strip()
    elif option == _UNAME:
        found.machine = line.split()[-1] if line.split() else None
    elif option == _OFFSET:
        digits = line.strip().removeprefix("-")
        if digits.isdecimal() and len(digits) < 19:
            found.shift_ns = int(line)
    elif option == _TSC2NSEC:
        found.cycles = True
    elif option == _CPUSTAT:
        counters = {}
        for entry in line.splitlines():
            key, _, value = entry.partition(":")
            key, value = key.strip(), value.strip()
            if key in _COUNTED and value.isdecimal() and len(value) < 19:
                counters[key] = int(value)
        if "CPU" in counters:
            found.stats[found.counted, counters["CPU"]] = counters
        elif line.strip().startswith("Buffer:"):
            found.counted = line.strip().removeprefix("Buffer:").strip()
