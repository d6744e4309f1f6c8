"""The findings about training: each is found in a small trace with a known answer."""

import pytest

from tests.support.findings import FLUSHER, PROCESSES, TRAIN, WORKER, A, S, call, off, pause, phase


def test_write_back_stalls_are_a_share_of_training_time(found):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": TRAIN,
            "syscalls": [call("write", 10, 3)],
            "dirty": [
                pause(11, 0.75),  # in the write
                pause(50, 0.25, WORKER),
                pause(60, 5, FLUSHER),  # none of the job's
                pause(150, 7),  # after the training
            ],
        }
    )
    stalls = by_topic["stalls"]
    assert stalls.sentence.startswith(
        "write-back stalls account for at most 1.0 % of training time"
    )
    assert (stalls.value, stalls.unit, stalls.certainty) == (1.0, "%", "at most")
    assert stalls.weight == 0.01 and not stalls.lossy
    ceiling = by_topic["write waits"]
    assert ceiling.value == pytest.approx(3.25)  # 3 s in the call, 0.25 s outside of any
    assert "at most 3.2 % of training time" in ceiling.sentence


def test_nothing_waited_for_is_said_too(found):
    by_topic = found({"processes": PROCESSES, "phases": TRAIN, "syscalls": [], "dirty": []})
    assert by_topic.keys() == {"write waits"}
    assert "takes at most 0 % of training time" in by_topic["write waits"].sentence


def test_time_is_that_of_the_recording_where_no_training_is_marked(found):
    by_topic = found({"processes": PROCESSES, "syscalls": [], "dirty": [pause(150, 20)]})
    assert by_topic["stalls"].value == 10
    assert "of the recording" in by_topic["stalls"].sentence


def test_several_jobs_that_train_at_once_have_the_sum_of_their_times(found):
    both = [*TRAIN, phase("train", 50, 150, pid=9)]
    by_topic = found(
        {"processes": PROCESSES, "phases": both, "syscalls": [call("fsync", 120, 20)], "dirty": []}
    )
    assert by_topic["sync"].value == 10  # of 200 s


def test_fsync_and_checkpoints_have_their_share(found):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [
                *TRAIN,
                phase("checkpoint", 10, 12),
                phase("checkpoint", 10.5, 11.5),  # within it
                phase("checkpoint", 50, 54),
            ],
            "syscalls": [call("fsync", 10, 1), call("fsync", 50, 2), call("fdatasync", 53, 1)],
        }
    )
    assert by_topic["sync"].value == 4
    assert "(mainly fsync) takes at most 4.0 %" in by_topic["sync"].sentence
    assert "3 calls of 1.33 s" in by_topic["sync"].sentence
    assert by_topic["checkpoints"].value == 6
    assert "2 saved, 3 s each on average" in by_topic["checkpoints"].sentence


def test_one_call_and_one_minibatch_are_no_plurals(found):
    step = [phase("step", 10, 20, step=0), phase("forward", 11, 19)]
    by_topic = found({"processes": PROCESSES, "phases": [*TRAIN, *step],
                      "syscalls": [call("fsync", 10, 1)]})  # fmt: skip
    assert ": 1 call of 1 s on average" in by_topic["sync"].sentence
    assert "system calls (1 call), " in by_topic["calls"].sentence
    assert "1 minibatch)" in by_topic["computing"].sentence


