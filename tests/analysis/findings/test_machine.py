"""Page faults, CPU, memory, the recorder: each finding of a small trace, its answer known."""

import pytest

from tests.support.findings import PROCESSES, S, faults, phase, sample


def test_faults_of_which_nothing_is_known_are_no_finding(found):
    assert found({"page_faults": faults(100)}) == {}


def test_major_faults_by_file_and_phase(found):
    torch = {"file": "/usr/lib/libtorch_cpu.so", "ip_file": "/lib/ld.so", "symbol": "relocate"}
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [phase("model_load", 0, 10), phase("train", 10, 100)],
            "page_faults": [
                *faults(71, **torch),
                *faults(9, **{**torch, "ts": 50 * S}),
                *faults(20, file="/data/x", ip_file="/usr/bin/python"),
                *faults(300, kind="minor", ip_file="/usr/bin/python"),
            ],
        }
    )
    major = by_topic["major faults"]
    assert major.value == 71
    assert major.sentence.startswith("71 % of major faults read libtorch_cpu.so in model_load")
    assert major.weight == pytest.approx(0.71 * 0.25)
    every = by_topic["page faults"]
    assert every.value == 80
    assert "taken in python (320 of 400)" in every.sentence


def test_major_faults_outside_of_stages_are_not_taken_for_all(found):
    rows = [*faults(60, file="/x"), *faults(40, file="/x", ts=50 * S)]
    by_topic = found({"phases": [phase("train", 10, 100)], "page_faults": rows})
    assert by_topic["major faults"].sentence.startswith(
        "60 % of major faults read x in no stage (60 of 100)"
    )
    by_topic = found({"page_faults": rows})
    assert by_topic["major faults"].sentence.startswith("100 % of major faults read x (100 of 100)")


def test_a_few_faults_are_no_finding(found):
    assert found({"page_faults": faults(5, file="/x")}) == {}


def test_cpu_and_memory_that_are_short(found):
    rows = [
        *(sample(t, "pressure_cpu_some_time", t / 4, "job") for t in (0, 100)),
        *(sample(t, "pressure_cpu_some_time", t / 2) for t in (0, 100)),
        *(sample(t, "cpu_time", 1.8 * t) for t in (0, 100)),
        *(sample(t, "pressure_memory_some_time", t / 10) for t in (0, 100)),
        *(sample(t, "pswpin", 2560 * t) for t in (0, 10)),
        *(sample(t, "disk_use", 80.0, instance="vda") for t in range(5)),
    ]
    by_topic = found({"samples": rows})
    assert by_topic["CPU pressure"].value == 25
    assert "a task of job waits for a CPU (raise the CPU limit" in by_topic["CPU pressure"].sentence
    assert by_topic["CPU use"].sentence.endswith(": little is left, whoever uses them")
    assert by_topic["CPU use"].value == pytest.approx(90)
    assert by_topic["memory pressure"].value == 10
    assert by_topic["swap"].value == 100
    assert by_topic["swap"].sentence.startswith("100.0 MiB moved to or from swap")
    assert by_topic["disk use"].value == 80
    assert by_topic["disk use"].sentence.endswith("may have room)")


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_advice_for_the_job_is_not_given_if_any_program_may_wait(found, resource):
    named = f"pressure_{resource}_some_time"
    topic = {"cpu": "CPU pressure", "memory": "memory pressure"}[resource]
    for target, mend in (("job", "workers)"), (None, "do not tell which program waits)")):
        rows = [sample(t, named, t / 4, target) for t in (0, 100)]
        assert found({"samples": rows})[topic].sentence.endswith(mend)


def test_pressure_begins_at_0_again_with_another_cgroup(found, query_again):
    """A container that was started again: 20 s of 50 s, then 5 s of 40 s; 10 s are not known."""
    before = [sample(t, "pressure_cpu_some_time", 3600 + 0.4 * t, "job") for t in range(0, 51, 10)]
    after = [sample(60 + t, "pressure_cpu_some_time", t / 8, "job") for t in range(0, 41, 10)]
    pressure = found({"samples": [*before, *after]})["CPU pressure"]
    assert pressure.value == pytest.approx(100 * (20 + 5) / (50 + 40))
    query_again(pressure)


@pytest.mark.parametrize("used", [4.0, 1.2345678901234567])
def test_the_recorder_s_own_cost(found, used):
    by_topic = found({}, own_cost={"capture_cpu_s": used, "cpu_s": 60.0})
    assert by_topic["own cost"].value == pytest.approx(used / 4)  # of 200 s of two CPUs


def test_the_use_of_the_cpus_is_not_told_of_a_moment_and_is_never_above_all_of_them(found):
    """The kernel counts in ticks, so a share of a short time may be anything."""
    short = [sample(t, "cpu_time", 3 * t) for t in (0, 0.1)]
    assert "CPU use" not in found({"samples": short})
    longer = [sample(t, "cpu_time", 2.01 * t) for t in (0, 100)]
    assert found({"samples": longer})["CPU use"].value == 100


def test_time_that_the_host_took_during_the_training_is_a_share_of_that_with_work(found):
    """100 s of training on 2 CPUs: 120 s of work, and 30 s taken; before it, much more is taken."""
    taken = [sample(t, "steal_time", 50 + 0.3 * t) for t in range(100)]
    used = [sample(t, "cpu_time", 1.2 * t) for t in range(100)]
    rows = [sample(-1, "steal_time", 0.0), sample(-1, "cpu_time", -1.0), *taken, *used]
    steal = found({"samples": rows, "phases": [phase("train", 0, 99)]})["steal"]
    assert steal.value == pytest.approx(20)
    assert steal.sentence.startswith(
        "for 20 % of the time in which the CPUs of this virtual machine"
    )


def test_a_host_that_takes_nothing_is_not_named(found):
    rows = [sample(t, name, 0.0) for t in (0, 100) for name in ("steal_time", "iowait_time")]
    rows += [sample(t, "cpu_time", float(t)) for t in (0, 100)]
    assert "steal" not in found({"samples": rows})
    before = [row for row in rows if row["name"] != "steal_time"]  # of an earlier version
    assert "steal" not in found({"samples": before})
