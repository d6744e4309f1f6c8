"""perf beside the capture: counters of the targets, call graphs of events."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tracer.probes.backends.perf_tools import command, stat
from tracer.probes.backends.perf_tools import record as perf_record
from tracer.probes.backends.perf_tools.command import Running
from tracer.probes.errors import TracerError
from tracer.probes.schema import Scope
from tracer.session.capture import default_kib
from tracer.store.files import create
from tracer.store.manifest_parts import CounterFile, Perf
from tracer.targets import Target
from tracer.targets.cgroups import Cgroup, hierarchies
from tracer.targets.containers import AwaitedContainer

_TRIES = 3
"""Attempts to begin to count an awaited container."""


class PerfTools:
    """The perf processes of one recording; none without counters and call graphs."""

    def __init__(self, counters: bool, callgraphs: Iterable[str] | None) -> None:
        """Finds perf and checks that it supports the request. Starts nothing.

        Raises FeatureMissing, PermissionMissing or UsageError, with the mend.
        """
        self._perf: command.Perf | None = None
        self._plan: stat.Plan | None = None
        self._groups: list[list[str]] = []
        self._running: dict[str, Running] = {}
        self._outputs: dict[str, int] = {}
        self._facts: Perf = {}
        self._failures: dict[str, str] = {}
        self._tries: Counter[str] = Counter()
        wanted = list(callgraphs or [])
        events = perf_record.split(wanted) if wanted else []
        if not counters and not events:
            return
        self._perf = command.find_perf()
        self._facts = {"version": self._perf.version}
        if counters:
            stat.check(self._perf)
            self._plan = stat.plan()
        if events:
            perf_record.check(self._perf, events)
            self._groups = perf_record.groups(events)
            self._facts["callgraphs"] = [
                {
                    "file": f"callgraph-{number}.perf.data",
                    "events": group,
                    "formats": perf_record.formats(group),
                }
                for number, group in enumerate(self._groups)
            ]

    def without_names(self, why: TracerError) -> None:
        """Notes why the kernel's functions have no names in the call graphs."""
        self._facts["unnamed"] = str(why)

    @property
    def wanted(self) -> bool:
        """True if perf has something to do."""
        return self._perf is not None

    @property
    def pids(self) -> list[int]:
        """Pids of the running perf processes."""
        return [running.pid for running in self._running.values()]

    @property
    def written(self) -> int:
        """Bytes that they have written so far."""
        return sum(os.fstat(fd).st_size for fd in self._outputs.values())

    def start(self, raw: Path, targets: list[Target], buffer_kib: int | None) -> None:
        """Starts every perf with its events off and waits until it is ready. Raises on failure."""
        if self._perf is None:
            return
        callgraphs = self._facts.get("callgraphs", [])
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        kib = buffer_kib or default_kib(Scope.MACHINE, os.cpu_count() or 1, memory)
        for entry in callgraphs:
            name = entry["file"]
            self._running[name] = perf_record.record(
                self._perf, entry["events"], [os.getpid()], kib, self._output(raw / name)
            )
        for running in self._running.values():
            running.wait_ready()
        if self._plan is not None:
            self._facts["counters"] = [
                self._count(self._plan, raw / f"counters-{number}.csv", target)
                for number, target in enumerate(targets)
                if not _is_awaited(target)
            ]
        self._facts["pids"] = self.pids

    def arrived(self, raw: Path, number: int, target: Target) -> int | None:
        """Counts an awaited container from now on, if its cgroup is there and not counted yet.

        Returns the pid of the new perf. A perf that does not begin is tried again at the next
        calls, a few times; the manifest tells why the last one failed.
        """
        name = f"counters-{number}.csv"
        if self._plan is None or name in self._running or self._tries[name] == _TRIES:
            return None
        if _cgroup(target) is None:
            return None
        self._tries[name] += 1
        try:
            facts = self._count(self._plan, raw / name, target)
        except TracerError as error:
            self._failures[name] = str(error)
            return None
        self._failures.pop(name, None)
        facts["arrived"] = True
        self._facts["counters"].append(facts)
        self._running[name].enable()
        self._facts["pids"] = self.pids
        return self._running[name].pid

    def _count(self, plan: stat.Plan, path: Path, target: Target) -> CounterFile:
        assert self._perf is not None
        facts: CounterFile = {
            "target": target.describe()["name"],
            "file": path.name,
            "missing": list(plan.missing),
        }
        pids: Callable[[], list[int]] | None = None
        cgroup = _cgroup(target)
        if cgroup is not None and stat.can_count(self._perf, cgroup):
            facts["cgroup"] = cgroup
        elif target.kind != "machine":
            pids = partial(_members, target)
        self._running[path.name] = stat.count(
            self._perf, plan.events, self._output(path), pids, facts.get("cgroup")
        )
        return facts

    def enable(self) -> None:
        """Enables the events."""
        for running in self._running.values():
            running.enable()

    def disable(self) -> None:
        """Disables the events."""
        for running in self._running.values():
            running.disable()

    def _output(self, path: Path) -> int:
        if path.name not in self._outputs:
            with create(path) as file:
                self._outputs[path.name] = os.dup(file.fileno())
        return self._outputs[path.name]

    def stop(self) -> None:
        """Ends every perf in an orderly way, with all counts and records written."""
        failures = self._failures
        for name, running in self._running.items():
            failure = running.stop()
            if failure is not None:
                failures[name] = failure
        if self.wanted:
            self._facts["cpu_s"] = round(sum(r.cpu_s for r in self._running.values()), 3)
            self._facts["failures"] = failures

    def describe(self) -> Perf:
        """Returns the manifest's entry: files, events, failures, CPU time."""
        return self._facts

    def close(self) -> None:
        """Ends the remaining processes and closes the files. Repeated calls do no harm."""
        for running in self._running.values():
            running.close()
        self._running = {}
        for fd in self._outputs.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self._outputs = {}


def _members(target: Target) -> list[int]:
    return sorted(target.members())


def _is_awaited(target: Target) -> bool:
    return isinstance(target, AwaitedContainer)


def _cgroup(target: Target) -> str | None:
    """Returns the target's cgroup in perf's hierarchy, so that joining processes are counted.

    perf uses the hierarchy of controller perf_event, or the unified one if no other has it.
    """
    known: list[Cgroup] = getattr(target, "cgroups", [])
    cgroups = [cgroup for cgroup in known if cgroup.exists()]
    if not cgroups:
        return None
    controllers = {name for h in hierarchies() for name in h.controllers.split(",")}
    for cgroup in cgroups:
        mine = cgroup.controllers.split(",")
        if "perf_event" not in mine and ("perf_event" in controllers or any(mine)):
            continue
        if cgroup.holds(target.members()):
            return cgroup.path.strip("/") or None
    return None
