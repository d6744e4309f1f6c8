"""Words for parts of a step's time. Names from a trace are made safe here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tracer.analysis.explain.explanation import Explanation, Part, SlowStep
from tracer.analysis.findings.finding import file_name, name, seconds, size
from tracer.analysis.views.waiting.critical_path import RUN
from tracer.analysis.views.waiting.sync_parts import AWAITED
from tracer.probes.call_graphs import TRUNCATED, UNKNOWN
from tracer.probes.events.block import OTHER

_KINDS = {
    RUN: "runs",
    "cpu": "waits for a CPU",
    "throttled": "waits because its cgroup has used up its CPU quota",
    "reclaim": "waits for memory",
    "dirty": "is put to sleep for having dirtied pages",
    "sync": "waits until data is on the disk",
    "fault": "reads a page of a file at a page fault",
    "lock": "waits for a lock",
    "timer": "sleeps for a given time",
    "child": "waits for a child process",
    "disk": "reads from a disk",
    "ipc": "waits for data from another process",
    "gpu": "waits for the GPU",
    "frozen": "is stopped, since its cgroup is frozen",
    "other": "waits; no event tells for what",
}

_IN_KERNEL = ("sync", "disk", "fault", "dirty", "reclaim", "other")
"""Kinds of waits of which a function of the kernel tells more."""

# Functions that wait for anything: of the scheduler, of bits and pages, completions and locks.
_GENERIC = re.compile(
    r"_*(?:schedule|io_schedule|cond_resched|preempt_schedule|schedule_timeout|wait_on_bit"
    r"|wait_on_bit_io|wait_on_bit_lock|wait_on_buffer|out_of_line_wait_on_\w+|bit_wait\w*"
    r"|folio_wait_bit\w*|folio_lock|wait_on_page_bit\w*|lock_page|wait_for_completion\w*"
    r"|wait_for_common\w*|wait_woken|submit_bio_wait|blk_wait_io|mutex_lock\w*|rt_mutex\w*"
    r"|rwsem_\w+|down\w*|percpu_rwsem_wait|percpu_down_\w+|schedule_\w+)(?:\.\w+)*$"
)
_UNTOLD = (UNKNOWN, TRUNCATED)

ALONE = "There is no other typical step to compare it with."
LOST = "Events were lost during it."


def duration(ns: float) -> str:
    """Returns a time (ns) in s, ms, us or ns."""
    return seconds(ns / 1e9)


def step_name(epoch: int | None, step: int) -> str:
    """Returns the name of a step, as --step takes it: "1:812"."""
    return f"{'' if epoch is None else f'{epoch}:'}{step}"


def process_called(pid: int | None, targets: Mapping[int, str | None]) -> str:
    """Returns the name of a process that has steps: "process 107 of peer".

    `targets`: as in `Explanation`. The target is named if the processes have different ones.
    """
    if pid is None:
        return "an unknown process"
    target = targets.get(pid)
    told = target is not None and len(set(targets.values())) > 1
    return f"process {pid}" + (f" of {name(target)}" if told else "")


def step_called(step: SlowStep, found: Explanation) -> str:
    """Returns the name of a step in a sentence, with its process if several have steps.

    The pass of its epoch is named if a process begins its epochs anew.
    """
    which = "" if step.epoch_pass is None else f" (pass {step.epoch_pass})"
    whose = ""
    if found.processes > 1:
        thread = "" if step.tid == step.pid else f" thread {step.tid} in"
        whose = f" of{thread} {process_called(step.pid, found.targets)}"
    if step.step is None:
        epoch = "" if step.epoch is None else f" of epoch {step.epoch}"
        return f"A step without a number{epoch}{which}{whose}"
    return f"Step {step_name(step.epoch, step.step)}{which}{whose}"


def bar_called(steps: int, epoch: int | None, step: int | None, pid: int | None) -> str:
    """Returns the name of a group of neighbouring steps: "step 1:812", "mean of 3 steps from 0:4".

    `epoch`, `step`, `pid`: those of the first step. `pid` is None if all steps are of one process.
    """
    whose = "" if pid is None else f" of process {pid}"
    first = "one without a number" if step is None else step_name(epoch, step)
    if steps == 1:
        return f"step {first}{whose}" if step is not None else f"a step without a number{whose}"
    return f"mean of {steps:,} steps from {first}{whose} on"


def compared(step: SlowStep, longer: Part, targets: Mapping[int, str | None]) -> str:
    """Returns a sentence on a step beside a typical one, and on a part of it that is longer."""
    more_ns, part_ns = round(step.total_ns - step.typical_ns), round(longer.more_ns)
    part = f"{duration(part_ns)} more in"
    if part_ns <= more_ns:
        said = f"has {duration(more_ns)} more than a typical step, {duration(part_ns)} of it in"
    elif more_ns > 0:
        said = f"has {duration(more_ns)} more than a typical step, and {part}"
    elif more_ns < 0:
        said = f"has {duration(-more_ns)} less than a typical step, but {part}"
    else:
        said = f"takes as long as a typical step, but {part}"
    return f"It {said}: {where(longer.group, targets)}, which {what(longer.group)}."


def steps_name(stage: str | None, steps: int) -> str:
    """Returns the name of a stage's steps: "training steps"; in the singular if there is one."""
    which = {"train": "training ", "inference": "inference "}.get(stage or "", "")
    return f"{which}{'step' if steps == 1 else 'steps'}"


