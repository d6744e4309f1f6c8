"""Parsers of the heads of lines: time, CPU, thread and event.

FLAGS may be absent; TID may also be PID/TID or -TID:

    perf script, trace-cmd report:  COMM TID [CPU] [FLAGS] S.FRACTION: EVENT: FIELDS
    blkparse:                       MAJOR,MINOR CPU SEQUENCE S.FRACTION PID ACTION FIELDS

The time for a line is in proportion to its length: no run of characters is tried twice.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tracer.probes.limits import CPU_LIMIT, PID_LIMIT

_MOST_SECONDS = 9_000_000_000
_TIME = rb"(\d{1,12})\.(\d{1,9})\d*+"

_EVENT = re.compile(
    rb"[ \t]*+([^ \t].{0,255}?)(-|(?<! ) ++)(?:(\d{1,8})/)?(\d{1,8}) *+"  # COMM TID or COMM-TID
    rb"(?:\((?:[ -]*+(\d{1,8}))?[ -]*+\) *+)?"  # (TGID)
    rb"\[(\d{1,9})\][ \t]*+(?:[^ ]{1,8} [ \t]*+)??"  # [CPU] FLAGS
    + _TIME
    + rb":[ \t]*+(?:\d++[ \t]++)?+([^\x00-\x20]{1,128}?):(?= |\Z)[ \t]*+",  # PERIOD EVENT
    re.DOTALL,
).match
_BUFFER = re.compile(rb".*?:(?=  )[ \t]*", re.DOTALL)
"""The name of a buffer of trace-cmd before a thread's name: "NAME:   COMM"."""
_BLKPARSE = re.compile(
    rb"[ \t]*+(\d{1,9})[,:](\d{1,9})[ \t]*+(\d{1,9})[ \t]++\d++[ \t]++"
    + _TIME
    + rb"[ \t]++(\d{1,9})[ \t]++([^ ]{1,2})(?= |\Z)[ \t]*+"
).match


def is_placeholder(comm: bytes, tid: int) -> bool:
    """Returns whether a tool printed this because it did not know the name of the thread `tid`.

    perf prints `:TID`, trace-cmd `<...>`, blkparse `(null)`.
    """
    return comm in (b"<...>", b"(null)") or (comm[:1] == b":" and comm == b":%d" % tid)


class Head(NamedTuple):
    """The parts of a line."""

    ts: int
    """ns."""
    cpu: int
    tid: int
    pid: int
    """0: the line does not tell it."""
    comm: bytes
    """Name of the thread; empty: the line does not tell it."""
    event: bytes
    """Name of the event, without its system."""
    fields: bytes
    """The rest of the line."""
    device: int = 0
    """dev_t (12 bits of major and 20 of minor number); 0: the head has none."""


def event_head(line: bytes) -> Head | None:
    """Parses a line of perf script or trace-cmd report; None if it is not a line of an event."""
    match = _EVENT(line)
    if match is None:
        return None
    comm, joint, pid, tid, tgid, cpu, s, part, event = match.groups()
    if joint == b"-" and (buffer := _BUFFER.match(comm)):
        comm = comm[buffer.end() :]
    if (ts := _ns(s, part)) is None or int(cpu) >= CPU_LIMIT or int(tid) >= PID_LIMIT:
        return None
    process = int(pid or tgid or 0)
    if process >= PID_LIMIT:
        return None
    bare = event[event.rfind(b":") + 1 :]
    if is_placeholder(comm, int(tid)):
        comm = b""
    return Head(ts, int(cpu), int(tid), process, comm, bare, line[match.end() :])


def blkparse_head(line: bytes) -> Head | None:
    """Parses a line of blkparse; None if it is not a line of an event."""
    match = _BLKPARSE(line)
    if match is None:
        return None
    major, minor, cpu, s, part, tid, action = match.groups()
    if (ts := _ns(s, part)) is None or int(cpu) >= CPU_LIMIT or int(tid) >= PID_LIMIT:
        return None
    if int(major) >= 1 << 12 or int(minor) >= 1 << 20:
        return None
    fields = line[match.end() :]
    comm = b""
    if fields.endswith(b"]") and action[:1] != b"C":  # a completion has its status there
        comm = fields[fields.rfind(b"[") + 1 : -1] if b"[" in fields else b""
    if is_placeholder(comm, int(tid)):
        comm = b""
    return Head(ts, int(cpu), int(tid), 0, comm, action, fields, int(major) << 20 | int(minor))


def _ns(seconds: bytes, fraction: bytes) -> int | None:
    if (whole := int(seconds)) >= _MOST_SECONDS:
        return None
    return whole * 1_000_000_000 + int(fraction.ljust(9, b"0"))
