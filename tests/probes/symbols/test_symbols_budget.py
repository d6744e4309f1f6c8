"""Files that ask for too much, that end what reads them, that never come: the rest is named."""

import multiprocessing
import os
import signal

import numpy as np
import pytest

from tests.support.binaries import PROGRAM, compile_c, needs_binutils
from tests.support.budget import CPU_SECONDS, run_within
from tests.support.dead_file_system import dead_file_system  # noqa: F401 a fixture
from tests.support.elf_images import linked_to, pyramid, stubs
from tracer.probes.symbols.budget import Budget, Reason
from tracer.probes.symbols.elf import open_elf
from tracer.probes.symbols.files import SymbolCache

pytestmark = [needs_binutils, pytest.mark.slow]

A_LONG_ANSWER_S = 3
"""Time in s in which any reader answers that is not held, also on a busy machine."""


@pytest.fixture
def program(tmp_path):
    return compile_c(tmp_path, PROGRAM)


@pytest.fixture
def hidden(program):
    """The file offset of the function `hidden`, in an array."""
    with open_elf(program) as elf:
        text = elf.section(".text")
        table = elf.symbols()
        row = [table.raw_name(i) for i in range(len(table))].index(b"hidden")
        return np.array([int(table.starts[row]) - text.address + text.offset])


@pytest.fixture
def cache():
    opened = []

    def make(**limits):
        opened.append(SymbolCache(Budget(**limits)))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def copies(program, count):
    found = [program.with_name(f"copy{number}") for number in range(count)]
    for copy in found:
        copy.write_bytes(program.read_bytes())
    return found


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"files": 3}, Reason.FILES),
        ({"bytes_read": 1}, Reason.BYTES),
        ({"symbols": 1}, Reason.SYMBOLS),
        ({"wall_s": 0}, Reason.TIME),
    ],
)
def test_a_budget_that_is_spent_leaves_out_what_follows(cache, program, hidden, limits, reason):
    names = cache(**limits)
    found = [names.resolve(path, hidden) for path in copies(program, 5)]
    assert found[-1] is None
    assert names.left_out == {reason: found.count(None)}
    assert found == sorted(found, key=lambda name: name is None)


def test_names_beyond_the_budget_are_counted_one_by_one(cache, program, hidden):
    names = cache(name_bytes=len("hidden"))
    with open_elf(program) as elf:
        entry = elf.header["e_entry"] - elf.segments[0].address + elf.segments[0].offset
    found = names.resolve(program, np.array([*hidden, entry, *hidden, entry]))
    assert found in (["hidden", None] * 2, [None, "_start"] * 2)
    assert names.left_out == {Reason.NAMES: 1}


def test_a_small_file_of_long_names_takes_little_memory(cache, tmp_path):
    """20,011 stubs that all lead to one name of 16 KiB: 330 MB, were each name written out."""
    path = tmp_path / "stubs"
    path.write_bytes(stubs(20_011, b"\0" + b"x" * (1 << 14), [1]))
    names = cache(memory_bytes=64 << 20)
    with open_elf(path) as elf:
        text = elf.section(".plt")
    found = names.resolve(path, text.offset + 8 * np.arange(0, 20_011, 23))
    assert set(found) == {"x" * 507 + "…@plt"}
    assert not names.left_out


def test_long_names_take_little_memory_of_the_recorder(tmp_path):
    """20,011 names of 16 KiB: each is cut before the next ones are read."""
    path = tmp_path / "stubs"
    path.write_bytes(stubs(20_011, b"\0" + b"x" * (1 << 14), [1]))
    assert run_within(300 << 20, shown_of, path, 20_011) == {"x" * 507 + "…@plt"}


def shown_of(path, count):
    with open_elf(path) as elf:
        text = elf.section(".plt")
    with SymbolCache(Budget(cpu_s=CPU_SECONDS)) as names:
        return set(names.resolve(path, text.offset + 8 * np.arange(count)))


