"""The library that a process runs is the file that it has mapped, not what its path leads to."""

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support.binaries import compile_c, needs_binutils
from tests.support.dead_file_system import dead_file_system  # noqa: F401 a fixture
from tests.support.loads import PYTHON
from tracer.probes.backends.uprobes.library import Library
from tracer.probes.backends.uprobes.places import find_places
from tracer.probes.errors import FeatureMissing
from tracer.probes.events.torch_calls import LIBRARY, PATH
from tracer.probes.kernel import CAPABILITIES
from tracer.probes.openat import known
from tracer.probes.symbols.elf import open_elf
from tracer.probes.uprobe_place import Place
from tracer.probes.workers.opening import open_aside
from tracer.session import libraries
from tracer.session.libraries import open_libraries
from tracer.session.privileges import keep

SOURCE = """
int first(int x) { return x + 1; }
int second(int x) { return x > 3 ? first(x) * 7 : 9; }
"""


@pytest.fixture
def library(tmp_path):
    return compile_c(tmp_path, SOURCE, "-shared", "-fPIC", name=LIBRARY)


MAP = """
import mmap, sys
held = []
for path in map(str.rstrip, sys.stdin):
    with open(path, "rb") as file:
        held.append(mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC))
    print(flush=True)
"""


class Mapping:
    """A process that maps files as code; this one may have PyTorch's own library mapped."""

    def __init__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([*PYTHON, "-c", MAP], **pipes)

    def __call__(self, path):
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "\n"

    def inodes(self):
        """Inodes of what is found to be its library."""
        return inodes([self.process.pid])[0]

    def inodes_and_left_out(self):
        return inodes([self.process.pid])


def inodes(pids):
    """Inodes of what is found to be the processes' libraries, and counts of what is left out."""
    left_out = Counter()
    found = open_libraries(pids, PATH, left_out=left_out)
    try:
        return [known(fd).inode for fd in found], dict(left_out)
    finally:
        for fd in found:
            os.close(fd)


@pytest.fixture
def mapped():
    mapping = Mapping()
    yield mapping
    mapping.process.kill()
    mapping.process.communicate()


OTHERS = """
int wait_for_all(int x) { return x * 3; }
int wait_for(int x) { return x > 3 ? x * 7 : 9; }
"""
"""A name that begins like another one comes first."""


@needs_binutils
def test_a_library_may_lack_optional_functions(tmp_path):
    library = compile_c(tmp_path, OTHERS, "-shared", "-fPIC", name="libother.so")
    wanted = {
        "in": Place("wait_for", exact=True),
        "out": Place("wait_for", exact=True, returns=True),
        "out of all": Place("wait_for_all", exact=True, returns=True),
        "none": Place("wait", exact=True, optional=True),
        "out of none": Place("wait", exact=True, returns=True, optional=True),
    }
    fd = os.open(library, os.O_PATH)
    try:
        found = find_places(fd, wanted)
    finally:
        os.close(fd)
    assert found["none"] == found["out of none"] == ()
    with open_elf(library) as elf:
        start, end = Library(elf)._function("wait_for", True)
    assert found["in"] == (start,)
    assert all(start < place < end for place in found["out"])
    assert not any(start <= place < end for place in found["out of all"])


@needs_binutils
def test_a_mapped_library_is_found_once(library, mapped):
    mapped(library)
    mapped(library)
    assert mapped.inodes() == [library.stat().st_ino]
    (fd, *none) = open_libraries([mapped.process.pid, mapped.process.pid, 1 << 30], PATH)
    os.close(fd)
    assert none == []


@pytest.fixture
def copies(library, tmp_path):
    """Three builds of the library."""
    paths = [library]
    for name in ("second", "third"):
        (tmp_path / name).mkdir()
        paths.append(Path(shutil.copy(library, tmp_path / name)))
    return paths


def inodes_of(paths):
    return [path.stat().st_ino for path in paths]


@needs_binutils
def test_every_copy_that_a_process_runs_is_found(copies, mapped):
    for path in copies:
        mapped(path)
    found, left_out = mapped.inodes_and_left_out()
    assert sorted(found) == sorted(inodes_of(copies))
    assert left_out == {}


@needs_binutils
def test_more_builds_than_are_probed_are_counted_once_each(copies, monkeypatch):
    monkeypatch.setattr(libraries, "_MOST", 2)
    processes = [Mapping() for _ in range(4)]
    try:
        for mapping, path in zip(processes, [*copies, copies[2]], strict=True):
            mapping(path)
        found, left_out = inodes([mapping.process.pid for mapping in processes])
    finally:
        for mapping in processes:
            mapping.process.kill()
            mapping.process.communicate()
    assert found == inodes_of(copies[:2])
    assert left_out == {"files of the library left out: 2 others are probed": 1}


