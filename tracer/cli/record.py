"""`tracer record`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.main import A_TRACE, named_path, one_of, verb, written_path
from tracer.cli.record_targets import (
    Baseload,
    Cgroups,
    Containers,
    Daemon,
    DockerCli,
    Engine,
    Machine,
    Pids,
    Wait,
    trace_name,
)
from tracer.cli.recorded import refuse_loss, say_left_running, say_outcome, say_without_phases

_WHAT, _LIMITS, _OUTPUT = "What to record", "How to record", "Output"
"""The groups of options on the help page, beside that of the targets."""
_LEAST_TRACE_BYTES = 64 << 10
_SECONDS = 1_000_000_000
"""A recording takes less than this."""


def _lists() -> dict[str, str]:
    from tracer.probes.backends.choice import ABOUT as BACKENDS
    from tracer.targets.engines import ABOUT as ENGINES

    lists = {"backends": BACKENDS, "engines": ENGINES}
    return {
        key: one_of(f"{name} ({about})" for name, about in each.items())
        for key, each in lists.items()
    }


@verb(context_settings={"allow_interspersed_args": False}, lists=_lists)
def record(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- CMD ...]", help="Command to run and record.", show_default=False
        ),
    ] = None,
    pids: Pids = None,
    containers: Containers = None,
    engine: Engine = "auto",
    wait: Wait = False,
    daemon: Daemon = False,
    docker_cli: DockerCli = None,
    cgroups: Cgroups = None,
    machine: Machine = False,
    probes: Annotated[
        list[str] | None,
        typer.Option(
            "-e",
            "--probes",
            metavar="PROBE,..",
            help="Probes to use (see tracer list). `default` (those used without -e) and `all` "
            "name several, as in `-e default,sched`. Can be repeated.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar="NAME",
            help="Capture backend: {backends}.",
            rich_help_panel=_LIMITS,
        ),
    ] = "auto",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=written_path(A_TRACE),
            metavar="DIR.trace",
            help="Trace directory to make; default: named by target and time.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "-d",
            "--duration",
            metavar="SECONDS",
            help="End after this time, and end the command. Default: when the targets have ended, "
            "or at Ctrl-C.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    linger: Annotated[
        float,
        typer.Option(
            "--linger",
            metavar="SECONDS",
            help="Go on for this time after the targets have ended, until the kernel has written "
            "what they left in memory.",
            rich_help_panel=_LIMITS,
        ),
    ] = 0.0,
    buffer: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--buffer",
            metavar="SIZE",
            help="Ring buffer for each CPU, e.g. 64M; give more if events are lost. Default: 16M "
            "for events of the targets and 8M for those of the machine, together at most 1/16 of "
            "memory.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size",
            metavar="SIZE",
            help="End the recording at this size of the trace, e.g. 2G; the command goes on. "
            "Default: no limit.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary",
            help="Count system calls, page faults, requests and write-backs in the kernel, and "
            "record no events; for long runs. Needs the backend ebpf.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    perf_stat: Annotated[
        bool,
        typer.Option(
            "--perf-stat",
            help="Also count cycles, faults, switches, ... of each target with perf stat.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    callgraph: Annotated[
        list[str] | None,
        typer.Option(
            "--callgraph",
            metavar="EVENT,..",
            help="Record the call graphs of kernel events with perf record. Can be repeated.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    stacks: Annotated[
        bool,
        typer.Option(
            "--stacks",
            help="Also record in which lines of Python code threads wait (py-spy, 5 times a "
            "second), and in which kernel functions (at each sleep); adds the probe sched.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    auto_phases: Annotated[
        bool,
        typer.Option(
            "--auto-phases/--no-auto-phases",
            help="Make PyTorch mark fetch, forward, backward, ... in a recorded command.",
            rich_help_panel=_WHAT,
        ),
    ] = True,
    cuda_sync: Annotated[
        bool,
        typer.Option(
            "--cuda-sync",
            help="Synchronize with the GPU at each automatic mark "
            "(slower; as the papers measured).",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    sample_hz: Annotated[
        float,
        typer.Option(
            "--sample-hz",
            metavar="HZ",
            help="Samples per second of CPU, memory, disks, GPU and power; 0: no samples.",
            rich_help_panel=_WHAT,
        ),
    ] = 1.0,
    residency: Annotated[
        list[Path] | None,
        typer.Option(
            "--residency",
            parser=named_path,
            metavar="DIR",
            help="Folder; sample how much of its files is in the page cache. Can be repeated.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    baseload: Baseload = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace the trace if it exists.", rich_help_panel=_OUTPUT),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q",
            "--quiet",
            help="Print warnings and errors only; the command prints as it does.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    fail_on_loss: Annotated[
        bool,
        typer.Option(
            "--fail-on-loss",
            help="Exit with status 7 if events were lost.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
) -> None:
    """Record what the kernel does for a command, processes or containers.

    Ctrl-C ends the recording and makes the trace; a second Ctrl-C aborts.
    The exit status is the command's own. Ctrl-C and -d end the command, too:
    by SIGINT or SIGTERM, and by SIGKILL if it has not ended after 10 s.

    Targets can be combined, and their options repeated.
    Processes that join a container or a cgroup later are recorded from then on.
    A container can stop and restart; the recording ends when it is removed.
    With --wait, a container of Docker may start after the recording has begun.
    The first one that is made or started by that name is recorded, and not one
    that had the name before.
    Name a container of Kubernetes NAMESPACE/POD/CONTAINER, or by an end of that
    which is unique: POD/CONTAINER or CONTAINER.
    The recording of a cgroup ends when the cgroup is removed, that of the daemon
    when dockerd ends.

    [bold]Examples[/bold]

      tracer record -o run.trace -- python train.py --epochs 3

      tracer record -p 1234,1235 -d 60

      tracer record --container train,db -d 60 -o two.trace

      tracer record --docker-daemon --container job --wait -o job.trace

      tracer record --docker-daemon -- docker run --rm image true

      tracer record --cgroup /system.slice/train.service

      tracer record -a -d 10 -o machine.trace

      tracer record -e writeback,block -p 1234 -o flush.trace

      tracer record -e default,sched -- python train.py

      tracer record --stacks -o run.trace -- python train.py

      tracer record --summary -e syscalls,block -p 1234 -d 36000

      tracer record --baseload -d 600 -o idle.trace

      tracer record --perf-stat --callgraph block:block_rq_insert -p 1234 -d 60
    """
    from tracer.probes.errors import UsageError
    from tracer.session.options import Options
    from tracer.session.recording import record as run
    from tracer.sizes import parse_size

    if duration is not None and not 0 < duration < _SECONDS:
        mend = f"give seconds above 0 and below {_SECONDS}"
        raise UsageError(f"--duration {duration} is out of range", mend)
    if not 0 <= linger < _SECONDS:
        mend = f"give seconds, 0 or more and below {_SECONDS}"
        raise UsageError(f"--linger {linger} is out of range", mend)
    if linger and (machine or baseload):
        raise UsageError(
            "--linger waits for targets to end, and -a and --baseload have none",
            "leave out --linger, and give the time with -d",
        )
    if baseload and probes is not None:
        raise UsageError("--baseload records no events, so it takes no probes", "leave out -e")
    processes = None if pids is None else ",".join(pids)
    names = [part.strip() for given in containers or () for part in given.split(",")]
    options = Options(
        output or trace_name(command, processes, names, daemon, cgroups or [], baseload),
        pids=processes,
        containers=names,
        engine=engine,
        wait=wait,
        daemon=daemon,
        docker_cli=docker_cli,
        cgroups=cgroups or [],
        machine=machine,
        command=list(command or []),
    )
    if probes is not None:
        asked = [name.strip() for given in probes for name in given.split(",")]
        options.probes = [name for name in asked if name]
        if not options.probes:
            raise UsageError("-e names no probe", "see: tracer list")
    options.needs_events = probes is not None or stacks
    options.baseload = baseload
    if baseload:
        options.probes = []
    options.sample_hz = sample_hz
    options.residency = residency or []
    options.duration_s = duration
    options.linger_s = linger
    if buffer is not None:
        options.buffer_kib = parse_size(buffer) // 1024
        if not 4 <= options.buffer_kib <= 64 << 20:
            raise UsageError(f"--buffer {buffer} is out of range", "give 4K to 64G")
    if max_size is not None:
        options.max_bytes = parse_size(max_size)
        if options.max_bytes < _LEAST_TRACE_BYTES:
            raise UsageError(
                f"--max-size {max_size} ({options.max_bytes} bytes) leaves no room for a trace",
                "give 64K or more, e.g. 2G",
            )
    options.force = force
    options.backend = backend
    options.summary = summary
    options.perf_stat = perf_stat
    options.callgraphs = callgraph or []
    if stacks and (summary or baseload):
        raise UsageError(
            "--stacks tells where threads wait, and --summary and --baseload record no waits",
            "leave out --stacks, or the other option",
        )
    options.stacks = stacks
    if stacks:
        options.probes.append("sched")
    options.auto_phases = auto_phases
    options.cuda_sync = cuda_sync

    from tracer.cli.progress import RecordingProgress
    from tracer.probes.notice import show_notices
    from tracer.probes.unimported import unimported

    if quiet:
        show_notices(None)
    # Arrow imports pandas with the first array, which takes a second; no table is made with it.
    with RecordingProgress(quiet) as progress, unimported("pandas"):
        outcome = run(options, progress)
    say_left_running(outcome.manifest)
    say_without_phases(outcome)
    if not quiet:
        say_outcome(outcome)
    if fail_on_loss:
        refuse_loss(outcome.manifest["loss"])
    raise typer.Exit(outcome.status)
