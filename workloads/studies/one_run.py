"""One run of a study: sets its conditions, runs and records its job, and keeps its result."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from tracer.probes.errors import TracerError
from tracer.store import manifest as manifests
from tracer.store.checked import read_json
from tracer.store.files import as_invoking_user, write_whole
from tracer.workloads.containers.limits import Limits, parse_bytes
from tracer.workloads.errors import JobError
from tracer.workloads.launch import prepare, run_in_containers, run_on_host
from tracer.workloads.modes.cgroups import Memory
from tracer.workloads.modes.dirty_background import BYTES, DirtyBackground
from tracer.workloads.modes.mechanism import Lacking, Mechanism
from tracer.workloads.modes.mode import DEFAULT
from tracer.workloads.modes.setting import PowerModes, Setting
from tracer.workloads.modes.swap_area import SwapArea, SwapReadahead
from tracer.workloads.modes.writeback_timers import EXPIRE, WRITEBACK, WritebackTimers
from tracer.workloads.options import CHECKPOINT
from tracer.workloads.studies import media
from tracer.workloads.studies.checkpoints import NO_TRAINING, Checkpoints
from tracer.workloads.studies.others import others_cpu
from tracer.workloads.studies.scratch import Scratch, fill_cache
from tracer.workloads.studies.speeds import SpeedTest, require_as_fast, require_limited
from tracer.workloads.studies.study import Factors, Run, Study
from tracer.workloads.studies.throttle import Throttle
from tracer.workloads.whole_job import Job, Ran

RUNS = "runs"
NOTE = "running.json"
_RUN = "run.json"
_COMMIT_S = 5
"""Time after which ext4 commits its journal by default: JBD2_DEFAULT_MAX_COMMIT_AGE."""
_TRACE = "run.trace"
_MAX_BYTES = 1 << 20
_HEADER_BYTES = 1 << 20
"""Room for the header of a swap area: a page of any size."""
_Made = TypeVar("_Made", bound=Mechanism)


def read(folder: Path, run: Run) -> dict[str, Any] | None:
    """Returns the result of a run; None if it has not ended."""
    path = folder / RUNS / run.id / _RUN
    try:
        found: dict[str, Any] = read_json(path, dict[str, Any], _MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if found.get("state") in ("done", "failed") else None


def make(
    study: Study,
    run: Run,
    folder: Path,
    scratch_bytes: int,
    modes: PowerModes,
    checkpoints: Checkpoints,
) -> None:
    """Makes a run from the start. A failure becomes the result of the run, not an error.

    Raises JobError if the folder of the run cannot be made anew.
    """
    place = folder / RUNS / run.id
    with as_invoking_user():
        shutil.rmtree(place, ignore_errors=True)  # an interrupted run may have left it
        try:
            place.mkdir()
        except FileExistsError:
            raise JobError(
                f"{place} has no result of a run, and is a link or cannot be removed",
                "remove it, or mount the disk that the link names; then run the study again",
            ) from None
    factors = run.factors
    commit_s = None
    if study.time_scale != 1:
        commit_s = max(1, round(_COMMIT_S * study.time_scale))
    scratch = Scratch(folder, scratch_bytes, media.find_medium(factors.medium), commit_s)
    output = scratch.mount / "output"
    seed = ["--seed", str(study.seed), "--scale", str(study.scale)]
    job = Job(
        factors.model,
        factors.mode,
        output,
        options=[*factors.options(study.scale), *seed],
        record=place / _TRACE,
        record_options=record_options(study.record),
        note=folder / NOTE,
        longest_s=study.longest_s,
    )
    facts: dict[str, Any] = {
        "study": study.name,
        "factors": asdict(factors),
        "repeat": run.repeat,
        "scale": study.scale,
        "power_mode": {"name": str(factors.power_mode or DEFAULT)},
        "began": time.time(),
    }
    try:
        with scratch:
            facts |= {"dev": scratch.device, "scheduler": scratch.scheduler}
            shutil.rmtree(output, ignore_errors=True)
            if factors.mode == "serve":
                job, facts["weights"] = _with_weights(job, run, scratch, checkpoints)
            else:
                job = prepare(job)
            with (
                _medium(job, factors, scratch) as facts["medium"],
                _mode(modes, factors, scratch) as mode,
                _background(modes, factors),
                _timers(modes, study.time_scale) as timers,
            ):
                facts["power_mode"] = mode.facts()
                facts["timers"] = timers | {"commit_s": commit_s or _COMMIT_S}
                job = replace(job, linger_s=_written_after_s(facts["timers"]))
                with others_cpu() as others:
                    ran = _run(job, factors, scratch, mode, study)
                facts |= _result(ran, place / _TRACE) | others
            if factors.mode == "train" and facts["state"] == "done":
                facts["checkpoint"] = checkpoints.keep(run, output)
            shutil.rmtree(output, ignore_errors=True)
    except TracerError as error:
        facts |= {"state": "failed", "reason": str(error), "summaries": []}
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        facts |= {"state": "failed", "reason": f"{about}{error.strerror}", "summaries": []}
    facts["ended"] = time.time()
    write(place / _RUN, facts)


def record_options(given: Sequence[str]) -> list[str]:
    """Returns the options of `tracer record` for a run of a study that gives some.

    The default probes are asked for by name, since a run without events is none, unless the study
    names probes.
    """
    short = [option for option in given if not option.startswith("--")]
    named = any(option.startswith("-e") for option in short)
    named |= any(option.partition("=")[0] == "--probes" for option in given)
    return [*([] if named else ["-e", "default"]), *given]


def _with_weights(
    job: Job, run: Run, scratch: Scratch, checkpoints: Checkpoints
) -> tuple[Job, dict[str, Any]]:
    """Prepares a job that serves, with trained weights if there are any. Returns their origin."""
    copy = scratch.mount / CHECKPOINT
    training = checkpoints.take(run, copy)
    if training is None:
        return prepare(job), {"kind": "fresh", "why": NO_TRAINING}
    job = prepare(replace(job, checkpoint=copy))
    copy.unlink()
    return job, {"kind": "trained", "run": training} | job.weights


def write(path: Path, facts: dict[str, Any]) -> None:
    """Writes JSON, either all of it or nothing, with the rights of the study's user."""
    with as_invoking_user():
        write_whole(path, (json.dumps(facts, indent=1) + "\n").encode())


