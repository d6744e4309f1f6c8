"""The cause that the finding about data names, in small traces with a known answer."""

import pytest

from tests.support.findings import FLUSHER, JOB, PROCESSES, TRAIN, WORKER, S, bio, call, off, phase

DB = {"pid": 60, "tid": 60, "role": "other", "comm": "postgres", "ppid": 1}
FETCHED = [
    *TRAIN,
    phase("step", 10, 20, step=0),
    phase("fetch", 10, 15, step=0),
    phase("fetch", 10, 15, WORKER, step=0),
]
WAITS = off(10, 5, waker=WORKER)


def read(ts, tid, sectors=8, dev="254:0"):
    """A read of a disk in s, from its queueing to its completion half a second later."""
    row = {"pid": tid, "tid": tid, "dev": dev, "sector": int(ts * 8000), "nr_sector": sectors,
           "rwbs": "R", "comm": "postgres" if tid == 60 else "x"}  # fmt: skip
    return [
        {**row, "ts": int((ts + more) * S), "event": event}
        for more, event in ((0, "bio_queue"), (0.001, "issue"), (0.5, "complete"))
    ]


def said(found, host=None, **tables):
    """The sentence about data."""
    tables = {"processes": [*PROCESSES, DB], "phases": FETCHED, **tables}
    by_topic = found(tables, host=host or {"cpus": 8})
    (one,) = [one for topic, one in by_topic.items() if topic == "data loading"]
    assert round(one.value, 6) == 50
    return one.sentence


@pytest.mark.parametrize(
    ("cpus", "mend"),
    [(8, ": use more workers"), (2, ": do less work for each sample, or keep its result, since")],
)
def test_a_worker_that_computes(found, cpus, mend):
    sentence = said(found, {"cpus": cpus}, syscalls=[call("read", 10, 5)], off_cpu=[WAITS])
    assert ", 100 % of it spent on work for the samples, such as decoding" + mend in sentence


def test_a_worker_that_sleeps(found):
    sentence = said(
        found,
        {"cpus": 1},
        syscalls=[call("read", 10, 5), call("nanosleep", 10.5, 4, WORKER)],
        off_cpu=[WAITS, off(10.5, 4, WORKER, waker=0)],
    )
    assert ", 80 % of it spent waiting for others" in sentence
    assert sentence.endswith(": use more workers")


def test_reads_and_lookups_of_files_are_told_apart(found):
    tables = {
        "off_cpu": [WAITS, off(11, 3, WORKER, "D", waker=0)],
        "block": read(10.9, WORKER),
    }
    reads = said(found, syscalls=[call("read", 10, 5), call("read", 10.8, 3.5, WORKER)], **tables)
    assert "60 % of it spent on reads of a disk: read ahead with more workers" in reads
    opens = [call("read", 10, 5), call("openat", 10.8, 3.5, WORKER)]
    lookups = said(found, syscalls=opens, **tables)
    assert "60 % of it spent on opening files and looking them up on a disk: pack" in lookups


def test_reads_beside_others_name_them(found):
    waits = [WAITS, off(11, 3, WORKER, "D", waker=0)]
    calls = [call("read", 10, 5), call("read", 10.8, 3.5, WORKER)]
    own, others = read(10.9, WORKER), read(11, 60, 80)
    both = sorted([*own, *others], key=lambda row: row["ts"])
    sentence = said(found, syscalls=calls, off_cpu=waits, block=both)
    assert "; 91 % of what the disk did was for others (postgres): give" in sentence
    elsewhere = [row | ({"dev": "8:0"} if row["tid"] == 60 else {}) for row in both]
    assert "others" not in said(found, syscalls=calls, off_cpu=waits, block=elsewhere)
    # What the flusher writes belongs to whoever dirtied it; here nobody knows.
    written = sorted([*own, bio(11, 99, 10, FLUSHER)], key=lambda row: row["ts"])
    sentence = said(found, syscalls=calls, off_cpu=waits, block=written)
    assert "others" not in sentence


def test_reads_under_a_memory_limit(found):
    waits = [WAITS, off(11, 3, WORKER, "D", waker=0)]
    calls = [call("read", 10, 5), call("read", 10.8, 3.5, WORKER)]
    tables = {"syscalls": calls, "off_cpu": waits, "block": read(10.9, WORKER)}
    brackets = [
        {"ts": int(12 * S) + n, "pid": pid, "tid": pid, "event": "memcg_begin"}
        for pid in (WORKER, 60)
        for n in range(30)
    ]
    assert "raise the memory limit" in said(found, reclaim=brackets, **tables)
    assert "raise the memory limit" not in said(found, reclaim=brackets[30:], **tables)
    assert "raise the memory limit" not in said(found, reclaim=brackets[:19], **tables)


def test_a_wait_for_a_cpu_and_one_in_the_job_itself(found):
    sentence = said(found, off_cpu=[off(10, 4, state="R+", ran=60, delay=4)])
    assert "80 % of it spent waiting for a CPU that another thread has" in sentence


def test_without_the_scheduler_s_events_nothing_is_claimed(found):
    assert ": the one process that loads data does not keep up" in said(found)
    assert "spent" not in said(found)


def test_other_steps_do_not_count(found):
    """An evaluation's fetch waits for a disk; the training's waits for a computing worker."""
    phases = [
        *FETCHED,
        phase("eval", 30, 60),
        phase("step", 31, 59, step=1),
        phase("fetch", 31, 58, step=1),
    ]
    sentence = said(
        found,
        phases=phases,
        syscalls=[call("read", 10, 5), call("read", 31, 27)],
        block=read(32, JOB),
        off_cpu=[WAITS, off(33, 20, state="D", waker=0)],
    )
    assert "100 % of it spent on work" in sentence
