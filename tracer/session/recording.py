"""One recording, from the first check to the last file."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tracer import targets as target_finder
from tracer.probes.backends.uprobes.backend import SUBJECTS
from tracer.probes.catalogue import PROBES
from tracer.probes.cpu import why_no_duckdb
from tracer.probes.errors import FeatureMissing, TracerError, UsageError
from tracer.probes.events import gpu_calls
from tracer.probes.events.opens import PATH as C_LIBRARY
from tracer.probes.events.opens import PROBE as OPENS_PROBE
from tracer.probes.events.sched import STACKS, without_stacks
from tracer.probes.events.torch_calls import PATH as TORCH_LIBRARY
from tracer.probes.events.torch_calls import PROBE as TORCH_PROBE
from tracer.probes.proc import runs_32_bits
from tracer.probes.symbols.kernel import kallsyms, why_unnamed
from tracer.session import environment, output, privileges
from tracer.session.address_spaces import write_mappings
from tracer.session.arrivals import Arrivals
from tracer.session.capture import Capture, Stats
from tracer.session.description import (
    add_containers,
    add_cost,
    add_devices,
    cpu_s,
    first_manifest,
    max_rss_bytes,
    note_end,
)
from tracer.session.descriptors import Descriptors
from tracer.session.ending import Running, end_command, let_end, until_the_end
from tracer.session.failures import SPACE, ended_by_error, unwritten
from tracer.session.folios import folios_mapped
from tracer.session.launch import Launch
from tracer.session.left_running import left_running
from tracer.session.libraries import UNREADABLE, open_libraries
from tracer.session.marks import Marks, environment_for
from tracer.session.members import Members
from tracer.session.newcomers import Newcomers
from tracer.session.online import OnlineCpus
from tracer.session.options import Listener, Options, Outcome
from tracer.session.paths import find_files
from tracer.session.perf import PerfTools
from tracer.session.plan import Plan
from tracer.session.plan import plan as planned
from tracer.session.python_stacks import PythonStacks
from tracer.session.sampler import Sampler
from tracer.session.signals import Signals
from tracer.session.stack_kinds import kinds
from tracer.session.summary import Summary
from tracer.store import left_out, listed
from tracer.store import manifest as manifests
from tracer.store.files import write_whole
from tracer.store.finalize import COMPAT, LIVE_MARKS, MARKS, RAW, THREADS, finalize
from tracer.store.manifest import Manifest
from tracer.store.maps import FILE as MAPS
from tracer.store.perf import KALLSYMS
from tracer.store.samples import FILE as SAMPLES
from tracer.store.summary import FILE as SUMMARY

TORCH, OPENS, GPU = TORCH_PROBE.name, OPENS_PROBE.name, gpu_calls.PROBE.name


def record(options: Options, listener: Listener | None = None) -> Outcome:
    """Makes one recording. Raises a TracerError for everything that the user can mend.

    Nothing of the recording stays in the kernel, unless the recorder is killed by SIGKILL.
    """
    listener = listener or Listener()
    plan = planned(options)
    if plan.refused is not None:
        listener.without_events(plan.refused)
    targets = plan.targets
    perf = PerfTools(options.perf_stat, options.callgraphs)
    stacks = PythonStacks(options.stacks, targets)
    unnamed = why_unnamed() if options.stacks or options.callgraphs else None
    if unnamed is not None and options.callgraphs:
        perf.without_names(unnamed)
        listener.without_names(unnamed)
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        launch = None
        if options.command:
            folder = output.live_marks(options.output)
            marked = environment_for(folder, options.auto_phases, options.cuda_sync)
            launch = Launch(options.command, marked)
            stack.callback(_end_unstarted, launch)
            targets.append(target_finder.from_command(options.command, launch.pid))
        target_finder.named_apart(targets)
        with signals.held():
            made = stack.enter_context(output.handed_over(options.output))
        if launch is not None:
            stack.enter_context(_ended(launch, signals))
        stack.callback(perf.close)
        privileges.allow_locked_memory()
        privileges.keep(privileges.CAPTURE)
        raw = made.place / RAW
        marks = Marks(raw / MARKS, raw / LIVE_MARKS)
        marks.find(targets)
        libraries, without_uprobes = _libraries(options, plan, marks)
        probes = [name for name in plan.probes if name not in SUBJECTS or name in libraries]
        arrivals, newcomers = Arrivals(targets), Newcomers()
        stack.callback(arrivals.close)
        stack.callback(newcomers.close)
        sampler = Sampler(raw / SAMPLES, targets, options.sample_hz, options.residency)
        with_stacks = options.stacks and unnamed is None
        online = OnlineCpus()
        stack.callback(online.close)
        with signals.held():  # the kernel keeps an instance that nobody removes
            capture = Capture(
                raw,
                [PROBES[p] if with_stacks else without_stacks(PROBES[p]) for p in probes],
                options.buffer_kib,
                online.recorded,
                plan.choice.backend,
                options.machine,
                plan.summed_up,
                libraries,
                plan.choice.own_programs,
            )
            stack.callback(capture.close)
        if capture.uprobes is not None:
            for probe, count in capture.uprobes.left_out.items():
                without_uprobes[probe]["files of the library left out: no functions found"] = count
        for fd in (fd for files in libraries.values() for fd in files):
            os.close(fd)
        summary = None
        if plan.summed_up and capture.programs is not None:
            summary = Summary(raw / SUMMARY, capture.programs)
        with signals.held():
            forget = launch.forget if launch is not None else None
            capture.guard(forget, partial(_save, made, marks, summary))
        manifest = first_manifest(options, probes, targets, capture, _why(plan, capture))
        if "page_cache" in probes:
            manifest["kernel"] |= folios_mapped(made.place)
        for absent in set(options.probes) & SUBJECTS.keys() - libraries.keys():
            reasons = [f"{count} {why}" for why, count in without_uprobes[absent].items()]
            manifest["capture"]["missing"][absent] = reasons or [_NO_LIBRARY]
        if plan.summed_up:
            manifest["summed_up"] = plan.summed_up
        if options.stacks:
            recorded = manifest["capture"]["formats"]
            manifest["stacks"] = kinds(recorded, unnamed, stacks.refused, listener)
        # Even without a library to probe: processes with files may join later.
        opened = Descriptors(raw, targets) if OPENS in plan.probes else None
        members = Members(raw, targets, capture, opened)
        sampler.start()
        stacks.start(raw)
        stack.callback(stacks.close)
        arrivals.start()
        newcomers.start()
        running = Running(
            options, made.place, targets, launch, capture, marks, perf, members, summary,
            sampler, stacks, arrivals, newcomers, online, without_uprobes, manifest, signals,
            listener,
        )  # fmt: skip
        manifest = _capture(running, manifest)
        with signals.held():
            capture.close()
        made.remove_live_marks()
        manifest = _with_tables(running, manifest)
        status = 0
        if launch is not None and manifest["ended_by"] in ("command", "size", SPACE):
            status = let_end(launch, signals)
        folder = made.found()
    return Outcome(folder, manifest, status)


def _why(plan: Plan, capture: Capture) -> str:
    """Returns the reason for the backend, and for what records system calls and page faults."""
    why = plan.choice.why
    if capture.own_programs:
        return f"{why}; {' and '.join(capture.own_programs)} by BPF programs of our own"
    if capture.no_programs is not None:
        return f"{why}; no BPF programs of our own: {capture.no_programs.what}"
    return why


_NO_LIBRARY = "no target ran its library as the recording began"


@contextmanager
def _ended(launch: Launch, signals: Signals) -> Iterator[None]:
    """Ends a command with the recording, unless only the recording has failed."""
    try:
        yield
    except TracerError:
        # A full disk is not the job's fault, so the job may run to its end.
        if launch.started:
            let_end(launch, signals)
        raise
    except BaseException:
        launch.abandon()
        raise


def _end_unstarted(launch: Launch) -> None:
    if not launch.started:
        launch.abandon()


def _libraries(
    options: Options, plan: Plan, marks: Marks
) -> tuple[dict[str, list[int]], dict[str, Counter[str]]]:
    """Opens the libraries for the uprobes of each probe that needs some.

    Those of PyTorch are opened in processes that do not mark themselves. Returns the files and
    counts of left-out files, by probe.
    """
    there = set(target_finder.processes_with_memory(plan.targets))
    left_out: dict[str, Counter[str]] = {probe: Counter() for probe in SUBJECTS}
    found = {}
    if TORCH in plan.probes:
        # The user may ask for torch_calls by its name.
        looked_at = there if TORCH in options.probes else there - marks.marking
        found[TORCH] = open_libraries(looked_at, TORCH_LIBRARY, left_out=left_out[TORCH])
    if OPENS in plan.probes:
        # A command that has not begun is a copy of this process, and has its C library.
        begin = {target.pid for target in plan.targets if target.kind == "command"}
        looked_at = there | {pid for pid in begin if pid}
        found[OPENS] = open_libraries(looked_at, C_LIBRARY, left_out=left_out[OPENS])
    if GPU in plan.probes:
        found[GPU] = open_libraries(there, gpu_calls.PATH, gpu_calls.LIBRARY, left_out[GPU])
    if options.machine:  # there may be some that even root may not look into
        for counts in left_out.values():
            del counts[UNREADABLE]
    return {probe: files for probe, files in found.items() if files}, left_out


def _start(launch: Launch, folder: Path) -> None:
    """Lets the command run. If its exec fails, nothing was recorded: no trace stays."""
    try:
        launch.go()
    except UsageError:
        (folder / manifests.FILE).unlink()  # `Output.hand_over` removes the rest
        raise


def _with_tables(running: Running, manifest: Manifest) -> Manifest:
    """Makes the tables. Returns the manifest, with the cost of the recording and of the tables."""
    privileges.keep(privileges.FINALIZE)
    if refused := why_no_duckdb():
        raise FeatureMissing(
            f"the tables cannot be made here: {refused}",
            f"the events are all in {running.options.output}: run `tracer info` on it on a machine "
            "whose CPU has AVX2",
        )
    begun_cpu_s = cpu_s()
    find = partial(find_files, folders=running.options.residency)
    manifest = finalize(running.place, manifest, running.listener.decoding, find)
    manifest["own_cost"]["tables_cpu_s"] = round(cpu_s() - begun_cpu_s, 3)
    manifest["own_cost"]["tables_max_rss_bytes"] = max_rss_bytes()
    try:
        others_s = running.sampler.cpu_s + running.stacks.cpu_s
        return add_cost(running.place, manifest, others_s)
    except OSError as error:
        raise unwritten(running.options.output, error) from None


def _capture(running: Running, manifest: Manifest) -> Manifest:
    """Records events until something ends the recording. Returns the manifest as written."""
    options, targets, launch = running.options, running.targets, running.launch
    capture, perf, members = running.capture, running.perf, running.members
    sampler, stacks, folder = running.sampler, running.stacks, running.place
    begun_cpu_s = cpu_s()
    try:
        capture.follow(targets)
        formats = manifest["capture"]["formats"]
        if options.callgraphs or any(name in formats for name in STACKS):
            write_whole(folder / RAW / KALLSYMS, kallsyms())
        with running.signals.held():
            perf.start(folder / RAW, targets, options.buffer_kib)
        if perf.wanted:
            manifest["perf"] = perf.describe()
        manifest["samples"] = sampler.describe()
        if stacks.taken:
            manifest["python_stacks"] = stacks.describe()
        manifest["clock"]["start_ns"] = time.monotonic_ns()
        manifests.write(folder, manifest)
        companions = [*perf.pids, *sampler.pids, *([capture.guardian] if capture.guardian else [])]
        own_threads = [*sampler.tids, *stacks.tids, *running.arrivals.tids]
        ended_before = environment.ended()
        capture.start_machine(options.max_bytes, [*companions, *own_threads])
        perf.enable()
        listed.write(folder / RAW, THREADS, environment.threads(ended_before))
        members.first_look(companions)
        there = target_finder.processes_with_memory(targets)
        listed.write(folder / RAW, COMPAT, filter(runs_32_bits, there))
        for probe, counts in running.without_uprobes.items():
            left_out.note(folder / RAW, probe, counts)
        sampler.begin(companions, capture.followed)
        capture.start_targets()
        # Steps before that have no events. The guardian reads the file, too.
        manifest["clock"]["targets_from_ns"] = time.monotonic_ns()
        manifests.write(folder, manifest)
        members.look_at_files()
        # Mappings may take seconds to read. What changes meanwhile is recorded.
        if capture.sees_mappings:
            left_out.note(folder / RAW, "maps", write_mappings(folder / RAW / MAPS, there))
        if launch is not None:
            _start(launch, folder)
        stacks.begin(companions)
        running.listener.started(targets)
        ended_by = until_the_end(running)
        stacks.end()
        sampler.end(launch.usage if launch is not None else None)
        perf.disable()
        manifest["clock"]["targets_until_ns"] = time.monotonic_ns()
        stats = capture.stop()
        running.online.look(folder / RAW)
        if running.summary is not None:
            running.summary.stop()
        perf.stop()
        members.close()
        end_ns = time.monotonic_ns()
        captured_s = cpu_s() - begun_cpu_s + sampler.cpu_s + stacks.cpu_s
        manifest["own_cost"]["capture_cpu_s"] = round(captured_s, 3)
        manifest["own_cost"]["capture_max_rss_bytes"] = max_rss_bytes()
        failure = (
            sampler.failure or stacks.failure or (capture.drain.failure if capture.drain else None)
        )
        if failure is not None:
            ended_by = ended_by_error(failure)
        running.listener.stopping(ended_by)
        if launch is not None and ended_by in ("signal", "duration"):
            end_command(launch, running.signals)
    except OSError as error:
        raise unwritten(folder, error) from None
    finally:
        members.close()
        sampler.close()
        if running.summary is not None:
            running.summary.close()
    manifest["samples"] = sampler.describe()
    manifest["capture"]["streams"] = capture.describe()["streams"]
    manifest["targets"] = [target.describe() for target in targets]
    if (left := left_running(capture, targets, output.live_marks(options.output))) is not None:
        manifest["left_running"] = left
    beyond = add_containers(manifest, running.newcomers.met)
    if launch is not None and launch.status is not None:
        manifest["targets"][-1]["exit_status"] = launch.status
    add_devices(manifest)
    try:
        running.marks.collect()
        left_out.note(folder / RAW, "samples", sampler.left_out)
        left_out.note(folder / RAW, "containers", _containers_left_out(beyond, running))
    except OSError as error:
        failure = failure or error
        ended_by = ended_by_error(failure)
    if failure is not None:
        manifest["failure"] = failure.strerror or str(failure)
    try:
        note_end(folder, manifest, stats, ended_by, end_ns)
        manifests.write(folder, manifest)
    except OSError as error:
        raise unwritten(folder, failure or error) from None
    if failure is not None:
        raise unwritten(folder, failure)
    return manifest


def _containers_left_out(beyond: int, running: Running) -> dict[str, int]:
    sentences = {
        f"containers left out: {manifests.MOST_CONTAINERS} are known": beyond,
        "looks at containers that found too many": running.newcomers.crowded,
    }
    return {sentence: count for sentence, count in sentences.items() if count}


def _save(made: output.Output, marks: Marks, summary: Summary | None, stats: Stats) -> None:
    """Saves everything but the raw data of a killed recorder. Runs last in the guardian."""
    folder = made.place
    if (folder / manifests.FILE).exists():
        marks.take_over()
        marks.collect()
        if summary is not None:
            summary.take_over()
            summary.stop()
        manifest = manifests.read(folder)
        note_end(folder, manifest, stats, "killed", time.monotonic_ns())
        manifests.write(folder, manifest)
        made.remove_live_marks()
    made.hand_over()
