"""Folders of marks that mean harm: storms of files, files of other boots, folders that are none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.budget import run_within
from tests.support.phases import read_spans
from tests.support.waiting import wait_for
from tracer.phases import MARKS_ENV
from tracer.session.marks import Marks
from tracer.session.marks_folder import MarksFolder
from tracer.session.marks_handover import Handover
from tracer.store.marks import NAMES
from tracer.targets.processes import from_pids

STORM = 40_000
BYTES = 256 << 20
SECONDS = 20
RECORD = b"\1" * 64

MARKING = """
import sys
from tracer import phases
if "early" in sys.argv: phases.begin("train")
print(flush=True)
sys.stdin.readline()
phases.begin("eval")
print(flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def job(tmp_path):
    """Start a process that marks into `theirs`: early, or only when it is told to."""
    begun = []
    (tmp_path / "theirs").mkdir()
    (tmp_path / "raw/marks").mkdir(parents=True)

    def start(*command):
        environment = {**os.environ, MARKS_ENV: str(tmp_path / "theirs")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        begun.append(subprocess.Popen(command, env=environment, **pipes))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


LARGE = """
import ctypes, mmap, struct, sys, time
size = {size}
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:] = {first!r} + bytes(size - len({first!r}))
begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
with open("/proc/self/stat") as file:
    stat = [0] + [int(word) for word in file.read().rpartition(")")[2].split()[1:]]
code, stack, data = stat[23:25], stat[25], stat[42:45]
arguments = stat[45:47]
brk = libc.sbrk(0)
told = struct.pack(
    "=12Q2I", *code, *data, brk, stack, *arguments, begin, begin + size, 0, 0, 0xFFFFFFFF)
if libc.prctl(35, 14, ctypes.c_char_p(told), ctypes.c_ulong(len(told)), 0):  # PR_SET_MM_MAP
    sys.exit("no " + str(ctypes.get_errno()))
print(flush=True)
time.sleep(600)
"""
"""Says that its environment is as large as this; `first` is in its beginning."""


def marking(job, *arguments):
    process = job(sys.executable, "-c", MARKING, *arguments)
    process.stdout.readline()
    return process


def found(tmp_path, pid):
    marks = Marks(tmp_path / "raw/marks", tmp_path / "none")
    marks.find(from_pids(str(pid)))
    return marks


def names_of(tmp_path):
    script, _ = read_spans(tmp_path / "raw/marks")
    return [span.name for span in script]


def test_a_clock_that_was_set_forward_loses_no_marks(job, tmp_path, monkeypatch):
    process = marking(job, "early")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + time.monotonic() + 60)
    found(tmp_path, process.pid).collect()
    assert names_of(tmp_path) == ["train"]


def test_a_process_that_marks_only_while_it_is_recorded_is_heard(job, tmp_path):
    process = marking(job)
    marks = found(tmp_path, process.pid)
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()
    marks.collect()
    assert names_of(tmp_path) == ["eval"]


def test_marks_of_an_earlier_boot_are_told_from_those_of_this_one(job, tmp_path):
    process = marking(job, "early")
    longer_up = time.monotonic_ns() + 10**15
    of_its_life = time.monotonic_ns()
    old = [f"4000000-{longer_up}-0.marks", f"{process.pid}-{of_its_life}-0.marks"]
    old += [f"{process.pid}-{longer_up}.note", f"{process.pid}-7.note"]
    for name in old:
        (tmp_path / "theirs" / name).write_bytes(RECORD)
    told = f"{process.pid}-{time.monotonic_ns()}.note"
    (tmp_path / "theirs" / told).write_text("no GPU times")
    found(tmp_path, process.pid).collect()
    kept = {path.name for path in (tmp_path / "raw/marks").iterdir()}
    assert kept.isdisjoint(old)
    assert told in kept
    assert names_of(tmp_path) == ["train"]


def looks(tmp_path, pid):
    """Look as often as files are made, then collect: what that costs is bounded by the caller."""
    marks = found(tmp_path, pid)
    for number in range(STORM):
        name = f"{number}-{time.monotonic_ns()}-0.marks"
        os.close(os.open(tmp_path / "theirs" / name, os.O_CREAT | os.O_WRONLY))
        if number % 50 == 0:
            marks.look()
    marks.collect()
    return len(list((tmp_path / "raw/marks").glob("*.marks")))


@pytest.fixture
def inside(job):
    """A process that counts pids in a namespace of its own, where it is the first."""
    outside = psutil.Process(job("unshare", "--pid", "--kill-child", "sleep", "1000").pid)
    return wait_for(lambda: next(iter(outside.children()), None), "the process inside")


def test_a_storm_of_files_costs_a_bounded_time_and_memory(inside, tmp_path):
    assert run_within(BYTES, looks, tmp_path, inside.pid, cpu_s=SECONDS) == 0


def test_a_storm_of_names_of_one_process_is_written_down_up_to_a_limit(inside, tmp_path):
    marks = found(tmp_path, inside.pid)
    for number in range(3000):
        name = f"1-{time.monotonic_ns()}-{number}.marks"
        (tmp_path / "theirs" / name).write_bytes(RECORD)
    marks.look()
    found_here = (tmp_path / "raw/marks" / NAMES).read_bytes().count(b"\n")
    marks.collect()
    assert 0 < found_here <= 100


def test_files_beyond_the_limit_are_left_out_and_counted(inside, tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.session.marks.MOST_FILES", 23)
    marks = found(tmp_path, inside.pid)
    for number in range(40):
        (tmp_path / f"theirs/{number + 2}-{time.monotonic_ns()}-0.marks").write_bytes(RECORD)
    marks.collect()
    assert len(list((tmp_path / "raw/marks").glob("*.marks"))) == 23
    assert "files of marks left out: too many files" in (tmp_path / "raw/left_out.json").read_text()
    assert marks._lost["too many files"] == 17


def test_marks_beyond_the_bytes_of_all_files_are_left_out_and_counted(
    inside, tmp_path, monkeypatch
):
    """Thousands of files of the largest size would fill the disk."""
    monkeypatch.setattr("tracer.session.marks._MAX_TOTAL", 7 * len(RECORD))
    marks = found(tmp_path, inside.pid)
    for number in range(10):
        (tmp_path / f"theirs/{number + 2}-{time.monotonic_ns()}-0.marks").write_bytes(RECORD)
    (tmp_path / f"theirs/30-{time.monotonic_ns()}-0.marks").write_bytes(RECORD * (1 << 19))
    marks.collect()
    assert len(list((tmp_path / "raw/marks").glob("*.marks"))) == 7
    assert dict(marks._lost) == {"too much in all": 3, "too long": 1}


def test_a_storm_of_news_about_folders_keeps_no_recorder_waiting(tmp_path):
    """Nobody reads the socket until the recorder is killed; the guardian then has what fitted."""
    handover = Handover()
    folders = [MarksFolder(os.open(tmp_path, os.O_PATH), [], False) for _ in range(64)]
    for user in range(40):
        for folder in folders:
            folder.users.add(user)
        handover.tell(folders, [])
    told = list(handover.taken([]))
    assert len(told) < 40 * len(folders)
    assert [folder.users for folder in told[: len(folders)]] == [{0}] * len(folders)
    assert {folder.fd for folder in told}.isdisjoint(folder.fd for folder in folders)
    handover.close()
    for folder in (*folders, *told):
        os.close(folder.fd)


def test_a_folder_that_is_none_is_counted(job, tmp_path):
    (tmp_path / "theirs").rmdir()
    (tmp_path / "theirs").write_text("no folder")
    process = job("sleep", "1000")
    marks = found(tmp_path, process.pid)
    assert dict(marks._lost) == {"their folder cannot be opened": 1}


def test_a_look_rests_after_the_last_and_is_then_made(inside, tmp_path):
    marks = found(tmp_path, inside.pid)
    marks.look()
    (tmp_path / f"theirs/1-{time.monotonic_ns()}-0.marks").write_bytes(RECORD)
    names = Path(tmp_path / "raw/marks" / NAMES)

    def named():
        marks.look()
        return b"1-" in names.read_bytes()

    wait_for(named, "the name of the process")
    marks.collect()


def test_a_large_environment_costs_the_recorder_no_more_than_its_beginning(job, tmp_path):
    first = f"{MARKS_ENV}={tmp_path / 'theirs'}".encode() + b"\0"
    process = job(sys.executable, "-c", LARGE.format(size=1 << 30, first=first))
    assert process.stdout.readline() == b"\n"
    environment = Path(f"/proc/{process.pid}/environ")
    with environment.open("rb", buffering=0) as file:
        file.seek(1 << 29)
        assert file.read(1) == b"\0"
    run_within(BYTES, found_folder, tmp_path, process.pid)


def found_folder(folder, pid):
    """Find the folder of this process's marks, which it names at once."""
    assert len(found(folder, pid)._theirs) == 1
