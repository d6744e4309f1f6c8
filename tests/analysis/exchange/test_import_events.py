"""Events that other tools have recorded or printed, as tables of ours."""

import pytest

from tests.support import foreign
from tests.support.pages import EXIT, NEWTASK, SYS_ENTER, SYS_EXIT, Page, enter, leave, newtask
from tracer.analysis.exchange.formats import import_file
from tracer.analysis.views.disks.requests import requests
from tracer.probes.errors import BadTrace
from tracer.store.trace import Trace

PERF = """\
# ========
# arch : x86_64
# ========
python  1234/1240  [001]  100.000001: raw_syscalls:sys_enter: NR 1 (3, 7f, 10, 0, 0, 0)
python  1234/1240  [001]  100.000031: raw_syscalls:sys_exit: NR 1 = -28
kworker/u8:2+flush  55/55 [000] 100.000100123:   writeback:writeback_start: bdi 8:0: sb_dev 0:0 \
nr_pages=1024 sync_mode=0 kupdate=1 range_cyclic=1 background=0 reason=periodic cgroup_ino=1
kworker/u8:2+flush  55/55 [000] 100.000150: block:block_bio_queue: 8,0 WM 2048 + 8 [kworker/u8:2]
kworker/u8:2+flush  55/55 [000] 100.000151: block:block_rq_issue: 8,0 WM 4096 () 2048 + 8 \
none,0,0 [kworker/u8:2]
  a b [7] 1.2: x  66/66 [003] 100.000161: block:block_rq_complete: 8,0 WM () 2048 + 8 none,0,0 [-5]
        ffffffff8112 some_function+0x1 ([kernel.kallsyms])

swapper 0/0 [000] 100.000170: sched:sched_switch: prev_comm=swapper/0 ==> next_comm=x
swapper 0/0 [000] 100.000171: block:block_rq_complete: as nobody prints it
this is no line of perf script
python  1234/1240  [001]  100.000180: exceptions:page_fault_user: \
address=0x7f0000001000 ip=0xffffffff81000000 error_code=0x6
"""


def imported(tmp_path, text, name="in.txt", format=None):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    import_file(tmp_path / name, tmp_path / "out.trace", format)
    return Trace(tmp_path / "out.trace")


