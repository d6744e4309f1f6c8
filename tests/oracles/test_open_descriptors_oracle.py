"""Accesses inferred from calls are those of naive descriptors, shared, inherited and used again."""

import os
from collections import Counter

import pytest

from tests.oracles.drawing import seeds
from tests.oracles.open_descriptors import PAGE, Open, System, drawn
from tests.support.traces import make_trace
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

DISKS = [
    {"dev": "8:0", "name": "sda"},
    *({"dev": f"8:{n}", "name": f"sda{n}", "partition_of": "8:0"} for n in (1, 2)),
]
TARGETS = [
    {"name": name, "role": "target", "kind": "pid", "pid": pid}
    for name, pid in (("a", 100), ("b", 200))
]


def found(folder, system, **tables):
    """Returns accessed pages by target and file, and the bytes of reads that have no file."""
    rows = {"page_cache": [], "syscalls": [], "opens": []} | system.recorded() | tables
    with make_trace(folder, rows, targets=TARGETS, disks=DISKS) as trace:
        VIEWS["reads"].make(trace)
        accessed, unplaced = Counter(), 0
        for target, dev, ino, pages, lost, inferred in trace.connection.execute(
            "SELECT target, dev, ino, accessed, unplaced, inferred FROM reads"
        ).fetchall():
            assert inferred
            if dev is not None:
                accessed[target, dev, ino] += pages
            unplaced += lost or 0
    return +accessed, unplaced


@pytest.mark.parametrize("seed", seeds(10))
def test_random_programs_use_the_pages_of_the_oracle(tmp_path, seed):
    system = drawn(seed)
    assert found(tmp_path / "t", system) == (system.accessed, 0)


def one_file(pages=20):
    """A job and a file that it has not opened."""
    system = System()
    return system, system.process(100, "a"), system.file("8:1", 7, pages * PAGE, "/data/f")


def test_a_child_moves_its_parents_position(tmp_path):
    system, job, file = one_file()
    system.has_open(job, 3, Open(file, position=PAGE - 10))
    system.look()
    child = system.fork(job, 101)
    system.read(child, 3, 20)  # two pages: the last bytes of one, the first of the next
    system.read(job, 3, PAGE - 10)  # the rest of the second one
    system.close(child, 3)
    system.read(job, 3, 1)
    assert system.accessed == {("a", "8:1", 7): 4}
    assert found(tmp_path / "t", system) == (system.accessed, 0)


def test_a_duplicate_shares_the_position_and_another_open_does_not(tmp_path):
    system, job, file = one_file()
    system.look()
    number = system.open(job, file)
    other = system.open(job, file)
    copy = system.dup(job, number)
    system.read(job, number, PAGE + 1)
    system.read(job, copy, PAGE - 1)  # within the second page
    system.read(job, other, PAGE)  # the first page
    assert system.accessed == {("a", "8:1", 7): 4}
    assert found(tmp_path / "t", system) == (system.accessed, 0)


def test_reads_at_an_offset_leave_the_position(tmp_path):
    system, job, file = one_file()
    system.has_open(job, 3, Open(file, position=100))
    system.look()
    system.pread(job, 3, 2 * PAGE, 5 * PAGE)
    system.read(job, 3, PAGE - 100)
    system.lseek(job, 3, -1, os.SEEK_END)
    system.read(job, 3, PAGE)  # the last byte
    system.read(job, 3, PAGE)  # nothing
    assert system.accessed == {("a", "8:1", 7): 4}
    assert found(tmp_path / "t", system) == (system.accessed, 0)


def test_an_append_moves_the_position_to_the_end(tmp_path):
    system, job, file = one_file(pages=2)
    file.size = PAGE + 10
    system.has_open(job, 3, Open(file, os.O_APPEND | os.O_RDWR))
    system.look()
    system.read(job, 3, 10)
    system.write(job, 3, PAGE)  # at the end
    system.lseek(job, 3, -(PAGE + 5), os.SEEK_CUR)
    system.read(job, 3, PAGE)  # from byte PAGE + 5 on: two pages
    assert system.accessed == {("a", "8:1", 7): 3}
    assert found(tmp_path / "t", system) == (system.accessed, 0)


def test_a_number_used_again_has_files_of_its_own(tmp_path):
    system, job, file = one_file()
    other = system.file("8:2", 7, 9 * PAGE, "/data/g")
    system.has_open(job, 3, Open(file, position=2 * PAGE - 1))
    system.look()
    child = system.fork(job, 101)
    system.close(child, 3)
    system.open(child, other)
    system.read(child, 3, 1)
    system.end(child)
    again = system.fork(job, 101)
    system.read(again, 3, 2)  # the parent's file and position
    assert system.accessed == {("a", "8:2", 7): 1, ("a", "8:1", 7): 2}
    assert found(tmp_path / "t", system) == (system.accessed, 0)


def test_reads_past_the_cache_and_reads_of_strangers_use_no_pages(tmp_path):
    system, job, file = one_file()
    stranger = system.process(300, None)
    system.has_open(job, 3, Open(file, os.O_DIRECT))
    system.has_open(stranger, 3, Open(file))
    system.look()
    system.read(job, 3, PAGE)
    system.read(stranger, 3, PAGE)
    system.pread(job, system.open(job, file, os.O_DIRECT), PAGE, PAGE)
    assert not system.accessed
    assert found(tmp_path / "t", system) == (Counter(), 0)


def test_a_position_that_is_not_known_is_counted_until_a_seek(tmp_path):
    system, job, file = one_file()
    system.has_open(job, 3, Open(file))
    system.look(positions=False)
    system.read(job, 3, 100)
    system.pread(job, 3, 10, 0)
    system.lseek(job, 3, PAGE, os.SEEK_SET)
    system.read(job, 3, PAGE + 1)
    assert found(tmp_path / "t", system) == ({("a", "8:1", 7): 3}, 100)


def test_without_calls_nothing_is_used(tmp_path):
    system, job, file = one_file()
    system.has_open(job, 3, Open(file))
    system.look()
    assert found(tmp_path / "t", system, syscalls=[]) == (Counter(), 0)
