"""The scheduler: when a target's thread left its CPU, who woke it, and when it ran again.

Events: `sched_switch`, `sched_waking`, which happens in the context of whoever wakes a thread, and
`sched_wakeup_new` for new threads. Kernel: include/trace/events/sched.h.

With `tracer record --stacks`, the kernel stack of each thread that goes to sleep follows its
`sched_switch` (kernel: the trigger `stacktrace`, bpf_get_stack, or PERF_SAMPLE_CALLCHAIN).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tracer.probes.schema import (
    PID,
    SHORT,
    TID,
    AssemblyContext,
    Column,
    Event,
    Feed,
    Probe,
    Scope,
    Table,
    Type,
)

STACKS = ("ftrace:kernel_stack", "perf:kernel_stack")
"""The events that hold the kernel stack of a thread that goes to sleep; a recording has one."""

TABLE = Table(
    "off_cpu",
    "One row per interval in which a target's thread was off the CPU, in the order of their ends.",
    (
        Column(
            "ts",
            Type.INT64,
            "when the thread left its CPU, or was made; the table's first event, if it left its "
            "CPU before the recording",
            "ns",
            nullable=False,
        ),
        Column(
            "dur_ns",
            Type.INT64,
            "time until it ran again; null: it did not, or events were lost meanwhile",
            "ns",
        ),
        Column(
            "cpu",
            Type.INT16,
            "CPU that it left; new: in whose queue it was put; null: not known, or it left its CPU "
            "before the recording",
        ),
        PID,
        TID,
        Column(
            "state",
            Type.TEXT,
            "its state as the kernel prints it: S sleeping, D in uninterruptible sleep, R it could "
            "have run but it was the turn of others, R+ the same while it ran in the kernel, T "
            "stopped, ...; new: it had not run yet; null: it left its CPU before the recording. A "
            "thread that has ended has no row",
            longest=SHORT,
        ),
        Column(
            "next_tid",
            Type.INT32,
            "thread that got the CPU as it left; 0: none did; null: new, or it left its CPU before "
            "the recording",
        ),
        Column(
            "wake_ns",
            Type.INT64,
            "when it was woken; ts: while it left its CPU; null: nobody woke it, or unknown",
            "ns",
        ),
        Column("waker_pid", Type.INT32, "process in whose context it was woken"),
        Column("waker_tid", Type.INT32, "thread in whose context it was woken; 0: an idle CPU"),
        Column(
            "interrupt",
            Type.BOOL,
            "true: an interrupt woke it, which the thread waker_tid has no part in; null: unknown "
            "(the backend ebpf cannot tell where ftrace cannot be used)",
        ),
        Column(
            "run_delay_ns",
            Type.INT64,
            "the part of dur_ns in which it could have run: since it was woken, or all of it",
            "ns",
        ),
        Column("ran_cpu", Type.INT16, "CPU on which it ran again"),
        Column(
            "ran_tid",
            Type.INT32,
            "thread that had run on ran_cpu just before; 0: it was idle; null beside a dur_ns: the "
            "switch was not logged, and dur_ns lasts until the thread's next event",
        ),
        Column(
            "kernel_stack",
            Type.TEXT,
            "kernel functions in which it went to sleep, from the root to the innermost, joined by "
            ";; null: it did not sleep, or no stack was recorded (tracer record --stacks)",
            longest=1 << 20,
        ),
    ),
    example="SELECT tid, state, count(*), sum(dur_ns)/1e9 s FROM off_cpu GROUP BY ALL ORDER BY 4",
    option="-e default,sched",
)


def _assembler(context: AssemblyContext) -> Any:
    from tracer.probes.rows.off_cpu_rows import OffCpuRows

    return OffCpuRows(context)


PROBE = Probe(
    "sched",
    "when threads of the targets leave a CPU, are woken, and run again",
    TABLE,
    (
        Event(
            "sched:sched_switch",
            "switch",
            reads=("prev_pid", "prev_state", "next_pid"),
            threads=("prev_pid", "next_pid"),
        ),
        Event("sched:sched_waking", "waking", reads=("pid",), threads=("pid",), interrupts=True),
        Event(
            "sched:sched_wakeup_new",
            "wakeup_new",
            reads=("pid", "target_cpu"),
            threads=("pid",),
        ),
        *(
            Event(
                name,
                "kernel_stack",
                feed=Feed.STACK,
                reads=("size", "caller"),
                stack_of="sched:sched_switch",
            )
            for name in STACKS
        ),
    ),
    Scope.TARGET,
    rate="three events per time that a thread waits",
    assembler=_assembler,
    by_default=False,
)


def without_stacks(probe: Probe) -> Probe:
    """Returns a probe without the kernel stacks of its events."""
    return replace(probe, events=tuple(e for e in probe.events if e.feed is not Feed.STACK))
