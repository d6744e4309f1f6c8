"""One load as several tools saw it: what they print of a file equals what our tables say of it.

fixtures/exchange holds what trace-cmd, perf and blktrace recorded of the same seconds of the same
device (fixtures/make_exchange.sh).
"""

import re
import shutil
import subprocess
from collections import Counter
from functools import cache

import pytest

from tests.conftest import ROOT
from tests.support import perfetto
from tracer.analysis.exchange.formats import import_file
from tracer.analysis.views.disks.requests import requests
from tracer.probes.catalogue import PROBES
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

FIXTURE = ROOT / "fixtures/exchange"
LABELS = {
    event.name.partition(":")[2]: (probe.table.name, event.label)
    for probe in PROBES.values()
    for event in probe.events
    if probe.name in ("block", "writeback", "dirty", "inode_writeback")
}
PAGE_EVENTS = {"writeback_dirty_page"}  # an older name of another event here


def need(tool, package):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed (apt-get install {package})")
    return tool


def printed(*command, cwd=None):
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd)
    return done.stdout


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Opens the trace of a fixture by its name; each is imported once."""
    folder = tmp_path_factory.mktemp("imported")
    made = {}

    def open_it(name):
        if name not in made:
            import_file(FIXTURE / name, folder / f"{name}.trace")
            made[name] = Trace(folder / f"{name}.trace")
        return made[name]

    yield open_it
    for trace in made.values():
        trace.close()


def counts(trace):
    """Our rows by the kernel's name of the event."""
    found = Counter()
    for name, (table, label) in LABELS.items():
        if table in trace.tables and name not in PAGE_EVENTS:
            query = f"SELECT count(*) FROM {table} WHERE event = ?"
            found[name] = trace.connection.execute(query, [label]).fetchone()[0]
    return +found


def counted(text):
    """Events in the text of trace-cmd report or perf script, by name."""
    return Counter(re.findall(r"\d\.\d+: +(?:\w+:)?(\w+):", text))


@cache
def reasons(text):
    return Counter(re.findall(r"writeback_start: .*reason=(\w+)", text))


@pytest.mark.parametrize("name", ["load.v6.dat", "load.v7.dat"])
def test_trace_dat_is_what_trace_cmd_report_prints_of_it(imported, name):
    text = printed(need("trace-cmd", "trace-cmd"), "report", "-t", "-i", str(FIXTURE / name))
    trace = imported(name)
    assert counts(trace) == counted(text)
    ours = trace.connection.execute(
        "SELECT ts, cpu, tid, sector, nr_sector FROM block WHERE event = 'bio_queue'"
    ).fetchall()
    pattern = r"-(\d+) +\[(\d+)\] +(\d+)\.(\d{9}): block_bio_queue: +\d+,\d+ \w+ (\d+) \+ (\d+)"
    theirs = [
        (int(f"{m[2]}{m[3]}"), int(m[1]), int(m[0]), int(m[4]), int(m[5]))
        for m in re.findall(pattern, text)
    ]
    assert ours == theirs


def test_the_text_of_trace_cmd_gives_the_tables_of_its_file(imported):
    text, binary = imported("load.trace-cmd.txt"), imported("load.v6.dat")
    for table in ("block", "writeback", "dirty"):
        columns = [c for c in binary.sql(f"SELECT * FROM {table} LIMIT 0") if c != "flags"]
        query = f"SELECT {', '.join(columns)} FROM {table}"
        same = text.connection.execute(query).fetchall()
        assert same == binary.connection.execute(query).fetchall()
        assert same


def test_perf_script_counts_reasons_and_requests(imported):
    text = (FIXTURE / "load.perf-script.txt").read_text()
    trace = imported("load.perf-script.txt")
    assert counts(trace) == counted(text)
    found = trace.connection.execute(
        "SELECT reason, count(*) FROM writeback WHERE event = 'start' GROUP BY 1"
    ).fetchall()
    assert Counter(dict(found)) == reasons(text)


def test_perf_and_trace_cmd_saw_the_same(imported):
    perf, dat = imported("load.perf-script.txt"), imported("load.v7.dat")
    for query in (
        "SELECT event, dev, sector, nr_sector, rwbs, tid FROM block ORDER BY ALL",
        "SELECT event, reason, bdi, nr_pages, sync_mode FROM writeback ORDER BY ALL",
        "SELECT event, dev, ino, index FROM dirty ORDER BY ALL",
    ):
        ours = [trace.connection.execute(query).fetchall() for trace in (perf, dat)]
        assert ours[0] == ours[1]
        assert ours[0]


