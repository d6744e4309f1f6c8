"""Page faults on a kernel whose tracepoints tell of none, as on AArch64: perf's events alone do."""

import contextlib
import mmap
import subprocess

import pytest

from tests.kernel.test_page_faults import MAJOR, PAGES, SOURCE
from tests.support.loads import PYTHON
from tests.support.losses import losses
from tracer.probes.events.page_faults import TRACEPOINTS
from tracer.probes.kernel import find_tracefs
from tracer.store.trace import Trace

FAULTS = """
import mmap
while True:
    with mmap.mmap(-1, 4096 * 101) as m:
        for page in range(101): m[page * 4096] = 1
"""


@pytest.fixture
def outsider():
    """The pid of a process that is no target, and faults all the time."""
    with subprocess.Popen([*PYTHON, "-c", FAULTS]) as process:
        yield process.pid
        process.kill()


# ftrace's instance has folders of its own for events, which cannot be hidden before it is made.
@pytest.mark.parametrize("backend", ["perf", "ebpf"])
def test_perf_tells_of_each_fault_of_the_targets(hidden, load, outsider, tmp_path, backend):
    path = tmp_path / "read.dat"
    command = load(SOURCE.format(minor=PAGES, major=MAJOR, path=path))
    ran = hidden(
        [f"mount --bind EMPTY {find_tracefs()}/events/exceptions"],
        *("record", "-o", "x.trace", "--backend", backend, "-e", "page_faults", "--", *command),
    )
    assert ran.status == 0, ran.err
    with contextlib.closing(Trace(tmp_path / "x.trace")) as trace:
        assert losses(trace) == []
        assert trace.manifest["capture"]["missing"]["page_faults"] == list(TRACEPOINTS)
        of_file = 'SELECT kind, access, "user", count(*), count(DISTINCT file_offset) '
        assert trace.rows(f"{of_file} FROM page_faults WHERE file = '{path}' GROUP BY ALL") == [
            ("major", None, True, MAJOR, MAJOR)
        ]
        anonymous = (
            'SELECT symbol, kind, access, "user", count(*) FROM page_faults '
            f"WHERE file = '[anon]' AND ip_file = '{mmap.__file__}' GROUP BY ALL"
        )
        assert trace.rows(anonymous) == [("mmap_ass_subscript", "minor", None, True, PAGES)]
        # The kernel itself faults where it writes to a program's memory.
        kinds = "SELECT DISTINCT kind, \"user\" FROM page_faults WHERE kind = 'minor' ORDER BY 2"
        assert trace.rows(kinds) == [("minor", False), ("minor", True)]
        assert trace.rows(f"SELECT count(*) FROM page_faults WHERE pid = {outsider}") == [(0,)]
        others = (
            "SELECT count(*) FROM page_faults f ANTI JOIN "
            "(FROM processes WHERE target IS NOT NULL) p USING (pid)"
        )
        assert trace.rows(others) == [(0,)]
