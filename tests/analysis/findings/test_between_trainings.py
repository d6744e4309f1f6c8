"""A script that marks each of its trainings: what lies between two of them is no training time."""

import pytest

from tests.support.findings import JOB, PROCESSES, WORKER, call, pause, phase, request, sample

TWICE = [phase("train", 0, 10), phase("eval", 10, 110), phase("train", 110, 120)]
"""20 s of training, with an evaluation of 100 s in between."""


def test_shares_of_training_time_leave_out_the_evaluation_between(found, query_again):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [
                *TWICE,
                phase("checkpoint", 20, 80),
                phase("checkpoint", 109, 112),  # 2 s of it in the training
                phase("checkpoint", 125, 142),
            ],
            "syscalls": [
                call("fsync", 5, 1),
                call("poll", 7, 2),
                call("poll", 12, 30),
                call("fsync", 50, 40),
                call("fsync", 111, 0.5),
                call("fsync", 119, 3, WORKER),  # 1 s of it in the training
            ],
            "dirty": [pause(3, 0.5), pause(15, 60), pause(111.5, 0.5)],
            "block": [],
        }
    )
    shares = {topic: by_topic[topic].value for topic in ("calls", "sync", "checkpoints", "stalls")}
    # Of 20 s: 3.5 s in the thread's own calls, 2.5 s in fsync, 1 s asleep. Of the checkpoints'
    # 80 s, 2 s are in these 20 s.
    assert shares == pytest.approx(
        {"calls": 17.5, "sync": 12.5, "checkpoints": 100 * 80 / 98, "stalls": 5}
    )
    assert "(3 calls), 10 % in poll" in by_topic["calls"].sentence
    assert "3 calls of 1.5 s on average" in by_topic["sync"].sentence
    assert by_topic["checkpoints"].sentence == (
        "checkpoints take 82 % of training time and checkpoints: 3 saved, 26.7 s each on average,"
        " 2 of them outside of training time (save less often, or in another thread)"
    )
    assert "put threads of the job to sleep 2 times, 1 s in total" in by_topic["stalls"].sentence
    assert by_topic["sync"].value <= by_topic["write waits"].value
    query_again(*by_topic.values())


def test_a_checkpoint_after_the_training_counts_until_the_recording_ends(found, query_again):
    marks = [phase("train", 0, 30), phase("checkpoint", 30, 40), phase("checkpoint", 190, 500)]
    saved = found({"phases": marks})["checkpoints"]
    assert saved.value == pytest.approx(100 * 20 / 50)
    assert "training time and checkpoints: 2 saved, 10 s each on average, 2 of them outside" in (
        saved.sentence
    )
    query_again(saved)


def test_a_call_of_another_thread_counts_for_the_part_in_which_the_job_trains(found):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": TWICE,
            "syscalls": [call("fsync", 8, 104, WORKER)],  # 2 s before the evaluation, 2 s after it
            "dirty": [],
        }
    )
    assert by_topic["sync"].value == pytest.approx(20)
    assert "calls" not in by_topic


def test_reads_of_an_evaluation_are_not_those_of_the_training(found, query_again):
    """One read is before the evaluation, one in it, and one lasts from it into the training."""
    rows = [*request(2, 1, 2, 1), *request(20, 10, 60, 2), *request(100, 5, 6, 3)]
    tables = {"processes": PROCESSES, "phases": TWICE, "block": rows}
    reads = found(tables)["disk reads"]
    assert reads.value == pytest.approx(100 * (3 + 1) / 20)
    assert "(2 requests, 8.0 KiB)" in reads.sentence
    query_again(reads)


def test_trainings_of_a_thread_that_overlap_are_one(found):
    phases = [phase("train", 0, 50), phase("train", 20, 30), phase("train", 90, 140)]
    calls = [call("poll", 35, 10), call("poll", 60, 20), call("poll", 100, 1)]
    by_topic = found({"processes": PROCESSES, "phases": phases, "syscalls": calls})
    assert "(2 calls)" in by_topic["calls"].sentence


def test_reads_of_a_fetch_that_ends_after_the_training_count_like_the_fetch(found):
    """Two fetches do nothing but read; the second one is still at it when the training ends."""
    fetches = [phase("fetch", at, at + 20, pid=WORKER) for at in (10, 90)]
    reads = [call("read", at + n, 1, WORKER) for at in (10, 90) for n in range(20)]
    by_topic = found({"phases": [phase("train", 0, 100, JOB), *fetches], "syscalls": reads})
    assert by_topic["loaders"].value == 100


STEPS = [
    row
    for at in (0, 112)
    for row in (
        phase("step", at, at + 4, step=at),
        phase("fetch", at, at + 2, step=at),
        phase("fetch", at, at + 2, WORKER, step=at),
    )
]
"""A step in each of the two trainings, which waits for a worker."""


def counter(name, training, between, target=None):
    """Samples of a counter, each second; it grows by so much a second in and between trainings."""
    value, rows = 0.0, []
    for t in range(121):
        rows.append(sample(t, name, value, target))
        value += between if 10 <= t < 110 else training
    return rows


@pytest.mark.parametrize(("training", "between", "busy"), [(7.6, 0.1, True), (4, 8, False)])
def test_cpus_that_an_evaluation_uses_do_not_count(found, training, between, busy):
    samples = counter("cpu_time", training, between) + counter("steal_time", training / 100, 0)
    tables = {"processes": PROCESSES, "phases": TWICE + STEPS, "samples": samples}
    waits = found(tables, host={"cpus": 8})["data loading"]
    assert busy == ("of the time of the machine's 8 CPUs is used (do less work" in waits.sentence)
    assert busy != waits.sentence.endswith("(use more workers)")


@pytest.mark.parametrize(("training", "between"), [(9, 0), (2, 10)])
def test_a_quota_that_an_evaluation_uses_up_does_not_count(found, training, between):
    samples = counter("cgroup_nr_periods", 10, 10, "job")
    samples += counter("cgroup_nr_throttled", training, between, "job")
    tables = {"processes": PROCESSES, "phases": TWICE + STEPS, "samples": samples}
    sentence = found(tables)["data loading"].sentence
    assert (training == 9) == ("quota is used up in 90 % of its periods (do less" in sentence)
    assert (training != 9) == sentence.endswith("(use more workers)")


def test_time_that_the_host_takes_in_an_evaluation_does_not_count(found, query_again):
    samples = counter("cpu_time", 0.9, 1) + counter("steal_time", 0.1, 1)
    steal = found({"phases": TWICE, "samples": samples})["steal"]
    assert steal.value == pytest.approx(10)
    query_again(steal)
