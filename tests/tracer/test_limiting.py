"""The cgroups that limit a target: its own in the hierarchy of each controller, and those above."""

import os

import pytest

from tracer.probes.sampler.limits import Limits, Place
from tracer.session.limits import TargetLimits
from tracer.store.checked import encoded, json_lines
from tracer.store.files import empty
from tracer.store.lists import SampleFacts
from tracer.targets.cgroups import Cgroup, CgroupTarget, hierarchies, of_process
from tracer.targets.limiting import limiting, own_cgroups
from tracer.targets.processes import from_pids, machine

VERSION_2 = {
    "cgroup.controllers": "cpu memory\n",
    "cgroup.events": "populated 1\n",
    "memory.max": "4096\n",
    "memory.high": "4096\n",
    "memory.events": "high 1\nmax 1\noom 1\noom_kill 1\n",
}
"""Files of a cgroup of version 2."""


@pytest.fixture
def mounted(tmp_path):
    """A cgroup in a hierarchy that is mounted in the test's folder."""

    def make(number, controllers, path):
        folder = tmp_path / (controllers or "unified") / path.lstrip("/")
        return Cgroup(number, controllers, path, folder)

    return make


def test_a_controller_of_version_1_is_found_in_its_hierarchy_and_others_in_the_unified(
    mounted, tmp_path
):
    cgroups = [mounted(0, "", "/u"), mounted(3, "cpu,cpuacct", "/c"), mounted(4, "cpuset", "/s")]
    places, why = limiting(cgroups, named=False)
    assert places == [
        Place("cpu", tmp_path / "cpu,cpuacct/c"),
        Place("memory", tmp_path / "unified/u"),
    ]
    assert why == {}


def test_cgroups_above_are_named_by_their_paths_up_to_the_root(mounted, tmp_path):
    places, _ = limiting([mounted(0, "", "/a.slice/b/job")], named=True)
    root = tmp_path / "unified"
    assert [p for p in places if p.controller == "memory"] == [
        Place("memory", root / "a.slice/b/job", "/a.slice/b/job"),
        Place("memory", root / "a.slice/b", "/a.slice/b", above=True),
        Place("memory", root / "a.slice", "/a.slice", above=True),
    ]


def test_a_name_that_is_not_utf_8_is_escaped_as_in_events(mounted):
    places, _ = limiting([mounted(0, "", os.fsdecode(b"/a\xff/b"))], named=True)
    assert {place.instance for place in places} == {r"/a\xff/b", r"/a\xff"}


@pytest.mark.parametrize("cgroups", [[], [Cgroup(4, "memory", "/job", None)]])
def test_a_controller_that_is_not_mounted_has_a_reason(cgroups):
    assert limiting(cgroups, named=False) == (
        [],
        {c: f"no cgroup of the controller {c} is known or mounted here" for c in ("cpu", "memory")},
    )


def test_a_process_lies_in_one_cgroup_of_each_mounted_hierarchy():
    paths = of_process(os.getpid())
    found = {cgroup.hierarchy: cgroup.path for cgroup in own_cgroups(paths)}
    assert found == {h.number: paths[h.number] for h in hierarchies()}
    assert all(cgroup.exists() for cgroup in own_cgroups(paths))


def test_a_cgroup_outside_of_our_namespace_is_left_out():
    paths = {number: f"/../..{path}" for number, path in of_process(os.getpid()).items()}
    assert own_cgroups(paths) == []


def test_a_reader_has_no_reasons_before_it_reads():
    (target,) = from_pids(str(os.getppid()))
    assert TargetLimits(target).missing == {}


def test_the_whole_machine_has_no_limits_and_says_why():
    limits = TargetLimits(machine())
    assert limits.read() == []
    assert limits.missing == {
        f"{c} limits of machine": "the machine is in no cgroup" for c in ("cpu", "memory")
    }


def test_a_process_that_has_ended_has_no_limits_and_says_why():
    (target,) = from_pids(str(os.getppid()))
    target.start_time = -1  # another process had this number
    limits = TargetLimits(target)
    assert limits.read() == []
    assert set(limits.missing.values()) == {"the cgroup of its process could not be read"}


def test_the_names_of_targets_are_escaped_in_reasons(tmp_path):
    name = os.fsdecode(b"job\xff")
    limits = TargetLimits(CgroupTarget(name, [Cgroup(4, "memory", "/job", tmp_path)]))
    assert limits.read() == []
    assert all(what.endswith(r" of job\xff") for what in limits.missing)
    assert len(limits.missing) == 1 + 3  # the controller cpu, and three files


@pytest.fixture
def deep(tmp_path):
    """A cgroup as far below the root as a path reaches; each above it has a limit, too."""
    root = tmp_path / "c"
    root.mkdir()
    depth = (4090 - len(os.fsencode(root))) // 2 - len("/memory.events")
    here = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
        for name, text in VERSION_2.items():
            with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=here), "w") as file:
                file.write(text)
    os.close(here)
    path = "/d" * depth
    yield Cgroup(0, "", path, root / path[1:])
    here = os.open(root, os.O_RDONLY)
    empty(here, 1_000_000)
    os.close(here)


def test_a_target_thousands_of_cgroups_below_gives_samples_that_are_read(deep, tmp_path):
    """A line of samples has a limit."""
    path = deep.path
    reader = Limits()
    reader.at(*limiting([deep], named=True))
    readings = reader.read()
    assert ("cgroup_memory_max", path, 4096) in readings
    assert ("cgroup_memory_max", path[:-2], 4096) in readings
    (tmp_path / "samples.jsonl").write_bytes(encoded((1, 0, readings)) + b"\n")
    ((_, _, found),) = json_lines(tmp_path / "samples.jsonl", SampleFacts)
    assert [tuple(reading) for reading in found] == readings