class TestPerfScript:
    def test_lines_become_rows_of_our_tables(self, tmp_path):
        with imported(tmp_path, PERF) as trace:
            calls = trace.sql("SELECT ts, cpu, pid, tid, name, dur_ns, ret FROM syscalls")
            assert calls.values.tolist() == [[100_000_001_000, 1, 1234, 1240, "write", 30_000, -28]]
            blocks = trace.connection.execute(
                "SELECT ts, pid, comm, event, dev, sector, nr_sector, rwbs, error FROM block"
            ).fetchall()
            assert blocks == [
                (100_000_150_000, 55, "kworker/u8:2", "bio_queue", "8:0", 2048, 8, "WM", None),
                (100_000_151_000, 55, "kworker/u8:2", "issue", "8:0", 2048, 8, "WM", None),
                (100_000_161_000, 66, None, "complete", "8:0", 2048, 8, "WM", -5),
            ]
            work = trace.connection.execute(
                "SELECT ts, event, reason, bdi, dev, nr_pages, kupdate, background, cgroup_ino"
                " FROM writeback"
            ).fetchall()
            assert work == [
                (100_000_100_123, "start", "periodic", "8:0", "0:0", 1024, True, False, 1)
            ]
            fault = trace.connection.execute(
                "SELECT address, ip, kind, access, user FROM page_faults"
            ).fetchall()
            assert fault == [(0x7F0000001000, 0xFFFFFFFF81000000, "unknown", "write", True)]
            roles = trace.connection.execute(
                "SELECT tid, pid, comm, role FROM processes ORDER BY 1"
            )
            assert roles.fetchall() == [
                (55, 55, "kworker/u8:2+flush", "flusher"),
                (66, 66, "a b [7] 1.2: x", "other"),
                (1240, 1234, "python", "other"),
            ]
            assert "dirty" not in trace.tables

    def test_events_that_make_no_row_are_counted(self, tmp_path):
        with imported(tmp_path, PERF) as trace:
            said = trace.manifest["imported"]
        assert said["not_understood"] == {
            "lines": 1,
            "event sched_switch": 1,
            "fields of block_rq_complete": 1,
        }
        assert any("this is no line" in note for note in said["notes"])
        assert any("1 lines of call stacks" in note for note in said["notes"])
        assert trace.manifest["clock"]["start_ns"] == 100_000_001_000

    def test_an_old_kernel_without_cgroups_says_nothing_of_them(self, tmp_path):
        line = PERF.splitlines()[5].replace(" cgroup_ino=1", "")
        with imported(tmp_path, line + "\n") as trace:
            found = trace.connection.execute("SELECT reason, cgroup_ino FROM writeback").fetchall()
        assert found == [("periodic", None)]

    def test_a_line_that_is_longer_than_any_is_passed_over(self, tmp_path):
        lines = PERF.splitlines(keepends=True)
        text = lines[6] + "x" * 20_000_000 + "\n" + lines[6]
        with imported(tmp_path, text, format="perf-script") as trace:
            assert trace.manifest["tables"]["block"]["rows"] == 2
            assert trace.manifest["imported"]["not_understood"] == {"lines": 1}

    @pytest.mark.parametrize(
        "text", ["", "\n\n", "no event\n", "x 1 [000] 1.0: sched:sched_switch: y\n", "\0" * 5000]
    )
    def test_without_an_event_of_ours(self, tmp_path, text):
        with pytest.raises(BadTrace, match=r"no line that is an event|no events that"):
            imported(tmp_path, text, format="perf-script")
        assert not list(tmp_path.glob("*.trace"))
        assert not list(tmp_path.glob(".*"))

    @pytest.mark.parametrize(
        "fields",
        [
            "8,0 W 18446744073709551616 + 8 [x]",
            "8,0 W nan + 8 [x]",
            "8,0 W 1e9 + 8 [x]",
            "99999,0 W 1 + 8 [x]",
            "8,0 W 1 + 99999999999999999999 [x]",
            "8,0 W 1 + 8 [x",
            "8,0 W 1",
            "8,0",
            "",
        ],
    )
    def test_numbers_that_cannot_be(self, tmp_path, fields):
        good = PERF.splitlines(keepends=True)[6]
        bad = f"x 1 [000] 1.0: block:block_bio_queue: {fields}\n"
        with imported(tmp_path, good + bad) as trace:
            assert trace.manifest["tables"]["block"]["rows"] == 1
            assert trace.manifest["imported"]["not_understood"] == {"fields of block_bio_queue": 1}

    def test_the_largest_sector_is_kept(self, tmp_path):
        line = "x 1 [000] 1.0: block:block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]\n"
        with imported(tmp_path, line) as trace:
            assert trace.connection.execute("SELECT sector FROM block").fetchall() == [(2**64 - 1,)]


class TestTraceCmdReport:
    TEXT = """\
cpus=2
CPU 1 is empty
          <idle>-0     [000]    10.000100: block_rq_issue:       7,1 WS 4096 () 64 + 8 [jbd2/x-8]
CPU:0 [23 EVENTS DROPPED]
  some-name-77 (   70) [000] d..1.  10.000200: block_rq_complete:    7,1 WS () 64 + 8 [0]
buffer:          a name-78    [001]    10.000300: block_rq_issue:       7,1 R 4096 () 8 + 8 [x]
"""

    def test_the_same_rows_and_where_events_are_lost(self, tmp_path):
        with imported(tmp_path, self.TEXT) as trace:
            requests(trace)
            found = trace.connection.execute(
                "SELECT dev, sector, issue_ns, service_latency_ns, comm FROM requests"
            ).fetchall()
            assert found == [
                ("7:1", 64, 10_000_100_000, 100_000, "jbd2/x-8"),
                ("7:1", 8, 10_000_300_000, None, "x"),
            ]
            assert trace.connection.execute(
                'SELECT cpu, "from", "to", count FROM loss'
            ).fetchall() == [(0, 10_000_100_000, 10_000_200_000, 23)]
            names = trace.connection.execute(
                "SELECT pid, comm FROM processes WHERE tid = 77"
            ).fetchall()
            assert names == [(70, "some-name")]
            names = trace.connection.execute("SELECT comm FROM processes WHERE tid = 78").fetchall()
            assert names == [("a name",)]
            assert trace.manifest["loss"]["events"] == 23
            assert trace.manifest["imported"]["format"] == "trace-cmd"


PAGES = {
    0: [
        Page(1000).event(1000, foreign.bio_queue(77, 64, 8)).bytes(),
        Page(5000).missed(7).event(6000, foreign.bio_queue(77, 72, 16)).bytes(),
    ],
    1: [Page(2000).event(3000, foreign.bio_queue(78, 800, 8, b"R")).bytes()],
}


