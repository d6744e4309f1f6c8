"""Files of other tools, made by hand: trace.dat of versions 6 and 7, records of blktrace."""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

from tests.support.pages import HEADER_PAGE, PAGE, format_text

BIO_QUEUE = format_text(
    "block_bio_queue",
    900,
    "dev_t dev 8 4 0\nsector_t sector 16 8 0\nunsigned int nr_sector 24 4 0\n"
    "char rwbs[10] 28 10 0\nchar comm[16] 38 16 0",
)
FORMATS = {"block": [BIO_QUEUE]}


def bio_queue(tid: int, sector: int, nr_sector: int, rwbs: bytes = b"W") -> bytes:
    """The payload of a block_bio_queue of device 7:0."""
    head = struct.pack("<HBBi", 900, 0, 0, tid)
    return head + struct.pack("<I4xQI10s16s", 7 << 20, sector, nr_sector, rwbs, b"writer")


def _sized(text: bytes, width: int) -> bytes:
    return len(text).to_bytes(width, "little") + text


def _event_formats(formats: dict[str, list[str]]) -> bytes:
    data = struct.pack("<I", len(formats))
    for system, texts in formats.items():
        data += system.encode() + b"\0" + struct.pack("<I", len(texts))
        data += b"".join(_sized(text.encode(), 8) for text in texts)
    return data


def trace_dat6(
    pages: dict[int, list[bytes]],
    formats: dict[str, list[str]] | None = None,
    names: str = "  77 writer\n",
    clock: str = "local [mono]",
    stats: tuple[str, ...] = (),
) -> bytes:
    """A trace.dat of version 6."""
    out = b"\x17\x08\x44tracing6\0" + struct.pack("<BBI", 0, 8, PAGE)
    out += b"header_page\0" + _sized(HEADER_PAGE.encode(), 8)
    out += b"header_event\0" + _sized(b"# compressed entry header\n", 8)
    out += struct.pack("<I", 0)
    out += _event_formats(formats or FORMATS)
    out += struct.pack("<II", 0, 0)
    out += _sized(names.encode(), 8)
    out += struct.pack("<I", len(pages)) + b"options  \0"
    for option, text in [(4, clock), (5, "Linux example 6.1 x86_64"), *((2, s) for s in stats)]:
        out += struct.pack("<H", option) + _sized(text.encode() + b"\0", 4)
    out += struct.pack("<H", 0) + b"flyrecord\0"
    at = -(-(len(out) + 16 * len(pages)) // PAGE) * PAGE
    for found in pages.values():
        out += struct.pack("<QQ", at, len(found) * PAGE)
        at += len(found) * PAGE
    out += b"\0" * (-len(out) % PAGE)
    return out + b"".join(page for found in pages.values() for page in found)


def trace_dat7(
    pages: dict[int, list[bytes]],
    compression: str = "none",
    formats: dict[str, list[str]] | None = None,
    names: str = "77 writer\n",
) -> bytes:
    """A trace.dat of version 7."""

    def packed(data: bytes) -> bytes:
        if compression == "zlib":
            return zlib.compress(data)
        return pa.Codec("zstd").compress(data, asbytes=True)

    def section(kind: int, data: bytes) -> bytes:
        if compression == "none":
            return struct.pack("<HHIQ", kind, 0, 0, len(data)) + data
        small = packed(data)
        head = struct.pack("<HHIQ", kind, 1, 0, len(small) + 8)
        return head + struct.pack("<II", len(small), len(data)) + small

    head = b"\x17\x08\x44tracing7\0" + struct.pack("<BBI", 0, 8, PAGE)
    head += compression.encode() + b"\x001.0\0"
    at = len(head) + 8
    body = b""
    places = {}
    header = b"header_page\0" + _sized(HEADER_PAGE.encode(), 8)
    header += b"header_event\0" + _sized(b"#\n", 8)
    for option, kind, data in (
        (16, 16, header),
        (18, 18, _event_formats(formats or FORMATS)),
        (21, 21, _sized(names.encode(), 8)),
    ):
        places[option] = at + len(body)
        body += section(kind, data)
    buffer = at + len(body)
    flags = 0 if compression == "none" else 1
    body += struct.pack("<HHIQ", 3, flags, 0, 0)
    body += b"\0" * (-(at + len(body)) % PAGE)
    cpus = b""
    for cpu, found in pages.items():
        data = b"".join(found)
        if compression != "none":
            chunks = [packed(page) for page in found]
            data = struct.pack("<I", len(chunks)) + b"".join(
                struct.pack("<II", len(c), len(page)) + c
                for c, page in zip(chunks, found, strict=True)
            )
        cpus += struct.pack("<IQQ", cpu, at + len(body), len(data))
        body += data
    options = b"".join(struct.pack("<HIQ", o, 8, place) for o, place in places.items())
    described = (
        struct.pack("<Q", buffer) + b"\0mono\0" + struct.pack("<II", PAGE, len(pages)) + cpus
    )
    options += struct.pack("<H", 3) + _sized(described, 4)
    options += struct.pack("<H", 5) + _sized(b"Linux example 6.1 x86_64\0", 4)
    options += struct.pack("<HIQ", 0, 8, 0)
    return head + struct.pack("<Q", at + len(body)) + body + section(0, options)


QUEUE, BACKMERGE, REQUEUE, ISSUE, COMPLETE, INSERT, SPLIT = 1, 2, 6, 7, 8, 12, 13
REMAP, WITH_CGROUP = 15, 1 << 8
WRITE, FLUSH, SYNC, NOTIFY, META, DISCARD = 1 << 1, 1 << 2, 1 << 3, 1 << 10, 1 << 12, 1 << 13


def blk_io(
    time: int,
    sequence: int,
    action: int,
    sector: int = 0,
    size: int = 4096,
    classes: int = WRITE,
    tid: int = 77,
    cpu: int = 0,
    error: int = 0,
    more: bytes = b"",
    device: int = 7 << 20,
) -> bytes:
    """A struct blk_io_trace and what belongs to it."""
    return (
        struct.pack(
            "<IIQQIIIIIHH",
            0x65617407,
            sequence,
            time,
            sector,
            size,
            action | classes << 16,
            tid,
            device,
            cpu,
            error & 0xFFFF,
            len(more),
        )
        + more
    )


def blk_remap(source: int, target: int, sector: int) -> bytes:
    """A struct blk_io_trace_remap: the device and sector above, and the device below."""
    return struct.pack(">IIQ", source, target, sector)


def blk_name(tid: int, name: bytes, time: int = 0) -> bytes:
    """A note of a thread's name."""
    return blk_io(time, 0, 0, size=0, classes=NOTIFY, tid=tid, more=name.ljust(16, b"\0"))


def blk_time(time: int, seconds: int, nanoseconds: int) -> bytes:
    """A note of the time of day."""
    more = struct.pack("<II", seconds, nanoseconds)
    return blk_io(time, 0, 1, size=0, classes=NOTIFY, more=more)