STEPS = [
    *TRAIN,
    *(
        phase(part, at, at + length, step=number, epoch=number // 5)
        for number in range(10)
        for part, at, length in (
            ("step", 10 * number, 10),
            ("fetch", 10 * number, 6 if number < 5 else 2),
            ("forward", 10 * number + 6, 1),
            ("backward", 10 * number + 7, 1),
            ("optimizer", 10 * number + 8, 1),
        )
    ),
]


def test_waiting_for_data_and_who_makes_one_wait(found):
    by_topic = found({"phases": STEPS})
    loading = by_topic["data loading"]
    assert loading.value == 40 and loading.weight == 0.4
    assert "the training process loads its data itself" in loading.sentence
    assert by_topic["first epoch"].value == 3
    assert "wait 3 times as long for their data as later ones (6 s, then 2 s)" in (
        by_topic["first epoch"].sentence
    )
    assert by_topic["first epoch"].weight == pytest.approx(0.3)
    assert by_topic["computing"].value == 30
    assert by_topic["overhead"].value == 30

    loads = [phase("fetch", 10 * n, 10 * n + 5, pid=WORKER, step=n) for n in range(10)]
    reads = [call("read", 10 * n, 1, WORKER) for n in range(10)]
    reads += [call("read", 10 * n + 5, 4, WORKER) for n in range(10)]  # waits for what to load
    by_topic = found({"phases": [*STEPS, *loads], "syscalls": reads})
    assert "the one process that loads data does not keep up" in by_topic["data loading"].sentence
    assert by_topic["loaders"].value == 20  # 10 s of reading in 50 s of loading
    assert (
        "20 % of their loading time in read calls: the rest is decoding"
        in by_topic["loaders"].sentence
    )


@pytest.mark.parametrize("disk", [True, False])
def test_the_page_cache_is_named_only_if_a_disk_makes_the_first_epoch_wait(found, disk):
    """Early minibatches wait 4 s longer than later ones, for a disk or for another's CPU."""
    other = {"pid": 60, "tid": 60, "role": "other", "comm": "postgres", "ppid": 1}
    waits = [
        off(10 * n + 1, 4, state="D", waker=0)
        if disk
        else off(10 * n + 1, 4, state="R+", ran=60, delay=4)
        for n in range(5)
    ]
    reads = [call("read", 10 * n, 5.5 if n < 5 else 1.5) for n in range(10)]
    tables = {"processes": [*PROCESSES, other], "phases": STEPS, "syscalls": reads}
    sentence = found({**tables, "off_cpu": waits})["first epoch"].sentence
    share = 100 if disk else 0
    assert f"(6 s, then 2 s): waits for disks are {share} % of the difference" in sentence
    assert ("page cache" in sentence) is disk
    assert ", perhaps since later epochs find" in found(tables)["first epoch"].sentence


def test_reads_of_a_workers_other_threads_count_once(found, query_again):
    """Two threads of a pool read in 3 of the 5 s of each fetch, and for half a second after it."""
    loads = [phase("fetch", 10 * n, 10 * n + 5, pid=WORKER, step=n) for n in range(10)]
    pool = [
        call("pread64", 10 * n + begin, long, WORKER) | {"tid": WORKER + thread}
        for n in range(10)
        for thread, begin, long in ((100, 1, 2), (101, 2, 1.5), (100, 4.5, 1))
    ]
    loaders = found({"phases": [*STEPS, *loads], "syscalls": pool})["loaders"]
    assert loaders.value == pytest.approx(100 * (2.5 + 0.5) / 5)
    assert "wait for storage or for a CPU, or copy data" in loaders.sentence
    query_again(loaders)


def test_thousands_of_times_are_told_without_an_exponent(found):
    phases = [
        phase(part, n, n + length, step=n, epoch=n // 5)
        for n in range(10)
        for part, length in (("step", 1), ("fetch", 0.9 if n < 5 else 0.0003))
    ]
    first = found({"phases": [*TRAIN, *phases]})["first epoch"]
    assert "wait 3,000 times as long for their data as later ones" in first.sentence


def test_a_fetch_that_ends_after_the_recording_does_not_count(found):
    """Half of each of the others is reading; the last one ends 40 s after the recording."""
    times = ((0, 10, 5), (20, 10, 5), (40, 50, 9))
    fetches = [
        phase("fetch", start, start + length, pid=WORKER, step=n)
        for n, (start, length, _) in enumerate(times)
    ]
    reads = [call("read", start, reading, WORKER) for start, _, reading in times]
    clock = {"name": "mono", "start_ns": 0, "end_ns": 50 * S}
    by_topic = found({"phases": [*TRAIN, *fetches], "syscalls": reads}, clock=clock)
    assert by_topic["loaders"].value == 50


def test_an_epoch_0_after_other_epochs_is_not_the_first_epoch(found):
    again = [
        row | {"start": row["start"] + 100 * S, "end": row["end"] + 100 * S, "epoch": 0}
        for row in STEPS
        if row.get("epoch") == 1
    ]
    first = found({"phases": [phase("train", 0, 200), *STEPS[len(TRAIN) :], *again]})["first epoch"]
    assert first.value == 3
    assert "(6 s, then 2 s)" in first.sentence


def test_a_step_that_began_before_the_recording_does_not_count(found):
    clock = {"name": "mono", "start_ns": 50 * S, "end_ns": 200 * S}
    late = [row for row in STEPS if row["start"] >= 50 * S]
    early = phase("step", 1, 49, step=0)
    by_topic = found({"phases": [phase("train", 0, 100), early, *late]}, clock=clock)
    assert by_topic["data loading"].value == 20
    assert "slow minibatches" not in by_topic


def test_workers_are_those_of_one_time_and_not_of_all_epochs(found):
    loads = [
        phase("fetch", 10 * n, 10 * n + 5, pid=100 + 2 * (n // 5) + n % 2, step=n, epoch=n // 5)
        for n in range(10)
    ]
    sentence = found({"phases": [*STEPS, *loads]})["data loading"].sentence
    assert "the 2 processes that load data do not keep up" in sentence


def test_slow_minibatches_are_told_with_what_they_cost(found):
    rows = [phase("step", n, n + 1, step=n) for n in range(9)]
    by_topic = found({"phases": [*TRAIN, *rows, phase("step", 10, 21, step=9)]})
    slow = by_topic["slow minibatches"]
    assert slow.value == 50  # 10 s beyond the median of 20 s
    assert "1 of 10 minibatches take more than twice the median of 1 s" in slow.sentence


def test_the_median_of_an_even_number_of_minibatches_is_the_mean_of_the_two_in_the_middle(found):
    rows = [
        phase("step", at, at + length, step=number)
        for number, (at, length) in enumerate([(0, 1), (10, 1), (20, 3), (30, 11)])
    ]
    slow = found({"phases": [*TRAIN, *rows]})["slow minibatches"]
    assert "1 of 4 minibatches take more than twice the median of 2 s" in slow.sentence
    assert slow.value == pytest.approx(100 * 9 / 16)


def test_the_training_thread_s_own_calls(found):
    calls = [call("futex", 1, 4), call("read", 20, 1), call("read", 30, 50, WORKER)]
    by_topic = found({"phases": TRAIN, "syscalls": calls})
    assert by_topic["calls"].value == 5
    assert "4.0 % in futex, where threads wait for each other" in by_topic["calls"].sentence


def test_a_job_that_is_killed_trains_until_then(found, query_again):
    """Another process has its number later, and other jobs train longer."""
    killed = {**PROCESSES[0], "start_ns": 1, "end_ns": 10 * S}
    later = {**PROCESSES[0], "role": "other", "target": None, "start_ns": 15 * S}
    tables = {
        "processes": [killed, later, *PROCESSES[1:]],
        "phases": [phase("train", 0, None)],
        "syscalls": [call("fsync", 1, 5), call("fsync", 20, 50)],
        "block": [],
        "dirty": [],
    }
    alone = found(tables)
    assert (alone["sync"].value, alone["write waits"].value) == (50, 50)
    assert "takes at most 50 % of training time" in alone["sync"].sentence
    query_again(*alone.values())

    other = {"pid": A, "tid": A, "role": "target", "target": "A", "comm": "python"}
    both = found(
        {
            **tables,
            "processes": [*tables["processes"], other],
            "phases": [
                *tables["phases"],
                phase("train", 0, 30, A),
                phase("train", 160, None, A),
            ],
        }
    )
    # The three stretches have 10 s, 30 s and 40 s.
    topics = ("sync", "write waits", "calls")
    assert [both[topic].value for topic in topics] == [100 * 5 / 80] * 3
