"""The eBPF programs of a recording: compiled for its events, attached and filtered by thread."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tracer.probes.backends import event_format
from tracer.probes.backends.backend import available
from tracer.probes.backends.ebpf import summary
from tracer.probes.backends.ebpf.library import bcc
from tracer.probes.backends.ebpf.ring import BpfRing
from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.kernel_stacks import STATE, asleep, note_missing, stack_events
from tracer.probes.backends.own_bpf.kernel import misses
from tracer.probes.errors import FeatureMissing, TracerError
from tracer.probes.kernel import tracefs
from tracer.probes.limits import PID_LIMIT
from tracer.probes.schema import Event, Probe, Scope

_SOURCE = "capture.bpf.c"
_SOFTWARE = 1
"""PERF_TYPE_SOFTWARE of include/uapi/linux/perf_event.h."""
_NEWTASK, _FREE = "task:task_newtask", "sched:sched_process_free"
_OF_THE_HEADERS = ("-fms-extensions", "-Wno-microsoft")
"""Flags for headers of kernels that are built with Microsoft's extensions (Linux 6.19 and later):
their structs have others as members without a name."""
_STATE_BYTES = 8
"""Size of `prev_state`: a long."""
_VERIFIED = "processed "
_COMPLAINTS = ("error", "unable", "denied", "not permitted")
_SEE_DOCTOR = (
    "run `tracer doctor` to check kernel headers, bcc and privileges, or use --backend ftrace"
)
_SMALL = """
BPF_ARRAY(places, u32, 1);
BPF_RINGBUF_OUTPUT(small_ring, 1);
int nothing(void *ctx) { return 1; }
"""
_SCOPE = {Scope.TARGET: 0, Scope.MACHINE: 1}
_DETACHERS = 16


class Programs:
    """Loaded and attached programs. They record nothing until a scope is opened."""

    def __init__(
        self,
        probes: list[Probe],
        kib: dict[Scope, int],
        everybody: bool,
        summed_up: Collection[str] = (),
        interrupts: bool = True,
    ) -> None:
        """Compiles and attaches programs for the events of `probes`.

        Without `interrupts`, only for those that cannot happen in an interrupt.

        `kib` is the size in KiB of the ring of each scope. `summed_up` are the names of probes
        whose events are counted in the kernel instead of recorded. Raises FeatureMissing if bcc
        or the kernel headers are missing or the kernel rejects a program.
        """
        self.formats: dict[str, str] = {}
        self.missing: dict[str, list[str]] = {}
        self._folder = tracefs(writable=False) / "events"
        self._pages = {scope: _pages(kib[scope]) for scope in Scope}
        self._tracepoints: dict[str, str] = {}
        self._raw: dict[str, str] = {}
        self._scopes: dict[str, Scope] = {}
        self._with_stacks: dict[str, str] = {}
        functions: dict[str, str] = {}
        for probe in probes:
            self._add_stacks(probe)
            self._declare(probe, interrupts, functions)
        note_missing(probes, self.missing, lambda event: event.name in self.formats)
        self._faults: dict[str, int] = {}
        if summed_up:
            self._sum_up(summed_up, functions)
        folder = resources.files("tracer.probes.backends.ebpf")
        sources = [_SOURCE, summary.SOURCE] if summed_up else [_SOURCE]
        text = "\n".join(folder.joinpath(source).read_text() for source in sources)
        lines = [f"int {name}(void *ctx) {{ {body} }}" for name, body in functions.items()]
        cpus = 1 + max(bcc().utils.get_possible_cpus())
        flags = [
            f"-DRECORDER={os.getpid()}",
            f"-DTARGET_PAGES={self._pages[Scope.TARGET]}",
            f"-DMACHINE_PAGES={self._pages[Scope.MACHINE]}",
            f"-DCPUS={cpus}",
            f"-DEVERYBODY={int(everybody)}",
            *(["-DSTACKS"] if self._with_stacks else []),
            "-Wno-macro-redefined",
            *_OF_THE_HEADERS,
        ]
        self._followed: mmap.mmap | None = None
        self._lost_memory: mmap.mmap | None = None
        self._bpf = _load("\n".join([text, *lines, ""]), flags)
        try:
            self._followed = mmap.mmap(self._bpf["followed_tids"].map_fd, PID_LIMIT)
            size = len(_SCOPE) * cpus * 8
            self._lost_memory = mmap.mmap(
                self._bpf["lost_records"].map_fd, size, prot=mmap.PROT_READ
            )
            self._lost = np.frombuffer(self._lost_memory, np.uint64).reshape(len(_SCOPE), cpus)
            self._attach()
        except BaseException:
            self.close()
            raise

    def _declare(self, probe: Probe, interrupts: bool, functions: dict[str, str]) -> None:
        """Adds to `functions` a function for each event of a probe that this kernel has.

        Without `interrupts`, events that may happen in an interrupt get none.
        """

        def has(name: str) -> bool:
            return self._format(name).exists()

        for event in available(probe, has, self.missing):
            self.formats[event.name] = self._format(event.name).read_text()
            parsed = event_format.parse(event.name, self.formats[event.name])
            if event.interrupts and not interrupts:
                continue
            size = _bytes_needed(event, parsed)
            how = "record_interrupt" if event.interrupts else "record"
            body = f"return {how}(ctx, {parsed.id}, {size}, {probe.scope.name});"
            if event.threads:
                first, second = (parsed.field(event.threads[n]).offset for n in (0, -1))
                body = f"return record_about(ctx, {parsed.id}, {size}, {first}, {second});"
                if stack := self._with_stacks.get(event.name):
                    number = event_format.parse(stack, self.formats[stack]).id
                    place = parsed.field(STATE).offset
                    body = (
                        f"return record_switch(ctx, {parsed.id}, {size}, {first}, {second}, "
                        f"{number}, {place}, {asleep(parsed)});"
                    )
            functions[_function(event.name)] = body
            self._tracepoints[_function(event.name)] = event.name
            self._scopes[_function(event.name)] = probe.scope
        for name, body in ((_NEWTASK, "follow"), (_FREE, "forget")):
            text = self._format(name).read_text()
            offset = event_format.parse(name, text).field("pid").offset
            functions[f"{body}_child"] = f"return {body}(ctx, {offset});"

    def _add_stacks(self, probe: Probe) -> None:
        """Adds the kernel stacks that a probe wants of its events, if the kernel names states."""
        for event in stack_events(probe):
            there, stack = self._format(event.stack_of), self._format(event.name)
            if there.exists() and stack.exists():
                parsed = event_format.parse(event.stack_of, there.read_text())
                state = parsed.fields.get(STATE)
                if asleep(parsed) and state is not None and state.size == _STATE_BYTES:
                    self._with_stacks[event.stack_of] = event.name
                    self.formats[event.name] = stack.read_text()

    def _format(self, event: str) -> Path:
        return self._folder / event.replace(":", "/") / "format"

    def _sum_up(self, probes: Collection[str], functions: dict[str, str]) -> None:
        """Adds to `functions` the functions that count the events of these probes."""
        for hook in summary.HOOKS:
            path = self._format(hook.event)
            if hook.probe in probes and path.exists():
                self.formats[hook.event] = path.read_text()
                parsed = event_format.parse(hook.event, self.formats[hook.event])
                functions[f"sum_{hook.call}"] = summary.body(hook, parsed)
                attached = self._raw if hook.raw else self._tracepoints
                attached[f"sum_{hook.call}"] = hook.raw or hook.event
                self._scopes[f"sum_{hook.call}"] = Scope.MACHINE
        if "page_faults" in probes:
            for name, (config, major) in summary.FAULTS.items():
                functions[name] = summary.fault_body(major)
                self._faults[name] = config

    def counted(self) -> tuple[list[summary.Sum], list[summary.Slot], int]:
        """Returns (sums, histogram slots, failed map updates) since the programs were loaded."""
        return summary.sums(self._bpf), summary.slots(self._bpf), summary.uncounted(self._bpf)

    def _attach(self) -> None:
        bpf = self._bpf
        with _heard("the kernel refuses a BPF program"):
            bpf.attach_tracepoint(tp=_NEWTASK, fn_name="follow_child")
            bpf.attach_tracepoint(tp=_FREE, fn_name="forget_child")
            for function, name in self._tracepoints.items():
                bpf.attach_tracepoint(tp=name, fn_name=function)
            for function, name in self._raw.items():
                bpf.attach_raw_tracepoint(tp=name.encode(), fn_name=function.encode())
            for function, config in self._faults.items():
                bpf.attach_perf_event(
                    ev_type=_SOFTWARE, ev_config=config, fn_name=function, sample_period=1
                )

    def ring(self, scope: Scope, path: Path) -> BpfRing:
        """Returns the ring of a scope, with a new file at `path`."""
        name = "target_ring" if scope is Scope.TARGET else "machine_ring"
        lost = self._lost[_SCOPE[scope]]
        return BpfRing(
            self._bpf[name].map_fd,
            self._pages[scope] * os.sysconf("SC_PAGE_SIZE"),
            path,
            lambda: lost.tolist(),
            lambda: self._missed(scope),
        )

    def _missed(self, scope: Scope) -> int:
        """Returns the events of a scope, so far, that the kernel ran no program for."""
        return sum(
            misses(self._bpf.load_func(function, self._bpf.TRACEPOINT).fd)
            for function, its in self._scopes.items()
            if its is scope
        )

    def open(self, scope: Scope, on: bool) -> None:
        """Starts or stops recording the events of a scope."""
        with contextlib.suppress(KeyError):
            self._bpf["open_scopes"][ctypes.c_int(_SCOPE[scope])] = ctypes.c_uint(int(on))

    def follow(self, tids: Iterable[int]) -> None:
        """Admits the events of these threads and of all threads that they create later."""
        assert self._followed is not None
        for tid in tids:
            self._followed[tid] = 1

    def without(self, tids: Iterable[int]) -> set[int]:
        """Returns the threads among `tids` whose events are excluded."""
        assert self._followed is not None
        return {tid for tid in tids if not self._followed[tid]}

    def close(self) -> None:
        """Detaches and unloads the programs."""
        if self._followed is not None:
            self._followed.close()
        self._lost_memory = None  # unmapped with the last array that shows it
        with _quiet(), ThreadPoolExecutor(_DETACHERS) as threads:
            # Each one waits for an RCU grace period; threads wait for the same one.
            attached = list(self._bpf.tracepoint_fds)
            for detached in [threads.submit(self._bpf.detach_tracepoint, tp) for tp in attached]:
                detached.result()
            self._bpf.cleanup()


def _function(name: str) -> str:
    return "on_" + "".join(c if c.isalnum() else "_" for c in name)


def _pages(kib: int) -> int:
    """Returns the pages of a ring of at least `kib` KiB, rounded up to a power of two."""
    wanted = max(1, (kib << 10) // os.sysconf("SC_PAGE_SIZE"))
    return 1 << (wanted - 1).bit_length()


def _bytes_needed(event: Event, parsed: EventFormat) -> int:
    """Returns the bytes of an event's record that its rows need, in whole 8-byte words."""
    names = {name for source in event.columns.values() for name in source.fields} | set(event.reads)
    fields = [field for name, field in parsed.fields.items() if name in names]
    end = max((field.offset + field.size for field in fields), default=8)
    if any(field.data_loc for field in fields):
        # The kernel stores texts after all fixed fields.
        end = max(f.offset + f.size for f in parsed.fields.values()) + event.text_bytes
    return max(8, (end + 7) // 8 * 8)


def _load(text: str, flags: list[str], mend: str = _SEE_DOCTOR) -> Any:
    module = bcc()
    with _heard("the BPF programs cannot be loaded", mend):
        return module.BPF(text=text, cflags=flags)


def try_to_load() -> None:
    """Compiles, loads and unloads a small program. Raises FeatureMissing if that is impossible."""
    mend = "use --backend ftrace, or install a bcc that is as new as the kernel"
    program = _load(_SMALL, [*_OF_THE_HEADERS], mend)
    try:
        with _heard("the kernel refuses BPF programs", mend):
            program.load_func("nothing", program.TRACEPOINT)
    finally:
        program.cleanup()


@contextlib.contextmanager
def _heard(what: str, mend: str = _SEE_DOCTOR) -> Iterator[None]:
    """Keeps what bcc prints from the user. Raises FeatureMissing, with its reason, if bcc fails."""
    with _quiet() as said:
        try:
            yield
        except TracerError:
            raise
        except Exception as error:  # noqa: BLE001 bcc raises plain Exception
            why = _first_complaint(said()) or str(error)
            raise FeatureMissing(f"{what}: {why}", mend) from None


def _first_complaint(text: str) -> str:
    """Returns the first line of what bcc said that tells of a failure, or nothing.

    The verifier's reason follows: the last line before its count of instructions.
    """
    lines = [line.strip() for line in text.splitlines()]
    found = next((x for x in lines if any(word in x.lower() for word in _COMPLAINTS)), "")
    ends = [at for at, line in enumerate(lines) if line.startswith(_VERIFIED)]
    reason = lines[ends[-1] - 1] if ends and ends[-1] else ""
    return f"{found[:200]}; {reason[:200]}" if found and reason else found[:200]


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """Redirects what bcc's library writes to stdout and stderr.

    Yields a function that returns the text.
    """
    kept = {fd: os.dup(fd) for fd in (1, 2)}
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        for fd in kept:
            os.dup2(file.fileno(), fd)

        def said() -> str:
            file.seek(0)
            return file.read(1 << 16).decode("utf-8", "replace")

        try:
            yield said
        finally:
            for fd, its in kept.items():
                os.dup2(its, fd)
                os.close(its)
