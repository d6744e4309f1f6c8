"""The names of targets: each target of a recording has a name of its own."""

import pytest

from tracer.targets import named_apart
from tracer.targets.cgroups import Cgroup, CgroupTarget
from tracer.targets.processes import ProcessTarget


def process(name, pid):
    return ProcessTarget(name, "pid", pid, 1)


def cgroup(name, *controllers):
    return CgroupTarget(name, [Cgroup(n, each, name, None) for n, each in enumerate(controllers)])


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        ([process("python", 5), process("sh", 7)], ["python", "sh"]),
        ([process("python", 5), process("python", 7)], ["python-5", "python-7"]),
        (
            [process("python", 5), process("python", 7), process("python-5", 9)],
            ["python-5-2", "python-7", "python-5"],
        ),
        ([cgroup("/job", "memory"), cgroup("/job", "")], ["/job-memory", "/job-unified"]),
        (
            [cgroup("/job", "", "memory", "pids"), cgroup("/job", "cpu,cpuacct")],
            ["/job-cgroup", "/job-cpu,cpuacct"],
        ),
        ([cgroup("/job", "a"), cgroup("/job", "a")], ["/job-a", "/job-a-2"]),
    ],
    ids=["unlike", "pids", "taken", "hierarchies", "several", "numbers"],
)
def test_each_target_has_a_name_of_its_own(targets, names):
    assert [target.name for target in named_apart(targets)] == names


def test_two_targets_are_not_equal_even_if_all_their_facts_are():
    one, two = process("python", 5), process("python", 5)
    assert one != two
    assert [one, two].index(two) == 1
