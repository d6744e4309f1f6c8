"""Files from anybody, cut off, with bits flipped, full of nonsense: one error, or a trace."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.analysis.exchange import test_import_events as events
from tests.analysis.exchange import test_import_storage as storage
from tests.support import foreign
from tests.support.budget import within_budget
from tracer.analysis.exchange.formats import FORMATS, import_file
from tracer.probes.errors import TracerError
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

FIO = b"fio version 3 iolog\n5 a write 0 4096\n6 a read 4096 4096\n"
CSV = b"ts_ns,dev,page,pages,op\n1,8:0,5,2,W\n2,8:0,5,1,W\n"
ORACLE = bytes(range(48))
PAGES = {0: [events.PAGES[0][0][:4096]]}
SAMPLES = {
    "perf-script": events.PERF.encode(),
    "trace-cmd text": events.TestTraceCmdReport.TEXT.encode(),
    "trace-cmd 6": foreign.trace_dat6(PAGES),
    "trace-cmd 7": foreign.trace_dat7(PAGES),
    "trace-cmd 7 zlib": foreign.trace_dat7(PAGES, "zlib"),
    "trace-cmd 7 zstd": foreign.trace_dat7(PAGES, "zstd"),
    "blktrace": events.CPU0,
    "blktrace text": events.TestBlktrace.TEXT.encode(),
    "fio-iolog": FIO,
    "msr-csv": storage.TestMsr.TEXT.encode(),
    "oracle-general": ORACLE,
    "csv": CSV,
}


def tried(folder, data, name):
    """Import it: an error of ours, or a trace that can be read."""
    (folder / "in").write_bytes(data)
    try:
        import_file(folder / "in", folder / "out.trace", name.split()[0], force=True)
    except TracerError as error:
        assert "\n" not in str(error).strip()
        return
    with Trace(folder / "out.trace") as trace:
        for table in trace.tables:
            trace.sql(f"SELECT * FROM {table}")


LIGHT = ("fio-iolog", "msr-csv", "oracle-general", "csv")
BINARY = ("trace-cmd 6", "trace-cmd 7", "trace-cmd 7 zlib", "trace-cmd 7 zstd", "blktrace")


def places(data, count):
    """Returns places to cut: everywhere in a short file; in a long one, its begin and random
    places."""
    if len(data) <= count:
        return range(len(data))
    return sorted({*range(count // 2), *random.Random(23).sample(range(len(data)), count // 2)})


@pytest.mark.parametrize("name", SAMPLES)
def test_cut_off_anywhere(tmp_path, name):
    data = SAMPLES[name]
    for length in range(len(data)) if name in LIGHT else places(data, 30):
        tried(tmp_path, data[:length], name)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", SAMPLES)
def test_with_bits_flipped(tmp_path, name):
    chance = random.Random(23)
    data = SAMPLES[name].rstrip(b"\0")
    for _ in range(15):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        tried(tmp_path, bytes(broken), name)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", [*BINARY, "oracle-general"])
@pytest.mark.parametrize("word", [b"\xff" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\x80\0\0\0\0"])
def test_sizes_that_are_huge(tmp_path, name, word):
    data = SAMPLES[name]
    for at in places(data[:600], 20):
        tried(tmp_path, data[:at] + word + data[at + len(word) :], name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\0" * 65536, b"\xff" * 65536, b"[" * 100_000, b"[0]" * 50_000, b"1" * 100_000],
    ids=["empty", "newline", "zeros", "ones", "brackets", "cpus", "digits"],
)
def test_nonsense(tmp_path, name, data):
    tried(tmp_path, data, name)


@pytest.mark.parametrize(
    "line", ["0,0 0 1 0.0 1 R N []", "a 1 [0] 1.0: page_fault_user: address=0 ip=0 error_code=0"]
)
def test_many_lines_as_short_as_they_can_be(tmp_path, line):
    """Each makes a record that is longer than the line."""
    name = "blktrace" if line[0] == "0" else "perf-script"
    (tmp_path / "in").write_text(f"{line}\n" * 20_000)
    within_budget(import_file, tmp_path / "in", tmp_path / "out.trace", name)
    with Trace(tmp_path / "out.trace") as trace:
        [table] = {"block", "page_faults"} & set(trace.tables)
        assert trace.manifest["tables"][table]["rows"] == 20_000


_WORD = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from(
        ["nan", "[000]", "1.5:", "8,0", "+", "[x]", "block:block_bio_queue:", "W", "0x"]
    ),
    st.text(max_size=8),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=st.lists(st.lists(_WORD, max_size=12).map(" ".join), max_size=8))
@pytest.mark.parametrize("name", ["perf-script", "blktrace text"])
def test_lines_of_anything(tmp_path, name, lines):
    tried(tmp_path, "\n".join(lines).encode("utf-8", "surrogatepass"), name)
