"""The output of `perf record -o -`: its records in time order, and its losses.

The stream is appended to as it comes, so it is readable up to its last whole record whatever
happened to perf. Every length is checked against the record that it lies in; what does not fit
ends the reading there and is a gap. Layouts: include/uapi/linux/perf_event.h (records, sample_id,
sample), tools/perf/Documentation/perf.data-file-format.txt (pipe-mode data, types from 64 on).
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tracer.probes.errors import BadTrace
from tracer.probes.loss import Gap
from tracer.probes.openat import open_regular

MMAP, LOST, COMM, EXIT, FORK, SAMPLE, MMAP2, LOST_SAMPLES = 1, 2, 3, 4, 7, 9, 10, 13
_ATTR, _TRACING_DATA, _FINISHED_ROUND, _ID_INDEX = 64, 66, 68, 69
_AUXTRACE, _EVENT_UPDATE = 71, 78
_SIDE = frozenset((MMAP, MMAP2, COMM, EXIT, FORK))
_UPDATE_NAME = 2
_DUMMY = (1, 9)
"""Type and config of the software event that counts nothing and follows processes."""

STREAM = "callgraph"
_MAGIC = b"PERFILE2"
_FILE_HEADER = struct.Struct("<8sQ")
_HEADER = struct.Struct("<IHH")
_HEAD = _HEADER.size
_IDENTITY = struct.Struct("<8xQ")
_CHUNK = 4 << 20
_LONGEST = 1 << 16
_MOST_PENDING = 1 << 20
_MOST_IDS = 1 << 20

_IP, _TID, _TIME, _ADDR, _READ, _CALLCHAIN = (1 << bit for bit in range(6))
_ID, _CPU, _PERIOD, _STREAM_ID, _RAW, _IDENTIFIER = (1 << bit for bit in (6, 7, 8, 9, 10, 16))
_TRACEPOINT = 2
"""PERF_TYPE_TRACEPOINT: the event's config is the number of the tracepoint."""
_BEFORE_CHAIN = (_IDENTIFIER, _IP, _TID, _TIME, _ADDR, _ID, _STREAM_ID, _CPU, _PERIOD)
"""Eight bytes each, in the order in which a sample has them."""
_SAMPLE_ID = (_TID, _TIME, _ID, _STREAM_ID, _CPU, _IDENTIFIER)
"""Eight bytes each, in the order in which other records end with them."""


