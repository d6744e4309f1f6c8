"""Samples become folded stacks, and no name can make itself into what it is not."""

from collections.abc import Sequence

import pytest

from tests.support.perf_stream import DUMMY, KERNEL, USER, PerfStream
from tracer.probes.backends.perf_tools import stacks
from tracer.probes.backends.perf_tools.stacks import CallGraphs, Place
from tracer.probes.symbols.kernel import kernel_symbols
from tracer.probes.symbols.mappings import MappedFile

BASE = 0xFFFFFFFF81000000
KALLSYMS = b"""\
ffffffff81000000 T _text
ffffffff81000100 T do_fsync
ffffffff81000200 t ext4_fsync.isra.0
ffffffff81000300 T submit_bio
ffffffff81000400 t __traceiter_block_rq_insert
ffffffff81000500 D some_data
ffffffffc0000000 t of_a_module\t[ext4]
"""
FSYNC, EXT4, SUBMIT, TRACER, DATA = (BASE + 0x110 + 0x100 * n for n in range(5))


def stream():
    made = PerfStream().event("block:block_rq_insert", 7, 8)
    made.event("dummy:HG", 9, 10, sample_type=DUMMY)
    return made


def kernel(tmp_path):
    (tmp_path / "kallsyms").write_bytes(KALLSYMS)
    return kernel_symbols(tmp_path / "kallsyms")


def fold(made, tmp_path, **options):
    """{(comm, pid, stack): count}, every batch added up."""
    made.write(tmp_path / "perf.data")
    gaps = []
    source = CallGraphs(tmp_path / "perf.data", kernel(tmp_path), **options)
    found = {}
    for batch in source.read(gaps):
        for row in batch.to_pylist():
            assert row.pop("event") == "block:block_rq_insert"
            key = (row["comm"], row["pid"], row["stack"])
            found[key] = found.get(key, 0) + row["count"]
    return found


def test_a_stack_begins_at_its_root_and_ends_at_the_event(tmp_path):
    made = stream().comm(0, 100, b"python3")
    made.mapping(0, 100, 0x1000, 0x1000, b"/usr/lib/libc.so.6")
    for time in range(23):
        made.sample(time, [KERNEL, TRACER, SUBMIT, EXT4, FSYNC, USER, 0x1010, 0x9999])
    assert fold(made, tmp_path) == {
        (
            "python3",
            100,
            "[unknown];[libc.so.6];do_fsync_[k];ext4_fsync.isra.0_[k];submit_bio_[k]",
        ): 23
    }


def test_kernel_addresses_that_no_function_has(tmp_path):
    made = stream().sample(1, [KERNEL, DATA, 0xFFFFFFFFC0000010, BASE - 1, 0xFFFFFFFFC0002000])
    assert list(fold(made, tmp_path)) == [
        (None, 100, "[unknown]_[k];[unknown]_[k];of_a_module_[k];[unknown]_[k]")
    ]


def test_names_follow_execs_renames_forks_and_threads(tmp_path):
    made = stream().comm(0, 100, b"sh")
    made.fork(1, 100, 101).sample(2, [], pid=101)
    made.comm(3, 101, b"dd", exec=True).sample(4, [], pid=101).sample(5, [])
    made.comm(6, 170, b"worker", pid=101).sample(7, [], pid=101, tid=170)
    made.sample(8, [], pid=999)
    assert fold(made, tmp_path) == {
        ("sh", 101, "[unknown]"): 1,
        ("dd", 101, "[unknown]"): 1,
        ("sh", 100, "[unknown]"): 1,
        ("worker", 101, "[unknown]"): 1,
        (None, 999, "[unknown]"): 1,
    }


def test_files_follow_mappings_forks_and_execs(tmp_path):
    chain = [USER, 0x5010]
    made = stream().mapping(0, 100, 0x5000, 0x1000, b"/bin/sh").fork(1, 100, 101)
    made.sample(2, chain, pid=101).mapping(3, 101, 0x5000, 0x1000, b"/lib/over.so")
    made.sample(4, chain, pid=101).sample(5, chain).comm(6, 101, b"dd", exec=True)
    made.sample(7, chain, pid=101).exit(8, 100).sample(9, chain)
    assert fold(made, tmp_path) == {
        (None, 101, "[sh]"): 1,
        (None, 101, "[over.so]"): 1,
        (None, 100, "[sh]"): 2,
        ("dd", 101, "[unknown]"): 1,
    }