class TestTraceDat:
    @pytest.mark.parametrize(
        "data",
        [
            foreign.trace_dat6(PAGES),
            *(foreign.trace_dat7(PAGES, kind) for kind in ("none", "zlib", "zstd")),
        ],
        ids=["6", "7", "7 zlib", "7 zstd"],
    )
    def test_pages_are_decoded_by_our_own_decoder(self, tmp_path, data):
        with imported(tmp_path, data) as trace:
            found = trace.connection.execute(
                "SELECT ts, cpu, tid, comm, event, dev, sector, nr_sector, rwbs FROM block"
            ).fetchall()
            assert found == [
                (1000, 0, 77, "writer", "bio_queue", "7:0", 64, 8, "W"),
                (3000, 1, 78, "writer", "bio_queue", "7:0", 800, 8, "R"),
                (6000, 0, 77, "writer", "bio_queue", "7:0", 72, 16, "W"),
            ]
            assert trace.connection.execute(
                'SELECT cpu, "from", "to", count, cause FROM loss'
            ).fetchall() == [(0, 1000, 5000, 7, "buffer overrun")]
            assert trace.manifest["clock"]["name"] == "mono"
            assert trace.tables == ["block", "processes", "loss"]
            assert not (trace.folder / "raw").exists()

    def test_calls_are_paired_and_threads_resolved(self, tmp_path):
        formats = {
            "raw_syscalls": [SYS_ENTER, SYS_EXIT],
            "task": [NEWTASK],
            "sched": [EXIT],
        }
        page = Page(100)
        page.event(100, newtask(70, 71, b"thread", 0x10000))
        page.event(200, enter(71, 1)).event(260, leave(71, 1, 5))
        data = foreign.trace_dat6({0: [page.bytes()]}, formats)
        with imported(tmp_path, data) as trace:
            found = trace.connection.execute("SELECT pid, tid, name, dur_ns, ret FROM syscalls")
            assert found.fetchall() == [(70, 71, "write", 60, 5)]

    def test_events_that_the_kernel_lost_are_counted(self, tmp_path):
        stats = ("CPU: 0\nentries: 0\noverrun: 9\ncommit overrun: 0\ndropped events: 0\n",)
        with imported(tmp_path, foreign.trace_dat6(PAGES, stats=stats)) as trace:
            assert trace.manifest["loss"]["events"] == 9

    def test_cut_off_within_its_pages_gives_what_is_there(self, tmp_path):
        data = foreign.trace_dat6(PAGES)[:-6000]
        with imported(tmp_path, data) as trace:
            assert trace.manifest["tables"]["block"]["rows"] == 1
            assert any("cut off" in note for note in trace.manifest["imported"]["notes"])
            causes = trace.connection.execute("SELECT cause FROM loss").fetchall()
            assert causes == [("torn end",)]

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b"\x17\x08\x44tracing6\0\1\x08\0\x10\0\0", "big-endian"),
            (b"\x17\x08\x44tracing8\0\0\x08\0\x10\0\0", "version 8"),
            (b"\x17\x08\x44tracing7\0\0\x08\0\x10\0\0lzma\x001\0", "compressed by lzma"),
            (b"\x17\x08\x44tracing", "cut off"),
            (b"\x17\x08\x44tracing" + b"9" * 5000, "cut off"),
            (foreign.trace_dat6({0: []}), "no pages"),
            (foreign.trace_dat7({0: [bytes(48 << 20)] * 2}, "zstd"), "more pages than is possible"),
            (foreign.trace_dat6(PAGES, {"sched": [EXIT]}), "no events that"),
        ],
    )
    def test_an_unreadable_file_is_refused_and_leaves_no_trace(self, tmp_path, data, said):
        with pytest.raises(BadTrace, match=said):
            imported(tmp_path, data, format="trace-cmd")
        assert not list(tmp_path.glob("*.trace"))


CPU0 = (
    foreign.blk_time(900, 1_700_000_000, 5)
    + foreign.blk_name(77, b"writer")
    + foreign.blk_io(1000, 1, foreign.QUEUE, 64, classes=foreign.WRITE | foreign.SYNC)
    + foreign.blk_io(1100, 2, foreign.SPLIT, 64)
    + foreign.blk_io(1200, 3, foreign.ISSUE, 64, classes=foreign.WRITE | foreign.SYNC)
    + foreign.blk_io(1500, 7, foreign.QUEUE, 0, 0, foreign.FLUSH, tid=78)
)
CPU1 = foreign.blk_io(1300, 1, foreign.COMPLETE, 64, error=-5, cpu=1, tid=0)


