"""Data that a recorder took out of the kernel's buffers: formats, pages, chunks, perf's stream."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.mutation import NUMBERS, mutated, mutated_text, number
from tests.fuzz.target import target
from tests.support import pages, reclaim_events, request_format
from tests.support.perf_stream import KERNEL, USER, PerfStream
from tests.support.scheduling import LINUX_6_18
from tracer.probes.backends import chunks, event_format
from tracer.probes.backends.chunks import ChunkStream
from tracer.probes.backends.ebpf import records as bpf
from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.ftrace.page_stream import PageStream
from tracer.probes.backends.own_bpf import records as calls
from tracer.probes.backends.perf_events import records, tracepoints
from tracer.probes.backends.perf_tools.stacks import CallGraphs
from tracer.probes.backends.perf_tools.told import told_by_number
from tracer.probes.backends.timeline import RawStream, Timeline
from tracer.probes.errors import BadTrace
from tracer.probes.limits import CPU_LIMIT, PID_LIMIT, TIME_LIMIT
from tracer.store.trace import Trace

FIXTURES = Path(__file__).resolve().parent.parent.parent.parent / "fixtures"
_COMMON = event_format.CommonFields(0, 1)
_LAYOUT = event_format.parse_page(pages.HEADER_PAGE)
_SAMPLES = (
    *("ebpf", "tracepoints", records.MINOR, records.MAJOR, tracepoints.SAMPLES_WITH_STACKS),
    calls.SAMPLES,
)


@cache
def format_texts() -> dict[str, str]:
    """Formats of a real kernel, and some by hand, by SYSTEM:EVENT."""
    manifest = json.loads((FIXTURES / "lenet.trace" / "manifest.json").read_text())
    real: dict[str, str] = manifest["capture"]["formats"]
    of_probes = {**reclaim_events.FORMATS_6_18, **LINUX_6_18.formats}
    return {**pages.FAULT_FORMATS, **pages.FORMATS, **of_probes, **real}


@cache
def formats() -> dict[str, EventFormat]:
    """The same, parsed."""
    return {name: event_format.parse(name, text) for name, text in format_texts().items()}


def _texts() -> list[bytes]:
    return [text.encode() for text in (*format_texts().values(), pages.HEADER_PAGE)]


@target(_texts, mutated_text)
def event_formats(data: bytes, folder: Path) -> None:
    """An event's format file, or a header_page."""
    text = data.decode("utf-8", "backslashreplace")
    try:
        event_format.parse("fuzz:fuzz", text)
    except BadTrace:
        event_format.parse_page(text)


def _real_pages() -> list[bytes]:
    raw = sorted((FIXTURES / "lenet.trace" / "raw").glob("*.raw"))
    found = [path.read_bytes() for path in raw]
    return [
        data[at : at + 2 * pages.PAGE]
        for data in found
        for at in range(0, 20 * pages.PAGE, 2 * pages.PAGE)
    ]


def _payload(chance: Random) -> bytes:
    """An event of a format that is known, its fields by chance."""
    chosen = chance.choice(list(formats().values()))
    size = max((f.offset + f.size for f in chosen.fields.values()), default=8)
    body = bytearray(chance.randbytes(size) if chance.random() < 0.3 else bytes(size))
    for field in chosen.fields.values():
        if field.data_loc:
            where = chance.choice((size, size, chance.choice(NUMBERS)))
            body[field.offset : field.offset + 4] = struct.pack(
                "<HH", where & 0xFFFF, chance.choice((4, 8, 65535))
            )
        elif field.size in (1, 2, 4, 8) and chance.random() < 0.7:
            body[field.offset : field.offset + field.size] = number(chance, field.size)
    body[:2] = chosen.id.to_bytes(2, "little")
    tid = chance.choice((7, 8, 9))
    body[4:8] = tid.to_bytes(4, "little") if chance.random() < 0.8 else number(chance, 4)
    return bytes(body) + chance.choice((b"", b"name\0", bytes(8)))


