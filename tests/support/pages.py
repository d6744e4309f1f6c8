"""Ring-buffer pages and streams, made by hand: the encoder that the decoder is tested against."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracer.probes.backends.perf_events import records

PAGE = 4096
HEADER = 16

HEADER_PAGE = """\
	field: u64 timestamp;	offset:0;	size:8;	signed:0;
	field: local_t commit;	offset:8;	size:8;	signed:1;
	field: int overwrite;	offset:8;	size:1;	signed:1;
	field: char data;	offset:16;	size:4080;	signed:0;
"""

COMMON = """\
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

"""


def format_text(name: str, number: int, fields: str, print_format: str = '""') -> str:
    """A format file as tracefs has it; `fields` are lines `TYPE NAME OFFSET SIZE SIGNED`."""
    lines = []
    for line in fields.strip().splitlines():
        declaration, offset, size, signed = line.rsplit(maxsplit=3)
        lines.append(
            f"\tfield:{declaration.strip()};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n"
        )
    head = f"name: {name}\nID: {number}\nformat:\n{COMMON}"
    return f"{head}{''.join(lines)}\nprint fmt: {print_format}\n"


SYS_ENTER = format_text("sys_enter", 443, "long id 8 8 1\nunsigned long args[6] 16 48 0")
SYS_EXIT = format_text("sys_exit", 442, "long id 8 8 1\nlong ret 16 8 1")
NEWTASK = format_text(
    "task_newtask",
    205,
    "pid_t pid 8 4 1\nchar comm[16] 12 16 0\nu64 clone_flags 32 8 0\nshort oom_score_adj 40 2 1",
)
EXEC = format_text(
    "sched_process_exec",
    365,
    "__data_loc char[] filename 8 4 0\npid_t pid 12 4 1\npid_t old_pid 16 4 1",
)
EXIT = format_text("sched_process_exit", 369, "char comm[16] 8 16 0\npid_t pid 24 4 1")
ATTACH = format_text(
    "cgroup_attach_task",
    538,
    "int dst_root 8 4 1\nint dst_level 12 4 1\nu64 dst_id 16 8 0\nint pid 24 4 1\n"
    "__data_loc char[] dst_path 28 4 0\n__data_loc char[] comm 32 4 0",
)
FAULT = "unsigned long address 8 8 0\nunsigned long ip 16 8 0\nunsigned long error_code 24 8 0"
FAULT_FORMATS = {
    "exceptions:page_fault_user": format_text("page_fault_user", 101, FAULT),
    "exceptions:page_fault_kernel": format_text("page_fault_kernel", 102, FAULT),
    "signal:signal_generate": format_text(
        "signal_generate", 103, "int sig 8 4 1\nint errno 12 4 1\nint code 16 4 1"
    ),
    **{name: records.format_text(name) for name in records.NAMES},
}
FORMATS = {
    "raw_syscalls:sys_enter": SYS_ENTER,
    "raw_syscalls:sys_exit": SYS_EXIT,
    "task:task_newtask": NEWTASK,
    "sched:sched_process_exec": EXEC,
    "sched:sched_process_exit": EXIT,
    "cgroup:cgroup_attach_task": ATTACH,
}


def payload(kind: int, tid: int, body: bytes = b"") -> bytes:
    """An event's payload: the common fields and its own."""
    return struct.pack("<HBBi", kind, 0, 0, tid) + body


def enter(tid: int, nr: int, args: Sequence[int] = range(6)) -> bytes:
    """A sys_enter event."""
    return payload(443, tid, struct.pack("<q6Q", nr, *args))


def leave(tid: int, nr: int, ret: int = 0) -> bytes:
    """A sys_exit event."""
    return payload(442, tid, struct.pack("<qq", nr, ret))


def fault(tid: int, address: int, user: bool = True) -> bytes:
    """A page fault, of a write in user or kernel mode."""
    return payload(101 if user else 102, tid, struct.pack("<QQQ", address, 0x1000, 6))


def newtask(parent: int, child: int, comm: bytes, flags: int) -> bytes:
    """A task_newtask event in the parent's context."""
    return payload(205, parent, struct.pack("<i16s4xQh", child, comm, flags, 0))


def execed(tid: int, filename: bytes = b"/bin/x\0") -> bytes:
    """A sched_process_exec event."""
    where = 20 | len(filename) << 16
    return payload(365, tid, struct.pack("<Iii", where, tid, tid) + filename)


