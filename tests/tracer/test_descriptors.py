"""The list of a process's open files."""

import os
import subprocess
import time
from subprocess import PIPE

import pytest

from tracer.session import descriptors
from tracer.store import left_out, listed
from tracer.store.finalize import DESCRIPTORS
from tracer.store.lists import DescriptorFacts


def test_a_process_with_many_open_files_of_one_name_costs_a_bounded_number_of_comparisons(
    monkeypatch,
):
    compared = []
    ask = descriptors._Shared._compared

    def counted(self, *pair):
        compared.append(pair)
        return ask(self, *pair)

    monkeypatch.setattr(descriptors._Shared, "_compared", counted)
    opened = [os.open(__file__, os.O_RDONLY) for _ in range(200)]
    opened.append(os.dup(opened[0]))
    try:
        os.lseek(opened[0], 7, os.SEEK_SET)
        rows, left_out = descriptors.descriptors([os.getpid()])
    finally:
        for fd in opened:
            os.close(fd)
    numbers = {fd: number for _, _, _, fd, number, *_ in rows if fd in opened}
    positions = {fd: position for _, _, _, fd, _, position, *_ in rows if fd in opened}
    assert not left_out
    assert len(numbers) == len(opened)
    told = [number for fd, number in numbers.items() if number is not None]
    assert len(set(told)) == descriptors._MOST_ALIKE
    assert numbers[opened[0]] == numbers[opened[-1]] is not None
    assert positions[opened[0]] == positions[opened[-1]] == 7
    assert len(compared) <= descriptors._MOST_ALIKE * len(rows)


@pytest.fixture
def shared():
    """An open file at position 7, and a process that shares it: (name, descriptor, process)."""
    fd = os.open(__file__, os.O_RDONLY)
    os.lseek(fd, 7, os.SEEK_SET)
    waiting = ["sh", "-c", "echo started; read word"]
    with subprocess.Popen(waiting, stdin=PIPE, stdout=PIPE, pass_fds=[fd]) as other:
        assert other.stdout.readline()  # it has closed the files of the dynamic loader
        yield os.path.realpath(__file__), fd, other.pid
        other.kill()
    os.close(fd)


def test_others_that_share_a_position_are_listed_and_no_others(shared):
    path, fd, pid = shared
    alike = os.open(path, os.O_RDONLY)
    try:
        rows, left_out = descriptors.descriptors([pid], [os.getpid()], numbers=10)
    finally:
        os.close(alike)
    assert not left_out
    found = [(row[2], row[3], row[5]) for row in rows if row[-1] == path]
    assert found == [(pid, fd, 7), (os.getpid(), fd, 7)]
    (number,) = {row[4] for row in rows if row[-1] == path}
    assert number > 10
    first, second = (row[0] for row in rows if row[-1] == path)
    assert first < second


def test_without_room_for_others_nobody_knows_who_shares_a_position(shared):
    path, fd, pid = shared
    alone, _ = descriptors.descriptors([pid])
    rows, left_out = descriptors.descriptors([pid], [os.getpid()], most=len(alone))
    assert [(row[2], row[3], row[4]) for row in rows if row[-1] == path] == [(pid, fd, None)]
    (count,) = left_out.values()
    assert count == 1


def found(pid, began):
    """A process that a look of the recorder has found."""
    return (time.monotonic_ns(), pid, 0, -1, began, True)


def listed_files(folder, path):
    """The processes in the list that have a file open."""
    rows = listed.read(folder / DESCRIPTORS, DescriptorFacts)
    return [row[2] for row in rows if row[-1] == path]


def test_a_process_that_joins_is_listed_unless_a_listed_one_made_it(shared, tmp_path):
    path, _, pid = shared
    own = os.getpid()
    opened = descriptors.Descriptors(tmp_path, [])
    opened.joined([found(own, 0)], {own}, 0)
    assert listed_files(tmp_path, path) == [own]
    opened.joined([found(pid, time.monotonic_ns())], {own, pid}, 0)
    assert listed_files(tmp_path, path) == [own]
    for number, (began, members, before) in enumerate(
        [
            (0, {own, pid}, 0),  # made before its parent was listed
            (time.monotonic_ns(), {own, pid}, time.monotonic_ns()),  # outside at the last search
            (time.monotonic_ns(), {pid}, 0),  # its parent is no target any more
        ],
        1,
    ):
        opened.joined([found(pid, began)], members, before)
        assert listed_files(tmp_path, path) == [own, *[pid] * number]
    opened.close()


def test_all_looks_together_have_room_for_a_number_of_files(shared, tmp_path, monkeypatch):
    _, _, pid = shared
    monkeypatch.setattr(descriptors, "MOST", 1)
    opened = descriptors.Descriptors(tmp_path, [])
    for _ in range(2):
        opened.joined([found(pid, 0)], {pid}, 0)
    opened.close()
    assert len(listed.read(tmp_path / DESCRIPTORS, DescriptorFacts)) == 1
    (gap,) = left_out.gaps(tmp_path, 1, 2)
    assert (gap.stream, gap.of_events) == ("descriptors", False)
    assert gap.cause.endswith(" open files left out: 1 are known")
