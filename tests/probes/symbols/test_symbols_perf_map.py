"""Maps of just-in-time compilers: whose they are, and what they say."""

import os

import numpy as np
import pytest

from probes.symbols.perf_map import MAX_MAP_BYTES, MAX_MAP_LINES, read_perf_map
from probes.symbols.reading import UnreadableSymbols

US = os.geteuid()


@pytest.fixture
def perf_map(tmp_path):
    """Write a map and read it."""

    def read(text, mode=0o644):
        path = tmp_path / "perf-1.map"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return read_perf_map(path, US)

    return read


def at(table, *addresses):
    return table.names_of(np.array(addresses, dtype=np.uint64))


def test_start_size_and_a_name_with_spaces(perf_map):
    table = perf_map(
        "7f0000001000 20 py::main:/a b/c.py\n"
        "0x7f0000002000 0x10 LazyCompile:~f @scope/x.js:1\n"
        "7F0000003000 1 last"
    )
    assert at(table, 0x7F0000000FFF, 0x7F0000001000, 0x7F000000101F, 0x7F0000001020) == [
        None,
        "py::main:/a b/c.py",
        "py::main:/a b/c.py",
        None,
    ]
    assert at(table, 0x7F000000200F, 0x7F0000003000) == ["LazyCompile:~f @scope/x.js:1", "last"]


def test_later_code_lies_over_older_code(perf_map):
    table = perf_map("100 100 old\n140 10 inside\n120 40 new\n130 8 newest\n")
    names = at(table, 0x11F, 0x120, 0x130, 0x137, 0x138, 0x140, 0x14F, 0x15F, 0x160, 0x1FF, 0x200)
    assert names == ["old", "new", "newest", "newest", *["new"] * 4, "old", "old", None]


def test_lines_that_say_something_else_are_left_out(perf_map):
    table = perf_map(
        b"100 10 good\n"
        b"\n"
        b"200\n"
        b"200 10\n"
        b"200 10 \n"
        b"200 0 empty\n"
        b"-200 10 negative\n"
        b"2_00 10 underscore\n"
        b"zz 10 letters\n"
        b"ffffffffffffffff 10 beyond\n"
        b"11111111111111111 10 seventeen\n"
        b"300 10 \xff\x1b[2J\n"
    )
    assert len(table) == 2
    assert at(table, 0x100, 0x200, 0x300) == ["good", None, "\\xff\\x1b[2J"]


def test_no_map_is_none_and_an_empty_one_is_empty(tmp_path, perf_map):
    assert read_perf_map(tmp_path / "perf-2.map", US) is None
    assert len(perf_map("")) == 0


def test_a_map_that_anyone_may_write_is_refused(perf_map):
    with pytest.raises(UnreadableSymbols, match="written by anyone"):
        perf_map("100 10 f\n", 0o646)
    # A group of one's own is what many systems give their users, with a umask to match.
    assert len(perf_map("100 10 f\n", 0o664)) == 1


@pytest.mark.skipif(US != 0, reason="only root can give files away")
def test_only_the_process_s_user_and_root_may_own_it(tmp_path):
    path = tmp_path / "perf-1.map"
    path.write_text("100 10 f\n")
    assert len(read_perf_map(path, 1234)) == 1
    os.chown(path, 1234, 1234)
    assert len(read_perf_map(path, 1234)) == 1
    with pytest.raises(UnreadableSymbols, match="belongs to user 1234"):
        read_perf_map(path, 4321)


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_what_is_no_file_is_refused(tmp_path, kind):
    path = tmp_path / "perf-1.map"
    if kind == "link":
        (tmp_path / "other").write_text("100 10 f\n")
        path.symlink_to(tmp_path / "other")
    elif kind == "dangling":
        path.symlink_to(tmp_path / "nothing")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(UnreadableSymbols, match="no regular file"):
        read_perf_map(path, US)


def test_a_map_too_large_is_refused(tmp_path, perf_map):
    with pytest.raises(UnreadableSymbols, match="more than"):
        perf_map("\n" * (MAX_MAP_LINES + 1))
    path = tmp_path / "perf-3.map"
    path.touch()
    os.truncate(path, MAX_MAP_BYTES + 1)
    with pytest.raises(UnreadableSymbols, match="more than"):
        read_perf_map(path, US)