def exited(tid: int, comm: bytes = b"x") -> bytes:
    """A sched_process_exit event."""
    return payload(369, tid, struct.pack("<16si", comm, tid))


def attached(by: int, tid: int, hierarchy: int, path: bytes) -> bytes:
    """A cgroup_attach_task event: thread `tid` was put into a cgroup."""
    path += b"\0"
    where = 36 | len(path) << 16
    body = struct.pack("<iiQiII", hierarchy, 1, 1, tid, where, 36 + len(path) | 2 << 16)
    return payload(538, by, body + path + b"c\0")


class Page:
    """One page in the making."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.now = start
        self.data = b""
        self.flags = 0
        self.lost: int | None = None

    def event(self, at: int, body: bytes) -> Page:
        """A data event at time `at`; time extends are made as the kernel makes them."""
        delta = at - self.now
        assert delta >= 0
        if delta >= 1 << 27:
            self.data += struct.pack("<II", 30 | (delta & ((1 << 27) - 1)) << 5, delta >> 27)
            delta = 0
        self.now = at
        body += b"\0" * (-len(body) % 4)
        if len(body) <= 28 * 4:
            self.data += struct.pack("<I", len(body) // 4 | delta << 5) + body
        else:
            self.data += struct.pack("<II", delta << 5, len(body) + 4) + body
        return self

    def absolute(self, at: int) -> Page:
        """An absolute time stamp: the low 59 bits of `at`."""
        low = at & ((1 << 59) - 1)
        self.data += struct.pack("<II", 31 | (low & ((1 << 27) - 1)) << 5, low >> 27)
        self.now = at
        return self

    def discarded(self, length: int) -> Page:
        """An event that was discarded in place: padding of `length` bytes with a length."""
        self.data += struct.pack("<II", 29 | 1 << 5, length + 4) + b"\xee" * length
        self.now += 1
        return self

    def missed(self, count: int | None) -> Page:
        """Mark that events before this page were lost."""
        self.flags = 1 << 31
        self.lost = count
        return self

    def bytes(self) -> bytes:
        """The page."""
        assert len(self.data) <= PAGE - HEADER
        commit = len(self.data) | self.flags
        tail = b""
        if self.lost is not None:
            commit |= 1 << 30
            tail = struct.pack("<q", self.lost)
        page = struct.pack("<qQ", self.start, commit) + self.data + tail
        return page.ljust(PAGE, b"\0")


def raw_trace(
    folder: Path,
    streams: dict[int, list[Page | bytes]],
    chunks: dict[str, bytes] | None = None,
    formats: dict[str, str] | None = None,
    **manifest: Any,
) -> dict[str, Any]:
    """A trace directory as a killed recorder leaves it.

    `streams` are the pages of each CPU, `chunks` those of streams of all CPUs, by what their
    samples are.
    """
    import json

    (folder / "raw").mkdir(parents=True)
    entries = []
    for cpu, pages in streams.items():
        name = f"ftrace-target-cpu{cpu}.raw"
        data = b"".join(p if isinstance(p, bytes) else p.bytes() for p in pages)
        (folder / "raw" / name).write_bytes(data)
        entries.append({"file": name, "stream": f"target-cpu{cpu}", "cpu": cpu})
    for samples, data in (chunks or {}).items():
        name = f"{samples.replace(':', '-')}.raw"
        (folder / "raw" / name).write_bytes(data)
        label = f"target-{samples}"
        entries.append({"file": name, "stream": label, "cpu": -1, "samples": samples})
    made: dict[str, Any] = {
        "schema": 1,
        "tool": {},
        "state": "recording",
        "complete": False,
        "ended_by": None,
        "recorder": {"pid": 1, "start_time": 0, "boot_id": "another boot"},
        "host": {"machine": "x86_64", "page_size": 4096},
        "kernel": {},
        "clock": {"name": "mono", "start_ns": 0, "end_ns": None, "jiffies": None},
        "duration_s": None,
        "command": None,
        "targets": [],
        "probes": ["syscalls"],
        "backend": "ftrace",
        "capture": {
            "header_page": HEADER_PAGE,
            "header_event": "",
            "formats": FORMATS | (formats or {}),
            "streams": entries,
            "missing": {},
        },
        "syscall_names": {"39": "getpid", "59": "execve", "56": "clone", "231": "exit_group"},
        "vm": {},
        "mounts": [],
        "disks": [],
        "own_files": {},
        "own_cost": {},
        "tables": {},
        "loss": {},
    }
    made.update(manifest)
    (folder / "manifest.json").write_text(json.dumps(made))
    return made
