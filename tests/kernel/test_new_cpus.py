"""A CPU that comes online during a recording: its events are lost, and the trace says so."""

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.support.backends import every_backend_of_calls
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.session import online
from tracer.store.trace import Trace

CALLS = 3001
CAUSE = "CPU came online during the recording"
LOAD = f"""
import os
for cpu in (0, 1):
    os.sched_setaffinity(0, [cpu])
    for _ in range({CALLS}): os.getppid()
os.write(1, b"r")
os.read(0, 1)
"""

pytestmark = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="this test needs CPUs 0 and 1"
)


def _only_cpu_0_at_first(path):
    # Hotplug is simulated: a CPU that was offline does not return to the cpusets of others.
    online._ONLINE = path


def _comes_online(cpus):
    # In place: a look must never find the empty file of a truncation.
    with cpus.open("r+") as file:
        file.write("0-1\n")


@pytest.fixture
def cpus(tmp_path):
    """The list of the online CPUs: CPU 0."""
    path = tmp_path / "online"
    path.write_text("0\n")
    return path


@every_backend_of_calls
@pytest.mark.parametrize("noticed", ["meanwhile", "at the end"])
def test_the_events_of_a_cpu_that_comes_online_are_a_loss(tmp_path, load, cpus, backend, noticed):
    options = ("--backend", backend, "-e", "syscalls", "-o", "x.trace", "-p")
    told = tmp_path / "x.trace/raw/new_cpus.jsonl"
    with subprocess.Popen(
        ["sh", "-c", 'read -r _ && exec "$@"', "sh", *load(LOAD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as job:
        before = partial(_only_cpu_0_at_first, cpus)
        with Tracer("record", *options, job.pid, cwd=tmp_path, before=before) as recorder:
            try:
                while "Tracing" not in recorder.stderr.readline():
                    assert recorder.poll() is None
                assert not told.exists()
                if noticed == "meanwhile":
                    _comes_online(cpus)
                    wait_for(told.exists, "the list of new CPUs")
                job.stdin.write(b"\n")
                job.stdin.flush()
                assert job.stdout.read(1) == b"r"
                _comes_online(cpus)
                job.stdin.close()
                assert recorder.wait(60) == 0
            finally:
                recorder.kill()
                job.kill()
    with Trace(tmp_path / "x.trace") as trace:
        calls = trace.rows("SELECT cpu, count(*) FROM syscalls WHERE name = 'getppid' GROUP BY 1")
        gaps = trace.rows('SELECT stream, cpu, "from", "to", count, cause FROM loss')
        start, end = (trace.manifest["clock"][which] for which in ("start_ns", "end_ns"))
        streams = {s["stream"] for s in trace.manifest["capture"]["streams"] if s["cpu"] == 0}
    assert dict(calls).get(0) == CALLS
    assert {gap[0] for gap in gaps} == {name.replace("cpu0", "cpu1") for name in streams}
    for _, cpu, begun, ended, count, cause in gaps:
        assert (cpu, ended, count, cause) == (1, None, None, CAUSE)
        assert start <= begun < end
    if backend != "ebpf":  # its rings take the events of all CPUs
        assert dict(calls) == {0: CALLS}


def test_cpus_that_stay_online_are_no_loss(record, load):
    assert record(load("import os\nos.getppid()"), "-e", "syscalls").rows("FROM loss") == []
    assert Path("/sys/devices/system/cpu/online") == online._ONLINE
