"""The features that this machine can trace, and the command that adds each missing one."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.backends import py_spy
from tracer.probes.backends.choice import (
    AUTO,
    BACKENDS,
    EBPF,
    HEADERS_MEND,
    choose,
    kernel_headers,
    why_not,
)
from tracer.probes.backends.ebpf import library
from tracer.probes.backends.ebpf.programs import try_to_load
from tracer.probes.backends.own_bpf.backend import why_not as why_no_programs
from tracer.probes.backends.perf_events.attributes import DUMMY, open_event
from tracer.probes.catalogue import PROBES
from tracer.probes.cpu import why_no_duckdb
from tracer.probes.errors import ExitCode, FeatureMissing, TracerError
from tracer.probes.kernel import (
    find_tracefs,
    need_process_numbers_of_events,
    syscall_names,
    tracefs,
)
from tracer.probes.rights import (
    INODES,
    KINDS,
    OTHERS,
    kind_of,
    opens_inodes,
    reads_others,
    with_capabilities,
)
from tracer.probes.schema import Feed
from tracer.probes.symbols.kernel import why_unnamed

USER = "this user"
_RING_BYTES = 16 << 20
"""The size of perf's rings in a recording on a machine with enough memory."""
_DOCKER_ANSWER_S = 10


@dataclass(frozen=True)
class Finding:
    """One feature that was looked for."""

    name: str
    ok: bool
    found: str
    needed_for: str
    mend: str = ""
    fatal: ExitCode = ExitCode.OK
    """Exit code of `tracer record` if this is missing; OK: it records without it."""


def check() -> list[Finding]:
    """Looks for everything that a recording uses or could use."""
    backends = {name: _backend(name) for name in BACKENDS}
    rights = {OTHERS: _others(), INODES: _inodes()}
    able = {name for name, found in (backends | rights).items() if found.ok}
    findings = [
        _user(able),
        _tracefs(),
        *backends.values(),
        _programs(),
        _recording(),
        *rights.values(),
    ]
    if _readable_tracefs() is not None:
        findings += _events()
    return [*findings, *(look() for look in _OPTIONAL)]


def verdict(findings: list[Finding]) -> ExitCode:
    """Returns OK if `tracer record` would work, else the exit code that it would give."""
    return next((f.fatal for f in findings if not f.ok and f.fatal), ExitCode.OK)


def this_user(findings: list[Finding]) -> Finding:
    """Returns the finding about the kind of user, of those that docs/privileges.md compares."""
    return next(found for found in findings if found.name == USER)


def _user(able: set[str]) -> Finding:
    kind = kind_of(able)
    backends = [name for name in BACKENDS if name in able]
    events = f"events by {', '.join(backends)}" if backends else "no kernel events"
    rights = [f"{'' if right in able else 'no '}{right}" for right in (OTHERS, INODES)]
    said = f"user {os.geteuid()} is like {kind.name}: {'; '.join([events, *rights])}"
    mend = (
        f"run it as root: sudo tracer ..., or with five capabilities: {with_capabilities()} "
        "tracer ... (docs/privileges.md compares them)"
    )
    try:
        need_process_numbers_of_events()
    except FeatureMissing as error:
        mend = error.mend
    return Finding(USER, kind is not KINDS[-1], said, "kernel events", mend)


def _others() -> Finding:
    ok = reads_others()
    return Finding(
        OTHERS,
        ok,
        "can be read" if ok else "cannot be read",
        "their files, memory and mappings",
        "run it as root, or with CAP_SYS_PTRACE",
    )


def _inodes() -> Finding:
    ok = opens_inodes()
    return Finding(
        INODES,
        ok,
        "can be opened" if ok else "cannot be opened",
        "names of files that were written or read",
        "run it as root, or with CAP_DAC_READ_SEARCH",
    )


def _readable_tracefs() -> Path | None:
    try:
        return tracefs(writable=False)
    except TracerError:
        return None


def _tracefs() -> Finding:
    try:
        path = tracefs()
    except TracerError as error:
        return Finding("tracefs", False, error.what, "recording by ftrace", error.mend)
    return Finding("tracefs", True, str(path), "recording by ftrace")


def _backend(backend: str) -> Finding:
    error = why_not(backend)
    if error is None and backend == EBPF:
        error = _ebpf_refused()
    return Finding(
        f"backend {backend}",
        error is None,
        "can be used" if error is None else error.what,
        f"tracer record --backend {backend}",
        error.mend if error else "",
    )


