"""Traces of storage in the formats that are published, as rows of block."""

import struct

import pytest

from tracer.analysis.exchange.formats import import_file
from tracer.analysis.exchange.reading import TORN
from tracer.analysis.views.disks.requests import requests
from tracer.probes.errors import BadTrace, UsageError
from tracer.store.trace import Trace


def imported(tmp_path, text, name="in", format=None):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    import_file(tmp_path / name, tmp_path / "out.trace", format)
    return Trace(tmp_path / "out.trace")


def blocks(trace, columns="ts, event, dev, sector, nr_sector, rwbs"):
    return trace.connection.execute(f"SELECT {columns} FROM block").fetchall()


class TestMsr:
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_a_line_of_names_is_no_row(self, tmp_path, end):
        names = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"
        text = f"{names}{end}128166372003061629,usr,0,Write,4096,4096,1000{end}"
        with imported(tmp_path, text, "in.csv") as trace:
            assert trace.manifest["imported"]["format"] == "msr-csv"
            assert blocks(trace, "event, sector, nr_sector") == [
                ("bio_queue", 8, 8), ("issue", 8, 8), ("complete", 8, 8)]  # fmt: skip

    def test_a_bad_row_after_a_line_of_names_gets_the_message_of_this_format(self, tmp_path):
        names = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"
        with pytest.raises(BadTrace, match="row 1: a Type other than"):
            imported(tmp_path, f"{names}\n128166372003061629,usr,0,Trim,0,1,1\n", "in.csv")

    TEXT = (
        "128166372003061629,hm,0,Read,383496192,32768,413\n"
        "128166372016382155,hm,1,Write,310983680,4096,12000\n"
        "128166372016382200,hm,1,Write,511,2,1\n"
    )

    def test_a_request_has_issue_and_completion(self, tmp_path):
        with imported(tmp_path, self.TEXT, "hm_0.csv") as trace:
            assert trace.manifest["imported"]["format"] == "msr-csv"
            requests(trace)
            found = trace.connection.execute(
                "SELECT dev, sector, nr_sector, operation, issue_ns, service_latency_ns"
                " FROM requests ORDER BY issue_ns"
            ).fetchall()
            assert found == [
                ("0:1", 749016, 64, "read", 0, 41_300),
                ("0:2", 607390, 8, "write", 1_332_052_600, 1_200_000),
                ("0:2", 0, 2, "write", 1_332_057_100, 100),
            ]
            ts = [row[0] for row in blocks(trace)]
            assert ts == sorted(ts)
            names = {d["dev"]: d["name"] for d in trace.manifest["disks"]}
            assert names == {"0:1": "hm.0", "0:2": "hm.1"}
            start = (128166372003061629 - 116444736000000000) * 100
            assert trace.manifest["clock"]["realtime_offset_ns"] == start

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ("-1,hm,0,Read,0,1,1", "row 1: an invalid time"),
            ("5,hm,0,Erase,0,1,1", "row 1: a Type"),
            ("5,hm,0,Read,0,1,-1", "row 1: an invalid response"),
            ("5,hm,0,Read,0,9999999999999,1", "row 1: a request of more than"),
            ("5,hm,0,Read,18446744073709551615,1,1", "row 1: an offset"),
            ("5,hm,0,Read,18446744073709551616,1,1", "not a CSV"),
            ("5,hm,0,Read,-4,1,1", "not a CSV"),
            ("5,hm,0,Read,nan,1,1", "row 1: Offset is empty"),
            ("5,hm,0,Read", "not a CSV"),
            ("", "not a CSV|no rows"),
        ],
    )
    def test_rows_that_cannot_be(self, tmp_path, row, said):
        with pytest.raises(BadTrace, match=said):
            imported(tmp_path, row + "\n", format="msr-csv")
        assert not list(tmp_path.glob("*.trace"))


class TestOracleGeneral:
    def records(self, *rows):
        return b"".join(struct.pack("<IQIq", *row) for row in rows)

    def test_an_access_is_a_page(self, tmp_path):
        data = self.records((3, 7, 4096, 2), (3, 2**61, 99, -1), (9, 7, 4096, -1))
        with imported(tmp_path, data + b"torn", format="oracle-general") as trace:
            second = 10**9
            assert blocks(trace) == [
                (3 * second, "bio_queue", "0:1", 56, 8, "W"),
                (3 * second, "bio_queue", "0:1", 0, 8, "W"),
                (9 * second, "bio_queue", "0:1", 56, 8, "W"),
            ]
            said = trace.manifest["imported"]
            assert said["not_understood"] == {"bits above 2^61 of an object": 1}
            assert any("cut off" in note for note in said["notes"])

    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            ([], "no access"),
            ([(5, 1, 1, -1), (4, 1, 1, -1)], "access 2: time goes back"),
            ([(5, 1, 1, -2)], "access 1: an invalid next access"),
        ],
    )
    def test_accesses_that_cannot_be(self, tmp_path, rows, said):
        with pytest.raises(BadTrace, match=said):
            imported(tmp_path, self.records(*rows), format="oracle-general")

    def test_it_can_be_simulated(self, tmp_path, tracer):
        pages = [1, 2, 1, 3, 1, 2]
        rows = [(n, page, 4096, -1) for n, page in enumerate(pages)]
        imported(tmp_path, self.records(*rows), format="oracle-general").close()
        found = tracer("simulate", "out.trace", "--capacity-pages", "2", "--json").json
        assert (found["requests"], found["unique_pages"]) == (6, 3)