@dataclass(frozen=True)
class Layout:
    """The places of an event's fields in a sample, from the record's start."""

    pid: int
    time: int
    cpu: int
    chain: int
    raw: bool
    """True if the event's raw data follow the chain."""

    @classmethod
    def of(cls, sample_type: int) -> Layout | None:
        """The layout of a sample_type; None where it lacks what is needed here."""
        needed = _IDENTIFIER | _TID | _TIME | _CPU | _CALLCHAIN
        if sample_type & needed != needed or sample_type & _READ:
            return None
        fields = [bit for bit in _BEFORE_CHAIN if sample_type & bit]
        at = {bit: _HEAD + 8 * number for number, bit in enumerate(fields)}
        raw = bool(sample_type & _RAW)
        return cls(at[_TID], at[_TIME], at[_CPU], _HEAD + 8 * len(fields), raw)

    def parts(self, sample: bytes) -> tuple[bytes, bytes]:
        """Returns the entries of a sample's chain, and its raw data; what does not fit is cut."""
        length = int.from_bytes(sample[self.chain : self.chain + 8], "little")
        start = self.chain + 8
        end = start + 8 * min(length, (len(sample) - start) // 8)
        raw = b""
        if self.raw:
            size = int.from_bytes(sample[end : end + 4], "little")
            raw = sample[end + 4 : end + 4 + size]
        return sample[start:end], raw


@dataclass(frozen=True)
class Trailer:
    """The places of sample_id's fields in other records, from its start."""

    size: int
    time: int
    cpu: int

    @classmethod
    def of(cls, sample_type: int) -> Trailer:
        """The trailer of a sample_type that has a `Layout`; it ends with the identifier."""
        fields = [bit for bit in _SAMPLE_ID if sample_type & bit]
        at = {bit: 8 * number for number, bit in enumerate(fields)}
        return cls(8 * len(fields), at[_TIME], at[_CPU])


class Record(NamedTuple):
    """One record of the stream."""

    time: int
    type: int
    misc: int
    data: bytes
    """All of a sample; of another record what lies between its header and its sample_id."""
    event: int
    """Number of a sample's event, in `PerfData.events`."""
    layout: Layout | None
    """Layouts of samples."""


class PerfData:
    """A stream of `perf record`."""

    def __init__(self, path: Path) -> None:
        """Open a stream. Raises BadTrace where it is none of `perf record -o -`."""
        self.events: list[str] = []
        """Names of the events, by number; complete once a sample has been read."""
        self.tracepoints: list[int | None] = []
        """Tracepoints' numbers in the kernel, by the number of the event; None: no tracepoint."""
        self.gaps: list[Gap] = []
        """The losses; complete after the last record."""
        self.bytes_read = 0
        self._trailer: Trailer | None = None
        self._known: dict[int, tuple[int, Layout]] = {}
        self._losses = _Losses()
        self._file = _opened(path)
        self.bytes = os.fstat(self._file.fileno()).st_size
        header = self._file.read(_FILE_HEADER.size)
        self.bytes_read = len(header)
        if len(header) == _FILE_HEADER.size and (
            _FILE_HEADER.unpack(header) != (_MAGIC, _FILE_HEADER.size)
        ):
            self._file.close()
            raise BadTrace(f"{path} is no stream of perf record", "record again")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def records(self) -> Iterator[Record]:
        """Samples and what names threads and files, in time order; memory holds two rounds.

        perf marks a round when it has looked at every CPU's buffer once: what comes after the
        next mark is no older than what came before this one.
        """
        time_of = itemgetter(0)
        pending: list[Record] = []
        newest, limit = 0, 0
        for kind, misc, data in self._raw():
            if kind == _FINISHED_ROUND or len(pending) >= _MOST_PENDING:
                pending.sort(key=time_of)
                ready = bisect_right(pending, limit, key=time_of)
                if kind == _FINISHED_ROUND:
                    limit = newest
                else:
                    ready = max(ready, len(pending) // 2)
                yield from pending[:ready]
                del pending[:ready]
            record = self._record(kind, misc, data)
            if record is not None:
                newest = max(newest, record.time)
                pending.append(record)
        yield from sorted(pending, key=time_of)
        self.gaps += self._losses.gaps()

    def _raw(self) -> Iterator[tuple[int, int, bytes]]:
        """(type, misc, whole record), as they lie in the file."""
        buffer = b""
        at = 0
        while True:
            if len(buffer) - at < _LONGEST:
                buffer = buffer[at:] + self._file.read(_CHUNK)
                at = 0
            if len(buffer) - at < _HEAD:
                break
            kind, misc, size = _HEADER.unpack_from(buffer, at)
            # More bytes follow these records; their first field is the number of bytes.
            width = {_TRACING_DATA: 4, _AUXTRACE: 8}.get(kind, 0)
            if size < _HEAD + width:
                self._cut_off("damaged perf data")
                return
            if size > len(buffer) - at:
                break
            data = buffer[at : at + size]
            at += size
            self.bytes_read += size
            if width:
                follows = int.from_bytes(data[_HEAD : _HEAD + width], "little")
                here = min(follows, len(buffer) - at)
                self._file.seek(min(follows - here, self.bytes), os.SEEK_CUR)
                at += here
                self.bytes_read += follows
            yield kind, misc, data
        if len(buffer) > at:
            self._cut_off("torn perf data")

    def _record(self, kind: int, misc: int, data: bytes) -> Record | None:
        """The record, where it is one to hand out; what only this class needs is noted."""
        if kind == SAMPLE:
            if len(data) < _IDENTITY.size:
                return None
            event, layout = self._known.get(_IDENTITY.unpack_from(data)[0], (0, None))
            if layout is None or len(data) < layout.chain + 8:
                return None
            time = int.from_bytes(data[layout.time : layout.time + 8], "little")
            self._losses.last[int.from_bytes(data[layout.cpu : layout.cpu + 4], "little")] = time
            return Record(time, kind, misc, data, event, layout)
        if kind == _ATTR:
            self._attribute(data)
        elif kind == _EVENT_UPDATE and len(data) > 24:
            what, identity = struct.unpack_from("<QQ", data, _HEAD)
            if what == _UPDATE_NAME and identity in self._known:
                self.events[self._known[identity][0]] = text(data[24:])
        elif kind == _ID_INDEX and len(data) >= 16:
            self._losses.index(data)
        elif self._trailer is not None and len(data) >= _HEAD + 8 + self._trailer.size:
            end = len(data) - self._trailer.size
            sample_id = data[end:]
            time = int.from_bytes(sample_id[self._trailer.time :][:8], "little")
            if kind in _SIDE:
                return Record(time, kind, misc, data[_HEAD:end], 0, None)
            if kind == LOST and end >= 24:
                cpu = int.from_bytes(sample_id[self._trailer.cpu :][:4], "little")
                self._losses.located(cpu, time, int.from_bytes(data[16:24], "little"))
            elif kind == LOST_SAMPLES:
                identity = int.from_bytes(sample_id[-8:], "little")
                count = int.from_bytes(data[8:16], "little")
                self._losses.counted(identity, count if identity in self._known else 0)
        return None

    def _attribute(self, data: bytes) -> None:
        """An event: struct perf_event_attr, and the ids of its counters after it."""
        if len(data) < _HEAD + 48:
            return
        kind, size, config, sample_type = struct.unpack_from("<IIQ8xQ", data, _HEAD)
        layout = Layout.of(sample_type)
        if layout is None:
            return
        trailer = Trailer.of(sample_type)
        self._trailer = self._trailer or trailer
        if (kind, config) == _DUMMY or trailer != self._trailer:
            return
        for (identity,) in struct.iter_unpack("<Q", _whole(data[_HEAD + size :], 8)):
            if len(self._known) < _MOST_IDS:
                self._known[identity] = len(self.events), layout
        self.events.append("")
        self.tracepoints.append(config if kind == _TRACEPOINT else None)

    def _cut_off(self, cause: str) -> None:
        """Note that the file ends, or makes no sense, after what was read of it."""
        last = max(self._losses.last.values(), default=None)
        self.gaps.append(Gap(STREAM, 0, last, None, None, cause))


class _Losses:
    """The events for which the kernel had no room.

    PERF_RECORD_LOST tells when, but counts names of threads and files with the samples;
    PERF_RECORD_LOST_SAMPLES (kernel 6.0), at the end, counts the samples of each event.
    """

    def __init__(self) -> None:
        self.last: dict[int, int] = {}
        """Time of the newest sample of each CPU."""
        self._cpus: dict[int, int] = {}
        self._located: dict[int, list[tuple[int | None, int | None, int]]] = {}
        self._counted: dict[int, int] | None = None

    def index(self, data: bytes) -> None:
        """PERF_RECORD_ID_INDEX: which counter is of which CPU."""
        (entries,) = struct.unpack_from("<Q", data, _HEAD)
        listed = _whole(data[16 : 16 + 32 * min(entries, _LONGEST)], 32)
        for identity, _, cpu, _ in struct.iter_unpack("<QQQQ", listed):
            if len(self._cpus) < _MOST_IDS:
                self._cpus[identity] = cpu

    def located(self, cpu: int, time: int, count: int) -> None:
        """PERF_RECORD_LOST: so many since the last sample of that CPU."""
        self._located.setdefault(cpu, []).append((self.last.get(cpu), time, count))

    def counted(self, identity: int, count: int) -> None:
        """PERF_RECORD_LOST_SAMPLES: so many of this counter in all."""
        if self._counted is None:
            self._counted = {}
        cpu = self._cpus.get(identity, 0)
        self._counted[cpu] = self._counted.get(cpu, 0) + count

    def gaps(self) -> list[Gap]:
        """Gaps that add up to what was lost."""
        gaps = []
        for cpu in sorted({*self._located, *(self._counted or {})}):
            rest = None if self._counted is None else self._counted.get(cpu, 0)
            for start, end, count in self._located.get(cpu, []):
                if rest is not None:
                    count = min(count, rest)
                    rest -= count
                if count:
                    gaps.append(Gap(STREAM, cpu, start, end, count, "buffer overrun"))
            if rest:
                # The kernel tells of a loss with the next sample of that CPU: none came any more.
                gaps.append(Gap(STREAM, cpu, self.last.get(cpu), None, rest, "buffer overrun"))
        return gaps


def _opened(path: Path) -> BinaryIO:
    try:
        return os.fdopen(open_regular(path), "rb")
    except ValueError:
        raise BadTrace(f"{path} cannot be read: it is not a regular file", "record again") from None
    except OSError as error:
        raise BadTrace(
            f"{path} cannot be read: {error.strerror}", "copy the trace again or record again"
        ) from None


def _whole(data: bytes, size: int) -> bytes:
    return data[: len(data) // size * size]


def text(data: bytes) -> str:
    """The characters before the first NUL; what is no UTF-8 is escaped."""
    return data.partition(b"\0")[0].decode("utf-8", "backslashreplace")