def _event(chance: Random) -> bytes:
    """An event in a page, or a mark of time; its length may be wrong."""
    kind = chance.randrange(12)
    delta = chance.choice((0, 1, 100, (1 << 27) - 1))
    if kind == 0:
        return struct.pack("<II", 30 | delta << 5, chance.getrandbits(chance.choice((1, 8, 32))))
    if kind == 1:
        return struct.pack("<II", 31 | delta << 5, chance.getrandbits(chance.choice((1, 8, 32))))
    if kind == 2:
        return struct.pack("<I", 29 | delta << 5) + number(chance, 4)
    body = _payload(chance)
    body += bytes(-len(body) % 4)
    if kind == 3 or len(body) > 112:
        length = len(body) + 4 if chance.random() < 0.8 else chance.choice(NUMBERS)
        return struct.pack("<II", delta << 5, length & 0xFFFFFFFF) + body
    words = len(body) // 4 if chance.random() < 0.9 else chance.randrange(1, 29)
    return struct.pack("<I", words | delta << 5) + body


def ring_page(chance: Random) -> bytes:
    data = b""
    while len(data) < pages.PAGE - pages.HEADER and chance.random() < 0.95:
        data += _event(chance)
    data = data[: pages.PAGE - pages.HEADER]
    commit = len(data) if chance.random() < 0.8 else chance.choice(NUMBERS)
    commit |= chance.choice((0, 0, 0, 1 << 31, 3 << 30))
    start = chance.choice((0, 1000, 5000, chance.choice(NUMBERS)))
    head = struct.pack("<Q", start & (1 << 64) - 1) + struct.pack("<Q", commit & (1 << 64) - 1)
    return (head + data).ljust(pages.PAGE, b"\0")


def _pages(chance: Random, data: bytes) -> bytes:
    if chance.random() < 0.4:
        return mutated(chance, data)
    return b"".join(ring_page(chance) for _ in range(chance.choice((1, 1, 2, 4))))


def _read(streams: list[RawStream]) -> None:
    try:
        for batch in Timeline(streams).batches():
            for values, limit in (
                (batch.ts, TIME_LIMIT), (batch.tid, PID_LIMIT), (batch.cpu, CPU_LIMIT),
                (batch.offset, batch.payload.size + 1), (batch.length, batch.payload.size + 1),
            ):  # fmt: skip
                assert ((values >= 0) & (values < limit)).all()
            assert (batch.offset + batch.length <= batch.payload.size).all()
    finally:
        for stream in streams:
            stream.close()


@target(_real_pages, _pages)
def ring_pages(data: bytes, folder: Path) -> None:
    """Pages of ftrace's ring buffer: of two CPUs, decoded together."""
    half = len(data) // 2 // pages.PAGE * pages.PAGE
    for cpu, part in enumerate((data[:half], data[half:])):
        (folder / f"{cpu}").write_bytes(part)
    _read([PageStream(f"cpu{n}", n, folder / f"{n}", _LAYOUT, _COMMON) for n in (0, 1)])


def _bpf_record(chance: Random, body: bytes) -> bytes:
    time, pid, event = chance.choice((1000, chance.choice(NUMBERS))), 7, body[:2]
    head = struct.pack("<Q", time & (1 << 64) - 1) + body[4:8] + struct.pack("<i", pid) + event
    data = head + number(chance, 2) + bytes(4) + body[8:]
    size = len(data) if chance.random() < 0.9 else chance.choice(NUMBERS) & 0x3FFFFFFF
    flags = chance.choice((0, 0, 0, 0, bpf.BUSY, bpf.DISCARDED))
    return struct.pack("<II", size | flags, 0) + data + bytes(-len(data) % 8)


def _call_record(chance: Random, body: bytes) -> bytes:
    data = number(chance, 8) + body[8:] + bytes(-len(body) % 8)
    size = 8 + len(data) if chance.random() < 0.9 else chance.choice(NUMBERS)
    head = struct.pack("<IHH", 7, int.from_bytes(body[:2], "little"), size & 0xFFFF)
    return head + data + bytes(chance.choice((0, 0, 8, 40)))