class TestBlktrace:
    def test_all_cpus_in_order_of_time(self, tmp_path):
        (tmp_path / "sda.blktrace.0").write_bytes(CPU0)
        (tmp_path / "sda.blktrace.1").write_bytes(CPU1)
        (tmp_path / "sdb.blktrace.1").write_bytes(b"another")
        import_file(tmp_path / "sda.blktrace.0", tmp_path / "out.trace")
        with Trace(tmp_path / "out.trace") as trace:
            found = trace.connection.execute(
                "SELECT ts, cpu, tid, comm, event, dev, sector, nr_sector, rwbs, error FROM block"
            ).fetchall()
            assert found == [
                (1000, 0, 77, "writer", "bio_queue", "7:0", 64, 8, "WS", None),
                (1200, 0, 77, "writer", "issue", "7:0", 64, 8, "WS", None),
                (1300, 1, 0, None, "complete", "7:0", 64, 8, "W", -5),
                (1500, 0, 78, None, "bio_queue", "7:0", 0, 0, "FN", None),
            ]
            assert trace.manifest["clock"]["realtime_offset_ns"] == 1_700_000_000 * 10**9 + 5 - 900
            assert trace.manifest["imported"]["not_understood"] == {"event split": 1}
            lost = trace.connection.execute('SELECT cpu, "from", "to", count FROM loss').fetchall()
            assert lost == [(0, 1200, 1500, 3)]

    @pytest.mark.parametrize("cpus", [(0, 1), (1, 0)])
    def test_the_name_of_a_thread_may_be_in_the_file_of_another_cpu(self, tmp_path, cpus):
        bios = [foreign.blk_io(ts, n, foreign.QUEUE, 8 * n, tid=tid)
                for n, (ts, tid) in enumerate(((5, 77), (20, 77), (40, 77), (50, 78)))]  # fmt: skip
        names = foreign.blk_name(77, b"first", 10) + foreign.blk_name(77, b"second", 30)
        names += foreign.blk_io(45, 1, foreign.QUEUE, 64, tid=77, cpu=1)
        for cpu, data in zip(cpus, (b"".join(bios), names), strict=True):
            (tmp_path / f"sda.blktrace.{cpu}").write_bytes(data)
        import_file(tmp_path / "sda.blktrace.0", tmp_path / "out.trace")
        with Trace(tmp_path / "out.trace") as trace:
            found = trace.connection.execute("SELECT ts, comm FROM block").fetchall()
            listed = trace.connection.execute("SELECT tid, comm FROM processes").fetchall()
        named = {5: "first", 20: "first", 40: "second", 45: "second", 50: None}
        assert dict(found) == named
        assert (77, "second") in listed

    def test_cut_off_and_damaged_files_give_what_lies_before(self, tmp_path):
        with imported(tmp_path, CPU0[:-20], "a.bin", "blktrace") as trace:
            assert trace.manifest["tables"]["block"]["rows"] == 2
            assert any("cut off" in n for n in trace.manifest["imported"]["notes"])
        (tmp_path / "b.bin").write_bytes(CPU0 + b"\xee" * 5000)
        import_file(tmp_path / "b.bin", tmp_path / "b.trace", "blktrace")
        with Trace(tmp_path / "b.trace") as trace:
            assert trace.manifest["tables"]["block"]["rows"] == 3
            assert any("damaged" in n for n in trace.manifest["imported"]["notes"])

    TEXT = """\
  7,0    1        1     0.000000000    77  Q  WS 64 + 8 [writer]
  7,0    1        2     0.000000500    77  G  WS 64 + 8 [writer]
  7,0    1        3     0.000001000    77  D  WS 64 + 8 [writer]
  7,0    0        1     0.000005000     0  C  WS 64 + 8 [0]
  7,0    1        4     0.000006000    78  Q FWS [jbd2/loop0-8]
CPU0 (7,0):
 Reads Queued:           0,        0KiB\t Writes Queued:           1,        4KiB
"""

    def test_blkparse_text(self, tmp_path):
        with imported(tmp_path, self.TEXT) as trace:
            found = trace.connection.execute(
                "SELECT ts, cpu, tid, comm, event, dev, sector, nr_sector, rwbs, error FROM block"
            ).fetchall()
            assert found == [
                (0, 1, 77, "writer", "bio_queue", "7:0", 64, 8, "WS", None),
                (1000, 1, 77, "writer", "issue", "7:0", 64, 8, "WS", None),
                (5000, 0, 0, None, "complete", "7:0", 64, 8, "WS", 0),
                (6000, 1, 78, "jbd2/loop0-8", "bio_queue", "7:0", 0, 0, "FWS", None),
            ]
            assert trace.manifest["imported"]["not_understood"] == {"event G": 1}
            assert trace.manifest["imported"]["format"] == "blktrace"
