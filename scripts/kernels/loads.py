"""The loads that each backend records, all of them in one recording.

    python loads.py JOB.json                    run the loads of a job, each in a child process
    python loads.py member CGROUP GO DONE       make calls in a cgroup: see `member`

Each load makes known numbers of events. Needs only Python's standard library.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CALLS, FAULTS, SHARED = 10_007, 4_999, 503
SYNCS, SYNC_PAGES = 211, 7
FSYNCED, LEFT = 29, 31
"""Pages of a file that is fsynced, and of one that a sync writes."""
DIRECT_WRITES, DIRECT_READS, DIRECT_PAGES = 101, 89, 4
IN_CGROUP, OUTSIDE = 9_973, 307

PAGE = mmap.PAGESIZE
Said = dict[str, Any]


def calls() -> Said:
    """Makes system calls."""
    for _ in range(CALLS):
        os.getppid()
    return {}


def _touched(pages: int, flags: int) -> Said:
    """Writes to each page of a fresh mapping; returns its addresses."""
    import ctypes

    memory = mmap.mmap(-1, pages * PAGE, flags=flags | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without transparent huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in range(pages):
        memory[page * PAGE] = 1
    return {"start": start, "end": start + pages * PAGE}


def faults() -> Said:
    """Faults in private anonymous memory."""
    return _touched(FAULTS, mmap.MAP_PRIVATE)


def shared_faults() -> Said:
    """Faults in shared anonymous memory."""
    return _touched(SHARED, mmap.MAP_SHARED)


def _opened(path: str, flags: int = 0) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o600)


def _put(path: str, pages: int) -> int:
    fd = _opened(path)
    os.pwrite(fd, os.urandom(PAGE * pages), 0)
    return fd


def syncs(folder: str) -> Said:
    """Appends to a file and fsyncs it, again and again."""
    fd = _opened(f"{folder}/synced")
    for number in range(SYNCS):
        os.pwrite(fd, os.urandom(PAGE * SYNC_PAGES), number * PAGE * SYNC_PAGES)
        os.fsync(fd)
    return {"ino": os.fstat(fd).st_ino}


def written(folder: str) -> Said:
    """Writes one file by an fsync, and another one by a sync."""
    left = _put(f"{folder}/left", LEFT)
    os.sync()
    fsynced = _put(f"{folder}/fsynced", FSYNCED)
    os.fsync(fsynced)
    return {"fsynced": os.fstat(fsynced).st_ino, "left": os.fstat(left).st_ino}


def direct(folder: str) -> Said:
    """Writes and reads blocks that have their place already, past the page cache."""
    size = PAGE * DIRECT_PAGES
    fd = _put(f"{folder}/direct", DIRECT_PAGES * DIRECT_WRITES)
    os.fsync(fd)
    os.close(fd)
    fd = _opened(f"{folder}/direct", os.O_DIRECT)
    memory = mmap.mmap(-1, size)
    memory[:] = os.urandom(size)
    for number in range(DIRECT_WRITES):
        os.pwrite(fd, memory, number * size)
    for number in range(DIRECT_READS):
        os.preadv(fd, [memory], number * size)
    return {"ino": os.fstat(fd).st_ino}


def joined(word: str, done: str) -> Said:
    """Lets the member of the cgroup go, and waits until it has made its calls."""
    Path(word).touch()
    _wait_for(done)
    said: Said = json.loads(Path(done).read_text())
    return said


def _wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.05)


def member(cgroup: str, word: str, done: str) -> None:
    """Makes calls in a cgroup that it was in before the recording, and others after it has left.

    It is no child of the recorded command.
    """
    _wait_for(word)
    for _ in range(IN_CGROUP):
        os.times()
    Path(cgroup).parent.joinpath("cgroup.procs").write_text(str(os.getpid()))
    for _ in range(OUTSIDE):
        os.times()
    partial = Path(f"{done}.partial")
    partial.write_text(json.dumps({"member": os.getpid()}))
    partial.rename(done)


def _in_child(load: Callable[..., Said], arguments: list[str]) -> dict[str, Any]:
    """Runs a load in a child process; returns what is known of it (`facts.Load`)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.write(write, json.dumps(load(*arguments)).encode())
            status = 0
        except Exception as error:  # noqa: BLE001 the parent hands the error over
            os.write(write, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = json.load(pipe)
    _, status = os.waitpid(pid, 0)
    return {"pid": pid, "status": os.waitstatus_to_exitcode(status), "said": said}


def run(job: Path, known: Iterable[Callable[..., Said]]) -> None:
    """Runs the loads of a job: {"ran": FILE, "loads": {NAME: [FUNCTION, ARGUMENT, ...]}}.

    `known`: the functions that a job may name.
    """
    told = json.loads(job.read_text())
    functions = {load.__name__: load for load in known}
    ran = {
        name: _in_child(functions[function], arguments)
        for name, (function, *arguments) in told["loads"].items()
    }
    Path(told["ran"]).write_text(json.dumps(ran))


def main() -> None:
    """Runs the loads of a job, or the member of a cgroup."""
    if sys.argv[1] == "member":
        member(*sys.argv[2:])
        return
    loads = (calls, faults, shared_faults, syncs, written, direct, joined)
    run(Path(sys.argv[1]), loads)


if __name__ == "__main__":
    main()
