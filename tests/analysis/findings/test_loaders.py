"""The finding about workers that read, in small traces in which the reads' cause is known."""

import pytest

from tests.support.findings import PROCESSES, TRAIN, WORKER, S, call, off, phase

DB = {"pid": 60, "tid": 60, "role": "other", "comm": "postgres", "ppid": 1}
LOADS = [*TRAIN, phase("fetch", 10, 20, WORKER, step=0)]
READS = [call("read", 10, 8, WORKER)]
QUEUED = {
    "ts": int(10.1 * S), "pid": WORKER, "tid": WORKER, "event": "bio_queue", "dev": "254:0",
    "sector": 8, "nr_sector": 8, "rwbs": "R",
}  # fmt: skip


def loaders(found, off_cpu=None, **tables):
    """The finding about a worker that reads for 8 of its 10 s."""
    tables = {"processes": [*PROCESSES, DB], "phases": LOADS, "syscalls": READS, **tables}
    if off_cpu is not None:
        tables["off_cpu"] = off_cpu
    one = found(tables)["loaders"]
    assert one.value == 80
    return one


def test_reads_that_wait_for_a_disk_are_told_to_get_faster_storage(found, query_again):
    slept = [off(10.5, 6, WORKER, "D", waker=0)]
    one = loaders(found, slept, block=[QUEUED])
    assert one.sentence == (
        "processes that load data spend 80 % of their loading time in read calls, 75 % of it spent"
        " on reads of a disk: faster storage, or data that fit in the page cache, would save at"
        " most 60 % of their loading time"
    )
    assert one.certainty == "exact"
    assert loaders(found, slept).certainty == "inferred"  # no event names the disk
    query_again(one)


def test_reads_that_wait_for_a_cpu_are_not_told_to_get_faster_storage(found):
    """A disk takes 1 s of them, and another process has the CPU for 5 s."""
    one = loaders(
        found,
        [off(10.5, 1, WORKER, "D", waker=0), off(12, 5, WORKER, "R+", ran=60, delay=5)],
        block=[QUEUED],
    )
    assert one.sentence == (
        "processes that load data spend 80 % of their loading time in read calls, 62 % of it spent"
        " waiting for a CPU: faster storage would save at most 10 % of their loading time"
    )


def test_reads_that_copy_are_not_told_to_get_faster_storage(found):
    sentence = loaders(found, [off(30, 5, WORKER)]).sentence
    assert "100 % of it spent on a CPU, as for copying from the page cache" in sentence
    assert sentence.endswith(": faster storage would save at most 0 % of their loading time")


def test_waits_outside_of_reads_and_of_fetches_do_not_count(found):
    one = loaders(
        found,
        [off(18.5, 1, WORKER, "R+", ran=60, delay=1), off(21, 9, WORKER, "R+", ran=60, delay=9)],
        syscalls=[*READS, call("read", 20, 20, WORKER)],
    )
    assert "100 % of it spent on a CPU" in one.sentence


@pytest.mark.parametrize("name", ["read", "pread64"])
def test_a_wait_that_no_event_explains_may_be_one_for_storage(found, name):
    calls = [call(name, 10, 8, WORKER)]
    sentence = loaders(found, [off(10.5, 6, WORKER, "S", waker=0)], syscalls=calls).sentence
    assert "75 % of it spent waiting for others" in sentence


def test_without_the_scheduler_s_events_no_cause_is_claimed(found):
    sentence = loaders(found).sentence
    assert sentence.endswith(
        "in read calls, where they wait for storage or for a CPU, or copy data from the page cache"
        " (the probe sched tells these apart)"
    )
    assert "faster" not in sentence


def test_events_lost_in_the_reads_are_said(found):
    gap = {"stream": "ftrace-machine", "cpu": 0, "cause": "overrun", "count": 9,
           "from": 12 * S, "to": 13 * S}  # fmt: skip
    assert loaders(found, [off(30, 5, WORKER)], loss=[gap]).lossy