@contextlib.contextmanager
def _medium(job: Job, factors: Factors, scratch: Scratch) -> Iterator[dict[str, Any]]:
    """Runs the block with the cache and medium of `factors`. Yields facts about the medium."""
    medium = scratch.medium
    facts: dict[str, Any] = {"name": medium.name}
    with contextlib.ExitStack() as stack:
        test = None
        if medium.speed is not None:
            test = stack.enter_context(SpeedTest(scratch.mount, medium.speed))
            scratch.forget()
            beneath = test.measure()
            require_as_fast(beneath, medium.speed, "the disk under the medium")
        if factors.cache == "dropped":
            scratch.drop_caches()
        elif job.data is not None:
            fill_cache(job.data)
        if test is not None and medium.speed is not None:
            limit = stack.enter_context(
                Throttle(scratch.device, medium.speed, scratch.mount.parent)
            )
            found = test.measure()
            require_limited(found, medium.speed)
            facts |= {
                "stands_for": medium.about,
                "source": medium.source,
                "limited_by": limit.about,
                "asked": asdict(medium.speed),
                "measured": asdict(found),
                "without_limit": asdict(beneath),
            }
        yield facts


@contextlib.contextmanager
def _mode(modes: PowerModes, factors: Factors, scratch: Scratch) -> Iterator[Setting]:
    """Runs the block in the power mode of `factors`, with its swap and the host's memory limit."""
    memory = _memory(factors)
    swap: list[tuple[Mechanism, int]] = []
    if memory is not None and memory.swap_bytes:
        beside = scratch.medium.folder or scratch.mount.parent
        area = _available(lambda: SwapArea(folder=beside), "swap", "leave `swap` out")
        swap.append((area, memory.swap_bytes * max(1, factors.containers) + _HEADER_BYTES))
    if factors.page_cluster is not None:
        around = _available(SwapReadahead, "vm.page-cluster", "leave `page_cluster` out")
        swap.append((around, factors.page_cluster))
    own = None if factors.containers else memory
    with modes.applied(factors.power_mode, bool(factors.containers), own, swap) as mode:
        yield mode


def _memory(factors: Factors) -> Memory | None:
    if factors.memory is None:
        return None
    swap = 0 if factors.swap is None else parse_bytes(factors.swap)
    return Memory(parse_bytes(factors.memory), swap)


@contextlib.contextmanager
def _background(modes: PowerModes, factors: Factors) -> Iterator[None]:
    """Runs the block with the threshold of background write-back of `factors`."""
    with contextlib.ExitStack() as stack:
        if factors.dirty_background_bytes is not None:
            found = _available(DirtyBackground, f"vm.{BYTES}", f"leave `{BYTES}` out")
            stack.enter_context(modes.also(found, parse_bytes(factors.dirty_background_bytes)))
        yield


def _available(make: Callable[[], _Made], what: str, mend: str) -> _Made:
    try:
        return make()
    except Lacking as why:
        raise JobError(f"this kernel has no {what}: {why}", mend) from None


@contextlib.contextmanager
def _timers(modes: PowerModes, scale: float) -> Iterator[dict[str, int]]:
    """Runs the block with scaled timers of the flusher. Yields them in hundredths of a second."""
    with contextlib.ExitStack() as stack:
        timers = _available(WritebackTimers, "timers of the flusher", "leave out --time-scale")
        if scale != 1:
            stack.enter_context(modes.also(timers, scale))
        yield timers.remember()


def _written_after_s(timers: dict[str, int]) -> float:
    """Returns the time in s after which the kernel has written all that a job left in memory.

    A page that is dirtied at the very end is old enough after EXPIRE, and the flusher finds it at
    its next look. The journal's next commit may dirty more.
    """
    return (timers[EXPIRE] + 2 * timers[WRITEBACK]) / 100 + timers["commit_s"]


def _run(job: Job, factors: Factors, scratch: Scratch, mode: Setting, study: Study) -> Ran:
    count = factors.containers
    if not count:
        return run_on_host(replace(job, cgroups=mode.cgroups))
    memory = _memory(factors)
    # Mode and medium belong to the machine; the containers share what they allow.
    limits = Limits(
        cpus=mode.share.quota / count if mode.share.quota else factors.cpus,
        memory_bytes=None if memory is None else memory.limit_bytes,
        swap_bytes=0 if memory is None else memory.swap_bytes,
        seccomp=factors.seccomp,
        device=scratch.node,
        speed=scratch.medium.speed and scratch.medium.speed.shared(count),
        cpuset=mode.share.cpuset,
    )
    return run_in_containers(job, count, limits, study.image, study.engine)


def _result(ran: Ran, trace: Path) -> dict[str, Any]:
    failures = list(ran.failures)
    if not failures and (early := manifests.why_early(manifests.read(trace))) is not None:
        failures.append(early)
    return {
        "state": "failed" if failures else "done",
        "reason": "; ".join(failures) or None,
        "summaries": ran.summaries,
        "versions": ran.versions,
        "image": ran.image,
    }
