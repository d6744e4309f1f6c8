"""Steps and stages that lie partly before the events of targets are recorded, or after these."""

import pytest

from tests.support.findings import PROCESSES, WORKER, S, call, off, phase

CLOCK = {
    "name": "mono",
    "start_ns": 0,
    "end_ns": 200 * S,
    "targets_from_ns": 20 * S,
    "targets_until_ns": 80 * S,
}
"""Events of the machine are recorded for 200 s, those of targets from 20 s to 80 s."""


def stage(name):
    """Ten steps of 10 s. Those without all their events only wait for data, the others never."""
    outside = (0, 1, 8, 9)
    return [
        phase(name, 0, 100),
        *(
            phase(part, 10 * n, 10 * n + long, step=n, epoch=n // 5)
            for n in range(10)
            for part, long in (("step", 10), ("fetch", 10 if n in outside else 1))
        ),
    ]


@pytest.mark.parametrize("name", ["train", "inference"])
def test_steps_without_all_their_events_do_not_count(found, name):
    by_topic = found({"phases": stage(name)}, clock=CLOCK)
    assert by_topic["data loading"].value == 10
    assert by_topic["overhead"].value == 90
    assert "first epoch" not in by_topic


def test_steps_of_no_stage_without_all_their_events_do_not_count(found):
    by_topic = found({"phases": stage("train")[1:]}, clock=CLOCK)
    assert by_topic["data loading"].value == 10


@pytest.mark.parametrize("name", ["train", "inference"])
def test_waits_are_a_share_of_the_time_in_which_they_are_recorded(found, query_again, name):
    """A call of 6 s is a tenth of the 60 s in which calls are recorded."""
    one = found(
        {"processes": PROCESSES, "phases": stage(name), "syscalls": [call("fsync", 30, 6)]},
        clock=CLOCK,
    )["sync"]
    assert one.value == 10
    query_again(one)


def test_an_evaluation_beside_the_recording_has_the_recording_s_time(found):
    """No event of the evaluation is recorded."""
    evaluation = [phase("inference", 85, 100), phase("step", 85, 100, step=0)]
    one = found(
        {"processes": PROCESSES, "phases": evaluation, "syscalls": [call("fsync", 30, 6)]},
        clock=CLOCK,
    )["sync"]
    assert one.value == 3
    assert "of the recording" in one.sentence


def test_fetches_of_workers_without_all_their_events_do_not_count(found):
    fetches = [
        phase("fetch", begin, begin + 10, pid=WORKER, step=n)
        for n, begin in enumerate((5, 15, 30, 75, 90))
    ]
    reads = [call("read", 30, 5, WORKER), call("read", 75, 1, WORKER)]
    for stages in ([phase("train", 0, 100)], []):
        by_topic = found({"phases": [*stages, *fetches], "syscalls": reads}, clock=CLOCK)
        assert by_topic["loaders"].value == 50


def test_the_path_of_a_step_is_not_that_of_one_without_all_its_events(found):
    """The thread waits for a disk in two steps; the events of the first begin in its middle."""
    marks = [
        phase("train", 0, 100),
        *(
            phase(part, begin, begin + long, step=n)
            for n, begin, fetch in ((0, 15, 20), (1, 40, 10))
            for part, long in (("step", 20), ("fetch", fetch))
        ),
    ]
    waits = [off(21, 14, state="D", waker=0), off(41, 9, state="D", waker=0)]
    tables = {
        "processes": PROCESSES,
        "phases": marks,
        "syscalls": [call("read", 41, 9)],
        "off_cpu": waits,
    }
    by_topic = found(tables, clock=CLOCK)
    assert by_topic["data loading"].value == 50
    assert "90 % of it spent on reads of a disk" in by_topic["data loading"].sentence