def lost(found: Explanation) -> str:
    """Returns a sentence on the events that were lost, and the steps during which they were."""
    steps = f"the {found.steps:,} {steps_name(None, found.steps)}"
    if not found.lossy_steps:
        return f"Events were lost, but during none of {steps}."
    during = f"during {found.lossy_steps:,} of {steps}"
    return f"Events were lost {during}, so waits may be missing or too short."


def together(found: Explanation) -> str | None:
    """Returns a sentence if the steps are those of several processes."""
    if found.processes < 2:
        return None
    if any("step_pid" in part.group for part in found.parts):
        then = "a step is compared with typical ones of its process"
    else:
        then = "--by thread tells these apart"
    return f"They are those of {found.processes} processes together; {then}."


def meanwhile(served: Sequence[Mapping[str, Any]]) -> str:
    """Returns what disks served meanwhile. The disks are named if there are several.

    As in "19 MiB of writes of kworker/u8:1 for container 3f2a on 254:0 (12 requests)".
    """
    several = len({one["dev"] for one in served}) > 1
    said = []
    for one in served:
        requests = _requests(one["operation"])
        whose = f" of {name(one['comm'], 'an unknown thread')}"
        if one["for_whom"] is not None:
            whose += f" for {name(one['for_whom'])}"
        requests = f"its own {requests}" if one["own"] else requests + whose
        if several:
            requests += f" on {name(one['dev'], 'an unknown disk')}"
        amount = f"{size(one['bytes'])} of " if one["bytes"] else ""
        count = one["requests"]
        said.append(f"{amount}{requests} ({count:,} {'request' if count == 1 else 'requests'})")
    return ", ".join(said)


def _requests(operation: str) -> str:
    """Returns an operation in the plural: "writes"."""
    if operation == OTHER:
        return "other requests"
    return f"{name(operation)}{'es' if operation.endswith('sh') else 's'}"


def kernel_function(stack: str | None) -> str | None:
    """Returns the innermost function of a kernel stack that tells what the kernel waits for.

    That is one which is not made for waiting itself. None if there is none.
    """
    told = (one for one in reversed((stack or "").split(";")) if one and not _GENERIC.match(one))
    return next((one for one in told if one not in _UNTOLD), None)


def line_name(line: str) -> str:
    """Returns a short name of a line as in `waits.line`: "load (data.py:88)"."""
    function, _, place = line.partition(" (")
    return f"{name(function)} ({file_name(place.removesuffix(')'))})"


def where(part: Mapping[str, Any], targets: Mapping[int, str | None] | None = None) -> str:
    """Returns the thread and the phase of a part: "fetch, in pt_data_worker".

    Parts by target have the target of any thread instead, and parts by file are of any thread.
    Parts by thread have the process of the step, too, if there are several. `targets`: as in
    `Explanation`.
    """
    if "step_pid" in part and targets is not None and len(targets) > 1:
        others = {key: value for key, value in part.items() if key != "step_pid"}
        return f"{process_called(part['step_pid'], targets)}, {where(others)}"
    if "target" in part:
        return "no target" if part["target"] is None else f"target {name(part['target'])}"
    if "thread" not in part:
        return "any thread"
    phase, thread = part.get("phase"), part["thread"]
    said = name(phase, "between phases") if "phase" in part else ""
    if thread is not None:
        number = f" {part['tid']}" if "tid" in part else ""
        said += f"{', in ' if said else ''}{name(thread)}{number}"
    if said:
        return said
    return f"the step's thread {part['tid']}" if "tid" in part else "the step's thread"


def what(part: Mapping[str, Any]) -> str:
    """Returns what the thread does in a part: "waits for a lock (futex, by QueueFeederThr)"."""
    kind = str(part["kind"])
    said = _KINDS.get(kind, name(kind))
    told = []
    if part.get("call") is not None and kind not in ("cpu", "gpu"):
        told.append(name(part["call"]))
    detail = part.get("detail")
    if kind == "sync" and detail in AWAITED:
        told.append(f"for {AWAITED[detail]}")
    elif detail is not None:
        told.append(file_name(detail))
    by, number = part.get("by_comm"), part.get("by_tid")
    if by is not None or number is not None:
        who = name(by, "thread") if number is None else f"{name(by, 'thread')} {number}"
        told.append(f"{who} has it" if kind == "cpu" else f"for {who}")
    if part.get("line") is not None:
        told.append(f"in {line_name(part['line'])}")
    if kind in _IN_KERNEL and (function := kernel_function(part.get("kernel_stack"))) is not None:
        told.append(f"in the kernel's {name(function)}")
    for column, word in (("by_target", "target"), ("by_container", "container")):
        if part.get(column) is not None:
            told.append(f"{word} {name(part[column])[:20]}")
    return f"{said} ({', '.join(told)})" if told else said
