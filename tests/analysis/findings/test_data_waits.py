"""The cause that the finding about data names, in small traces with a known answer."""

import pytest

from tests.support.findings import (
    FETCHED,
    FLUSHER,
    GAP,
    JOB,
    LIMITED,
    PLACED,
    PROCESSES,
    TRAIN,
    WORKER,
    S,
    bio,
    cached,
    call,
    chain,
    file_at,
    merged,
    off,
    phase,
    sample,
    small,
)

pytestmark = pytest.mark.slow

NEIGHBOUR = {"pid": 61, "tid": 61, "role": "target", "target": "db", "comm": "mysqld", "ppid": 1}
"""Another target."""
DB = {"pid": 60, "tid": 60, "role": "other", "comm": "postgres", "ppid": 1}
WAITS = off(10, 5, waker=WORKER)


def read(ts, tid, sectors=8, dev="254:0"):
    """A read of a disk in s, from its queueing to its completion half a second later."""
    row = {"pid": tid, "tid": tid, "dev": dev, "sector": int(ts * 8000), "nr_sector": sectors,
           "rwbs": "R", "comm": {60: "postgres", 61: "mysqld"}.get(tid, "x")}  # fmt: skip
    return [
        {**row, "ts": int((ts + more) * S), "event": event}
        for more, event in ((0, "bio_queue"), (0.001, "issue"), (0.5, "complete"))
    ]


def said(found, host=None, clock=None, placed=False, **tables):
    """The sentence about data."""
    tables = {"processes": [*PROCESSES, DB], "phases": FETCHED, **tables}
    more = ({"clock": clock} if clock else {}) | (PLACED if placed else {})
    by_topic = found(tables, host=host or {"cpus": 8}, **more)
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


def test_a_job_without_workers_is_told_to_use_some(found):
    sentence = said(
        found,
        phases=FETCHED[:3],
        syscalls=[call("read", 10.8, 3.5)],
        off_cpu=[off(11, 3, state="D", waker=0)],
        block=read(10.9, JOB),
    )
    assert "reads of a disk: read ahead with workers (num_workers of the DataLoader)" in sentence


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


def test_writes_beside_reads_count_by_their_length(found):
    """Each of the ten writes of 1 KiB touches a page."""
    tables = merged(
        {"block": read(10.9, WORKER), "syscalls": [call("read", 10.8, 3.5, WORKER)]},
        small(chain(FLUSHER, DB["tid"], 77, 11, 9000, 10), 2),
    )
    waits = [WAITS, off(11, 3, WORKER, "D", waker=0)]
    sentence = said(found, off_cpu=waits, **tables)
    assert "; 71 % of what the disk did was for others (postgres): give" in sentence


def test_reads_that_a_limit_holds_back_are_of_the_thread_that_asked(found):
    tables = {
        "processes": [*PROCESSES, DB, LIMITED],
        "phases": FETCHED[:3],
        "syscalls": [call("read", 10.8, 3.5)],
        "off_cpu": [off(11, 3, state="D", waker=0)],
        "block": [*read(10.9, JOB), *read(11.5, LIMITED["tid"], 80)],
    }
    assert "others" not in said(found, **tables)  # nobody knows who asked
    tables |= file_at(11000, 1000)
    own = said(found, placed=True, page_cache=cached(11.4, 500, 10), **tables)
    assert "60 % of it spent on reads of a disk: read ahead with workers" in own
    others = said(found, placed=True, page_cache=cached(11.4, 500, 10, DB["tid"]), **tables)
    assert "; 91 % of what the disk did was for others (postgres): give" in others


def test_other_targets_are_others(found):
    """The neighbour reads and writes; if it trains, too, its reads are part of the waits."""
    waits = [WAITS, off(11, 3, WORKER, "D", waker=0)]
    calls = [call("read", 10, 5), call("read", 10.8, 3.5, WORKER)]
    tables = {"processes": [*PROCESSES, DB, NEIGHBOUR], "syscalls": calls}
    own, neighbours = read(10.9, WORKER), read(10.95, NEIGHBOUR["tid"], 80)
    both = sorted([*own, *neighbours], key=lambda row: row["ts"])
    reads = said(found, off_cpu=waits, block=both, **tables)
    assert "; 91 % of what the disk did was for others (mysqld): give" in reads

    for dirtier, name in ((NEIGHBOUR["tid"], "mysqld"), (JOB, None)):
        written = merged({"block": own}, chain(FLUSHER, dirtier, 14, 12, 5000, 30))
        sentence = said(found, off_cpu=waits, **written, **tables)
        assert ("others" in sentence, f"for others ({name})" in sentence) == (name is not None,) * 2

    trains = [one | {"pid": NEIGHBOUR["tid"], "tid": NEIGHBOUR["tid"]} for one in FETCHED[:3]]
    sleep = off(11, 3, NEIGHBOUR["tid"], "D", waker=0)
    tables["syscalls"] = [*calls, call("read", 10.8, 3.5, NEIGHBOUR["tid"])]
    reads = said(found, phases=[*FETCHED, *trains], off_cpu=[*waits, sleep], block=both, **tables)
    assert "60 % of it spent on reads of a disk: read ahead" in reads


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
    neighbours = [row | {"pid": 61, "tid": 61} for row in brackets[:30]]
    tables["processes"] = [*PROCESSES, DB, NEIGHBOUR]
    assert "raise the memory limit" not in said(found, reclaim=neighbours, **tables)
    alone = {
        "processes": [{**one, "target": None} for one in tables["processes"]],
        "phases": FETCHED[:3],
        "syscalls": [call("read", 10.8, 3.5)],
        "off_cpu": [off(11, 3, state="D", waker=0)],
        "block": read(10.9, JOB),
    }
    assert "raise the memory limit" in said(found, reclaim=brackets, **alone)


