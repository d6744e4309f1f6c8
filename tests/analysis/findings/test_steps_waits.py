"""The findings about what the steps' time depended on, in small traces with a known answer."""

import pytest

from tests.support.findings import GAP, PROCESSES, TRAIN, WORKER, S, call, off, phase

DB = {"pid": 60, "tid": 60, "role": "other", "comm": "postgres", "ppid": 1}
STEP = [*TRAIN, phase("step", 10, 20, step=0), phase("fetch", 10, 15, step=0)]


def test_another_process_on_the_cpu_is_named(found):
    by_topic = found(
        {
            "processes": [*PROCESSES, DB],
            "phases": STEP,
            "off_cpu": [
                off(11, 2, state="R+", ran=60, delay=2),
                off(14, 1, state="R+", ran=WORKER, delay=1),
                off(30, 9, state="R+", ran=60, delay=9),  # after the step
            ],
        }
    )
    cpu = by_topic["steps: cpu"]
    assert (round(cpu.value, 6), cpu.unit, cpu.certainty, cpu.lossy) == (30, "%", "inferred", False)
    assert cpu.sentence == (
        "in 30 % of the steps' time, the thread that they depend on waits for a CPU that another"
        " thread has (67 % of it while postgres has it): other processes have it for 67 % of that"
        " time, the job's own threads for 33 %, so give the job CPUs of its own"
    )
    assert cpu.weight == cpu.value / 100


def test_a_worker_that_sleeps_reads_and_computes_is_told_apart(found):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": STEP,
            "syscalls": [
                call("read", 10, 5),
                call("nanosleep", 11, 1, WORKER),
                call("read", 12.5, 1, WORKER),
            ],
            "block": [
                {"ts": int(12.6 * S), "tid": WORKER, "event": "bio_queue", "dev": "254:0",
                 "sector": 8, "nr_sector": 8, "rwbs": "R"},
            ],
            "off_cpu": [
                off(11, 4, waker=WORKER),
                off(11, 1, WORKER, waker=0),
                off(13, 0.5, WORKER, "D", waker=0),
            ],
        }
    )  # fmt: skip
    assert round(by_topic["steps: timer"].value, 6) == 10
    assert round(by_topic["steps: disk"].value, 6) == 5
    assert "(100 % of it of 254:0)" in by_topic["steps: disk"].sentence
    helpers = by_topic["steps: helpers"]
    assert round(helpers.value, 6) == 25
    assert "100 % of it pt_data_worker" in helpers.sentence
    assert "steps: ipc" not in by_topic


@pytest.mark.parametrize(
    ("workers", "named"), [(0, "workers (num_workers of the DataLoader)"), (1, "more workers")]
)
def test_more_workers_are_advised_only_if_there_are_some(found, workers, named):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [*STEP, *([phase("fetch", 10, 15, WORKER)] * workers)],
            "syscalls": [call("read", 10, 5)],
            "off_cpu": [off(11, 2, state="D", waker=0), off(16, 2, waker=WORKER)],
        }
    )
    assert by_topic["steps: disk"].sentence.endswith(
        f": read ahead with {named}, or keep the data in memory"
    )
    sharers = "more workers" if workers else "more threads or processes"
    assert by_topic["steps: helpers"].sentence.endswith(
        f": let {sharers} share that work, or make it cheaper"
    )


def test_no_verb_is_said_to_tell_who_holds_a_lock_that_a_timer_ended(found):
    """Python's global lock: a thread that wants it sleeps for some ms at a time."""
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": STEP,
            "syscalls": [call("futex", 11, 2)],
            "off_cpu": [off(11, 2, waker=0)],
        }
    )
    assert by_topic["steps: lock"].sentence == (
        "in 20 % of the steps' time, the thread that they depend on waits for a lock: threads of"
        " one Python process run one at a time, so move their work into processes"
    )


def test_waits_that_events_do_not_tell_are_inferred_and_losses_are_said(found):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": STEP,
            "syscalls": [call("write", 10, 5)],
            "off_cpu": [off(11, 2, state="D", waker=0)],
            "loss": [{**GAP, "from": 12 * S, "to": 13 * S}],
        }
    )
    disk = by_topic["steps: disk"]
    assert (round(disk.value, 6), disk.certainty, disk.lossy) == (20, "inferred", True)


def test_a_healthy_step_has_no_finding_about_waits(found):
    tables = {"processes": PROCESSES, "phases": STEP, "off_cpu": [off(30, 60)]}
    assert not [topic for topic in found(tables) if topic.startswith("steps:")]
    assert not [topic for topic in found({**tables, "phases": TRAIN}) if "steps:" in topic]


def test_measured_waits_rank_before_bounds_and_before_topics_that_do_not_say_why(found):
    tables = {
        "processes": PROCESSES,
        "phases": STEP,
        "syscalls": [call("fsync", 10, 5), call("read", 16, 2)],
    }
    without = found(tables)
    measured = found({**tables, "off_cpu": [off(11, 2, state="D", waker=0)]})
    for topic in ("sync", "calls"):
        assert measured[topic].value == without[topic].value
        assert measured[topic].weight == without[topic].weight / 4
    assert measured["data loading"].weight == without["data loading"].weight