def _ebpf_refused() -> TracerError | None:
    """Loads a small BPF program: headers may not compile, and the kernel may refuse it."""
    try:
        try_to_load()
    except TracerError as error:
        return error
    return None


def _programs() -> Finding:
    error = why_no_programs(PROBES.values())
    return Finding(
        "calls and faults",
        error is None,
        "BPF programs of our own can record them" if error is None else error.what,
        "recording them at half the cost",
        error.mend if error else "",
    )


def _recording() -> Finding:
    try:
        choice = choose(AUTO)
    except TracerError as error:
        return Finding("recording", False, error.what, "all", error.mend, error.exit_code)
    return Finding("recording", True, f"by {choice.backend}: {choice.why}", "all")


def _events() -> list[Finding]:
    events = tracefs(writable=False) / "events"
    found = []
    for probe in PROBES.values():
        points = [event for event in probe.events if event.feed is Feed.TRACEPOINT]
        if not points:
            continue
        labels = {event.label for event in points}
        served = {e.label for e in points if (events / e.name.replace(":", "/")).is_dir()}
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


def _perf_events() -> Finding:
    what, mend = "can be opened", ""
    try:
        fd = open_event(DUMMY, 0, mappings=True)
    except TracerError as error:
        what, mend = error.what, error.mend
    else:
        try:
            mmap.mmap(fd, mmap.PAGESIZE + _RING_BYTES).close()
        except OSError as error:
            why = os.strerror(error.errno or 0)
            what = f"can be opened, but no ring of {_RING_BYTES >> 20} MiB can be had: {why}"
            mend = "run with CAP_IPC_LOCK, raise kernel.perf_event_mlock_kb, or give less with -b"
        finally:
            os.close(fd)
    return Finding(
        "perf events", not mend, what, "minor and major faults, and the files behind them", mend
    )


def _bcc() -> Finding:
    found = library.folder()
    return Finding(
        "bcc",
        found is not None,
        str(found) if found else "absent",
        "eBPF",
        "apt-get install python3-bpfcc",
    )


def _headers() -> Finding:
    found = kernel_headers()
    return Finding(
        "kernel headers",
        found is not None,
        str(found) if found else "absent",
        "eBPF by bcc",
        HEADERS_MEND,
    )


def _duckdb() -> Finding:
    refused = why_no_duckdb()
    return Finding(
        "DuckDB",
        refused is None,
        refused or "runs",
        "tables and all that is made of them",
        "record here, and open the trace on a machine whose CPU has AVX2",
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


def _py_spy() -> Finding:
    mend = ""
    try:
        path = py_spy.find_py_spy()
        found = f"{path} ({py_spy.version(path)})"
    except TracerError as error:
        found, mend = error.what, error.mend
    return Finding(
        "py-spy", not mend, found, "lines of Python code that wait (tracer record --stacks)", mend
    )


def _kernel_functions() -> Finding:
    error = why_unnamed()
    return Finding(
        "kernel functions",
        error is None,
        "have names" if error is None else error.what,
        "kernel functions that wait (tracer record --stacks), and call graphs",
        error.mend if error else "",
    )


def _docker() -> Finding:
    import docker
    from requests.exceptions import RequestException

    try:
        _connect(os.environ.get("DOCKER_HOST") or docker.constants.DEFAULT_UNIX_SOCKET)
        with contextlib.closing(docker.from_env(timeout=_DOCKER_ANSWER_S)) as client:
            found = f"server {client.version()['Version']}"
    except (docker.errors.DockerException, RequestException, OSError, ValueError, KeyError):
        return Finding(
            "Docker",
            False,
            "no daemon answers",
            "containers",
            "apt-get install docker.io; start it (systemctl start docker), or set DOCKER_HOST",
        )
    return Finding("Docker", True, found, "containers")


def _connect(address: str) -> None:
    """Raises OSError if nobody listens on a Unix socket: Docker's client would leave one open."""
    scheme, _, path = address.partition("://")
    if "unix" in scheme:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_DOCKER_ANSWER_S)
            asking.connect(f"/{path.lstrip('/')}")


_OPTIONAL: tuple[Callable[[], Finding], ...] = (
    _syscall_names,
    _btf,
    _uprobes,
    _perf_events,
    _bcc,
    _headers,
    _duckdb,
    _perf,
    _py_spy,
    _kernel_functions,
    _docker,
)
