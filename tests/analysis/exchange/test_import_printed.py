"""Facts of printed events that need care: architectures, losses, unknown names, remaps."""

import shutil

import pytest

from tests.support import foreign
from tracer.analysis.exchange.formats import import_file
from tracer.analysis.views.writing.flushes import flushes
from tracer.probes.errors import BadTrace, UsageError
from tracer.store.trace import Trace

FSYNC = """\
dd 5/5 [001] 10.600002: raw_syscalls:sys_enter: NR 74 (3, 0, 0, 0, 0, 0)
dd 5/5 [001] 10.600003: block:block_bio_queue: 8,0 WS 2448 + 8 [dd]
dd 5/5 [001] 10.600004: block:block_rq_issue: 8,0 WS 4096 () 2448 + 8 none,0,0 [dd]
dd 5/5 [001] 10.600903: block:block_rq_complete: 8,0 WS () 2448 + 8 none,0,0 [0]
dd 5/5 [001] 10.601003: raw_syscalls:sys_exit: NR 74 = 0
"""
FAULT = "dd 5/5 [001] 10.7: exceptions:page_fault_user: address=0x7f0 ip=0x40 error_code=0x6\n"
BIO = "dd 5/5 [001] 10.500000: block:block_bio_queue: 8,0 WS 2448 + 8 [dd]\n"


def imported(tmp_path, text, name="in.txt", format=None, arch=None):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    import_file(tmp_path / name, tmp_path / "out.trace", format, arch=arch)
    return Trace(tmp_path / "out.trace")


def rows(trace, query):
    return trace.connection.execute(query).fetchall()


class TestArchitecture:
    @pytest.mark.parametrize(("text", "table"), [(FSYNC, "syscalls"), (FAULT, "page_faults")])
    def test_its_absence_is_noted_with_the_mend(self, tmp_path, text, table):
        with imported(tmp_path, text) as trace:
            assert trace.manifest["tables"][table]["rows"] == 1
            (note,) = [n for n in trace.manifest["imported"]["notes"] if "architecture" in n]
        assert "perf script --header" in note
        assert "--arch" in note

    def test_a_text_without_calls_and_faults_needs_none(self, tmp_path):
        with imported(tmp_path, BIO) as trace:
            assert not [n for n in trace.manifest["imported"]["notes"] if "architecture" in n]

    def test_the_header_suffices(self, tmp_path):
        with imported(tmp_path, "# arch : x86_64\n" + FSYNC + FAULT) as trace:
            assert not [n for n in trace.manifest["imported"]["notes"] if "architecture" in n]

    def test_the_option_names_calls_faults_and_flushes(self, tmp_path):
        with imported(tmp_path, FSYNC + FAULT, arch="x86_64") as trace:
            assert rows(trace, "SELECT name FROM syscalls") == [("fsync",)]
            assert rows(trace, "SELECT access FROM page_faults") == [("write",)]
            assert not [n for n in trace.manifest["imported"]["notes"] if "architecture" in n]
            flushes(trace)
            assert rows(trace, "SELECT reason, certainty FROM flushes") == [("fsync", "exact")]

    def test_calls_of_another_architecture_have_its_names(self, tmp_path):
        """include/uapi/asm-generic/unistd.h: 82 is fsync, 74 is signalfd4."""
        text = FSYNC.replace("NR 74", "NR 82")
        with imported(tmp_path, text, arch="aarch64") as trace:
            assert rows(trace, "SELECT name FROM syscalls") == [("fsync",)]

    def test_trace_cmd_report_takes_the_option(self, tmp_path):
        text = "dd-5 [000] 10.000009: sys_enter: NR 1 (3, 7f00, 1000, 0, 0, 0)\n"
        text += "dd-5 [000] 10.000019: sys_exit: NR 1 = 4096\n"
        with imported(tmp_path, text, arch="x86_64") as trace:
            assert rows(trace, "SELECT name FROM syscalls") == [("write",)]

    @pytest.mark.parametrize(
        ("data", "arch", "said"),
        [
            (FSYNC, "vax", "vax"),
            ("# arch : aarch64\n" + FSYNC, "x86_64", "aarch64"),
            (foreign.trace_dat6({0: []}), "x86_64", "does not need"),
            (foreign.blk_io(1, 1, foreign.QUEUE), "x86_64", "does not need"),
            ("ts_ns,dev,page,pages,op\n1,8:0,0,1,R\n", "x86_64", "does not need"),
        ],
    )
    def test_the_option_is_refused_if_wrong_or_idle(self, tmp_path, data, arch, said):
        with pytest.raises(UsageError, match=said):
            imported(tmp_path, data, arch=arch)
        assert not list(tmp_path.glob("*.trace"))

    def test_the_command_takes_it(self, tmp_path, tracer):
        (tmp_path / "in.txt").write_text(FSYNC)
        tracer("import", tmp_path / "in.txt", "-o", tmp_path / "a.trace", "--arch", "x86_64")
        with Trace(tmp_path / "a.trace") as trace:
            assert rows(trace, "SELECT name FROM syscalls") == [("fsync",)]
        assert "perf script --header > run.txt" in tracer("import", "--help").out


