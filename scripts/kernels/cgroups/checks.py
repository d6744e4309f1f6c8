"""The checks of cgroups of version 2: numbers of the loads, and of the kernel's own files."""

from __future__ import annotations

from typing import Any

from scripts.kernels.cgroups import loads, trials
from scripts.kernels.check import Check
from scripts.kernels.recorded import Failed, Recorded, Skipped

_PAGE = 4096
_NEAR = 128
"""Counts that the kernel may not have added up yet: a batch of each of two CPUs."""
_PERIOD_NS = loads.PERIOD_US * 1000
_TOLD = 0.95
"""Least share of the throttled time that `waits` tells."""
_EXACT = 0.1
"""Largest error of a measured speed."""
_WRITTEN_BACK = 0.7
"""Least share of the allowed speed that write-back has. The kernel reckons in slices of time
(block/blk-throttle.c), and the bios of write-back are large."""
_FREE = 2
"""A medium without a limit is at least so many times as fast."""


def _last(recorded: Recorded, load: str) -> dict[str, float]:
    """Returns the last value of each series of a load's cgroup."""
    query = (
        "SELECT name, arg_max(value, ts) FROM samples "
        "WHERE target = ? AND instance IS NULL GROUP BY name"
    )
    return dict(recorded.rows(query, recorded.load(load)["said"]["cgroup"]))