def block_rows(trace):
    return trace.connection.execute(
        "SELECT event, sector, nr_sector, rwbs, tid FROM block ORDER BY ts"
    ).fetchall()


@pytest.mark.parametrize(
    "name",
    ["load.v6.dat", "load.perf-script.txt", "load.trace-cmd.txt", "load.blktrace.0"],
)
def test_reports_and_what_ifs_work_on_what_was_imported(tracer, tmp_path, name):
    tracer("import", FIXTURE / name, "-o", "x.trace")
    tables = tracer("report", "x.trace", "--json").json["tables"]
    assert {row["operation"]: row["requests"] for row in tables["block_latency"]} == {
        "write": 14,
        "flush": 5,
        "read": 4,
    }
    found = tracer("simulate", "x.trace", "--capacity-pages", "10", "--json").json
    assert (found["requests"], found["unique_pages"], found["disk_writes"]) == (75, 74, 65)
    tracer("export", "x.trace", "-o", "x.pftrace")
    drawn = perfetto.read(tmp_path / "x.pftrace")
    assert len(drawn.on(*drawn.named("requests in service"))) == 23


ACTIONS = {
    "Q": "bio_queue",
    "M": "backmerge",
    "F": "frontmerge",
    "I": "insert",
    "D": "issue",
    "C": "complete",
}


class TestBlktrace:
    def test_binary_files_are_what_blkparse_prints_of_them(self, imported):
        text = printed(
            need("blkparse", "blktrace"),
            "-q",
            "-i",
            str(FIXTURE / "load"),
            "-f",
            "%a %d %S %n %p\n",
        )
        theirs = Counter(
            (ACTIONS[a], d, int(s), int(n), int(p))
            for a, d, s, n, p in (
                line.split() for line in text.splitlines() if line.count(" ") == 4
            )
            if a in ACTIONS
        )
        trace = imported("load.blktrace.0")
        ours = Counter((e, r, s, n, p) for e, s, n, r, p in block_rows(trace))
        assert ours == theirs
        assert len(theirs) > 20

    def test_the_text_of_blkparse_gives_the_rows_of_the_files(self, imported):
        text, binary = imported("load.blkparse.txt"), imported("load.blktrace.0")
        assert block_rows(text) == block_rows(binary)

    def test_latencies_are_those_of_btt(self, imported, tmp_path):
        merged = str(tmp_path / "merged")
        printed(need("blkparse", "blktrace"), "-q", "-O", "-i", str(FIXTURE / "load"), "-d", merged)
        # It writes files of its own where it runs.
        text = printed(need("btt", "blktrace"), "-i", merged, cwd=tmp_path)
        # ALL  MIN  AVG  MAX  N, in seconds
        times = re.findall(r"^(\w2\w) +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)", text, re.MULTILINE)
        btt = {name: (*map(float, values[:3]), int(values[3])) for name, *values in times}
        trace = imported("load.blktrace.0")
        requests(trace)
        # btt counts each bio with the request that it went into.
        found = trace.connection.execute(
            """
            WITH bios AS (
                SELECT b.ts, min_by(r.issue_ns, r.issue_ns) AS issued,
                    min_by(r.complete_ns, r.issue_ns) AS done
                FROM block b JOIN requests r ON b.dev = r.dev AND r.issue_ns >= b.ts
                    AND b.sector >= r.sector AND b.sector < r.sector + r.nr_sector
                WHERE b.event = 'bio_queue' GROUP BY b.ts, b.sector
            ), spans AS (
                SELECT 'D2C' AS span, (done - issued) / 1e9 AS s FROM bios
                UNION ALL SELECT 'Q2C', (done - ts) / 1e9 FROM bios
            )
            SELECT span, min(s), avg(s), max(s), count(s) FROM spans GROUP BY 1
            """
        ).fetchall()
        for span, *ours in found:
            assert tuple(ours) == pytest.approx(btt[span], abs=1e-9)
        assert btt["D2C"][3] == 29

    def test_requests_are_those_that_trace_cmd_saw(self, imported):
        found = []
        for name in ("load.v7.dat", "load.blktrace.0"):
            trace = imported(name)
            requests(trace)
            found.append(
                trace.connection.execute(
                    "SELECT sector, nr_sector, operation FROM requests WHERE nr_sector > 0"
                    " ORDER BY ALL"
                ).fetchall()
            )
        assert found[0] == found[1]
        assert found[0]