class TestArguments:
    @pytest.mark.parametrize("head", ["dd 5/5 [001] {}: raw_syscalls:", "dd-5 [001] {}: "])
    def test_they_are_hexadecimal(self, tmp_path, head):
        text = head.format("1.0") + "sys_enter: NR 1 (3, 7f00, 1000, 0, 0, 0)\n"
        text += head.format("1.1") + "sys_exit: NR 1 = 4096\n"
        with imported(tmp_path, text, arch="x86_64") as trace:
            assert rows(trace, "SELECT fd, length FROM syscalls") == [(3, 0x1000)]

    def test_without_an_architecture_they_are_unknown(self, tmp_path):
        with imported(tmp_path, FSYNC) as trace:
            assert rows(trace, "SELECT fd, length FROM syscalls") == [(None, None)]

    def test_unreadable_ones_are_unknown(self, tmp_path):
        text = FSYNC.replace("(3, 0, 0, 0, 0, 0)", "(3, ...)")
        with imported(tmp_path, text, arch="x86_64") as trace:
            assert rows(trace, "SELECT name, fd FROM syscalls") == [("fsync", None)]


class TestLossesOfPerf:
    def test_lost_events_lie_between_two_events_of_the_cpu(self, tmp_path):
        lost = "perf 100/100 [001] 10.550000: PERF_RECORD_LOST lost 5\n"
        with imported(tmp_path, BIO + lost + FSYNC) as trace:
            assert rows(trace, 'SELECT cpu, "from", "to", count FROM loss') == [
                (1, 10_500_000_000, 10_550_000_000, 5)
            ]
            assert trace.manifest["loss"]["events"] == 5
            assert trace.manifest["imported"]["not_understood"] == {}

    @pytest.mark.parametrize(
        ("line", "count"),
        [
            ("perf 100/100 [001] 10.550000: PERF_RECORD_LOST_SAMPLES lost 7\n", 7),
            ("PERF_RECORD_LOST_SAMPLES lost 7\n", 7),
            ("perf 100 [001] 10.550000: PERF_RECORD_LOST_SAMPLES\n", None),
        ],
    )
    def test_lost_samples_may_lie_anywhere(self, tmp_path, line, count):
        with imported(tmp_path, BIO + line + FSYNC) as trace:
            assert rows(trace, 'SELECT cpu, "from", "to", count FROM loss') == [
                (-1, None, None, count)
            ]


class TestPlaceholders:
    def test_perf_s_number_of_a_thread_is_no_name(self, tmp_path):
        text = ":77 77/77 [001] 1.0: writeback:writeback_dirty_folio: bdi 8:0: ino=5 index=3\n"
        text += "x 8/8 [001] 1.1: block:block_bio_queue: 8,0 W 9 + 8 [:8]\n"
        with imported(tmp_path, text) as trace:
            assert rows(trace, "SELECT tid, comm FROM processes ORDER BY 1") == [
                (8, "x"), (77, None)]  # fmt: skip
            assert rows(trace, "SELECT comm FROM block") == [(None,)]

    def test_trace_cmd_s_dots_are_no_name(self, tmp_path):
        text = "<...>-1234 [000] 1.0: block_rq_issue: 8,0 W 4096 () 9 + 8 none,0,0 [<...>]\n"
        with imported(tmp_path, text) as trace:
            assert rows(trace, "SELECT tid, comm FROM processes") == [(1234, None)]
            assert rows(trace, "SELECT comm, sector FROM block") == [(None, 9)]

    def test_blkparse_s_null_is_no_name(self, tmp_path):
        text = "  8,0    1        1     0.000000150   200  Q  RA 9000 + 16 [(null)]\n"
        with imported(tmp_path, text) as trace:
            assert rows(trace, "SELECT tid, comm FROM processes") == [(200, None)]
            assert rows(trace, "SELECT comm, sector FROM block") == [(None, 9000)]

    def test_a_name_that_comes_later_is_kept(self, tmp_path):
        line = "{} 7/7 [001] 1.{}: block:block_bio_queue: 8,0 W 9 + 8 [x]\n"
        text = line.format(":7", 0) + line.format("dd", 1) + line.format(":7", 2)
        with imported(tmp_path, text) as trace:
            assert rows(trace, "SELECT tid, comm FROM processes") == [(7, "dd")]


