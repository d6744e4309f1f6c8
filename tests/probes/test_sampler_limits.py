"""Limits of cgroups from their files: both versions, what is not there, and hostile contents."""

import pytest

from tracer.probes.sampler.limits import Limits, Place
from tracer.probes.sampler.reading import NotAvailable, numbers

VERSION_2 = {
    "cgroup.controllers": "cpu memory pids\n",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cpu.max": "50000 100000\n",
    "cpu.stat": "usage_usec 2351927\nuser_usec 2113342\nsystem_usec 238584\nnice_usec 0\n"
    "nr_periods 47\nnr_throttled 43\nthrottled_usec 2093874\nnr_bursts 0\nburst_usec 0\n",
    "memory.max": "67108864\n",
    "memory.high": "50331648\n",
    "memory.events": "low 0\nhigh 811\nmax 23\noom 3\noom_kill 1\noom_group_kill 0\n",
    "memory.stat": "anon 1056768\nfile 60817408\nworkingset_refault_anon 0\n"
    "workingset_refault_file 8011\nworkingset_activate_file 5\npgfault 97\npgmajfault 2\n"
    "pgscan 90007\npgsteal 30011\npgscan_kswapd 0\npgscan_direct 90001\npgscan_khugepaged 6\n"
    "pgsteal_kswapd 0\npgsteal_direct 30001\n",
}
VERSION_1_CPU = {
    "cpu.cfs_quota_us": "150000\n",
    "cpu.cfs_period_us": "100000\n",
    "cpu.stat": "nr_periods 47\nnr_throttled 43\nthrottled_time 2093874011\nnr_bursts 0\n"
    "burst_time 0\n",
}
VERSION_1_MEMORY = {
    "memory.limit_in_bytes": "67108864\n",
    "memory.failcnt": "811\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    "memory.stat": "cache 60817408\nworkingset_refault_file 7\npgpgin 23\ntotal_cache 60817408\n"
    "total_workingset_refault_anon 0\ntotal_workingset_refault_file 8011\ntotal_pgpgin 23\n",
}
UNLIMITED_1 = "9223372036854771712\n"


