"""The recording that options ask for: checked, with its backend, its probes and its targets."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple

from tracer import targets as target_finder
from tracer.phases import MARKS_ENV
from tracer.phases.automatic import SYNCHRONIZE_ENV
from tracer.phases.clock import offset_ns
from tracer.probes import summaries
from tracer.probes.backends.choice import AUTO, EBPF, NONE, Choice, choose
from tracer.probes.catalogue import ALWAYS, PROBES, SETS
from tracer.probes.errors import FeatureMissing, PermissionMissing, TracerError, UsageError
from tracer.probes.events.opens import PROBE as OPENS
from tracer.probes.events.page_cache import ACCESSES
from tracer.probes.events.page_cache import PROBE as PAGE_CACHE
from tracer.probes.events.syscalls import PROBE as SYSCALLS
from tracer.probes.kernel import find_tracefs
from tracer.session.options import Options
from tracer.session.sampler import check as check_sampling
from tracer.store.places import check_trace
from tracer.targets.engines import AUTO as ENGINES_AUTO
from tracer.targets.target import Target

_NOTHING = (
    "no target is given",
    "give a process (-p PID), a command (-- CMD ...), --container, or everything (-a)",
)
_TARGETS_OF_NONE = ("--baseload records no target", "leave out --baseload, or the targets")


class Plan(NamedTuple):
    """The recording that the options ask for."""

    choice: Choice
    probes: list[str]
    summed_up: list[str]
    """Probes that are counted in the kernel."""
    targets: list[Target]
    refused: TracerError | None
    """The reason for which no events are recorded, if the user did not choose so."""


def plan(options: Options) -> Plan:
    """Checks the options and finds the targets. Raises UsageError for options that do not fit."""
    _need_clock_of_events()
    choice, refused = _choice(options)
    probes = list(ALWAYS) if choice.backend == NONE else _probes(options.probes)
    summed_up = _summed_up(probes, choice.backend) if options.summary else []
    if summed_up:
        probes = list(ALWAYS)
    if summed_up and options.daemon:
        raise UsageError(
            "--summary cannot separate the Docker daemon from its containers",
            "leave out --summary",
        )
    targets = target_finder.find_targets(
        options.pids,
        options.containers,
        options.daemon,
        options.cgroups,
        options.machine,
        options.wait,
        options.docker_cli,
        options.engine,
    )
    if options.engine != ENGINES_AUTO and not options.containers:
        raise UsageError("--engine is for containers, and none is named", "add --container NAME")
    if options.baseload == bool(targets or options.command):
        raise UsageError(*(_TARGETS_OF_NONE if options.baseload else _NOTHING))
    if options.wait and not options.containers:
        raise UsageError("--wait awaits containers, and none is named", "add --container NAME")
    if options.wait and summed_up:
        raise UsageError(
            "--summary cannot await containers: it does not follow the processes that make them",
            "leave out --summary, or --wait and start the containers first",
        )
    if options.cuda_sync and not (options.command and options.auto_phases):
        raise UsageError(
            "--cuda-sync needs the automatic marks of a command",
            f"give a command; in a container, set {SYNCHRONIZE_ENV}=1 beside {MARKS_ENV}",
        )
    target_finder.refuse_many(len(targets) + bool(options.command))
    check_sampling(options.sample_hz, options.residency)
    if options.baseload and not options.sample_hz:
        raise UsageError("--baseload records samples only", "leave out --sample-hz 0")
    check_trace(options.output, options.force)
    return Plan(choice, probes, summed_up, targets, refused)


def _need_clock_of_events() -> None:
    """Raises FeatureMissing in a time namespace with another clock than the kernel's events."""
    if ahead := offset_ns():
        raise FeatureMissing(
            f"the clock of this time namespace differs from that of events by {ahead / 1e9:g} s",
            "run tracer in the machine's own time namespace",
        )


def _choice(options: Options) -> tuple[Choice, TracerError | None]:
    """Returns the backend, and the error of all others if the one without events is left.

    Raises that error if the options ask for events.
    """
    asks = options.machine or options.summary or options.needs_events
    if options.backend == NONE and asks:
        raise UsageError(
            "--backend none records no events, and other options ask for some",
            "leave out --backend, or -a, -e, --stacks and --summary",
        )
    try:
        wanted = EBPF if options.summary and options.backend == AUTO else options.backend
        return choose(wanted), None
    except (FeatureMissing, PermissionMissing) as error:
        if asks or options.backend != AUTO:
            raise
        return Choice(NONE, f"no other backend can be used: {error.what}"), error


def _summed_up(probes: list[str], backend: str) -> list[str]:
    """Returns the probes that are counted in the kernel."""
    if backend != EBPF:
        raise UsageError("--summary needs backend ebpf", "leave out --backend, or give ebpf")
    found = [name for name in probes if name in summaries.PROBES]
    if not found:
        raise UsageError(
            "--summary supports none of these probes", f"choose from {', '.join(summaries.PROBES)}"
        )
    return found


def _probes(names: list[str]) -> list[str]:
    found = set(ALWAYS)
    for name in names:
        if name not in PROBES and name not in SETS:
            like = get_close_matches(name, [*PROBES, *SETS], 1)
            mend = f"did you mean {like[0]}?" if like else "see: tracer list"
            raise UsageError(f"there is no probe {name!r}", mend)
        found.update(SETS.get(name, (name,)))
    if PAGE_CACHE.name in found and not _logs_accesses():
        found.update((OPENS.name, SYSCALLS.name))
    return [name for name in PROBES if name in found]


def _logs_accesses() -> bool:
    """Returns whether this kernel logs the accesses of cached pages, as far as can be seen."""
    folder = find_tracefs()
    try:
        if folder is None:
            return True
        return (folder / "events" / ACCESSES.replace(":", "/") / "format").exists()
    except PermissionError:
        return True
