"""The choice of the backend: the one requested, or the cheapest that works on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.backends.ebpf import library
from tracer.probes.backends.own_bpf.kernel import try_program
from tracer.probes.backends.perf_events.attributes import DUMMY, open_event, open_tracepoint
from tracer.probes.errors import FeatureMissing, TracerError, UsageError
from tracer.probes.kernel import need_process_numbers_of_events, tracefs

FTRACE, EBPF, PERF = "ftrace", "ebpf", "perf"
BACKENDS = (FTRACE, EBPF, PERF)
NONE = "none"
AUTO = "auto"
ABOUT = {
    AUTO: "the first of these that works; beside ftrace, BPF programs record calls and faults",
    FTRACE: "alone, the cheapest but for these",
    EBPF: "filters in the kernel",
    PERF: "needs the fewest rights",
    NONE: "no kernel events, only marks and samples; needs no rights",
}
"""The names that a user can choose, each with the reason to choose it."""
_TRIED = "sched:sched_process_exit"


@dataclass(frozen=True)
class Choice:
    """A backend, and the reason for choosing it."""

    backend: str
    why: str
    own_programs: bool = False
    """True if BPF programs of our own record system calls and page faults, where the kernel allows
    them."""


def choose(wanted: str) -> Choice:
    """Returns the backend to record with.

    Raises UsageError for an unknown name. Raises PermissionMissing or FeatureMissing if the
    requested backend cannot be used, or, with `auto`, if none can.
    """
    if wanted not in ABOUT:
        raise UsageError(f"there is no backend {wanted!r}", f"choose from {', '.join(ABOUT)}")
    if wanted != AUTO:
        _check(wanted)
        return Choice(wanted, "asked for", own_programs=wanted == EBPF)
    refusals: list[TracerError] = []
    for backend, why in _PREFERENCE:
        try:
            _check(backend)
        except TracerError as error:
            refusals.append(error)
            continue
        if refusals:
            why = "; ".join(
                f"{refused} cannot be used: {error.what}"
                for (refused, _), error in zip(_PREFERENCE, refusals, strict=False)
            )
        return Choice(backend, why, own_programs=backend in (FTRACE, EBPF))
    # Most machines would use the first backend, so its remedy is the simplest to apply.
    raise refusals[0]


def why_not(backend: str) -> TracerError | None:
    """Returns the error that prevents the use of a backend; None if it can be used."""
    try:
        _check(backend)
    except TracerError as error:
        return error
    return None


def _check(backend: str) -> None:
    """Raises the error that prevents the use of a backend."""
    if backend != NONE:
        need_process_numbers_of_events()
    _CHECKS[backend]()


def _ftrace() -> None:
    path = tracefs()
    if not (path / "options" / "event-fork").exists():
        raise FeatureMissing(
            "this kernel's ftrace cannot follow child processes (it has no option event-fork)",
            "use --backend ebpf",
        )
    clocks = (path / "trace_clock").read_text().replace("[", "").replace("]", "").split()
    if "mono" not in clocks:
        raise FeatureMissing("this kernel has no trace clock `mono`", "use --backend ebpf")


def _ebpf() -> None:
    tracefs(writable=False)
    try_program()
    if library.folder() is None:
        raise FeatureMissing("bcc is not installed", "run `apt-get install python3-bpfcc`")
    if kernel_headers() is None:
        raise FeatureMissing("bcc finds no kernel headers", HEADERS_MEND)


def _perf() -> None:
    folder = tracefs(writable=False) / "events"
    os.close(open_event(DUMMY, 0, mappings=True))
    with contextlib.suppress(FileNotFoundError):
        # The bytes of a tracepoint are kept from users whom the kernel shows events without them.
        number = int((folder / _TRIED.replace(":", "/") / "id").read_text())
        os.close(open_tracepoint(number, 0))


HEADERS_MEND = (
    "run `apt-get install linux-headers-$(uname -r)`, or `make setup` in a clone, which links other"
    " headers"
)


def kernel_headers() -> Path | None:
    """Returns the path where bcc finds the kernel headers, or None."""
    build = Path("/lib/modules", os.uname().release, "build")
    named = os.environ.get("BCC_KERNEL_SOURCE")
    for path in (Path(named) if named else build, build):
        if (path / "Makefile").exists():
            return path
    inside = Path("/sys/kernel/kheaders.tar.xz")
    return inside if inside.exists() else None


_CHECKS: dict[str, Callable[[], None]] = {
    FTRACE: _ftrace,
    EBPF: _ebpf,
    PERF: _perf,
    NONE: lambda: None,
}

_PREFERENCE = (
    (FTRACE, "the cheapest for each event, and its instances can be written to"),
    (EBPF, "ftrace cannot be used"),
    (PERF, "neither ftrace nor ebpf can be used"),
)