def _chain(chance: Random) -> bytes:
    """A call chain, as its count of entries and the entries."""
    entries = [
        chance.choice((KERNEL, USER, 1 << 63, chance.getrandbits(64)))
        for _ in range(chance.choice((0, 1, 2, 7, 200)))
    ]
    count = len(entries) if chance.random() < 0.9 else chance.choice(NUMBERS) & (1 << 64) - 1
    return struct.pack(f"<{len(entries) + 1}Q", count, *entries)


def _chained_record(chance: Random, body: bytes) -> bytes:
    return _perf_record(chance, body, _chain(chance))


def _perf_record(chance: Random, body: bytes, chain: bytes = b"") -> bytes:
    raw = body + bytes(-(len(body) + 4) % 8)
    size = len(raw) if chance.random() < 0.9 else chance.choice(NUMBERS) & 0xFFFFFFFF
    data = struct.pack("<ii", 7, 7) + number(chance, 8) + number(chance, 4) + bytes(4)
    data += chain + struct.pack("<I", size) + raw
    if chance.random() < 0.3:  # of another kind: its fields are what they are
        data = b"".join(number(chance, 8) for _ in range(chance.randrange(1, 14)))
    length = 8 + len(data) if chance.random() < 0.9 else chance.choice(NUMBERS) & 0xFFFF
    kind = chance.choice((9, 9, 9, 2, 3, 4, 7, 10, 10))
    return struct.pack("<IHH", kind, chance.choice((0, 1, 2, 1 << 13)), length) + data


def _chunks(chance: Random, data: bytes) -> bytes:
    if chance.random() < 0.3:
        return data[:1] + mutated(chance, data[1:])
    kind = chance.randrange(len(_SAMPLES))
    makers = {
        "ebpf": _bpf_record,
        calls.SAMPLES: _call_record,
        tracepoints.SAMPLES_WITH_STACKS: _chained_record,
    }
    make = makers.get(_SAMPLES[kind], _perf_record)
    out = bytes([kind])
    for _ in range(chance.choice((1, 2, 5))):
        held = b"".join(make(chance, _payload(chance)) for _ in range(chance.choice((0, 1, 5, 20))))
        size = len(held) if chance.random() < 0.9 else chance.choice(NUMBERS)
        start, end = sorted(chance.choice((0, 1000, 2000, (1 << 63) - 1)) for _ in range(2))
        out += (
            chunks.header(
                chance.choice((1, 1, 1, 2, 3)),
                chance.choice((-1, 0, 3)),
                _int64(size),
                start,
                end,
                chance.choice((0, 5, (1 << 63) - 1)),
            )
            + held
        )
    return out


def _int64(value: int) -> int:
    return max(-(1 << 63), min(value, (1 << 63) - 1))


def _real_chunks() -> list[bytes]:
    chance = Random(23)
    return [bytes([k]) + chunks.header(1, 0, 0, 0, 0, 0) for k in range(len(_SAMPLES))] + [
        _chunks(chance, bytes(9)) for _ in range(4)
    ]


@target(_real_chunks, _chunks)
def stored_chunks(data: bytes, folder: Path) -> None:
    """Chunks of eBPF's or perf's rings; the first byte says which."""
    samples = _SAMPLES[data[0] % len(_SAMPLES)] if data else "ebpf"
    decoder = {
        "ebpf": bpf.decode,
        calls.SAMPLES: calls.decoder(0),
        tracepoints.SAMPLES: tracepoints.decoder(_COMMON),
        tracepoints.SAMPLES_WITH_STACKS: tracepoints.decoder(_COMMON, chains=True),
    }
    (folder / "raw").write_bytes(data[1:])
    decode = decoder.get(samples) or records.decoder(samples)
    _read([ChunkStream("rings", -1, folder / "raw", decode)])


def _recording(chance: Random, data: bytes) -> bytes:
    """Pages and chunks of one recording, one after the other."""
    return _pages(chance, bytes(pages.PAGE))[: 2 * pages.PAGE].ljust(
        2 * pages.PAGE, b"\0"
    ) + _chunks(chance, data[2 * pages.PAGE :])


