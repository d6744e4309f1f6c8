"""Files that say that they hold more than they do: to refuse them costs next to nothing."""

import os
import struct
import zlib

import pytest

from tests.support import foreign
from tests.support.budget import within_budget
from tests.support.pages import PAGE
from tracer.analysis.exchange.formats import FORMATS, import_file
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

PAGES = {0: [bytes(PAGE)]}
END_OF_OPTIONS = struct.pack("<H", 0) + b"flyrecord\0"
MIB = 1 << 20


def refused(tmp_path, data, format):
    """Imports a file that must be refused within the budget; returns the error's text."""
    (tmp_path / "in").write_bytes(data)
    error = within_budget(import_file, tmp_path / "in", tmp_path / "out.trace", format)
    assert error is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    return str(error)


def many_buffers(cpus, buffers):
    """A trace.dat of version 6 whose instances all have the pages of one place."""
    head = foreign.trace_dat6(PAGES).partition(END_OF_OPTIONS)[0]
    at = head.index(b"options  \0") - 4
    head = head[:at] + struct.pack("<I", cpus) + head[at + 4 :]
    where = len(head) + 16 * buffers + 2
    option = struct.pack("<HIQ", 3, 10, where) + b"x\0"
    return head + option * buffers + END_OF_OPTIONS + bytes(16 * cpus)


def test_pages_that_many_instances_have(tmp_path):
    assert "CPUs" in refused(tmp_path, many_buffers(8192, 3000), "trace-cmd")


@pytest.mark.parametrize(
    "names",
    ["1 a\n" * (15 * MIB), "".join(f"{n} a\n" for n in range(300_000))],
    ids=["of one thread", "of many"],
)
def test_names_of_threads_without_end(tmp_path, names):
    data = foreign.trace_dat7(PAGES, "zlib", names=names)
    assert "bytes of names" in refused(tmp_path, data, "trace-cmd")


def test_compressed_pages_that_say_that_they_are_none(tmp_path):
    zeros = zlib.compressobj()
    head = zeros.compress(bytes(MIB)) + zeros.flush(zlib.Z_FULL_FLUSH)
    bomb = head + (zeros.compress(bytes(MIB)) + zeros.flush(zlib.Z_FULL_FLUSH)) * 1500
    chunk = struct.pack("<III", 1, len(bomb), 0) + bomb
    data = foreign.trace_dat7(PAGES, "zlib")
    packed = zlib.compress(bytes(PAGE))
    plain = struct.pack("<III", 1, len(packed), PAGE) + packed
    assert plain in data
    # The head has the place of the options; the pages come before them.
    moved = len(chunk) - len(plain)
    at = data.index(b"1.0\0") + 4
    options = int.from_bytes(data[at : at + 8], "little") + moved
    data = data[:at] + options.to_bytes(8, "little") + data[at + 8 :].replace(plain, chunk)
    assert "compressed data" in refused(tmp_path, data, "trace-cmd")


def test_options_that_follow_themselves(tmp_path):
    data = foreign.trace_dat7(PAGES)
    head = data.index(b"1.0\0") + 4
    first = int.from_bytes(data[head : head + 8], "little")
    done = struct.pack("<HIQ", 0, 8, 0)
    assert data.endswith(done)
    data = data[: -len(done)] + struct.pack("<HIQ", 0, 8, first)
    assert "follows itself" in refused(tmp_path, data, "trace-cmd")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_a_path_that_is_not_a_file_is_refused(tmp_path, format, kind):
    path = tmp_path / "in"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    for name in (format, None):
        error = within_budget(import_file, path, tmp_path / "out.trace", name)
        assert "is not a regular file" in str(error)


def test_a_verb_waits_for_no_fifo(tmp_path, tracer):
    os.mkfifo(tmp_path / "in")
    assert "is not a regular file" in tracer("unpack", "in", "-o", "out.trace", status=6).err
    assert "is no regular file" in tracer("info", "in", status=6).err
    assert "not a regular file" in tracer("simulate", "x", "--config", "in", status=2).err
    assert "not a regular file" in tracer("simulate", "x", "--devices", "in", status=2).err


def simulated(folder):
    with Trace(folder) as trace:
        page_writebacks(trace)


def test_operations_of_more_pages_than_memory_holds(tmp_path):
    rows = "".join(f"{n},8:0,{n << 20},{1 << 20},W\n" for n in range(40))
    (tmp_path / "in.csv").write_text(f"ts_ns,dev,page,pages,op\n{rows}")
    import_file(tmp_path / "in.csv", tmp_path / "out.trace")
    assert "MiB of memory" in str(within_budget(simulated, tmp_path / "out.trace"))


def test_an_operation_of_more_pages_than_a_bio_has(tmp_path):
    text = f"ts_ns,dev,page,pages,op\n1,8:0,0,{1 << 30},W\n"
    assert "more than 1048576 pages" in refused(tmp_path, text.encode(), "csv")