def test_a_name_of_user_mode_is_asked_for_once_by_file_and_offset(tmp_path):
    asked = []

    def resolve(places: Sequence[Place]) -> list[str | None]:
        asked.extend((place.file, place.offset, place.pid, place.address) for place in places)
        return ["main" if place.offset == 0x3010 else None for place in places]

    made = stream().mapping(0, 100, 0x5000, 0x1000, b"/bin/job", 0x3000)
    made.mapping(0, 101, 0x7000, 0x1000, b"/bin/job", 0x3000)
    for time in range(1, 24):
        made.sample(time, [USER, 0x5010, 0x5020]).sample(time, [USER, 0x7010], pid=101)
    assert fold(made, tmp_path, resolve=resolve) == {
        (None, 100, "[job];main"): 23,
        (None, 101, "main"): 23,
    }
    file = MappedFile("/bin/job", (8, 1), 5)
    assert asked == [(file, 0x3010, 100, 0x5010), (file, 0x3020, 100, 0x5020)]


def test_code_of_a_jit_is_each_processs_own(tmp_path):
    def resolve(places: Sequence[Place]) -> list[str | None]:
        assert {place.file.path for place in places} == {"[anon]"}
        return [f"jit-{place.pid}-{place.address:x}" for place in places]

    made = stream()
    for pid in (100, 101):
        made.mapping(0, pid, 0x5000, 0x1000, b"//anon").sample(1, [USER, 0x5010], pid=pid)
    assert set(fold(made, tmp_path, resolve=resolve)) == {
        (None, 100, "jit-100-5010"),
        (None, 101, "jit-101-5010"),
    }


def test_the_recorder_and_perf_are_left_out(tmp_path):
    made = stream().sample(1, [], pid=50).sample(2, [], pid=51, tid=52).sample(3, [], pid=53)
    assert fold(made, tmp_path, leave_out={50, 51}) == {(None, 53, "[unknown]"): 1}


class TestHostileNames:
    """Hostile names of processes, files and functions: each becomes one frame of user mode."""

    def test_a_thread_name_that_looks_like_a_sample(self, tmp_path):
        name = b"x 1/1 1.0: blo\n"
        made = stream().comm(0, 100, name).sample(1, [KERNEL, FSYNC])
        assert fold(made, tmp_path) == {(name.decode(), 100, "do_fsync_[k]"): 1}

    def test_a_name_that_is_no_text(self, tmp_path):
        made = stream().comm(0, 100, b"a\xff\x01;\\").sample(1, [])
        assert list(fold(made, tmp_path)) == [("a\\xff\x01;\\", 100, "[unknown]")]

    @pytest.mark.parametrize(
        ("path", "frame"),
        [
            (b"/tmp/x];wb_workfn_[k];[y", "[x]\\x3bwb_workfn_[k]\\x3b[y]"),
            (b"/tmp/a\n\nb", "[a\\x0a\\x0ab]"),
            (b"/tmp/\xff\x1b[31m", "[\\x5cxff\\x1b[31m]"),
            (b"[vdso]", "[vdso]"),
            (b"[kernel.kallsyms]", "[kernel.kallsyms]"),
            (b"", "[unknown]"),
            (b"//anon", "[anon]"),
        ],
    )
    def test_a_files_name(self, tmp_path, path, frame):
        made = stream().mapping(0, 100, 0x5000, 0x1000, path).sample(1, [USER, 0x5010])
        assert list(fold(made, tmp_path)) == [(None, 100, frame)]

    @pytest.mark.parametrize(
        ("symbol", "frame"),
        [
            ("wb_workfn_[k]", "wb_workfn\\x5f[k]"),
            ("a;wb_workfn_[k]", "a\\x3bwb_workfn\\x5f[k]"),
            ("operator;", "operator\\x3b"),
            ("", "[f]"),
        ],
    )
    def test_a_functions_name(self, tmp_path, symbol, frame):
        made = stream().mapping(0, 100, 0x5000, 0x1000, b"/f").sample(1, [USER, 0x5010])
        assert list(fold(made, tmp_path, resolve=lambda places: [symbol] * len(places))) == [
            (None, 100, frame)
        ]

    def test_return_addresses_that_lead_into_the_kernel(self, tmp_path):
        """perf itself believes them: it takes such an address for the switch that it looks like."""
        made = stream().sample(1, [KERNEL, FSYNC, USER, 0x5010, KERNEL, SUBMIT, EXT4])
        assert list(fold(made, tmp_path)) == [
            (None, 100, "[unknown];[unknown];[unknown];do_fsync_[k]")
        ]

    @pytest.mark.parametrize("chain", [[KERNEL, FSYNC, USER, SUBMIT], [KERNEL, FSYNC, 8, SUBMIT]])
    def test_addresses_after_the_first_user_frame_are_no_kernel_functions(self, tmp_path, chain):
        ((_, _, stack),) = fold(stream().sample(1, chain), tmp_path)
        assert stack.replace("[unknown];", "") == "do_fsync_[k]"


