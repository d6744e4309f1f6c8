"""One recording, from the first check to the last file."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from probes import summaries
from probes.backends.choice import AUTO, EBPF, choose
from probes.catalogue import ALWAYS, PROBES
from probes.errors import ExitCode, TracerError, UsageError
from probes.kernel import boot_id, jiffies, process_start_time, syscall_names
from tracer import targets as target_finder
from tracer.phases import MARKS_ENV
from tracer.session import environment, output, privileges
from tracer.session.address_spaces import mappings
from tracer.session.capture import CLOCK, Capture
from tracer.session.launch import Launch
from tracer.session.marks import Marks
from tracer.session.members import Members
from tracer.session.paths import name_files
from tracer.session.perf import PerfTools
from tracer.session.signals import Signals
from tracer.session.summary import Summary
from tracer.store import manifest as manifests
from tracer.store.files import write_whole
from tracer.store.finalize import EVENTS, MAPS, MARKS, MEMBERS, RAW, THREADS, finalize
from tracer.store.manifest import Manifest
from tracer.store.summary import FILE as SUMMARY
from tracer.targets import Target

_TICK_S = 0.25
_GRACE_S = 10.0
"""How long a command may take to end after SIGTERM."""


@dataclass
class Options:
    """What `tracer record` was asked for."""

    output: Path
    pids: str | None = None
    containers: list[str] = field(default_factory=list)
    daemon: bool = False
    cgroups: list[str] = field(default_factory=list)
    machine: bool = False
    command: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=lambda: list(PROBES))
    duration_s: float | None = None
    buffer_kib: int | None = None
    max_bytes: int | None = None
    force: bool = False
    backend: str = AUTO
    summary: bool = False
    """Count in the kernel instead of recording each event."""
    perf_stat: bool = False
    callgraphs: list[str] = field(default_factory=list)


@dataclass
class Status:
    """How the recording stands, for a progress display."""

    elapsed_s: float
    bytes: int


class Listener:
    """What wants to know how a recording goes. This one shows nothing."""

    def started(self, targets: list[Target]) -> None:
        """Events are let in from now on."""

    def tick(self, status: Status) -> None:
        """Some time has passed."""

    def stopping(self, why: str) -> None:
        """The capture is over."""

    def decoding(self, done: int, pages: int) -> None:
        """Part of the pages has been decoded."""


@dataclass
class Outcome:
    """What a recording came to."""

    folder: Path
    manifest: Manifest
    status: int
    """The command's own exit status where it ended by itself, else 0."""


def record(options: Options, listener: Listener | None = None) -> Outcome:
    """Record. Raises a TracerError for whatever the user can mend.

    Nothing of the recording stays in the kernel, however it ends, short of SIGKILL.
    """
    listener = listener or Listener()
    choice = choose(EBPF if options.summary and options.backend == AUTO else options.backend)
    probes = _probes(options.probes)
    summed_up = _summed_up(probes, choice.backend) if options.summary else []
    if summed_up:
        probes = list(ALWAYS)
    targets = target_finder.find(
        options.pids, options.containers, options.daemon, options.cgroups, options.machine
    )
    if not targets and not options.command:
        raise UsageError(
            "there is nothing to trace",
            "give a process (-p PID), a command (-- CMD ...), --container, or everything (-a)",
        )
    output.check(options.output, options.force)
    perf = PerfTools(options.perf_stat, options.callgraphs)
    raw = options.output / RAW
    with Signals() as signals:
        launch = None
        if options.command:
            marks = str((raw / MARKS).resolve())
            launch = Launch(options.command, {**os.environ, MARKS_ENV: marks})
            targets.append(target_finder.from_command(options.command, launch.pid))
        target_finder.named_apart(targets)
        capture = None
        made = False
        try:
            privileges.keep(privileges.CAPTURE)
            output.make(options.output)
            made = True
            capture = Capture(
                raw,
                [PROBES[p] for p in probes],
                options.buffer_kib,
                _cpus(),
                choice.backend,
                options.machine,
                summed_up,
            )
            manifest = _first_manifest(options, probes, targets, capture, choice.why)
            if summed_up:
                manifest["summed_up"] = summed_up
            manifest = _capture(
                options, manifest, targets, launch, capture, perf, signals, listener
            )
            capture.close()
            privileges.keep(privileges.FINALIZE)
            manifest = finalize(options.output, manifest, listener.decoding, name_files)
            manifest = _add_cost(options.output, manifest)
            status = 0
            if launch is not None and manifest["ended_by"] in ("command", "size"):
                status = _let_end(launch, signals)
        except TracerError:
            # A full disk is not the job's fault: what runs may end in its own time.
            if launch is not None and launch.started:
                perf.close()
                if capture is not None:
                    capture.close()
                _let_end(launch, signals)
            raise
        except BaseException:
            if launch is not None:
                launch.abandon()
            raise
        finally:
            if launch is not None and not launch.started:
                launch.abandon()
            perf.close()
            if capture is not None:
                capture.close()
            if made:
                output.remove_if_empty(options.output)
    return Outcome(options.output, manifest, status)


