"""What this machine can trace, and the command that mends each thing it lacks."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from probes.catalogue import PROBES
from probes.errors import ExitCode, TracerError
from probes.kernel import find_tracefs, syscall_names, tracefs


@dataclass(frozen=True)
class Finding:
    """One thing looked for."""

    name: str
    ok: bool
    found: str
    needed_for: str
    mend: str = ""
    fatal: ExitCode = ExitCode.OK
    """What `tracer record` would exit with for want of it; OK: it does without."""


def check() -> list[Finding]:
    """Look for everything that a recording uses or could use."""
    findings = [_root(), _tracefs()]
    usable = all(f.ok for f in findings)
    if usable:
        findings += [_clock(), _filter(), *_events()]
    return [*findings, *(look() for look in _OPTIONAL)]


def verdict(findings: list[Finding]) -> ExitCode:
    """OK where `tracer record` would work, else what it would exit with."""
    return next((f.fatal for f in findings if not f.ok and f.fatal), ExitCode.OK)


def _root() -> Finding:
    root = os.geteuid() == 0
    return Finding(
        "privileges",
        root,
        "root" if root else f"user {os.geteuid()}",
        "recording",
        "run it as root: sudo tracer ...",
        ExitCode.NO_PERMISSION,
    )


def _tracefs() -> Finding:
    try:
        path = tracefs()
    except TracerError as error:
        return Finding("tracefs", False, error.what, "recording", error.mend, error.exit_code)
    return Finding("tracefs", True, str(path), "recording")


def _clock() -> Finding:
    clocks = (tracefs() / "trace_clock").read_text().replace("[", "").replace("]", "").split()
    return Finding(
        "trace clock mono",
        "mono" in clocks,
        "there" if "mono" in clocks else "absent",
        "one clock for kernel events and marks",
        "a kernel of 3.17 or newer",
        ExitCode.FEATURE_MISSING,
    )


def _filter() -> Finding:
    ok = (tracefs() / "options" / "event-fork").exists()
    return Finding(
        "pid filter with children",
        ok,
        "there" if ok else "absent",
        "recording one process and its children",
        "a kernel of 4.10 or newer",
        ExitCode.FEATURE_MISSING,
    )


def _events() -> list[Finding]:
    events = tracefs() / "events"
    found = []
    for probe in PROBES.values():
        labels = {event.label for event in probe.events}
        served = {e.label for e in probe.events if (events / e.name.replace(":", "/")).is_dir()}
        found.append(
            Finding(
                f"probe {probe.name}",
                bool(served) or probe.optional,
                f"{len(served)} of {len(labels)} events",
                f"table {probe.table.name}",
                "a kernel with these tracepoints (CONFIG_FTRACE_SYSCALLS, CONFIG_BLK_DEV_IO_TRACE)",
                ExitCode.FEATURE_MISSING,
            )
        )
    return found


def _syscall_names() -> Finding:
    names = syscall_names()
    return Finding(
        "system call names",
        bool(names),
        f"{len(names)} known",
        "names instead of numbers in the table syscalls",
        "apt-get install libseccomp2",
    )


def _btf() -> Finding:
    ok = Path("/sys/kernel/btf/vmlinux").exists()
    return Finding(
        "BTF", ok, "there" if ok else "absent", "eBPF", "a kernel with CONFIG_DEBUG_INFO_BTF"
    )


def _uprobes() -> Finding:
    path = find_tracefs()
    ok = path is not None and os.access(path / "uprobe_events", os.W_OK)
    return Finding(
        "uprobes",
        ok,
        "there" if ok else "absent or not allowed",
        "marks from outside",
        "a kernel with CONFIG_UPROBE_EVENTS, and root",
    )


def _bcc() -> Finding:
    # PyPI's `bcc` is an unrelated package: this one has libbcc beside it.
    found = []
    for folder in (*sys.path, "/usr/lib/python3/dist-packages"):
        with contextlib.suppress(OSError):  # this user may not look there
            if Path(folder, "bcc", "libbcc.py").exists():
                found.append(folder)
    return Finding(
        "bcc",
        bool(found),
        found[0] if found else "absent",
        "eBPF",
        "apt-get install python3-bpfcc",
    )


def _headers() -> Finding:
    build = Path("/lib/modules", os.uname().release, "build")
    ok = (build / "Makefile").exists() or Path("/sys/kernel/kheaders.tar.xz").exists()
    return Finding(
        "kernel headers",
        ok,
        str(build) if ok else f"{build} is absent",
        "eBPF by bcc",
        "make setup (installs headers and links them)",
    )


def _perf() -> Finding:
    path = shutil.which("perf")
    return Finding(
        "perf",
        path is not None,
        path or "absent",
        "counters and call graphs",
        "apt-get install linux-perf",
    )


def _docker() -> Finding:
    if not shutil.which("docker"):
        return Finding("Docker", False, "no client", "containers", "apt-get install docker.io")
    try:
        answer = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(
            "Docker", False, "the daemon does not answer", "containers", "restart dockerd"
        )
    ok = answer.returncode == 0 and bool(answer.stdout.strip())
    return Finding(
        "Docker",
        ok,
        f"server {answer.stdout.strip()}" if ok else "no daemon answers",
        "containers",
        "start it: systemctl start docker, or dockerd &",
    )


_OPTIONAL: tuple[Callable[[], Finding], ...] = (
    _syscall_names,
    _btf,
    _uprobes,
    _bcc,
    _headers,
    _perf,
    _docker,
)
