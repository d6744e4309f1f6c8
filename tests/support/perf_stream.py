"""Streams of `perf record -o -`, made by hand: records of include/uapi/linux/perf_event.h."""

from __future__ import annotations

import struct
from pathlib import Path

TRACEPOINT = 0x105A7
"""sample_type of a tracepoint: IP|TID|TIME|CALLCHAIN|CPU|PERIOD|RAW|IDENTIFIER."""
DUMMY = 0x100A7
"""The same without period and raw data."""
KERNEL, USER = (1 << 64) - 128, (1 << 64) - 512
"""Entries of a chain that say what follows."""
COMM_EXEC = 1 << 13


class PerfStream:
    """Records, appended one by one."""

    def __init__(self) -> None:
        self.data = b"PERFILE2" + struct.pack("<Q", 16)

    def record(self, kind: int, body: bytes, misc: int = 0) -> PerfStream:
        """Any record."""
        self.data += struct.pack("<IHH", kind, misc, 8 + len(body)) + body
        return self

    def event(
        self, name: str, *ids: int, sample_type: int = TRACEPOINT, config: int = 77
    ) -> PerfStream:
        """An event with its ids: PERF_RECORD_HEADER_ATTR and EVENT_UPDATE.

        `config` is the number of a tracepoint.
        """
        dummy = sample_type == DUMMY
        head = struct.pack("<IIQQQ", 1 if dummy else 2, 128, 9 if dummy else config, 1, sample_type)
        self.record(64, head.ljust(128, b"\0") + struct.pack(f"<{len(ids)}Q", *ids))
        return self.record(78, struct.pack("<QQ", 2, ids[0]) + _padded(name.encode()))

    def cpus(self, **of: int) -> PerfStream:
        """PERF_RECORD_ID_INDEX: i7=1 says that counter 7 is of CPU 1."""
        entries = [struct.pack("<QQQQ", int(k[1:]), 0, cpu, 1) for k, cpu in of.items()]
        return self.record(69, struct.pack("<Q", len(entries)) + b"".join(entries))

    def sample(
        self,
        time: int,
        chain: list[int],
        *,
        identity: int = 7,
        pid: int = 100,
        tid: int | None = None,
        cpu: int = 0,
        raw: bytes = b"\0" * 4,
    ) -> PerfStream:
        """A sample of a tracepoint."""
        ip = chain[1] if len(chain) > 1 else 0
        tid = pid if tid is None else tid
        body = struct.pack("<QQIIQIIQ", identity, ip, pid, tid, time, cpu, 0, 1)
        body += struct.pack(f"<Q{len(chain)}Q", len(chain), *chain)
        return self.record(9, body + struct.pack("<I", len(raw)) + raw)

    def side(self, kind: int, time: int, body: bytes, misc: int = 0, **trailer: int) -> PerfStream:
        """A record with a sample_id at its end."""
        cpu, identity = trailer.get("cpu", 0), trailer.get("identity", 9)
        return self.record(kind, body + struct.pack("<IIQIIQ", 0, 0, time, cpu, 0, identity), misc)

    def comm(self, time: int, tid: int, name: bytes, *, pid: int | None = None, exec: bool = False):
        """A thread's name, by an exec or otherwise."""
        head = struct.pack("<II", tid if pid is None else pid, tid)
        return self.side(3, time, head + _padded(name), COMM_EXEC if exec else 0)

    def fork(self, time: int, parent: int, child: int) -> PerfStream:
        """A new process."""
        return self.side(7, time, struct.pack("<IIIIQ", child, parent, child, parent, time))

    def exit(self, time: int, pid: int) -> PerfStream:
        """The end of a process."""
        return self.side(4, time, struct.pack("<IIIIQ", pid, 1, pid, 1, time))

    def mapping(
        self, time: int, pid: int, start: int, size: int, path: bytes, offset: int = 0
    ) -> PerfStream:
        """Code that is mapped, of the file with inode 5 of device 8:1."""
        head = struct.pack("<IIQQQ", pid, pid, start, size, offset)
        which = struct.pack("<IIQQII", 8, 1, 5, 0, 5, 2)
        return self.side(10, time, head + which + _padded(path))

    def lost(self, time: int, count: int, cpu: int = 0) -> PerfStream:
        """Adds a record of `count` events lost before this time."""
        return self.side(2, time, struct.pack("<QQ", 7, count), cpu=cpu)

    def lost_samples(self, identity: int, count: int) -> PerfStream:
        """Adds a record of `count` samples of this counter lost in total."""
        return self.side(13, 0, struct.pack("<Q", count), identity=identity)

    def round(self) -> PerfStream:
        """perf has looked at every buffer once."""
        return self.record(68, b"")

    def write(self, path: Path) -> Path:
        """Write the stream."""
        path.write_bytes(self.data)
        return path


def _padded(text: bytes) -> bytes:
    return text + b"\0" * (8 - len(text) % 8)