@pytest.fixture
def cgroup(tmp_path):
    """A folder with the files of a cgroup."""

    def make(files, name="job"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(text)
        return folder

    return make


def read(*places, why=None):
    limits = Limits()
    limits.at(places, why or {})
    return {(name, instance): value for name, instance, value in limits.read()}, limits


def own(folder, controllers=("cpu", "memory")):
    return [Place(controller, folder) for controller in controllers]


def test_a_cgroup_of_version_2_gives_its_limits_and_their_cost(cgroup):
    folder = cgroup(VERSION_2)
    values, limits = read(*own(folder))
    assert {name: value for (name, _), value in values.items()} == {
        "cgroup_cpu_quota": 0.5,
        "cgroup_nr_periods": 47,
        "cgroup_nr_throttled": 43,
        "cgroup_throttled_time": pytest.approx(2.093874),
        "cgroup_memory_max": 64 << 20,
        "cgroup_memory_high": 48 << 20,
        "cgroup_high_events": 811,
        "cgroup_max_events": 23,
        "cgroup_oom_events": 3,
        "cgroup_oom_kills": 1,
        "cgroup_pgscan": 90_007,
        "cgroup_pgsteal": 30_011,
        "cgroup_pgscan_direct": 90_001,
        "cgroup_pgsteal_direct": 30_001,
        "cgroup_refault_file": 8011,
        "cgroup_refault_anon": 0,
        "cgroup_number": folder.stat().st_ino,
    }
    assert {instance for _, instance in values} == {None}
    assert limits.missing == {}


def test_cgroups_of_version_1_give_what_they_count_and_say_what_they_do_not(cgroup):
    cpu, memory = cgroup(VERSION_1_CPU, "cpu"), cgroup(VERSION_1_MEMORY, "memory")
    values, limits = read(*own(cpu, ["cpu"]), *own(memory, ["memory"]))
    assert {name: value for (name, _), value in values.items()} == {
        "cgroup_cpu_quota": 1.5,
        "cgroup_nr_periods": 47,
        "cgroup_nr_throttled": 43,
        "cgroup_throttled_time": pytest.approx(2.093874011),
        "cgroup_memory_max": 64 << 20,
        "cgroup_oom_kills": 1,
        "cgroup_refault_file": 8011,
        "cgroup_refault_anon": 0,
        "cgroup_number": memory.stat().st_ino,
    }
    assert limits.missing == {
        "cgroup_memory_high": "no such limit is set",
        "cgroup_high_events, cgroup_max_events, cgroup_oom_events": (
            "cgroups of version 1 do not count it"
        ),
        "cgroup_pgscan, cgroup_pgsteal, cgroup_pgscan_direct, cgroup_pgsteal_direct": (
            "memory.stat of version 1 does not count it"
        ),
    }


@pytest.mark.parametrize(
    "files",
    [
        VERSION_2 | {"cpu.max": "max 100000\n", "memory.max": "max\n", "memory.high": "max\n"},
        VERSION_1_CPU
        | VERSION_1_MEMORY
        | {"cpu.cfs_quota_us": "-1\n", "memory.limit_in_bytes": UNLIMITED_1},
    ],
    ids=["version 2", "version 1"],
)
def test_a_cgroup_without_limits_has_counters_and_a_reason(cgroup, files):
    values, limits = read(*own(cgroup(files)))
    names = {name for name, _ in values}
    assert not names & {"cgroup_cpu_quota", "cgroup_memory_max", "cgroup_memory_high"}
    assert values["cgroup_nr_throttled", None] == 43
    assert limits.missing["cgroup_cpu_quota"] == "no quota is set"
    assert limits.missing["cgroup_memory_max, cgroup_memory_high"] == "no such limit is set"


@pytest.mark.parametrize(
    "files",
    [
        {k: v for k, v in VERSION_2.items() if k not in ("cgroup.events", "cpu.max")},
        VERSION_1_CPU | VERSION_1_MEMORY | {"release_agent": "\n"},
    ],
    ids=["version 2", "version 1"],
)
def test_the_root_cgroup_has_no_throttling_though_it_has_the_files(cgroup, files):
    folder = cgroup(files)
    values, limits = read(*own(folder))
    assert values == {}
    why = f"{folder} is the root cgroup, without limits"
    assert limits.missing == {"cpu limits": why, "memory limits": why}


def test_a_move_into_the_root_does_not_deny_what_was_read_before(cgroup):
    job, root = cgroup(VERSION_2, "job"), cgroup({"cgroup.controllers": "cpu memory\n"}, "root")
    limits = Limits()
    limits.at(own(job, ["cpu"]), {})
    assert limits.read()
    limits.at(own(root), {})
    assert limits.read() == []
    assert limits.missing == {"memory limits": f"{root} is the root cgroup, without limits"}


def test_a_controller_that_is_off_is_said(cgroup):
    files = {
        "cgroup.controllers": "pids\n",
        "cgroup.events": "populated 1\n",
        "cpu.stat": "usage_usec 5\nuser_usec 5\nsystem_usec 0\n",
    }
    folder = cgroup(files)
    values, limits = read(*own(folder))
    assert values == {}
    assert set(limits.missing.values()) == {
        f"the controller cpu is off in {folder}",
        f"the controller memory is off in {folder}",
    }


def test_a_controller_without_a_cgroup_has_the_reason_that_was_given(cgroup):
    values, limits = read(*own(cgroup(VERSION_2), ["memory"]), why={"cpu": "nothing is mounted"})
    assert ("cgroup_memory_max", None) in values
    assert limits.missing == {"cpu limits": "nothing is mounted"}


def test_a_cgroup_above_is_read_while_it_has_a_limit_and_by_its_own_name(cgroup):
    slice_ = cgroup(VERSION_2, "user.slice")
    inner = cgroup(VERSION_2, "user.slice/job")
    limits = Limits()
    limits.at([Place("cpu", inner), Place("cpu", slice_, "/user.slice", above=True)], {})
    (slice_ / "cpu.stat").write_text("nr_periods 9\nnr_throttled 7\nthrottled_usec 3000000\n")

    def throttled():
        return {i: value for name, i, value in limits.read() if name == "cgroup_throttled_time"}

    assert throttled() == {None: pytest.approx(2.093874), "/user.slice": 3.0}
    (slice_ / "cpu.max").write_text("max 100000\n")
    assert throttled() == {None: pytest.approx(2.093874)}
    assert limits.missing == {}


def test_reclaim_of_a_cgroup_above_is_not_read_because_it_is_that_of_all_below(cgroup):
    folder = cgroup(VERSION_2)
    values, _ = read(Place("memory", folder, "/user.slice", above=True))
    assert {name for name, _ in values} == {
        "cgroup_memory_max",
        "cgroup_memory_high",
        "cgroup_high_events",
        "cgroup_max_events",
        "cgroup_oom_events",
        "cgroup_oom_kills",
    }


def test_the_kernels_that_count_refaults_of_files_alone_are_read(cgroup):
    files = VERSION_2 | {"memory.stat": "workingset_refault 19\npgscan 5\npgsteal 3\n"}
    values, limits = read(*own(cgroup(files), ["memory"]))
    assert values["cgroup_refault_file", None] == 19
    missing = "cgroup_pgscan_direct, cgroup_pgsteal_direct, cgroup_refault_anon"
    assert limits.missing == {missing: "memory.stat of version 2 does not count it"}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cpu.stat", "nr_periods many\n"),
        ("cpu.stat", f"nr_periods {'9' * 4000}\n"),
        ("cpu.stat", "nr_periods\n"),
        ("cpu.max", "50000 0\n"),
        ("cpu.max", "50000\n"),
        ("cpu.max", "-1 100000\n"),
        ("cpu.max", "\u0661 \u0661\n"),
        ("cpu.max", "5 5 5\n"),
        ("cpu.max", ""),
        ("memory.max", "many\n"),
        ("memory.max", f"{1 << 64}\n"),
        ("memory.events", "high 1e9\n"),
        ("memory.events", "high nan\n"),
        ("memory.stat", "pgscan 5\n" * 150_000),
        ("memory.stat", "pgscan \x00\n"),
    ],
)
def test_a_file_that_is_no_cgroups_gives_no_value_and_the_others_do(cgroup, file, text):
    folder = cgroup(VERSION_2)
    (folder / file).write_bytes(text.encode())
    values, limits = read(*own(folder))
    lost = {
        "cpu.stat": "cgroup_nr_periods",
        "cpu.max": "cgroup_cpu_quota",
        "memory.max": "cgroup_memory_max",
        "memory.events": "cgroup_high_events",
        "memory.stat": "cgroup_pgscan",
    }[file]
    assert (lost, None) not in values
    assert len(values) >= 10
    ((what, why),) = limits.missing.items()
    assert lost in what.split(", ")
    assert str(folder / file) in why


def test_a_cgroup_that_is_removed_gives_nothing_and_no_reason_for_what_it_gave(cgroup):
    folder = cgroup(VERSION_2)
    limits = Limits()
    limits.at(own(folder), {})
    assert limits.read()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert limits.read() == []
    assert limits.missing == {}


def test_a_cgroup_that_is_removed_keeps_the_reasons_for_what_it_did_not_give(cgroup):
    folder = cgroup(VERSION_1_CPU | VERSION_1_MEMORY | {"cpu.cfs_quota_us": "-1\n"})
    limits = Limits()
    limits.at(own(folder), {})
    assert limits.read()
    missing = limits.missing
    assert missing["cgroup_cpu_quota"] == "no quota is set"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert limits.read() == []
    assert limits.missing == missing


def test_a_number_beyond_64_bits_is_refused(tmp_path):
    path = tmp_path / "memory.stat"
    path.write_text(f"pgfault {1 << 64}\n")
    with pytest.raises(NotAvailable, match="without a number"):
        numbers(path, frozenset(("pgfault",)))