def test_a_wait_for_a_cpu_and_one_in_the_job_itself(found):
    sentence = said(found, off_cpu=[off(10, 4, state="R+", ran=60, delay=4)])
    assert (
        "80 % of it spent waiting for a CPU that another thread has: other processes have it, so"
        " give the job CPUs of its own" in sentence
    )
    sentence = said(found, off_cpu=[off(10, 4, state="R+", ran=WORKER, delay=4)])
    assert "has: the job's own threads have it, so use fewer threads or workers, or" in sentence


@pytest.mark.parametrize(
    ("ran", "mend"), [(0, "use more workers"), (None, "use fewer threads or workers")]
)
def test_a_wait_for_a_cpu_that_was_idle_or_of_which_nobody_knows_who_had_it(found, ran, mend):
    """Another thread has it for a quarter of the wait."""
    off_cpu = [off(10, 3, state="R+", ran=ran, delay=3), off(14, 1, state="R+", ran=60, delay=1)]
    assert f"80 % of it spent waiting for a CPU: {mend}" in said(found, off_cpu=off_cpu)


@pytest.mark.parametrize(("block", "certainty"), [(True, "exact"), (False, "inferred")])
def test_a_cause_that_no_event_names_is_inferred(found, block, certainty):
    tables = {
        "processes": PROCESSES,
        "phases": FETCHED[:3],
        "syscalls": [call("read", 10.8, 3.5)],
        "off_cpu": [off(11, 3, state="D", waker=0)],
        "block": read(10.9, JOB) if block else [],
    }
    one = found(tables, host={"cpus": 8})["data loading"]
    assert "60 % of it spent on reads of a disk" in one.sentence and one.certainty == certainty


def test_without_the_scheduler_s_events_nothing_is_claimed(found):
    assert ": the one process that loads data does not keep up" in said(found)
    assert "spent" not in said(found)


def test_a_worker_that_computes_beside_others_is_not_given_more_workers(found):
    samples = [sample(t, "cpu_time", 8 * t) for t in (0, 100)]
    sentence = said(found, off_cpu=[WAITS], samples=samples)
    assert "100 % of it spent on work for the samples, such as decoding: do less work" in sentence


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


SLEEPS = {
    "syscalls": [call("nanosleep", 11, 3)],
    "off_cpu": [off(11, 3, waker=0)],
}


def test_a_phase_of_the_script_s_own_in_a_fetch_is_part_of_the_wait(found):
    phases = [*FETCHED[:3], phase("decode", 11, 14, step=0)]
    assert ", 60 % of it spent waiting for others" in said(found, phases=phases, **SLEEPS)


def test_a_checkpoint_in_a_fetch_is_no_part_of_the_wait(found):
    phases = [*TRAIN, phase("step", 10, 14, step=0), phase("fetch", 10, 13, step=0)]
    phases.append(phase("checkpoint", 11, 12, step=0))
    tables = {"syscalls": [call("nanosleep", 11, 1)], "off_cpu": [off(11, 1, waker=0)]}
    assert ", 100 % of it spent on work" in said(found, phases=phases, **tables)


def test_fetches_of_an_evaluation_between_a_fetch_and_its_step_do_not_count(found):
    phases = [
        *TRAIN,
        phase("fetch", 0, 10, step=0),
        phase("eval", 10, 15),
        phase("step", 10, 15, step=7),
        phase("fetch", 11, 14, step=7),
        phase("step", 15, 20, step=0),
    ]
    assert ", 100 % of it spent on work" in said(found, phases=phases, **SLEEPS)


def test_a_step_that_began_before_the_recording_does_not_count(found):
    phases = [
        *TRAIN,
        phase("step", 10, 15, step=0),
        phase("fetch", 10.5, 14.5, step=0),
        phase("step", 20, 30, step=1),
        phase("fetch", 20, 25, step=1),
    ]
    clock = {"name": "mono", "start_ns": int(10.2 * S), "end_ns": 200 * S}
    assert ", 100 % of it spent on work" in said(found, clock=clock, phases=phases, **SLEEPS)


def test_the_disk_of_reads_is_known_beside_a_longer_page_fault(found):
    tables = {
        "syscalls": [call("read", 10, 5), call("read", 10.8, 1.2, WORKER)],
        "off_cpu": [WAITS, off(11, 0.9, WORKER, "D", waker=0), off(12.5, 2, WORKER, "D", waker=0)],
        "page_faults": [
            {
                "ts": int(12.4 * S),
                "pid": WORKER,
                "tid": WORKER,
                "kind": "major",
                "user": True,
                "file": "/a",
            }
        ],
        "block": sorted([*read(10.9, WORKER), *read(11, 60, 80)], key=lambda row: row["ts"]),
    }
    assert "for others (postgres): give" in said(found, **tables)


def test_events_lost_in_the_training_are_told(found):
    def lost(second):
        gap = {**GAP, "from": second * S, "to": second * S}
        return said(found, loss=[gap], syscalls=[call("read", 10, 5)], off_cpu=[WAITS])

    assert "spent on work" in lost(18) and "the number is incomplete" in lost(18)
    assert "incomplete" not in lost(150)
