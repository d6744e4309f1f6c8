"""The scheduler's events of two kernels, made by hand, and the raw streams of each backend."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.pages import PAGE, Page, format_text, raw_trace
from tracer.probes.backends import chunks
from tracer.probes.backends.perf_events import records
from tracer.probes.backends.perf_events.tracepoints import SAMPLES, SAMPLES_WITH_STACKS

SWITCH, WAKING, WAKEUP_NEW = "sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"
STACK = "ftrace:kernel_stack"
HARDIRQ, SOFTIRQ = 0x08, 0x10
"""Bits of common_flags: include/linux/trace_events.h."""
OTHER_FLAGS = (0, 0x01, 0x04, 0x20, 0x80)
"""Bits that do not tell of an interrupt: interrupts off, a switch needed, softirqs off."""


@cache
def _places_in(fields: str) -> dict[str, tuple[int, int]]:
    """Returns the offset and the size of each field in the lines of a format."""
    lines = [line.rsplit(maxsplit=3) for line in fields.splitlines()]
    return {
        declaration.split()[-1].partition("[")[0]: (int(offset), int(size))
        for declaration, offset, size, _ in lines
    }


class Kernel(NamedTuple):
    """The event formats of a kernel: its fields are lines as `format_text` takes them."""

    fields: Mapping[str, str]
    numbers: Mapping[str, int]
    print_format: str
    states: Mapping[str, int]
    """Bits of prev_state by the letters that the kernel prints."""
    preempted: int
    """The bit of prev_state that the kernel prints as a plus."""
    exits: tuple[str, ...]
    """States of threads that have ended."""

    @property
    def formats(self) -> dict[str, str]:
        """The texts of the format files."""
        return {
            name: format_text(
                name.partition(":")[2],
                self.numbers[name],
                fields,
                self.print_format if name == SWITCH else '""',
            )
            for name, fields in self.fields.items()
        }

    def state(self, text: str) -> int:
        """Returns prev_state for what the kernel prints."""
        letters = text.removesuffix("+")
        bits = 0 if letters == "R" else sum(self.states[one] for one in letters.split("|"))
        return bits | (self.preempted if text.endswith("+") else 0)

    def payload(self, name: str, tid: int, flags: int = 0, **values: int) -> bytes:
        """Returns an event in the context of thread `tid`."""
        data = bytearray(max(map(sum, self._places(name).values())))
        struct.pack_into("<HBBi", data, 0, self.numbers[name], flags, 0, tid)
        for field, value in values.items():
            offset, size = self.place(name, field)
            data[offset : offset + size] = value.to_bytes(size, "little", signed=True)
        return bytes(data)

    def place(self, name: str, field: str) -> tuple[int, int]:
        """Returns the offset and the size of a field of an event."""
        return self._places(name)[field]

    def _places(self, name: str) -> dict[str, tuple[int, int]]:
        return _places_in(self.fields[name])

    def switch(
        self, prev: int, state: str | int, next: int, flags: int = 0, context: int | None = None
    ) -> bytes:
        """Returns a sched_switch, in the context of the thread that leaves the CPU."""
        bits = self.state(state) if isinstance(state, str) else state
        return self.payload(
            SWITCH, prev if context is None else context, flags,
            prev_pid=prev, prev_state=bits, next_pid=next,
        )  # fmt: skip

    def waking(self, by: int, tid: int, flags: int = 0) -> bytes:
        """Returns a sched_waking in the context of thread `by`."""
        return self.payload(WAKING, by, flags, pid=tid)

    def wakeup_new(self, by: int, tid: int, flags: int = 0, cpu: int = 0) -> bytes:
        """Returns a sched_wakeup_new in the context of thread `by`, for the queue of a CPU."""
        return self.payload(WAKEUP_NEW, by, flags, pid=tid, target_cpu=cpu)

    def stack(self, tid: int, *callers: int, size: int | None = None) -> bytes:
        """Returns the kernel stack of a thread: the innermost caller first."""
        data = bytearray(self.payload(STACK, tid)[: self.place(STACK, "caller")[0]])
        at, length = self.place(STACK, "size")
        count = len(callers) if size is None else size
        data[at : at + length] = count.to_bytes(length, "little", signed=True)
        return bytes(data) + struct.pack(f"<{len(callers)}Q", *callers)


_ARGUMENTS = "REC->next_comm, REC->next_pid, REC->next_prio"
_REPORT = (
    "((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020"
    " | 0x00000040) + 1) << 1) - 1)"
)
LINUX_6_18 = Kernel(
    {
        SWITCH: "char prev_comm[16] 8 16 0\npid_t prev_pid 24 4 1\nint prev_prio 28 4 1\n"
        "long prev_state 32 8 1\nchar next_comm[16] 40 16 0\npid_t next_pid 56 4 1\n"
        "int next_prio 60 4 1",
        WAKING: "char comm[16] 8 16 0\npid_t pid 24 4 1\nint prio 28 4 1\nint target_cpu 32 4 1",
        WAKEUP_NEW: "char comm[16] 8 16 0\npid_t pid 24 4 1\nint prio 28 4 1\n"
        "int target_cpu 32 4 1",
        STACK: "int size 8 4 1\nunsigned long caller[8] 16 64 0",
    },
    {SWITCH: 372, WAKING: 375, WAKEUP_NEW: 373, STACK: 4},
    '"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d'
    ' next_prio=%d", REC->prev_comm, REC->prev_pid, REC->prev_prio, (REC->prev_state & '
    f'{_REPORT}) ? __print_flags(REC->prev_state & {_REPORT}, "|", {{ 0x00000001, "S" }}, '
    '{ 0x00000002, "D" }, { 0x00000004, "T" }, { 0x00000008, "t" }, { 0x00000010, "X" }, '
    '{ 0x00000020, "Z" }, { 0x00000040, "P" }, { 0x00000080, "I" }) : "R", REC->prev_state & '
    "(((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020"
    f' | 0x00000040) + 1) << 1) ? "+" : "", {_ARGUMENTS}',
    {"S": 1, "D": 2, "T": 4, "t": 8, "X": 16, "Z": 32, "P": 64, "I": 128},
    256,
    ("X", "Z"),
)
"""The formats of Linux 6.18, word for word."""

LINUX_4_9 = Kernel(
    {
        SWITCH: "pid_t prev_pid 8 4 1\nint prev_prio 12 4 1\nlong prev_state 16 8 1\n"
        "char prev_comm[16] 24 16 0\nchar next_comm[16] 40 16 0\nint next_prio 56 4 1\n"
        "pid_t next_pid 60 4 1",
        WAKING: "pid_t pid 8 4 1\nint prio 12 4 1\nint success 16 4 1\nint target_cpu 20 4 1\n"
        "char comm[16] 24 16 0",
        WAKEUP_NEW: "int success 8 4 1\nint prio 12 4 1\nchar comm[16] 16 16 0\n"
        "int target_cpu 32 4 1\npid_t pid 36 4 1",
    },
    {SWITCH: 280, WAKING: 283, WAKEUP_NEW: 281},
    '"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d'
    ' next_prio=%d", REC->prev_comm, REC->prev_pid, REC->prev_prio, REC->prev_state & (2048-1) ? '
    '__print_flags(REC->prev_state & (2048-1), "|", { 1, "S"} , { 2, "D" }, { 4, "T" }, '
    '{ 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "K" }, { 256, "W" }, '
    '{ 512, "P" }, { 1024, "N" }) : "R", REC->prev_state & 2048 ? "+" : "", ' + _ARGUMENTS,
    {"S": 1, "D": 2, "T": 4, "t": 8, "Z": 16, "X": 32, "x": 64, "K": 128, "W": 256, "P": 512,
     "N": 1024},
    2048,
    ("x",),
)  # fmt: skip
"""The states of Linux 4.9; the fields lie elsewhere than in any kernel."""


class Logged(NamedTuple):
    """An event as a CPU logged it."""

    ts: int
    cpu: int
    payload: bytes

    @property
    def tid(self) -> int:
        """The thread in whose context it happened."""
        return int.from_bytes(self.payload[4:8], "little", signed=True)


class Lost(NamedTuple):
    """A loss of events on a CPU between two times."""

    cpu: int
    start: int
    end: int


def _bpf(event: Logged) -> bytes:
    kind = int.from_bytes(event.payload[:2], "little")
    head = struct.pack("<qiiHHI", event.ts, event.tid, event.tid, kind, event.cpu, 0)
    body = head + event.payload[8:]
    return struct.pack("<II", len(body), 0) + body + bytes(-len(body) % 8)


def _perf(event: Logged, chain: bytes = b"") -> bytes:
    raw = event.payload + bytes(-(len(event.payload) + 4) % 8)
    tid = event.tid
    head = (9, 0, 36 + len(chain) + len(raw), tid, tid, event.ts, event.cpu, 0)
    return struct.pack("<IHHiiqII", *head) + chain + struct.pack("<I", len(raw)) + raw


_KERNEL_PART = (1 << 64) - 128
"""PERF_CONTEXT_KERNEL of include/uapi/linux/perf_event.h."""


def _with_chains(kernel: Kernel, events: list[Logged]) -> list[tuple[int, bytes]]:
    """Returns times and samples: a stack is the chain of the switch before it, as in the kernel."""
    found: list[tuple[Logged, bytes]] = []
    for event in events:
        if event.payload[:2] != kernel.numbers[STACK].to_bytes(2, "little"):
            found.append((event, bytes(8)))
            continue
        switch, _ = found.pop()
        assert (switch.cpu, switch.tid) == (event.cpu, event.tid)
        callers = event.payload[kernel.place(STACK, "caller")[0] :]
        chain = struct.pack("<QQ", len(callers) // 8 + 1, _KERNEL_PART) + callers
        found.append((switch, chain))
    return [(event.ts, _perf(event, chain)) for event, chain in found]


_CHUNK_EVENTS = 40


def _chunks(
    backend: str, kernel: Kernel, events: list[Logged], lost: Iterable[Lost]
) -> dict[str, bytes]:
    ordered = sorted(events, key=lambda event: event.ts)
    if backend == "ebpf":
        samples, made = "ebpf", [(event.ts, _bpf(event)) for event in ordered]
    elif STACK in kernel.numbers:
        samples, made = SAMPLES_WITH_STACKS, _with_chains(kernel, ordered)
    else:
        samples, made = SAMPLES, [(event.ts, _perf(event)) for event in ordered]
    data = b""
    for at in range(0, len(made), _CHUNK_EVENTS):
        part = made[at : at + _CHUNK_EVENTS]
        held = b"".join(record for _, record in part)
        data += chunks.header(chunks.DATA, -1, len(held), part[0][0], part[-1][0], 0) + held
    for cpu, start, end in lost:
        data += chunks.header(chunks.LOST, cpu, 0, start, end, 1)
    return {samples: data}


def _pages(
    events: list[Logged], lost: Iterable[Lost], cpus: Iterable[int]
) -> dict[int, list[Page | bytes]]:
    """Pages of each CPU; before a page that begins at the end of a loss, events were lost."""
    streams: dict[int, list[Page | bytes]] = {}
    for cpu in cpus:
        # A loss lies between the start of the page before it and that of the page after it.
        starts = [
            (time, after) for on, *loss in lost if on == cpu for after, time in enumerate(loss)
        ]
        starts.sort()
        pages = [Page(0)]

        def begin(until: int | None, starts: Any = starts, pages: Any = pages) -> None:
            while starts and (until is None or starts[0][0] <= until):
                time, after_loss = starts.pop(0)
                pages.append(Page(time).missed(1) if after_loss else Page(time))

        for event in sorted((e for e in events if e.cpu == cpu), key=lambda event: event.ts):
            begin(event.ts)
            if len(pages[-1].data) > PAGE - 200:
                pages.append(Page(event.ts))
            pages[-1].event(event.ts, event.payload)
        begin(None)
        streams[cpu] = [*pages]
    return streams


def scheduled_trace(
    folder: Path,
    kernel: Kernel,
    events: list[Logged],
    *,
    backend: str = "ftrace",
    threads: Iterable[tuple[int, int, int, str, str | None]] = (),
    lost: Iterable[Lost] = (),
    cpus: Iterable[int] = (0, 1),
    members: Iterable[list[Any]] = (),
    kallsyms: str | None = None,
    **manifest: Any,
) -> None:
    """Writes the raw trace of these events: those of a CPU in the order that it logged them.

    `threads` are those at the start: (tid, pid, ppid, comm, cgroup).
    """
    lost = list(lost)
    pages = _pages(events, lost, cpus) if backend == "ftrace" else {}
    parts = _chunks(backend, kernel, events, lost) if backend != "ftrace" else {}
    formats = kernel.formats
    if backend == "perf" and formats.pop(STACK, None):
        formats[records.STACK] = records.format_text(records.STACK)
    raw_trace(
        folder, pages, parts, formats,
        **{"probes": ["sched"], "state": "captured", "ended_by": "signal", "backend": backend}
        | manifest,
    )  # fmt: skip
    (folder / "raw/threads.json").write_text(json.dumps(list(threads)))
    if kallsyms is not None:
        (folder / "raw/kallsyms").write_text(kallsyms)
    if members:
        lines = "".join(json.dumps(member) + "\n" for member in members)
        (folder / "raw/members.jsonl").write_text(lines)
