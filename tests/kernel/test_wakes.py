"""Wakes of the flusher in the view `passes`, against the runs of its work that ftrace shows."""

import contextlib
import os
import re

import numpy as np
import pytest

from tracer.analysis.report.writeback import writeback_intervals, writeback_reasons
from tracer.analysis.views.writing.passes import PASSES
from tracer.probes.kernel import find_tracefs
from tracer.store.trace import Trace

pytestmark = pytest.mark.settings

SYNCS = 11
LOAD = f"""
import os, sys, time
with open(sys.argv[1] + "/left", "wb") as file:
    for n in range({SYNCS}):
        file.write(os.urandom(4096 * 13))
        file.flush()
        if n % 3 == 0:
            time.sleep(0.45)
        if n != 5:
            os.sync()
"""
_LINE = re.compile(r"-(\d+)\s+\[\d+\]\D*?\s(\d+)\.(\d+): workqueue_execute_(start|end): (.*)")


@contextlib.contextmanager
def works_seen():
    """Records the works of all work queues in an instance of its own; gives a reader of it."""
    instance = find_tracefs() / "instances" / f"test-wakes-{os.getpid()}"
    instance.mkdir()
    try:
        (instance / "trace_clock").write_text("mono")
        (instance / "buffer_size_kb").write_text("8192")
        for event in ("workqueue_execute_start", "workqueue_execute_end"):
            (instance / "events/workqueue" / event / "enable").write_text("1")
        yield lambda: (instance / "trace").read_text()
    finally:
        instance.rmdir()


def runs_of(text, function):
    """Returns the runs of a work's function: thread, begin and end, in microseconds."""
    begun, found = {}, []
    for line in text.splitlines():
        if told := _LINE.search(line):
            tid, at = int(told[1]), int(told[2]) * 10**6 + int(told[3])
            if told[4] == "start":
                begun[tid] = at, told[5].endswith(f"function {function}")
            elif tid in begun:
                since, is_it = begun.pop(tid)
                if is_it:
                    found.append((tid, since, at))
    return found


@pytest.fixture
def seen(file_system, tracer, load, sysctls, tmp_path):
    """Returns the trace, the device, and the runs of wb_workfn that another instance saw."""
    sysctls(dirty_expire_centisecs=30, dirty_writeback_centisecs=15)
    mount, dev = file_system(kind="ext4")
    with works_seen() as text:
        ran = ("--", *load(LOAD), mount)
        tracer("record", "-o", "t.trace", "-e", "writeback", "--linger", "1", *ran)
        runs = runs_of(text(), "wb_workfn")
    with Trace(tmp_path / "t.trace") as trace:
        yield trace, dev, runs


def test_a_wake_is_one_run_of_the_flusher_s_work(seen):
    trace, dev, runs = seen
    assert runs
    passes = PASSES.frame(trace, f"bdi = '{dev}'")
    # ftrace prints microseconds, rounded.
    of_passes = [
        next(
            n
            for n, (of, since, until) in enumerate(runs)
            if of == tid and since - 1 <= ts / 1000 <= until + 1
        )
        for tid, ts in zip(passes["tid"], passes["ts"], strict=True)
    ]
    found = passes["wake"].to_numpy(np.int64)
    pairs = set(zip(of_passes, found.tolist(), strict=True))
    assert len(pairs) == len(set(of_passes)) == len(set(found.tolist()))
    assert passes["begins"].sum() == len(pairs) < len(passes)
    intervals = writeback_intervals(trace, dev).set_index(["between", "reason"])["intervals"]
    assert intervals["wakes", "all"] == len(pairs) - 1
    assert intervals["passes", "all"] == len(passes) - 1
    reasons = writeback_reasons(trace, dev).set_index("reason")
    assert reasons["writebacks"].sum() == len(passes)
    assert {"periodic", "sync"} <= set(reasons.index)
    for reason, rows in passes.groupby("reason"):
        assert reasons["wakes"][reason] == rows["wake"].nunique()
