"""Samples of the limits of real cgroups, and their cost, against the kernel's own files."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support.waiting import wait_for
from tracer.analysis.report.samples import samples
from tracer.probes.sampler import cgroup_order
from tracer.store.trace import Trace
from tracer.targets.cgroups import hierarchies
from tracer.workloads.modes import cgroups
from tracer.workloads.modes.cgroups import Memory, Share, entering

MIB = 1 << 20
QUOTA = 0.2
LIMIT, FILE = 24 * MIB, 71 * MIB
NEAR = 64 * (os.cpu_count() or 1)
"""Counts that the kernel may not have added up yet: a batch per CPU (MEMCG_CHARGE_BATCH)."""
SPIN = """
import sys, time
end = time.monotonic() + 1
while time.monotonic() < end: pass
"""
REST = "import time\ntime.sleep(0.3)\n"
"""The end of a load that may be shorter than the time between two samples."""
WAIT = "print('done', flush=True)\nsys.stdin.read()\n"


@pytest.fixture
def limited():
    """Makes a cgroup with limits; returns its folder."""
    made = []

    def make(share=Share(), memory=None):  # noqa: B008 a frozen value
        name = f"tracer-limits-{os.getpid()}-{len(made)}"
        made.append(cgroups.plan(share, name, memory=memory))
        (folder,) = cgroups.make(made[-1])
        return folder

    yield make
    for planned in reversed(made):
        cgroups.remove(planned)


@pytest.fixture
def inner(limited):
    """A cgroup below one with a quota: its folder."""
    folder = limited(Share(quota=QUOTA)) / "inner"
    folder.mkdir()
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(), f"{folder} to empty")
    folder.rmdir()


@pytest.fixture
def sampled(tracer, tmp_path):
    """Records with these options; returns the opened trace."""
    opened = []

    def run(*options):
        folder = tmp_path / f"{len(opened)}.trace"
        tracer("record", "-o", folder, "-e", "processes", "--sample-hz", "20", *options)
        opened.append(Trace(folder))
        return opened[-1]

    yield run
    for trace in opened:
        trace.close()


def series(trace, name):
    """The values over time of a series of the target, by instance."""
    found = {}
    query = "SELECT instance, value FROM samples WHERE name = ? AND target IS NOT NULL ORDER BY ts"
    for instance, value in trace.connection.execute(query, [name]).fetchall():
        found.setdefault(instance, []).append(value)
    return found


def told(folder, file):
    """The numbers in a file of a cgroup, by name; {} if it does not have the file."""
    try:
        text = (folder / file).read_text()
    except FileNotFoundError:
        return {}
    return {words[0]: int(words[-1]) for words in map(str.split, text.splitlines())}


def throttled_s(folder):
    """The time that a cgroup was throttled, in s."""
    stat = told(folder, "cpu.stat")
    return (
        stat["throttled_usec"] / 1e6 if "throttled_usec" in stat else stat["throttled_time"] / 1e9
    )


def missing(trace):
    return trace.manifest["samples"]["not_available"]


def test_a_command_in_a_quota_is_throttled_as_cpu_stat_says(sampled, limited, load):
    folder = limited(Share(quota=QUOTA))
    trace = sampled("--", *entering([folder], load(SPIN)))
    (seen,) = (found := series(trace, "cgroup_throttled_time")).values()
    assert list(found) == [f"/{folder.name}"]  # the cgroup is not the command's alone
    assert seen == sorted(seen)
    assert seen[0] < seen[-1] == pytest.approx(throttled_s(folder), rel=0.05)
    stat = told(folder, "cpu.stat")
    for name in ("nr_periods", "nr_throttled"):
        (counted,) = series(trace, f"cgroup_{name}").values()
        assert 0 < counted[-1] == pytest.approx(stat[name], abs=2)
    (quotas,) = series(trace, "cgroup_cpu_quota").values()
    assert set(quotas) == {QUOTA}
    (rates,) = series(trace, "cgroup_throttled").values()
    assert max(rates) > 0
    assert f"cpu limits of {trace.manifest['targets'][0]['name']}" not in missing(trace)


def test_a_cgroup_with_a_quota_has_the_series_without_an_instance_and_once(sampled, limited, load):
    folder = limited(Share(quota=QUOTA))
    with subprocess.Popen(entering([folder], load("while True: pass"))) as process:
        try:
            wait_for(lambda: (folder / "cgroup.procs").read_text(), "the job")
            trace = sampled("--cgroup", folder, "-d", "0.5")
        finally:
            process.kill()
    found = series(trace, "cgroup_nr_throttled")
    assert list(found) == [None]
    assert found[None][0] < found[None][-1] <= told(folder, "cpu.stat")["nr_throttled"]
    times = "SELECT count(*) - count(DISTINCT ts) FROM samples WHERE name = 'cgroup_nr_throttled'"
    assert trace.connection.execute(times).fetchone() == (0,)


def test_a_quota_above_the_targets_cgroup_is_seen_by_the_name_of_its_cgroup(sampled, inner, load):
    trace = sampled("--", *entering([inner], load(SPIN)))
    above = f"/{inner.parent.name}"
    found = series(trace, "cgroup_throttled_time")
    assert found[above][0] < found[above][-1]
    assert found[above][-1] == pytest.approx(throttled_s(inner.parent), rel=0.05)
    assert set(found.get(f"{above}/inner", [0])) == {0}  # it has no quota of its own
    assert set(series(trace, "cgroup_cpu_quota")) == {above}


def test_a_memory_limit_is_seen_with_what_it_costs(sampled, limited, load, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(os.urandom(FILE))
    device = path.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").exists():
        do_without("a disk", "TRACER_REQUIRE_KERNEL", f"{tmp_path} lies on none")
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    folder = limited(memory=Memory(LIMIT))
    reading = f"""