def test_a_file_that_takes_too_much_memory_is_left_out_alone(program, hidden, tmp_path):
    path = tmp_path / "pyramid"
    path.write_bytes(pyramid(1_000_003))
    # In a process of its own: what this one has freed would be room for its children.
    process = multiprocessing.get_context("forkserver").Process(
        target=read_within_memory, args=(program, hidden, path)
    )
    process.start()
    process.join()
    assert process.exitcode == 0


def read_within_memory(program, hidden, path):
    names = SymbolCache(Budget(memory_bytes=48 << 20))
    assert names.resolve(program, hidden) == ["hidden"]
    assert names.resolve(path, hidden) is None
    assert names.left_out == {Reason.MEMORY: 1}
    program.unlink()  # its table is still held
    assert names.resolve(program, hidden) == ["hidden"]
    names.close()


def test_the_processor_time_of_all_files_is_bounded(cache, program, hidden, tmp_path):
    """A debug file of two gigabytes that are not there: all of it has to be read."""
    names = cache(cpu_s=1)
    assert names.resolve(program, hidden) == ["hidden"]
    for number in range(12):
        path = tmp_path / f"linked{number}"
        path.write_bytes(linked_to(f"debug{number}"))
        with (tmp_path / f"debug{number}").open("wb") as file:
            file.write(linked_to("none"))
            file.truncate(2 << 30)
    for number in range(12):
        names.resolve(tmp_path / f"linked{number}", hidden)
    assert names.left_out[Reason.TIME] >= 1
    assert names.resolve(copies(program, 1)[0], hidden) is None


def test_a_file_that_ends_its_reader_is_left_out_alone(cache, program, hidden):
    names = cache()
    end_at_the_second(names, program, hidden, signal.SIGKILL)
    assert names.left_out == {Reason.DIED: 1}


def test_a_file_that_holds_its_reader_is_left_out_alone(cache, program, hidden):
    names = cache(answer_s=A_LONG_ANSWER_S)
    end_at_the_second(names, program, hidden, signal.SIGSTOP)
    assert names.left_out == {Reason.TIME: 1}


def end_at_the_second(names, program, hidden, number):
    """Sends a signal to the reader amid three files; asserts that one of them has no names."""
    first, second, third = copies(program, 3)
    assert names.resolve(first, hidden) == ["hidden"]
    os.kill(names._reader._worker.pid, number)
    assert names.resolve(second, hidden) is None
    assert [names.resolve(path, hidden) for path in (first, third)] == [["hidden"]] * 2
    assert names.resolve(second, hidden) is None


def test_a_reader_that_ends_again_and_again_is_given_up(cache, program, hidden):
    names = cache(deaths=2)
    for path in copies(program, 5):
        assert names.resolve(program, hidden) in (["hidden"], None)
        if names._reader._worker is not None:
            os.kill(names._reader._worker.pid, signal.SIGKILL)
        assert names.resolve(path, hidden) is None
    assert sum(names.left_out.values()) == 5 + 1
    assert set(names.left_out) == {Reason.DIED}


@pytest.mark.parametrize("when", ["dies", "dies_when_read"])
def test_a_file_whose_server_died_is_left_out_alone(
    cache,
    program,
    hidden,
    dead_file_system,  # noqa: F811
    when,
):
    dead = dead_file_system(program.read_bytes())
    names = cache(answer_s=A_LONG_ANSWER_S)
    assert names.resolve(program, hidden) == ["hidden"]
    getattr(dead, when)()
    assert names.resolve(dead.path, hidden) is None
    assert names.left_out == {Reason.SILENT if when == "dies" else Reason.TIME: 1}
    assert names.resolve(copies(program, 1)[0], hidden) == ["hidden"]


def test_a_file_whose_server_lives_is_a_file_like_others(cache, program, hidden, dead_file_system):  # noqa: F811
    alive = dead_file_system(program.read_bytes())
    assert cache().resolve(alive.path, hidden) == ["hidden"]
