"""The formats that can be imported, with their descriptions, detection and readers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.errors import UsageError

_HEAD_BYTES = 64 << 10

_Reader = Callable[[Path, Path, bool], None]


@dataclass(frozen=True)
class Format:
    """A format that `tracer import` reads."""

    name: str
    doc: str
    shows: Callable[[bytes], bool]
    """Function that returns whether the first bytes of a file clearly show this format."""
    read: _Reader
    """Function that makes the trace: (file, output, force)."""


def _perf_script(path: Path, output: Path, force: bool) -> None:
    from tracer.analysis.exchange.printed.importing import PERF_SCRIPT, import_lines

    import_lines(path, output, PERF_SCRIPT, force)


def _trace_cmd(path: Path, output: Path, force: bool) -> None:
    if _head(path).startswith(_TRACE_DAT):
        from tracer.analysis.exchange.trace_dat import import_trace_dat

        import_trace_dat(path, output, force)
    else:
        from tracer.analysis.exchange.printed.importing import TRACE_CMD, import_lines

        import_lines(path, output, TRACE_CMD, force)


def _blktrace(path: Path, output: Path, force: bool) -> None:
    head = _head(path) if path.is_file() else _BLK_MAGIC
    if head[1:4] == _BLK_MAGIC[1:] or head[:3] == _BLK_MAGIC_BIG[:3]:
        from tracer.analysis.exchange.blktrace import import_blktrace

        import_blktrace(path, output, force)
    else:
        from tracer.analysis.exchange.printed.importing import BLKPARSE, import_lines

        import_lines(path, output, BLKPARSE, force)


def _fio(path: Path, output: Path, force: bool) -> None:
    from tracer.analysis.exchange.fio_iolog import import_fio

    import_fio(path, output, force)


def _msr(path: Path, output: Path, force: bool) -> None:
    from tracer.analysis.exchange.msr_csv import import_msr

    import_msr(path, output, force)


def _oracle_general(path: Path, output: Path, force: bool) -> None:
    from tracer.analysis.exchange.oracle_general import import_oracle_general

    import_oracle_general(path, output, force)


def _csv(path: Path, output: Path, force: bool) -> None:
    from tracer.analysis.exchange.csv_pages import import_csv

    import_csv(path, output, force)


_TRACE_DAT = b"\x17\x08\x44tracing"
_BLK_MAGIC = b"\x07\x74\x61\x65"
_BLK_MAGIC_BIG = _BLK_MAGIC[::-1]
"""The magic number of a big-endian machine. Its files are recognized to name the mend."""
_BLKPARSE_LINE = re.compile(rb"^ *\d+,\d+ +\d+ +\d+ +\d+\.\d{9} +\d+ +[A-Za-z]{1,2} ", re.M)
_EVENT_LINE = rb"^ *\S.*%s *(?:\([ \d-]+\) )?\[\d+\] +(?:\S{4,8} +)?\d+\.\d+: +\S+:"
_TRACE_CMD_LINE = re.compile(_EVENT_LINE % rb"-\d+", re.M)
_PERF_LINE = re.compile(_EVENT_LINE % rb" \d+(?:/\d+)?", re.M)
_MSR_LINE = re.compile(rb"^\d{15,19},[^,\n]{1,64},\d+,(?:Read|Write),\d+,\d+,\d+\r?\n", re.I)

_MSR_HEADER = re.compile(rb"Timestamp,Hostname,DiskNumber,Type,", re.I)

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(
            "perf-script",
            "output of perf script",
            lambda head: _PERF_LINE.search(head) is not None,
            _perf_script,
        ),
        Format(
            "trace-cmd",
            "trace.dat (versions 6 and 7), or output of trace-cmd report",
            lambda head: head.startswith(_TRACE_DAT) or _TRACE_CMD_LINE.search(head) is not None,
            _trace_cmd,
        ),
        Format(
            "blktrace",
            "DEVICE.blktrace.0 (files of other CPUs beside it are read too), or output of blkparse",
            lambda head: (
                head.startswith((_BLK_MAGIC, _BLK_MAGIC_BIG))
                or _BLKPARSE_LINE.search(head) is not None
            ),
            _blktrace,
        ),
        Format(
            "fio-iolog",
            "log of fio's option write_iolog, versions 2 and 3",
            lambda head: head.startswith((b"fio version 2 iolog", b"fio version 3 iolog")),
            _fio,
        ),
        Format(
            "msr-csv",
            "block traces of MSR Cambridge (Timestamp,Hostname,DiskNumber,Type,...)",
            lambda head: _MSR_LINE.match(head) is not None or _MSR_HEADER.match(head) is not None,
            _msr,
        ),
        Format(
            "oracle-general",
            "libCacheSim's oracleGeneral; give --format, it cannot be detected",
            lambda head: False,
            _oracle_general,
        ),
        Format(
            "csv",
            "page operations, columns ts_ns,dev,page,pages,op",
            lambda head: (
                {b"ts_ns", b"dev", b"page", b"pages", b"op"}
                <= set(head.split(b"\n")[0].strip().split(b","))
            ),
            _csv,
        ),
    )
}
"""The formats by name."""


def import_file(
    source: Path,
    output: Path,
    name: str | None = None,
    force: bool = False,
    arch: str | None = None,
) -> str:
    """Makes the trace `output` from a file; returns the format's name.

    Without a name the format is detected from the file's first bytes. `arch` is the architecture of
    the recorded machine (see SYSCALL_ARCHS), for printed events that do not name it. Raises
    UsageError if the format or `arch` is unknown, if the format cannot be detected or does not need
    `arch`, or if the file names another one; BadTrace if the file is not of the format.
    """
    if name is not None and name not in FORMATS:
        raise UsageError(f"there is no format {name!r}", f"known: {', '.join(FORMATS)}")
    found = FORMATS[name] if name is not None else guessed(source)
    if arch is None:
        found.read(source, output, force)
    else:
        _read_with_arch(found, source, output, force, arch)
    return found.name


def _read_with_arch(found: Format, source: Path, output: Path, force: bool, arch: str) -> None:
    from tracer.analysis.exchange.printed.importing import PERF_SCRIPT, TRACE_CMD, import_lines
    from tracer.probes.kernel import SYSCALL_ARCHS

    if arch not in SYSCALL_ARCHS:
        raise UsageError(f"there is no architecture {arch!r}", f"known: {', '.join(SYSCALL_ARCHS)}")
    printed = found.name == PERF_SCRIPT
    printed |= found.name == TRACE_CMD and not _head(source).startswith(_TRACE_DAT)
    if not printed:
        raise UsageError(
            f"{source} is of the format {found.name}, which does not need --arch",
            "leave it out: only the text of perf script or trace-cmd report takes it",
        )
    import_lines(source, output, found.name, force, arch)


def guessed(source: Path) -> Format:
    """Returns the format of a file by its first bytes. Raises UsageError if none or several fit."""
    head = _head(source)
    found = [one for one in FORMATS.values() if one.shows(head)]
    if not found and source.suffix == ".csv":
        return FORMATS["csv"]  # its reader reports the missing parts
    if len(found) != 1:
        raise UsageError(
            f"the format of {source} cannot be detected from its first bytes",
            f"name it with --format: {', '.join(FORMATS)}",
        )
    return found[0]


def _head(path: Path) -> bytes:
    from tracer.analysis.exchange.reading import opened

    with opened(path) as file:
        head = file.read(_HEAD_BYTES)
    if not head and ".blktrace." in path.name:  # a CPU without events; others may have some
        from tracer.analysis.exchange.blktrace import files_of

        for other in files_of(path):
            if other.stat().st_size:
                with opened(other) as file:
                    return file.read(_HEAD_BYTES)
    return head