import os
fd = os.open({str(path)!r}, os.O_RDONLY)
for at in [*range(0, {FILE}, 1 << 20)] * 2: os.pread(fd, 1 << 20, at)
"""
    trace = sampled("--", *entering([folder], load(reading + REST)))
    instance = f"/{folder.name}"

    def last(name):
        return series(trace, name)[instance][-1]

    assert last("cgroup_memory_max") == LIMIT
    stat = told(folder, "memory.stat")
    if (folder / "memory.limit_in_bytes").exists():  # version 1
        refaults = stat["total_workingset_refault_file"]
        for name in ("cgroup_max_events", "cgroup_pgsteal_direct"):
            assert any(name in what for what in missing(trace))
            assert not series(trace, name)
    else:
        refaults = stat["workingset_refault_file"]
        assert 0 < last("cgroup_max_events") == told(folder, "memory.events")["max"]
        for name in ("pgscan", "pgsteal", "pgscan_direct", "pgsteal_direct"):
            assert 0 < last(f"cgroup_{name}") == pytest.approx(stat[name], abs=NEAR)
    # All that is read a second time had been taken, since the file is read in order.
    assert last("cgroup_refault_file") == pytest.approx(refaults, abs=NEAR)
    assert last("cgroup_refault_file") > (FILE - LIMIT) // os.sysconf("SC_PAGE_SIZE")
    assert last("cgroup_oom_kills") == 0


def test_a_kill_for_memory_is_counted(sampled, limited, load):
    folder = limited(memory=Memory(LIMIT))
    source = f"""
import os
if os.fork() == 0:
    held = b"x" * {4 * LIMIT}
    os._exit(0)
os.wait()
"""
    trace = sampled("--", *entering([folder], load(source + REST)))
    kills = series(trace, "cgroup_oom_kills")[f"/{folder.name}"]
    counted = told(folder, "memory.events") or told(folder, "memory.oom_control")
    assert kills[-1] == counted["oom_kill"] == 1


def test_a_process_in_the_root_cgroup_has_no_limits_and_says_why(sampled, load):
    roots = [str(hierarchy.mount) for hierarchy in hierarchies()]
    source = f"""