def test_computing_weighs_without_its_waits(found):
    tables = {
        "processes": [*PROCESSES, DB],
        "phases": [*STEP, phase("forward", 15, 18, step=0), phase("backward", 18, 19, step=0)],
        "off_cpu": [
            off(12, 1, state="R+", ran=60, delay=1),  # in the fetch
            off(16, 1.5, state="R+", ran=60, delay=1.5),
        ],
    }
    computing = found(tables)["computing"]
    assert (round(computing.value, 6), round(computing.weight, 6)) == (40, 0.25)
    assert computing.sentence.endswith(
        "; in 15 % of a minibatch's time, the thread that computes only waits"
    )
    free = found({**tables, "off_cpu": [off(12, 1, state="R+", ran=60, delay=1)]})["computing"]
    assert (round(free.weight, 6), free.sentence[-1]) == (0.4, ")")


@pytest.mark.parametrize(("ran", "certainty"), [(0, "exact"), (None, "inferred")])
def test_a_competitor_is_charged_with_its_own_part_of_the_waits_for_a_cpu(found, ran, certainty):
    """The CPU was idle for the rest, or nobody knows who had it."""
    by_topic = found(
        {
            "processes": [*PROCESSES, DB],
            "phases": STEP,
            "off_cpu": [
                off(11, 3, state="R+", ran=ran, delay=3),
                off(15, 1, state="R+", ran=60, delay=1),
            ],
        }
    )
    cpu = by_topic["steps: cpu"]
    assert (round(cpu.value, 6), cpu.certainty) == (40, certainty)
    assert "waits for a CPU (25 % of it while postgres has it)" in cpu.sentence
    # Fewer threads do not help where the CPU was idle.
    assert ("use fewer threads, or give the job" in cpu.sentence) is (ran is None)


RECORDER = {"pid": 70, "tid": 70, "role": "other", "comm": "tracer", "ppid": 1}
NAMESAKE = {"pid": 71, "tid": 71, "role": "other", "comm": "tracer", "ppid": 1}
OWN_THREAD = {**PROCESSES[0], "tid": 77, "comm": "omp"}


def cpu_waits(found, ran, phases=STEP, off_cpu=(), targets=True, **manifest):
    """The sentence about 4 s of a step in which another thread has the CPU."""
    processes = [*PROCESSES, DB, RECORDER, NAMESAKE, OWN_THREAD]
    tables = {
        "processes": processes if targets else [{**row, "target": None} for row in processes],
        "phases": phases,
        "off_cpu": [off(11, 4, state="R+", ran=ran, delay=4), *off_cpu],
    }
    return found(tables, **manifest)["steps: cpu"].sentence


@pytest.mark.parametrize(
    ("ran", "mend"),
    [
        (60, "other processes have it, so give the job CPUs of its own"),
        (77, "the job's own threads have it, so use fewer threads, or give the job more CPUs"),
        (None, "use fewer threads, or give the job CPUs of its own"),
    ],
)
def test_advice_on_waits_for_a_cpu_depends_on_who_has_it(found, ran, mend):
    assert cpu_waits(found, ran).endswith(f": {mend}")


def test_both_groups_are_told_and_the_largest_holder_of_the_one_that_the_advice_is_about(found):
    """A worker has the CPU for longer than any other process."""
    turns = [
        off(15, 1.5, state="R+", ran=71, delay=1.5),
        off(17, 2.5, state="R+", ran=WORKER, delay=2.5),
    ]
    first = {"off_cpu": [off(11, 2, state="R+", ran=60, delay=2), *turns]}
    sentence = found({"processes": [*PROCESSES, DB, NAMESAKE], "phases": STEP, **first})[
        "steps: cpu"
    ].sentence
    assert sentence.endswith(
        " (33 % of it while postgres has it): other processes have it for 58 % of that time, the"
        " job's own threads for 42 %, so give the job CPUs of its own"
    )


def test_threads_of_the_training_process_are_its_own_in_a_recording_of_the_whole_machine(found):
    assert "the job's own threads have it" in cpu_waits(found, 77, targets=False)
    assert cpu_waits(found, 60, targets=False).endswith(
        ": use fewer threads, or give the job CPUs of its own"
    )


def test_workers_are_named_only_if_the_job_has_some(found):
    fetch = phase("fetch", 10, 15, WORKER, step=0)
    assert "so use fewer threads or workers, or" in cpu_waits(found, 77, [*STEP, fetch])


def test_the_recorder_is_told_from_another_process_of_its_name(found):
    manifest = {"recorder": {"pid": 70, "guardian": [72, 5]}}
    assert "while the recorder has it" in cpu_waits(found, 70, **manifest)
    other = cpu_waits(found, 71, **manifest)
    assert "while tracer (not the recorder) has it" in other
    assert "while tracer has it" in cpu_waits(found, 71)