def _files(recorded: Recorded, load: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = recorded.load(load)["said"]["files"]
    return found


def _same(what: str, found: float | None, wanted: float, near: float = 0) -> None:
    if found is None or abs(found - wanted) > near:
        raise Failed(f"{what} is {found}, not {wanted}" + (f" within {near}" if near else ""))


def _more(what: str, found: float | None, than: float) -> None:
    if found is None or found <= than:
        raise Failed(f"{what} is {found}, not more than {than}")


def _limited(recorded: Recorded) -> None:
    values, files = _last(recorded, "reading"), _files(recorded, "reading")
    _same("cgroup_memory_max", values.get("cgroup_memory_max"), loads.LIMIT)
    _same("cgroup_max_events", values.get("cgroup_max_events"), files["memory.events"]["max"])
    _more("cgroup_max_events", values.get("cgroup_max_events"), 0)
    stat = files["memory.stat"]
    for name in ("pgscan", "pgsteal", "pgscan_direct", "pgsteal_direct"):
        _same(f"cgroup_{name}", values.get(f"cgroup_{name}"), stat[name], _NEAR)
        _more(
            f"cgroup_{name}", values.get(f"cgroup_{name}"), (loads.TIMES - 1) * loads.LIMIT // _PAGE
        )
    refaults = values.get("cgroup_refault_file")
    _same("cgroup_refault_file", refaults, stat["workingset_refault_file"], _NEAR)
    # The file is read in order: all that is read again had been taken.
    _more("cgroup_refault_file", refaults, (loads.TIMES - 1) * loads.LIMIT // _PAGE)
    _same("cgroup_oom_kills", values.get("cgroup_oom_kills"), 0)


def _reclaim(recorded: Recorded) -> None:
    load = recorded.load("reading")
    ((events, begun, ended, taken, target),) = recorded.rows(
        "SELECT list_sort(list(DISTINCT event)), "
        "count(*) FILTER (event = 'memcg_begin'), count(*) FILTER (event = 'memcg_end'), "
        "sum(nr_reclaimed)::INT, any_value(p.target) "
        "FROM reclaim r LEFT JOIN processes p USING (pid, tid) "
        "WHERE pid = ? AND event LIKE 'memcg%'",
        load["pid"],
    )
    _same("pairs of begin and end", ended, begun)
    if (events, target) != (["memcg_begin", "memcg_end"], load["said"]["cgroup"]):
        raise Failed(f"{events} of {target}")
    direct = _files(recorded, "reading")["memory.stat"]["pgsteal_direct"]
    _same("pages taken in direct reclaim", taken, direct, 0.01 * direct)
    inode = load["said"]["inode"]
    others = recorded.rows(
        "SELECT DISTINCT cgroup_ino FROM reclaim WHERE pid = ? AND event LIKE 'memcg%' "
        "AND cgroup_ino IS NOT NULL AND cgroup_ino != ?",
        load["pid"],
        inode,
    )
    if others:
        raise Failed(f"reclaim of the cgroups {others}, not of {inode}")


def _high(recorded: Recorded) -> None:
    values, files = _last(recorded, "high"), _files(recorded, "high")
    _same("cgroup_memory_high", values.get("cgroup_memory_high"), loads.HIGH)
    _same("cgroup_high_events", values.get("cgroup_high_events"), files["memory.events"]["high"])
    _more("cgroup_high_events", values.get("cgroup_high_events"), 0)
    _same("cgroup_max_events", values.get("cgroup_max_events"), 0)


def _killed(recorded: Recorded) -> None:
    load = recorded.load("greedy")
    _same("the signal", load["said"]["signal"], 9)
    values, files = _last(recorded, "greedy"), _files(recorded, "greedy")
    _same("oom_kill of memory.events", files["memory.events"]["oom_kill"], 1)
    _same("cgroup_oom_kills", values.get("cgroup_oom_kills"), 1)
    _same("cgroup_oom_events", values.get("cgroup_oom_events"), files["memory.events"]["oom"])
    victim = load["said"]["victim"]
    recorded.expect(
        [(victim, load["said"]["cgroup"])],
        "SELECT victim_tid, p.target FROM reclaim r "
        "LEFT JOIN processes p ON p.tid = r.victim_tid WHERE event = 'oom_kill'",
    )


def _quota(recorded: Recorded) -> None:
    values, stat = _last(recorded, "spinning"), _files(recorded, "spinning")["cpu.stat"]
    _same("cgroup_cpu_quota", values.get("cgroup_cpu_quota"), loads.QUOTA_US / loads.PERIOD_US)
    for name in ("nr_periods", "nr_throttled"):
        _same(f"cgroup_{name}", values.get(f"cgroup_{name}"), stat[name], 1)
    _more("cgroup_nr_throttled", values.get("cgroup_nr_throttled"), 20)
    throttled = stat["throttled_usec"] / 1e6
    _same("cgroup_throttled_time", values.get("cgroup_throttled_time"), throttled, 0.1)


def _throttled(recorded: Recorded) -> None:
    load = recorded.load("spinning")
    said = load["said"]
    before, after = (
        dict(line.split() for line in said[name].splitlines()) for name in ("before", "after")
    )
    stopped, used = (
        (int(after[name]) - int(before[name])) * 1000 for name in ("throttled_usec", "usage_usec")
    )
    # A thread may run on after its quota is used up, until its CPU sees to it. The kernel counts
    # that as both.
    stopped = min(stopped, said["ended"] - said["begun"] - used)
    ((told,),) = recorded.rows(
        "SELECT sum(dur_ns)::BIGINT FROM waits "
        "WHERE pid = ? AND kind = 'throttled' AND ts >= ? AND ts < ?",
        load["pid"],
        said["begun"],
        said["ended"],
    )
    _more("the throttled time in ms", (told or 0) / 1e6, _TOLD * stopped / 1e6)
    _same("the throttled time in ms", (told or 0) / 1e6, stopped / 1e6,
          ((1 - _TOLD) * stopped + _PERIOD_NS) / 1e6)  # fmt: skip


def _moving(recorded: Recorded) -> None:
    load = recorded.load("moving")
    recorded.expect(
        [(load["said"]["cgroup"], loads.IN_CHILD + loads.BACK + loads.BELOW)],
        "SELECT any_value(p.target), count(*) FROM syscalls s "
        "LEFT JOIN processes p USING (pid, tid) WHERE s.name = 'times' AND s.pid = ?",
        load["pid"],
    )


def _ended(recorded: Recorded) -> None:
    load = recorded.load("ended", status=-9)
    if not load["said"]["can kill"]:
        raise Skipped("the kernel has no cgroup.kill")
    recorded.expect(
        [(load["said"]["cgroup"], True, loads.KILLED)],
        "SELECT any_value(p.target), any_value(p.end_ns) > max(s.ts), count(*) FROM syscalls s "
        "LEFT JOIN processes p USING (pid, tid) WHERE s.name = 'times' AND s.pid = ?",
        load["pid"],
    )


def _members_only(recorded: Recorded) -> None:
    recorded.expect(
        [],
        "SELECT pid, count(*) FROM syscalls ANTI JOIN "
        "(SELECT pid FROM processes WHERE target IS NOT NULL) USING (pid) GROUP BY ALL",
    )


def _no_loss(recorded: Recorded) -> None:
    # A process that joins a cgroup from outside is followed a moment later, which is stated.
    recorded.expect(
        [], "SELECT stream, count, cause FROM loss WHERE stream != 'joins' ORDER BY ALL"
    )


def _speeds(recorded: Recorded) -> None:
    said = recorded.tried("medium")
    wanted = trials.SPEED.read_bytes_per_s
    for what, found in said["limited"].items():
        _same(f"bytes/s {what}", found, wanted, _EXACT * wanted)
    _more("bytes/s written back", said["written back"], _WRITTEN_BACK * wanted)
    _more("bytes/s allowed", (1 + _EXACT) * wanted, said["written back"])
    few = trials.FEW.read_iops
    for what, found in said["few"].items():
        _same(f"requests/s {what}", found, few, _EXACT * few)
    for when in ("free", "after"):
        for what, found in said[when].items():
            _more(f"bytes/s {what} without a limit", found, _FREE * trials.SPEED.read_bytes_per_s)


def _left(recorded: Recorded, trial: str) -> None:
    before, after = recorded.tried(trial)["left"]
    left = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    if left:
        raise Failed(f"left behind, before and after: {left}")


def _job(recorded: Recorded) -> None:
    said: dict[str, Any] = recorded.tried("memory")
    wanted = {
        "made": ["/sys/fs/cgroup/traintrace-trial"],
        "files": {"memory.max": str(trials.LIMIT), "cpu.max": "50000 100000"},
        "cgroup": "0::/traintrace-trial",
        "status": -9,
        "out_of_memory": True,
    }
    found = {name: said[name] for name in wanted}
    if found != wanted:
        raise Failed(f"{found}")
    _left(recorded, "memory")


_READ = f"{loads.TIMES} x memory.max read {loads.PASSES} times"
CHECKS = (
    Check(f"{_READ}: limit and reclaim in the samples", _limited),
    Check(f"{_READ}: direct reclaim of its cgroup", _reclaim),
    Check("memory.high: its events in the samples", _high),
    Check("a process killed at memory.max: counted and named", _killed),
    Check("cpu.max of 20 %: periods and time as in cpu.stat", _quota),
    Check("cpu.max of 20 %: at least 95 % of the time in waits", _throttled),
    Check(f"{loads.IN_CHILD + loads.BACK + loads.BELOW} calls of a process that moves", _moving),
    Check(f"{loads.KILLED} calls of a process that cgroup.kill ends", _ended),
    Check("no system call of anybody else", _members_only),
    Check("io.max: a medium's bytes and requests per second within 10 %", _speeds),
    Check("io.max: nothing is left of a limited medium", lambda r: _left(r, "medium")),
    Check("a job on the host at a memory limit is killed and says why", _job),
    Check("nothing lost", _no_loss),
)
"""In the order of the table's rows."""