def test_deep_stacks_are_cut_at_the_root(tmp_path):
    made = stream().sample(1, [KERNEL, *[SUBMIT] * 500]).sample(2, [KERNEL, *[SUBMIT] * 127])
    deep, exact = (stack.split(";") for _, _, stack in fold(made, tmp_path))
    assert (len(deep), deep[0], deep[1]) == (128, "[truncated]", "submit_bio_[k]")
    assert (len(exact), exact[0]) == (127, "submit_bio_[k]")


def test_a_chain_longer_than_its_record_is_what_the_record_holds(tmp_path):
    made = stream().sample(1, [KERNEL, FSYNC], raw=b"")
    at = made.data.index((2).to_bytes(8, "little") + KERNEL.to_bytes(8, "little"))
    made.data = made.data[:at] + (1 << 60).to_bytes(8, "little") + made.data[at + 8 :]
    ((_, _, stack),) = fold(made, tmp_path)
    assert stack.endswith("do_fsync_[k]")


@pytest.mark.parametrize(("limit", "most"), [("_MOST_COUNTS", 15), ("_MOST_TEXT", 300)])
def test_stacks_handed_on_in_parts_add_up(tmp_path, monkeypatch, limit, most):
    monkeypatch.setattr(stacks, limit, most)
    made = stream()
    for time in range(2003):
        made.sample(time, [KERNEL, FSYNC], pid=time % 101)
    made.write(tmp_path / "perf.data")
    source = CallGraphs(tmp_path / "perf.data", kernel(tmp_path))
    batches = [batch.num_rows for batch in source.read([])]
    assert len(batches) > 20
    assert max(batches) < 20
    assert sum(fold(made, tmp_path).values()) == 2003
    assert len(fold(made, tmp_path)) == 101


def test_a_pid_of_another_namespace_is_null(tmp_path):
    made = stream().sample(1, [], pid=(1 << 32) - 1)
    assert list(fold(made, tmp_path)) == [(None, None, "[unknown]")]


def test_any_byte_changed_raises_nothing(tmp_path):
    made = stream().comm(1, 100, b"x").mapping(1, 100, 4096, 4096, b"/f")
    made.fork(2, 100, 101).sample(3, [KERNEL, FSYNC, USER, 4100]).lost(4, 1).lost_samples(7, 1)
    whole = made.round().sample(9, [], pid=101).data
    symbols = kernel(tmp_path)
    for at in range(16, len(whole), 2):
        for value in (b"\0", b"\xff"):
            made.data = whole[:at] + value + whole[at + 1 :]
            made.write(tmp_path / "perf.data")
            rows = CallGraphs(tmp_path / "perf.data", symbols).read([])
            assert sum(sum(batch["count"].to_pylist()) for batch in rows) <= 2