@target(lambda: [bytes(2 * pages.PAGE) + data for data in _real_chunks()], _recording, tries=10)
def raw_recording(data: bytes, folder: Path) -> None:
    """A recording whose recorder was killed: made into tables, and these opened."""
    held, rest = data[: 2 * pages.PAGE], data[2 * pages.PAGE :]
    samples = _SAMPLES[rest[0] % len(_SAMPLES)] if rest else "ebpf"
    texts = format_texts()
    if samples == tracepoints.SAMPLES_WITH_STACKS:
        texts = {**texts, records.STACK: records.format_text(records.STACK)}
    pages.raw_trace(
        folder / "t",
        {0: [held[: pages.PAGE]], 1: [held[pages.PAGE :]]},
        {samples: rest[1:]},
        formats=texts,
        probes=[
            "syscalls", "page_faults", "block", "writeback", "inode_writeback", "dirty", "reclaim",
            "sched",
        ],
        targets=[
            {"name": "job", "role": "target", "kind": "pid", "pid": 7},
            {
                "name": "c", "role": "target", "kind": "container", "pid": 8, "makers": [9],
                "cgroups": [{"hierarchy": 0, "path": "/name"}],
            },
        ],
    )  # fmt: skip
    Trace(folder / "t").close()


def _perf_streams() -> list[bytes]:
    some = PerfStream().event("block:block_rq_issue", 7).event("dummy", 9, sample_type=0x100A7)
    some.cpus(i7=1).comm(5, 100, b"python").mapping(6, 100, 0x1000, 0x2000, b"/usr/lib/x.so")
    some.fork(7, 100, 101).sample(10, [KERNEL, 0xFFFFFFFF81000000, USER, 0x1100]).round()
    some.sample(20, [USER, 0x1200], pid=101).lost(25, 3).exit(30, 101).lost_samples(7, 5)
    told = _requests().sample(1, [KERNEL, 1 << 63], raw=request_format.raw(7, 1, b"FWSM"))
    told.sample(2, [KERNEL, 1 << 63], raw=request_format.raw(8, 16, b"R")[:43])
    return [
        some.data,
        told.data,
        PerfStream().event("a:b", 1, 2, 3).sample(5, [1 << 63, 5], identity=2).data,
    ]


def _requests() -> PerfStream:
    return PerfStream().event("block:block_rq_insert", 7, config=request_format.NUMBER)


def _raw(chance: Random) -> bytes:
    """Raw data of a request, perhaps too short, or of anything."""
    device = chance.getrandbits(12), chance.getrandbits(20)
    whole = request_format.raw(*device, chance.choice((b"W", b"FWFS", b"R", b"\xff" * 10)))
    return chance.choice((whole, whole[: chance.randrange(70)], number(chance, 8)))


def _perf_records(chance: Random, data: bytes) -> bytes:
    if chance.random() < 0.5:
        return mutated(chance, data)
    stream = _requests()
    for _ in range(chance.choice((1, 5, 30))):
        body = b"".join(number(chance, 8) for _ in range(chance.randrange(14)))
        kind = chance.choice((1, 2, 3, 4, 7, 10, 13, 64, 66, 68, 69, 71, 78))
        if chance.random() < 0.5 and kind < 64:
            stream.side(kind, chance.choice(NUMBERS) & (1 << 64) - 1, body, chance.getrandbits(15))
        elif chance.random() < 0.5:
            stream.record(kind, body)
        else:
            chain = [
                chance.choice((KERNEL, USER, 0x1100, chance.getrandbits(64))) for _ in range(5)
            ]
            pid = chance.choice((100, 7, (1 << 32) - 1))
            stream.sample(chance.getrandbits(40), chain, pid=pid, raw=_raw(chance))
    return stream.data


@target(_perf_streams, _perf_records)
def perf_data(data: bytes, folder: Path) -> None:
    """Output of perf record -o -, as folded stacks."""
    (folder / "perf.data").write_bytes(data)
    told = told_by_number([{"block:block_rq_insert": request_format.TEXT}])
    for batch in CallGraphs(folder / "perf.data", None, told=told).read([]):
        batch.validate(full=True)