class TestRemaps:
    QUERY = "SELECT event, dev, sector, nr_sector, from_dev, from_sector, comm FROM block"
    EXPECTED = ("remap", "8:0", 2448, 8, "8:1", 400)

    def test_perf_script(self, tmp_path):
        text = "x 1/1 [000] 1.0: block:block_bio_remap: 8,0 WS 2448 + 8 <- (8,1) 400\n"
        with imported(tmp_path, text) as trace:
            assert rows(trace, self.QUERY) == [(*self.EXPECTED, None)]

    def test_blkparse(self, tmp_path):
        text = "  8,0    0        7     0.000005000   100  A   W 2448 + 8 <- (8,1) 400\n"
        with imported(tmp_path, text) as trace:
            assert rows(trace, self.QUERY) == [(*self.EXPECTED, None)]

    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("cgroup", [b"", bytes(range(8))])
    def test_blktrace(self, tmp_path, named, cgroup):
        """struct blk_io_trace_remap: big-endian device_from, device_to, sector_from."""
        remap = foreign.blk_remap(8 << 20 | 1, 8 << 20, 400)
        data = foreign.blk_name(77, b"writer") if named else b""
        action = foreign.REMAP | (foreign.WITH_CGROUP if cgroup else 0)
        data += foreign.blk_io(5, 1, action, 2448, device=8 << 20, more=cgroup + remap)
        data += foreign.blk_io(6, 2, foreign.REMAP, 2448, device=8 << 20)
        with imported(tmp_path, data, "b.bin", "blktrace") as trace:
            assert rows(trace, self.QUERY + " ORDER BY ts") == [
                (*self.EXPECTED, "writer" if named else None),
                (*self.EXPECTED[:4], None, None, None),
            ]


class TestBlkparse:
    def test_errors_are_negative_as_in_the_binary_file(self, tmp_path):
        text = "  8,0    1        4     0.000003000     0  C  RA 9000 + 16 [65531]\n"
        with imported(tmp_path, text) as trace:
            assert rows(trace, "SELECT error FROM block") == [(-5,)]

    def test_passthrough_requests_have_sector_0_as_in_the_kernel_s_events(self, tmp_path):
        """blk_rq_trace_sector() and blk_rq_trace_nr_sectors() in include/linux/blktrace_api.h."""
        head = "  8,0    0       {}     0.00000610{}   100  "
        text = head.format(1, 1) + "D   R 36 (12 00 00 00 24 00 ..) [x]\n"
        text += head.format(2, 2) + "D   R 36 [x]\n"
        text += head.format(3, 3) + "C   R (12 00 00 00 24 00 ..) [65531]\n"
        with imported(tmp_path, text) as trace:
            query = "SELECT event, rwbs, sector, nr_sector, comm, error FROM block"
            assert rows(trace, query) == [
                ("issue", "R", 0, 0, "x", None),
                ("issue", "R", 0, 0, "x", None),
                ("complete", "R", 0, 0, None, -5),
            ]

    def test_a_number_beyond_64_bits_makes_no_flush(self, tmp_path):
        head = "  8,0    0        1     0.000006100   100  "
        text = head + "Q   W 8 + 8 [x]\n" + head + "Q   W 99999999999999999999 + 8 [x]\n"
        with imported(tmp_path, text) as trace:
            assert rows(trace, "SELECT sector FROM block") == [(8,)]
            assert trace.manifest["imported"]["not_understood"] == {"fields of Q": 1}


class TestFilesOfBlktrace:
    def test_the_named_file_may_be_empty(self, tmp_path):
        (tmp_path / "z.blktrace.1").write_bytes(foreign.blk_io(5, 1, foreign.QUEUE, 8, cpu=1))
        for format in (None, "blktrace"):
            with imported(tmp_path, b"", "z.blktrace.0", format) as trace:
                assert rows(trace, "SELECT cpu, sector FROM block") == [(1, 8)]
            shutil.rmtree(tmp_path / "out.trace")

    @pytest.mark.parametrize("format", [None, "blktrace"])
    def test_a_big_endian_file_is_told(self, tmp_path, format):
        data = (0x65617407).to_bytes(4, "big") + bytes(44)
        with pytest.raises(BadTrace, match="big-endian") as caught:
            imported(tmp_path, data, "be.blktrace.0", format)
        assert "blkparse" in str(caught.value.mend)
