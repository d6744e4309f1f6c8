"""Maps of just-in-time compilers: whose they are, and what they say."""

import os

import numpy as np
import pytest

from tracer.probes.symbols.budget import MAX_MAP_BYTES, MAX_MAP_LINES, Budget, Reason
from tracer.probes.symbols.files import SymbolCache
from tracer.probes.symbols.perf_map import perf_map

US = os.geteuid()


@pytest.fixture
def cache():
    with SymbolCache() as opened:
        yield opened


def at(text, *addresses):
    """The names at addresses by a map of this text."""
    fd = os.memfd_create("map", os.MFD_CLOEXEC)
    try:
        os.write(fd, text if isinstance(text, bytes) else text.encode())
        return perf_map(fd, "map").names_of(np.array(addresses, dtype=np.uint64))
    finally:
        os.close(fd)


def in_file(cache, path, uid=US, address=0x100):
    """The name at an address by the map at `path` of a process of user `uid`."""
    (name,) = cache.at_run_time(path, uid, np.array([address], dtype=np.uint64))
    return name


def test_start_size_and_a_name_with_spaces():
    table = (
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


def test_later_code_lies_over_older_code():
    table = "100 100 old\n140 10 inside\n120 40 new\n130 8 newest\n"
    names = at(table, 0x11F, 0x120, 0x130, 0x137, 0x138, 0x140, 0x14F, 0x15F, 0x160, 0x1FF, 0x200)
    assert names == ["old", "new", "newest", "newest", *["new"] * 4, "old", "old", None]


def test_lines_that_say_something_else_are_left_out():
    table = (
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
    assert at(table, 0x100, 0x200, 0x300) == ["good", None, "\\xff\\x1b[2J"]
    assert at(table, 0x110, 0, (1 << 64) - 1) == [None, None, None]


def test_no_map_and_an_empty_one_have_no_names(cache, tmp_path):
    (tmp_path / "empty").touch()
    assert in_file(cache, tmp_path / "empty") is None
    assert cache.problems == []
    assert in_file(cache, tmp_path / "missing") is None
    assert "does not exist" in cache.problems[0]
    assert not cache.left_out


def test_a_map_that_anyone_may_write_is_refused(cache, tmp_path):
    for name, mode in (("everybody", 0o646), ("group", 0o664)):
        (tmp_path / name).write_text("100 10 f\n")
        (tmp_path / name).chmod(mode)
    assert in_file(cache, tmp_path / "everybody") is None
    assert "written by anyone" in cache.problems[0]
    # A group of one's own is what many systems give their users, with a umask to match.
    assert in_file(cache, tmp_path / "group") == "f"


@pytest.mark.skipif(US != 0, reason="only root can give files away")
def test_only_the_process_s_user_and_root_may_own_it(cache, tmp_path):
    path = tmp_path / "perf-1.map"
    path.write_text("100 10 f\n")
    assert in_file(cache, path, 1234) == "f"
    os.chown(path, 1234, 1234)
    with SymbolCache() as later:
        assert in_file(later, path, 1234) == "f"
        assert in_file(later, path, 4321) is None
        assert "belongs to user 1234" in later.problems[0]


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_a_path_that_is_not_a_file_is_refused(cache, tmp_path, kind):
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
    assert in_file(cache, path) is None
    assert "not a regular file" in cache.problems[0]


@pytest.mark.parametrize("lines", [True, False])
def test_a_map_too_large_is_left_out_and_counted(cache, tmp_path, lines):
    path = tmp_path / "perf-3.map"
    path.write_bytes(b"\n" * (MAX_MAP_LINES + 1) if lines else b"")
    if not lines:
        os.truncate(path, MAX_MAP_BYTES + 1)
    assert in_file(cache, path) is None
    assert cache.left_out == {Reason.TABLE: 1}
    assert "more than" in cache.problems[0]
    assert in_file(cache, path) is None
    assert cache.left_out == {Reason.TABLE: 1}


def test_one_map_under_many_names_is_read_once(tmp_path):
    first = tmp_path / "perf-0.map"
    first.write_text("".join(f"{n:x}00 10 f\n" for n in range(1, 1009)))
    paths = [tmp_path / f"perf-{n}.map" for n in range(1, 24)]
    for path in paths:
        path.hardlink_to(first)
    with SymbolCache(Budget(symbols=2000)) as cache:
        assert {in_file(cache, path) for path in [first, *paths]} == {"f"}
        assert not cache.left_out