def _summed_up(probes: list[str], backend: str) -> list[str]:
    """Which of these probes are counted in the kernel."""
    if backend != EBPF:
        raise UsageError("--summary counts in BPF programs", "leave out --backend, or give ebpf")
    found = [name for name in probes if name in summaries.PROBES]
    if not found:
        raise UsageError(
            "none of these probes can be summed up", f"choose from {', '.join(summaries.PROBES)}"
        )
    return found


def _probes(names: list[str]) -> list[str]:
    for name in names:
        if name not in PROBES:
            raise UsageError(f"there is no probe {name!r}", "see: tracer list")
    return [name for name in PROBES if name in names or name in ALWAYS]


def _cpus() -> list[int]:
    """The CPUs that are online."""
    cpus: list[int] = []
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def _capture(
    options: Options,
    manifest: Manifest,
    targets: list[Target],
    launch: Launch | None,
    capture: Capture,
    perf: PerfTools,
    signals: Signals,
    listener: Listener,
) -> Manifest:
    marks = Marks(options.output / RAW / MARKS)
    marks.find(targets)
    capture.follow(targets)
    folder = options.output
    members = Members(folder / RAW / MEMBERS, targets, capture)
    summary = None
    begun_cpu_s = _cpu_s()
    try:
        if capture.programs is not None and manifest.get("summed_up"):
            summary = Summary(folder / RAW / SUMMARY, capture.programs)
        perf.start(folder / RAW, targets, options.buffer_kib)
        if perf.wanted:
            manifest["perf"] = perf.describe()
        manifests.write(folder, manifest)
        capture.start_machine(options.max_bytes, perf.pids)
        perf.enable()
        write_whole(folder / RAW / THREADS, manifests.encoded(environment.threads()))
        members.first_look(perf.pids)
        if capture.rings is not None and capture.rings.rings:
            maps = mappings(target_finder.processes_with_memory(targets))
            write_whole(folder / RAW / MAPS, manifests.encoded(maps))
        capture.start_targets()
        if launch is not None:
            launch.go()
        listener.started(targets)
        ended_by = _until_the_end(
            options, targets, launch, capture, perf, members, summary, signals, listener
        )
        perf.disable()
        stats = capture.stop()
        if summary is not None:
            summary.stop()
        perf.stop()
        end_ns = time.monotonic_ns()
        manifest["own_cost"]["capture_cpu_s"] = _cpu_s() - begun_cpu_s
        if capture.drain is not None and capture.drain.failure is not None:
            ended_by = "disk"
        listener.stopping(ended_by)
        if launch is not None and ended_by in ("signal", "duration"):
            _end_command(launch, signals)
    except OSError as error:
        raise _disk_error(folder, error) from None
    finally:
        members.close()
        if summary is not None:
            summary.close()
    marks.collect()
    manifest["clock"]["end_ns"] = end_ns
    manifest["state"] = "captured"
    manifest["complete"] = ended_by != "disk"
    manifest["ended_by"] = ended_by
    manifest["duration_s"] = manifests.duration_s(manifest)
    manifest["ftrace"]["streams"] = capture.describe()["streams"]
    manifest["ftrace"]["stats"] = stats
    manifest["targets"] = [target.describe() for target in targets]
    _add_containers(manifest)
    if launch is not None and launch.status is not None:
        manifest["targets"][-1]["exit_status"] = launch.status
    # One that was mounted meanwhile, too.
    known = manifest["btrfs"]
    manifest["btrfs"] = [*known, *(fs for fs in environment.btrfs() if fs not in known)]
    manifest["own_files"] = output.inodes(folder)
    try:
        manifests.write(folder, manifest)
    except OSError as error:
        raise _disk_error(folder, error) from None
    if ended_by == "disk":
        failure = capture.drain.failure if capture.drain else None
        raise _disk_error(folder, failure or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    return manifest


def _add_containers(manifest: Manifest) -> None:
    """Put into the manifest the containers that have run so far, where a daemon tells."""
    before = {container["id"]: container for container in manifest.get("containers", [])}
    begun = manifest["clock"]["start_ns"] + manifest["clock"].get("realtime_offset_ns", 0)
    found = target_finder.containers_since(begun / 1e9, before or None)
    if found is not None:
        manifest["containers"] = list(found.values())


def _disk_error(folder: Path, error: OSError) -> TracerError:
    if error.errno == errno.ENOSPC:
        return TracerError(
            f"the disk of {folder} is full: the recording ended there",
            f"what was captured is kept; free space and run: tracer info {folder}",
        )
    return TracerError(
        f"{folder} could not be written: {error.strerror or error}",
        f"what was captured is kept; see it with: tracer info {folder}",
    )


def _first_manifest(
    options: Options, probes: list[str], targets: list[Target], capture: Capture, why: str
) -> Manifest:
    manifest: Manifest = {
        "schema": manifests.SCHEMA,
        "tool": environment.tool(),
        "state": "recording",
        "complete": False,
        "ended_by": None,
        "recorder": {
            "pid": os.getpid(),
            "start_time": process_start_time(os.getpid()),
            "boot_id": boot_id(),
        },
        "host": environment.host(),
        "kernel": environment.kernel(),
        "clock": {
            "name": CLOCK,
            "start_ns": time.monotonic_ns(),
            "end_ns": None,
            "realtime_offset_ns": environment.realtime_offset_ns(),
            "jiffies": jiffies(),
        },
        "duration_s": None,
        "command": options.command or None,
        "targets": [target.describe() for target in targets],
        "probes": probes,
        "backend": capture.backend,
        "backend_why": why,
        "ftrace": capture.describe(),
        "syscall_names": {str(nr): name for nr, name in syscall_names().items()},
        "vm": environment.vm(),
        "mounts": environment.mounts(),
        "disks": environment.disks(),
        "btrfs": environment.btrfs(),
        "own_files": {},
        "own_cost": {},
        "tables": {},
        "loss": {},
    }
    _add_containers(manifest)
    return manifest


def _until_the_end(
    options: Options,
    targets: list[Target],
    launch: Launch | None,
    capture: Capture,
    perf: PerfTools,
    members: Members,
    summary: Summary | None,
    signals: Signals,
    listener: Listener,
) -> str:
    """Wait for whatever ends the recording; returns its name."""
    drain = capture.drain
    assert drain is not None
    begun = time.monotonic()
    watched: list[int] = []
    try:
        for pid in filter(None, (target.ends_with for target in targets)):
            with contextlib.suppress(OSError):
                watched.append(os.pidfd_open(pid))
        while True:
            members.look()
            if summary is not None:
                summary.look()
            elapsed = time.monotonic() - begun
            if signals.received is not None:
                return "signal"
            if drain.failure is not None:
                return "disk"
            written = drain.written + perf.written
            if drain.full or (options.max_bytes and written >= options.max_bytes):
                return "size"
            if launch is not None and launch.poll() is not None:
                return "command"
            if not (launch or options.machine) and not any(t.alive for t in targets):
                return "target"
            if options.duration_s is not None and elapsed >= options.duration_s:
                return "duration"
            listener.tick(Status(elapsed, written))
            left = _TICK_S
            if options.duration_s is not None:
                left = min(left, options.duration_s - elapsed)
            # A pidfd of a dead process stays readable: wait only for those that still run.
            running = [fd for fd in watched if not _readable(fd)]
            signals.wait([*running, *members.readable], left)
    finally:
        for fd in watched:
            os.close(fd)


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _end_command(launch: Launch, signals: Signals) -> None:
    """End a command whose recording is over, with what ended the recording or SIGTERM."""
    number = signals.received or signal.SIGTERM
    deadline = time.monotonic() + _GRACE_S
    if number == signal.SIGINT:
        # At a terminal Ctrl-C has reached the command, too.
        while launch.poll() is None and time.monotonic() < deadline - _GRACE_S + 0.3:
            time.sleep(0.01)
    launch.signal(number)
    while launch.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    launch.signal(signal.SIGKILL)
    launch.wait()


def _let_end(launch: Launch, signals: Signals) -> int:
    """Wait for a command that outlives its recording, passing on what it is sent meanwhile."""
    while launch.poll() is None:
        for number in signals.take():
            launch.signal(number)
        signals.wait([], _TICK_S)
    return launch.wait()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round(usage.ru_utime + usage.ru_stime, 3)


def _add_cost(folder: Path, manifest: Manifest) -> Manifest:
    """Put into the manifest what the recorder itself has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    written = {
        part: sum(path.stat().st_size for path in (folder / part).rglob("*") if path.is_file())
        for part in (RAW, EVENTS)
    }
    perf_s = manifest.get("perf", {}).get("cpu_s", 0.0)
    manifest["own_cost"] = {
        **manifest["own_cost"],
        "cpu_s": round(usage.ru_utime + usage.ru_stime + perf_s, 3),
        "max_rss_bytes": usage.ru_maxrss * 1024,
        "bytes_written": sum(written.values()),
        "raw_bytes": written[RAW],
    }
    try:
        manifests.write(folder, manifest)
    except OSError as error:
        raise _disk_error(folder, error) from None
    return manifest


def exit_status(outcome: Outcome, fail_on_loss: bool) -> int:
    """What `tracer record` exits with."""
    loss = outcome.manifest["loss"]
    if fail_on_loss and (loss["events"] or loss["windows"]):
        return int(ExitCode.EVENTS_LOST)
    return outcome.status
