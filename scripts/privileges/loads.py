"""The loads of a recording, with known numbers of events. Needs only the standard library.

python loads.py command FOLDER     the recorded command
python loads.py process FOLDER     a process that is recorded by its pid: calls when told
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import time
from pathlib import Path

CALLS, OF_A_PROCESS = 10_007, 307
FAULTS, FSYNCED, LEFT, READ = 4_999, 31, 29, 13
SLEEPS, PHASES = 23, 3
PAGE = mmap.PAGESIZE
GO = "go"


def _written(path: Path, pages: int) -> int:
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.pwrite(fd, os.urandom(PAGE * pages), 0)
    return fd


def _faults() -> dict[str, int]:
    memory = mmap.mmap(-1, FAULTS * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in range(FAULTS):
        memory[page * PAGE] = 1
    return {"start": start, "end": start + FAULTS * PAGE}


def _files(folder: Path) -> dict[str, int]:
    left = _written(folder / "left", LEFT)
    os.sync()
    fsynced = _written(folder / "fsynced", FSYNCED)
    os.fsync(fsynced)
    read = _written(folder / "read", READ)
    os.fsync(read)
    os.posix_fadvise(read, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(read, PAGE * READ, 0)
    names = {"left": left, "fsynced": fsynced, "read": read}
    return {name: os.fstat(fd).st_ino for name, fd in names.items()}


def _command(folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tracer.phases import phase

    for _ in range(CALLS):
        os.getppid()
    said = {"pid": os.getpid(), **_faults(), **_files(folder)}
    (folder / GO).touch()
    for _ in range(PHASES):
        with phase("mine"):
            pass
    for _ in range(SLEEPS):
        time.sleep(0.06)
    (folder / "said.json").write_text(json.dumps(said))


def _process(folder: Path) -> None:
    while not (folder / GO).exists():
        time.sleep(0.05)
    for _ in range(OF_A_PROCESS):
        os.times()


if __name__ == "__main__":
    {"command": _command, "process": _process}[sys.argv[1]](Path(sys.argv[2]))