@needs_binutils
def test_a_process_with_more_copies_than_are_probed_is_counted(copies, mapped, monkeypatch):
    monkeypatch.setattr(libraries, "_MOST_COPIES", 2)
    for path in copies:
        mapped(path)
    found, left_out = mapped.inodes_and_left_out()
    assert len(found) == 2
    assert left_out == {"processes with more than 2 files of the library": 1}


def test_a_process_that_is_gone_is_nothing_left_out():
    assert inodes([1 << 30]) == ([], {})


@needs_binutils
def test_another_file_in_its_place_is_not_taken_for_it(library, mapped, tmp_path):
    """Something else is mounted on the path: the way leads there, the mapping does not."""
    if os.geteuid() != 0:
        do_without("mounts", "TRACER_REQUIRE_KERNEL", "it takes root to mount")
    (tmp_path / "other").mkdir()
    other = compile_c(tmp_path / "other", SOURCE, "-shared", "-fPIC", name=LIBRARY)
    mapped(library)
    own = library.stat().st_ino
    subprocess.run(["mount", "--bind", str(other), str(library)], check=True)
    try:
        assert library.stat().st_ino == other.stat().st_ino
        assert mapped.inodes() == [own]
        # Without the right to open what is mapped, nothing rather than the wrong file.
        left_out = {"files of the library left out: another file has their path": 1}
        assert in_child(mapped.inodes_and_left_out) == ([], left_out)
    finally:
        subprocess.run(["umount", str(library)], check=True)
    assert in_child(mapped.inodes) == [own]


def in_child(function):
    """Returns the result of a function in a process that may do all but open mappings."""
    reads, writes = os.pipe()
    if not (pid := os.fork()):
        try:
            keep(tuple(name for name in CAPABILITIES if name != "CAP_SYS_ADMIN"))
            os.write(writes, repr(function()).encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(pid, 0)
    with os.fdopen(reads) as told:
        return eval(told.read())


@needs_binutils
def test_a_library_of_a_file_system_in_user_space_is_left_alone(
    library,
    mapped,
    dead_file_system,  # noqa: F811
    tmp_path,
):
    dead = dead_file_system(library.read_bytes(), LIBRARY)
    mapped(dead.path)
    dead.dies()
    left_out = {"files of the library left out: on a file system in user space": 1}
    assert inodes([mapped.process.pid] * 2) == ([], left_out)


@needs_binutils
def test_files_that_do_not_open_in_time_are_counted_and_not_waited_for_one_by_one(
    library,
    mapped,
    dead_file_system,  # noqa: F811
    monkeypatch,
):
    if os.geteuid() != 0:
        do_without("capabilities", "TRACER_REQUIRE_KERNEL", "it takes root to give them up")
    monkeypatch.setattr(libraries, "_SECONDS", 0.2)
    monkeypatch.setattr(libraries, "_SECONDS_IN_ALL", 0.2)
    asked = []

    def counted(find, seconds):
        asked.append(seconds)
        return open_aside(find, seconds)

    monkeypatch.setattr(libraries, "open_aside", counted)
    dead = [dead_file_system(library.read_bytes(), LIBRARY) for _ in range(3)]
    for each in dead:
        mapped(each.path)
    for each in dead:
        each.dies()
    found, times = in_child(lambda: (mapped.inodes_and_left_out(), len(asked)))
    assert found == ([], {"files of the library left out: not opened in time": 3})
    assert times == 1


@needs_binutils
def test_places_are_those_that_the_library_itself_gives(library):
    wanted = {"in": Place("second"), "out": Place("second", returns=True)}
    fd = os.open(library, os.O_PATH)
    try:
        found = find_places(fd, wanted)
        with pytest.raises(FeatureMissing, match="third"):
            find_places(fd, {"none": Place("third")})
    finally:
        os.close(fd)
    with open_elf(library) as elf:
        functions = Library(elf)
        assert found == {"in": functions.entry("second"), "out": functions.returns("second")}
    assert len(found["out"]) >= 1


def test_a_file_that_is_not_a_library_has_no_places(tmp_path):
    (tmp_path / "text").write_text("nothing of the sort\n" * 10)
    fd = os.open(tmp_path / "text", os.O_PATH)
    try:
        with pytest.raises(FeatureMissing, match="not an ELF file"):
            find_places(fd, {"in": Place("first")})
    finally:
        os.close(fd)
