"""Samples of containers against Docker's own statistics and /proc."""

import os
import time
from pathlib import Path

import pytest

from tests.docker.conftest import init_of

TICKS = os.sysconf("SC_CLK_TCK")
BURNT = 0.4
"""CPU time in s."""
HOLDS = 96 << 20
"""Bytes held, far above the pages that the kernel charges to a cgroup ahead of their use."""

LOAD = f"""
held = os.urandom(1 << 20) * {HOLDS >> 20}
if os.fork() == 0:
    while sum(os.times()[:2]) < {BURNT}: pass
    os._exit(0)
os.wait()
say(name + "-is-done")
time.sleep(1000)
"""
QUOTA_US, PERIOD_US = 20_000, 100_000
LIMIT = 4 * HOLDS
IDLE = f"""
held = os.urandom(1 << 20) * {HOLDS >> 21}
say(name + "-is-done")
time.sleep(1000)
"""


def last(trace, name, target):
    """Returns the last value of a series of one target."""
    query = "SELECT arg_max(value, ts) FROM samples WHERE name = ? AND target = ?"
    return trace.connection.execute(query, [name, target]).fetchone()[0]


def settle(box):
    """Waits until the kernel has counted the last periods of a container that sleeps."""
    counts = [None, box.stats(stream=False, one_shot=True)["cpu_stats"]["throttling_data"]]
    while counts[-1] != counts[-2]:
        time.sleep(3 * PERIOD_US / 1e6)
        counts.append(box.stats(stream=False, one_shot=True)["cpu_stats"]["throttling_data"])


def test_samples_of_two_containers_equal_dockers_statistics(start, tell, record):
    limits = {"cpu_quota": QUOTA_US, "cpu_period": PERIOD_US, "mem_limit": LIMIT}
    boxes = {"a1": start("a1", LOAD, **limits), "b1": start("b1", IDLE)}
    tell(None, "a1-is-up", "b1-is-up")
    recording = record("--container", "a1,b1", "-e", "processes", "--sample-hz", "10")
    tell("go", "a1-is-done", "b1-is-done")
    settle(boxes["a1"])
    with recording.stop() as trace:
        for name, box in boxes.items():
            stats = box.stats(stream=False, one_shot=True)
            fields = Path(f"/proc/{init_of(box)}/stat").read_text().rpartition(")")[2].split()
            used = stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9
            assert last(trace, "cgroup_cpu_time", name) == pytest.approx(used, rel=0.02)
            charged = stats["memory_stats"]["usage"]
            assert last(trace, "cgroup_memory", name) == pytest.approx(charged, rel=0.02)
            # CPU time of the process and its children, in ticks.
            own = sum(map(int, fields[11:15])) / TICKS
            assert last(trace, "cpu_time", name) == pytest.approx(own, abs=1 / TICKS)
            pages = int(Path(f"/proc/{init_of(box)}/statm").read_text().split()[1])
            resident = pages * os.sysconf("SC_PAGE_SIZE")
            assert last(trace, "rss", name) == pytest.approx(resident, rel=0.02)
            throttling = stats["cpu_stats"]["throttling_data"]
            assert last(trace, "cgroup_nr_throttled", name) == throttling["throttled_periods"]
            lasted = throttling["throttled_time"] / 1e9
            assert last(trace, "cgroup_throttled_time", name) == pytest.approx(lasted, rel=0.02)
        assert last(trace, "cgroup_throttled_time", "a1") > 0
        assert last(trace, "cgroup_cpu_quota", "a1") == QUOTA_US / PERIOD_US
        assert last(trace, "cgroup_memory_max", "a1") == LIMIT
        assert last(trace, "cgroup_cpu_quota", "b1") is None
        assert last(trace, "cgroup_memory_max", "b1") is None
        assert last(trace, "cgroup_anon", "a1") > HOLDS > last(trace, "cgroup_memory", "b1")
        assert last(trace, "cpu_time", "a1") >= BURNT > last(trace, "cpu_time", "b1")


def test_a_restarted_container_is_still_sampled(start, shared, tell, record):
    box = start("a1", IDLE)
    tell("go", "a1-is-done")
    recording = record("--container", "a1", "-e", "processes", "--sample-hz", "20")
    (shared / "a1-is-done").unlink()
    first = init_of(box)
    box.restart(timeout=0)
    tell(None, "a1-is-done")
    assert init_of(box) not in (0, first)
    with recording.stop() as trace:
        assert last(trace, "processes", "a1") == 1
        assert last(trace, "cgroup_memory", "a1") > 0
        assert last(trace, "rss", "a1") > 0
