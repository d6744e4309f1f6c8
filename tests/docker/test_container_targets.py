"""Containers as targets: who is counted to which, exactly, whatever joins, forks or restarts."""

import subprocess
import sys

from tests.docker.conftest import CALLS, WAITING, calls

A, B, OTHER, HOST, LATER = 9973, 101, 757, 499, 1009
TIMES = "import os\nfor _ in range({}): os.times()"


def test_each_call_is_counted_to_its_own_target(start, tell, record, shared):
    containers = {name: start(name, CALLS, n) for name, n in (("a1", A), ("b1", B), ("c1", OTHER))}
    source = WAITING.replace("/shared", str(shared)) + CALLS
    with subprocess.Popen([sys.executable, "-S", "-c", source, "host", str(HOST)]) as host:
        tell(None, "a1-is-up", "b1-is-up", "c1-is-up", "host-is-up")
        recording = record("--container", "a1, b1", "-p", host.pid)
        counting = subprocess.Popen(
            ["perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "--filter", "id == 110",
             "-p", str(containers["a1"].attrs["State"]["Pid"] or _pid(containers["a1"]))],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        tell("go", "a1-is-done", "b1-is-done", "c1-is-done", "host-is-done")
        with recording.stop() as trace:
            name = next(t["name"] for t in trace.manifest["targets"] if t["kind"] == "pid")
            assert calls(trace) == sorted(
                [("a1", "target", A), ("b1", "target", B), (name, "target", HOST)]
            )
            assert trace.manifest["loss"] == {"events": 0, "windows": 0, "unknown": 0}
        host.kill()
    counting.send_signal(2)
    _, err = counting.communicate()
    assert int(err.strip().splitlines()[-1].split(",")[0]) == A


def _pid(container):
    container.reload()
    return container.attrs["State"]["Pid"]