class TestFio:
    def test_version_3_has_times(self, tmp_path):
        text = (
            "fio version 3 iolog\n2 /dev/a add\n872 /dev/a open\n878 /dev/a write 0 16384\n"
            "888 b read 4096 512\n891 /dev/a datasync 0 0\n892 b trim 0 4096\n"
            "893 b wink 0 0\n10001677 /dev/a close\n"
        )
        with imported(tmp_path, text) as trace:
            assert blocks(trace) == [
                (878_000, "bio_queue", "0:1", 0, 32, "W"),
                (888_000, "bio_queue", "0:2", 8, 1, "R"),
                (891_000, "bio_queue", "0:1", 0, 0, "FF"),
                (892_000, "bio_queue", "0:2", 0, 8, "D"),
            ]
            assert trace.manifest["disks"][0] == {"name": "/dev/a", "dev": "0:1"}
            assert trace.manifest["imported"]["not_understood"] == {"wink": 1}

    def test_version_2_has_waits(self, tmp_path):
        text = "fio version 2 iolog\na add\na write 0 512\na wait 500 0\na write 512 512\n"
        with imported(tmp_path, text) as trace:
            assert [row[0] for row in blocks(trace)] == [0, 500_000]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("fio version 4 iolog\n", "not an iolog"),
            ("fio version 3 iolog\n", "no operation"),
            ("fio version 3 iolog\n5 a write 0\n", "line 2: no offset"),
            ("fio version 3 iolog\n5 a\n", "line 2: no action"),
            ("fio version 3 iolog\n-5 a write 0 1\n", "line 2: -5"),
            ("fio version 3 iolog\n5 a write 9223372036854775809 1\n", "line 2: 92233"),
            ("fio version 3 iolog\n5 a write 0 nan\n", "line 2: nan"),
            ("fio version 3 iolog\n5 a read 0 1\n4 a read 0 1\n", "time goes back"),
            ("fio version 3 iolog\n" + "x" * 10_000_000, "longer than"),
        ],
    )
    def test_lines_that_cannot_be(self, tmp_path, text, said):
        with pytest.raises(BadTrace, match=said):
            imported(tmp_path, text, format="fio-iolog")


class TestGuessing:
    @pytest.mark.parametrize("data", [b"", b"\0" * 100, b"hello\n", b"a,b,c\n1,2,3\n"])
    def test_a_format_that_the_file_does_not_show_must_be_given(self, tmp_path, data):
        with pytest.raises(UsageError, match="--format"):
            imported(tmp_path, data)

    def test_a_format_that_is_not_known(self, tmp_path):
        with pytest.raises(UsageError, match="oracle-general"):
            imported(tmp_path, b"x", format="lttng")

    def test_no_file_no_trace(self, tmp_path, tracer):
        tracer("import", "none", "-o", "x.trace", status=6)
        tracer("import", tmp_path, "-o", "x.trace", status=6)
        tracer("import", "/dev/zero", "-o", "x.trace", "--format", "msr-csv", status=6)


def test_force_replaces_a_trace_and_nothing_else(tmp_path, tracer):
    (tmp_path / "in").write_text("fio version 3 iolog\n5 a write 0 4096\n")
    tracer("import", "in", "-o", "x.trace")
    tracer("import", "in", "-o", "x.trace", status=2)
    tracer("import", "in", "-o", "x.trace", "--force")
    assert tracer("info", "x.trace", "--json").json["tables"]["block"]["rows"] == 1
    (tmp_path / "mine").mkdir()
    tracer("import", "in", "-o", "mine", "--force", status=2)
    (tmp_path / "in").write_text("fio version 3 iolog\n5 a write\n")
    tracer("import", "in", "-o", "x.trace", "--force", status=6)
    assert tracer("info", "x.trace", "--json").json["tables"]["block"]["rows"] == 1


MSR = "128166372003061629,hm,0,Read,383496192,32768,413\n"
FIO = "fio version 3 iolog\n5 /dev/sda write 0 4096\n"
PAGES = "ts_ns,dev,page,pages,op\n1000,8:0,5,2,W\n"
PERF = "  job 7 [000] 80692.292156969:  writeback:writeback_dirty_folio: bdi 7:0: ino={} index={}\n"


@pytest.mark.parametrize(
    ("whole", "torn", "table"),
    [
        (MSR, "128166372003061630,hm,0,Read,383496192,32768,41", "block"),
        (MSR, "128166372003061630,hm,0,Re", "block"),
        (FIO, "7 /dev/sda read 8192 51", "block"),
        (FIO, "7 /dev/s", "block"),
        (PAGES, "2000,8:0,5,", "block"),
        (PAGES, "2000,8:0", "block"),
        (PERF.format(11, 9), PERF.format(12, 345)[:-2], "dirty"),
        (PERF.format(11, 9), PERF.format(12, 345)[:40], "dirty"),
    ],
)
def test_a_line_that_is_cut_off_is_left_out_and_said(tmp_path, whole, torn, table):
    with imported(tmp_path, whole) as trace:
        rows = trace.connection.execute(f"SELECT * FROM {table}").fetchall()
        assert TORN not in trace.manifest["imported"]["notes"]
    (tmp_path / "torn").mkdir()
    with imported(tmp_path / "torn", whole + torn) as trace:
        assert trace.connection.execute(f"SELECT * FROM {table}").fetchall() == rows
        assert TORN in trace.manifest["imported"]["notes"]


def test_a_whole_row_of_pages_needs_no_end(tmp_path):
    with imported(tmp_path, PAGES + "2000,8:0,5,1,R") as trace:
        assert len(blocks(trace)) == 2
        assert TORN not in trace.manifest["imported"]["notes"]