import os, sys
for root in {roots!r}:
    with open(root + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
"""
    job = load(source + WAIT)
    with subprocess.Popen(job, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "done\n"
            trace = sampled("-p", process.pid, "-d", "0.2")
        finally:
            process.kill()
    name = trace.manifest["targets"][0]["name"]
    for controller in ("cpu", "memory"):
        assert missing(trace)[f"{controller} limits of {name}"].endswith(
            "is the root cgroup, without limits"
        )
    limits = "SELECT count(*) FROM samples WHERE name LIKE 'cgroup%'"
    assert trace.connection.execute(limits).fetchone() == (0,)


def test_the_whole_machine_has_no_limits_and_says_why(sampled):
    trace = sampled("-a", "-d", "0.2")
    assert missing(trace)["cpu limits of machine"] == "the machine is in no cgroup"
    assert not series(trace, "cgroup_throttled_time")


def test_a_process_that_moves_takes_the_reader_with_it(sampled, limited, load):
    folders = [limited(memory=Memory(LIMIT * n)) for n in (1, 2)]
    source = f"""
        import os, sys, time
        for folder in {[str(folder) for folder in folders]!r}:
            with open(folder + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
            time.sleep(0.4)
    """
    trace = sampled("--", *load(source))
    found = series(trace, "cgroup_memory_max")
    first, second = (f"/{folder.name}" for folder in folders)
    assert set(found[first]) == {LIMIT}
    assert set(found[second]) == {2 * LIMIT}
    # Its exit is no move: a process that exits is shown in the root of old hierarchies.
    query = "SELECT arg_max(instance, ts) FROM samples WHERE name = 'cgroup_oom_kills'"
    assert trace.connection.execute(query).fetchone() == (second,)


@pytest.fixture
def pod(limited):
    """Makes cgroups of these names below one with a memory limit; returns its folder."""
    made = []

    def make(*names):
        top = limited(memory=Memory(LIMIT))
        for name in names:
            made.append(top / name)
            control = made[-1].parent / "cgroup.subtree_control"
            if control.exists():
                control.write_text("+memory")
            made[-1].mkdir()
        return top

    yield make
    for folder in reversed(made):
        wait_for(lambda: not (folder / "cgroup.procs").read_text(), f"{folder} to empty")  # noqa: B023
        folder.rmdir()


@pytest.mark.parametrize("named", [True, False])
def test_cgroups_below_a_memory_limit_are_numbered_as_they_were_made(sampled, pod, load, named):
    order = ("b", "a", "b/c", "aa")
    top = pod(*order)
    with subprocess.Popen(entering([top / "a"], load("while True: pass"))) as process:
        try:
            wait_for(lambda: (top / "a/cgroup.procs").read_text(), "the job")
            target = ("--cgroup", top / "a") if named else ("-p", process.pid)
            trace = sampled(*target, "-d", "0.3")
        finally:
            process.kill()
    found = series(trace, "cgroup_number")
    numbers = {f"/{top.name}/{name}": [(top / name).stat().st_ino] for name in order}
    assert found == {None: numbers[f"/{top.name}/a"], **numbers}
    assert [*numbers.values()] == sorted(numbers.values())
    assert "cgroup_number" not in set(samples(trace)["name"])  # it has no mean


def test_a_cgroup_that_comes_later_is_numbered_and_too_many_are_not(sampled, pod, load, tmp_path):
    top = pod("a", *(f"{at}" for at in range(cgroup_order.MOST_BELOW - 2)))
    source = f"""
        import os, time
        samples = {str(tmp_path / "0.trace/raw/samples.jsonl")!r}
        def lines(): return open(samples).read().count("\\n")
        for name in ("late", "too late"):
            os.mkdir({str(top)!r} + "/" + name)
            enough = lines() + 12  # a whole sample, and more
            while lines() < enough: time.sleep(0.01)
        for name in ("late", "too late"):
            os.rmdir({str(top)!r} + "/" + name)
    """
    trace = sampled("--", *entering([top / "a"], load(source)))
    found = series(trace, "cgroup_number")
    assert f"/{top.name}/late" in found and f"/{top.name}/too late" not in found
    name = trace.manifest["targets"][0]["name"]
    why = missing(trace)[f"cgroup_number below /{top.name} of {name}"]
    assert why == f"there are more than {cgroup_order.MOST_BELOW} of them"
