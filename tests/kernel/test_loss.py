"""What a recording lacks is counted and placed: a tiny buffer, and a drain that stands still."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from probes.backends.ftrace.instance import Instance
from probes.backends.ftrace.page_source import PageSource
from tests.conftest import tracer_command
from tracer.store import manifest as manifests
from tracer.store.finalize import raw_streams
from tracer.store.trace import Trace

CALLS = 200_003

LOAD = f"""
import os
print("ready", flush=True)
os.read(0, 1)
for _ in range({CALLS}): os.getppid()
os.read(0, 1)
"""


def received(folder, tid):
    """System call events in the raw streams of scope target: what no row tells exactly."""
    manifest = manifests.read(folder)
    formats, streams = raw_streams(folder, manifest)
    ids = [formats[f"raw_syscalls:sys_{which}"].id for which in ("enter", "exit")]
    total = 0
    for stream in streams:
        if "target" in stream.name:
            batch = stream.decode(0, len(stream.order_key))
            total += int((np.isin(batch.type, ids) & (batch.tid == tid)).sum())
        stream.close()
    return total


def test_received_and_lost_make_generated_and_the_gap_is_where_it_was(tmp_path, backend):
    folder = tmp_path / "x.trace"
    load = [sys._base_executable, "-S", "-E", "-c", LOAD]
    with subprocess.Popen(load, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        options = ("--backend", backend, "-b", "64K", "-e", "syscalls", "-o", folder)
        with subprocess.Popen(
            tracer_command("record", *options, "-p", process.pid),
            stderr=subprocess.PIPE,
            text=True,
        ) as recorder:
            while "Tracing" not in recorder.stderr.readline():
                assert recorder.poll() is None
            time.sleep(0.5)
            os.kill(recorder.pid, signal.SIGSTOP)
            begun = time.monotonic_ns()
            process.stdin.write(b"g")
            process.stdin.flush()
            wait_until_it_sleeps(process.pid)
            os.kill(recorder.pid, signal.SIGCONT)
            ended = time.monotonic_ns()
            time.sleep(0.5)
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(60) == 0
        process.kill()
    with Trace(folder) as trace:
        gaps = trace.connection.execute(
            'SELECT "from", "to", count FROM loss WHERE stream LIKE \'%target%\''
        ).fetchall()
    lost = sum(count for _, _, count in gaps)
    # The end of the first read, every call's two events, and the second read, which blocks.
    kept = received(folder, process.pid)
    if backend == "perf":  # which loses others' events, too
        assert kept < 2 * CALLS + 2 <= kept + lost
    else:
        assert kept + lost == 2 * CALLS + 2
    assert lost > CALLS
    second = 1_000_000_000
    for start, end, _ in gaps:
        assert start is not None and end is not None
        assert begun - second / 2 < start < end < ended + second / 2


def wait_until_it_sleeps(pid):
    """Until the process blocks in its second read; its state is looked at from outside."""
    deadline = time.monotonic() + 60
    calm = 0
    while calm < 5:
        assert time.monotonic() < deadline
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        calm = calm + 1 if state == "S" else 0
        time.sleep(0.02)


@pytest.mark.parametrize("most", [64 << 10, 1 << 20])
def test_a_buffer_grows_with_the_rate_as_far_as_it_may(tmp_path, most):
    small = 64 << 10
    cpu = min(os.sched_getaffinity(0))
    load = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: os.getppid()"
    instance = Instance("target")
    with subprocess.Popen([sys._base_executable, "-S", "-E", "-c", load]) as process:
        try:
            instance.stop()
            instance.set_buffer(small >> 10)
            instance.enable_event("raw_syscalls:sys_enter")
            instance.set_pids([process.pid])
            source = PageSource(instance, cpu, tmp_path / "raw", 4096, small, most)
            source.open()
            instance.start()
            begun = time.monotonic()
            while (passed := time.monotonic() - begun) < 0.5 or (
                source.capacity < most and passed < 30
            ):
                time.sleep(0.005)
                while source.move():
                    pass
            assert source.capacity == most
            size = int(instance.read(f"per_cpu/cpu{cpu}/buffer_size_kb").split()[0]) << 10
            assert most <= size <= most + (16 << 10)  # in whole pages, less their headers
            source.close()
        finally:
            process.kill()
            instance.close()
