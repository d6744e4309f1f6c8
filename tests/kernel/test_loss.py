"""Lost events are counted and placed in time: a tiny buffer, and a drain that stands still."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.backends import every_backend_of_calls
from tests.support.warm import Tracer
from tracer.store import manifest as manifests
from tracer.store.finalize import raw_streams
from tracer.store.trace import Trace

pytestmark = pytest.mark.quiet

CALLS = 200_003
NUDGES = 10

# On one CPU, so that what is written after a gap is seen to be after it.
LOAD = f"""
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
os.write(1, b"r")
os.read(0, 1)
for _ in range({CALLS}): os.getppid()
while True:
    os.read(0, 1)
    os.write(1, b"n")
"""


def received(folder, tid):
    """System call events in the raw streams of scope target: what no row tells exactly."""
    manifest = manifests.read(folder)
    formats, streams = raw_streams(folder, manifest)
    ids = [formats[f"raw_syscalls:sys_{which}"].id for which in ("enter", "exit")]
    total = 0
    for stream in streams:
        if "target" in stream.name and stream.units:
            batch = stream.decode(stream.units)
            total += int((np.isin(batch.type, ids) & (batch.tid == tid)).sum())
        stream.close()
    return total


@every_backend_of_calls
def test_received_and_lost_make_generated_and_the_gap_is_where_it_was(tmp_path, backend):
    folder = tmp_path / "x.trace"
    load = [sys._base_executable, "-S", "-E", "-c", LOAD]
    with subprocess.Popen(load, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert os.read(process.stdout.fileno(), 1) == b"r"
        options = ("--backend", backend, "-b", "64K", "-e", "syscalls", "--fail-on-loss")
        with Tracer("record", *options, "-o", folder, "-p", process.pid) as recorder:
            while "Tracing" not in recorder.stderr.readline():
                assert recorder.poll() is None
            begun = time.monotonic_ns()
            time.sleep(0.5)
            os.kill(recorder.pid, signal.SIGSTOP)
            os.write(process.stdin.fileno(), b"g")
            wait_until_it_sleeps(process.pid)
            os.kill(recorder.pid, signal.SIGCONT)
            for _ in range(NUDGES):
                time.sleep(0.1)
                os.write(process.stdin.fileno(), b"n")
                assert os.read(process.stdout.fileno(), 1) == b"n"
            ended = time.monotonic_ns()
            wait_until_it_sleeps(process.pid)
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(60) == 7
            stopped = time.monotonic_ns()
            assert "events were lost" in recorder.stderr.read()
        process.kill()
    with Trace(folder) as trace:
        gaps = trace.connection.execute(
            'SELECT "from", "to", count FROM loss WHERE stream LIKE \'%target%\''
        ).fetchall()
        everywhere = trace.connection.execute("SELECT sum(count) FROM loss").fetchone()[0]
        assert trace.manifest["loss"]["events"] == everywhere
    lost = sum(count for _, _, count in gaps)
    # The end of the first read, every call's two events, and a read that blocks; of each nudge
    # the end of the read, a write, and the next read.
    generated = 2 * CALLS + 2 + 4 * NUDGES
    kept = received(folder, process.pid)
    if backend == "perf":  # which loses others' events, too
        assert kept < generated <= kept + lost
    else:
        assert kept + lost == generated
    assert lost > CALLS
    for start, end, _ in gaps:
        assert begun < start < end < stopped
    # The calls' own: it is over, at the latest, where the same CPU's next events are there.
    _, end, count = max(gaps, key=lambda gap: gap[2])
    assert count > CALLS
    assert end < ended


def wait_until_it_sleeps(pid):
    """Until the process blocks in its next read; its state is looked at from outside."""
    deadline = time.monotonic() + 60
    calm = 0
    while calm < 5:
        assert time.monotonic() < deadline
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        calm = calm + 1 if state == "S" else 0
        time.sleep(0.02)
