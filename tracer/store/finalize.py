"""Decodes raw streams into tables, in bounded memory.

The same function ends a recording and recovers one whose recorder was killed: it reads only the
trace directory.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tracer.probes.backends import event_format
from tracer.probes.backends.choice import PERF
from tracer.probes.backends.chunks import ChunkStream
from tracer.probes.backends.ebpf import records as bpf_records
from tracer.probes.backends.event_format import EventFormat, common_fields
from tracer.probes.backends.ftrace.page_stream import PageStream
from tracer.probes.backends.own_bpf import records as program_records
from tracer.probes.backends.perf_events import records, tracepoints
from tracer.probes.backends.timeline import RawStream, Timeline, no_events
from tracer.probes.catalogue import ALWAYS, PROBES
from tracer.probes.descriptors import TABLE as DESCRIPTORS_TABLE
from tracer.probes.errors import BadTrace, TracerError
from tracer.probes.events.extents import EXTENT_MAP
from tracer.probes.events.page_faults import TABLE as FAULTS_TABLE
from tracer.probes.events.sched import STACKS
from tracer.probes.files import TABLE as FILES_TABLE
from tracer.probes.kernel import boot_id, process_start_time
from tracer.probes.loss import TABLE as LOSS_TABLE
from tracer.probes.loss import Gap
from tracer.probes.phases import TABLE as PHASES
from tracer.probes.rows.event_rows import Assembler, EventRows
from tracer.probes.rows.membership import Membership
from tracer.probes.rows.threads import Threads
from tracer.probes.schema import AssemblyContext, Probe, Scope, Table
from tracer.probes.symbols.mappings import MappedFile
from tracer.probes.symbols.resolver import Resolver
from tracer.probes.text import shell_word
from tracer.store import left_out, listed, loss, perf, phases, python_stacks, samples, summary
from tracer.store import manifest as manifests
from tracer.store.checked import Pid
from tracer.store.files import allow_open_files, make_folder
from tracer.store.layers import Layers
from tracer.store.lists import (
    DescriptorFacts,
    ExtentFacts,
    FileFacts,
    MarkFacts,
    MemberFacts,
    ThreadFacts,
)
from tracer.store.manifest import Manifest
from tracer.store.manifest_parts import TableFacts
from tracer.store.maps import FILE as MAPS
from tracer.store.maps import Maps
from tracer.store.marks import LIVE, NAMES, read_notes
from tracer.store.tables import TableWriter, write_rows, write_table

RAW = "raw"
EVENTS = "events"
LOSS = "loss.parquet"
THREADS = "threads.json"
MEMBERS = "members.jsonl"
COMPAT = "compat.json"
"""The list of the targets' processes that ran a 32-bit program at the start."""
FILES = "files.json"
EXTENTS = "extents.json"
DESCRIPTORS = "descriptors.jsonl"
MARKS = "marks"
LIVE_MARKS = MARKS + LIVE
"""Folder for the marks of a recorded command; its processes may write anything there."""

Progress = Callable[[int, int], None]
"""Called with the number of decoded pages and of all pages."""

FileFinder = Callable[[Path, Manifest], tuple[list[FileFacts], list[ExtentFacts], dict[str, int]]]
"""Called with the folder of the tables and the manifest. Returns names and extents of used files,
and counts of what could not be looked up, by phrase (`store.left_out`)."""

_FILE_NAME = re.compile(r"^[A-Za-z0-9_.-]{1,128}$")


def finalize(
    folder: Path,
    manifest: Manifest,
    progress: Progress | None = None,
    find_files: FileFinder | None = None,
) -> Manifest:
    """Decodes `folder`'s raw streams into its tables. Returns the manifest as written.

    `find_files` is called while the written files can still be found; its result is kept with the
    raw data.

    Readers see nothing until everything is written. Raises BadTrace for unreadable raw data, and
    TracerError if the tables cannot be written.
    """
    building = folder / f".{EVENTS}.{os.getpid()}"
    try:
        _remove_unfinished(folder)
        make_folder(building)
        with _resolver(manifest) or contextlib.nullcontext() as symbols:
            tables, gaps, last_event = _decode(folder, manifest, building, progress, symbols)
        _add(tables, folder, building, DESCRIPTORS_TABLE, DESCRIPTORS, DescriptorFacts)
        if find_files is not None:
            files, extents, lost = find_files(building, manifest)
            listed.write(folder / RAW, FILES, files)
            listed.write(folder / RAW, EXTENTS, extents)
            left_out.note(folder / RAW, FILES_TABLE.name, lost)
            clock = manifest["clock"]
            gaps += left_out.of(FILES_TABLE.name, lost, clock["start_ns"], clock["end_ns"])
        _add(tables, folder, building, FILES_TABLE, FILES, FileFacts)
        _add(tables, folder, building, EXTENT_MAP, EXTENTS, ExtentFacts)
        write_table(LOSS_TABLE, building, loss.rows(gaps))
        final = folder / EVENTS
        if final.exists():
            shutil.rmtree(final)
        (building / LOSS).replace(folder / LOSS)
        building.replace(final)
        clock = manifest["clock"].copy()
        if clock["end_ns"] is None:
            clock["end_ns"] = last_event
        manifest = {
            **manifests.with_end(manifest),
            "state": "finalized",
            "clock": clock,
            "tables": tables,
            "unmarked": read_notes(folder / RAW / MARKS),
            "loss": loss.summary(gaps),
        }
        manifests.write(folder, manifest)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return manifest


def _add(
    tables: dict[str, TableFacts], folder: Path, building: Path, table: Table, name: str, kind: Any
) -> None:
    """Makes a table of a list, if the recording has that list."""
    if (folder / RAW / name).exists():
        rows = listed.read(folder / RAW / name, kind)
        tables[table.name] = {"rows": write_rows(table, building, rows)}


def _remove_unfinished(folder: Path) -> None:
    """Removes unfinished tables of processes that no longer exist."""
    for path in folder.glob(f".{EVENTS}.*"):
        pid = path.suffix[1:]
        gone = not pid.isdecimal() or process_start_time(int(pid)) is None
        if gone or int(pid) == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


def _cannot_write(folder: Path, error: OSError) -> TracerError:
    if error.errno == errno.ENOSPC:
        return TracerError(
            f"the disk is full: the tables of {folder} could not be written",
            f"the captured data is kept; free space and run: tracer info {shell_word(folder)}",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return TracerError(
            f"{folder} has no tables yet, and they cannot be written there: {error.strerror}",
            "copy the trace to a folder that you own and read it there",
        )
    return TracerError(f"the tables of {folder} cannot be written: {error}", "see the disk's log")


def _decode(
    folder: Path,
    manifest: Manifest,
    building: Path,
    progress: Progress | None,
    symbols: Resolver | None,
) -> tuple[dict[str, TableFacts], list[Gap], int | None]:
    formats, streams = raw_streams(folder, manifest)
    threads = listed.read(folder / RAW / THREADS, ThreadFacts)
    members = listed.read(folder / RAW / MEMBERS, MemberFacts)
    context_manifest = {
        **manifest,
        "threads": threads,
        "maps": Maps(folder / RAW / MAPS),
        "compat": listed.read(folder / RAW / COMPAT, Pid),
    }
    probes = [
        PROBES[name] for name in dict.fromkeys([*manifest["probes"], *ALWAYS]) if name in PROBES
    ]
    # Processes last: their roles depend on the other tables.
    probes.sort(key=lambda probe: probe.name in ALWAYS)
    flushers: set[int] = set()
    not_kept: list[Gap] = []
    writers: dict[str, TableWriter] = {}
    try:
        recorder = manifest["recorder"].get("pid")
        membership = Membership(
            manifest["targets"], threads, members, formats, recorder, manifest["backend"] == PERF
        )
        blind = _blind(manifest, streams)
        stacks = any(name in formats for name in STACKS)
        kernel = perf.kernel_functions(folder / RAW) if stacks else None
        assemblers = {
            probe.name: _assembler(
                AssemblyContext(
                    probe,
                    formats,
                    context_manifest,
                    flushers,
                    membership,
                    blind,
                    symbols,
                    not_kept,
                    kernel,
                )
            )
            for probe in probes
        }
        groups = _groups(probes, formats)
        snapshot = [(t[0], t[1]) for t in threads]
        resolver = Threads(snapshot, formats, _launched(manifest), membership)
        timeline = Timeline(streams)
        for probe in probes:
            writers[probe.name] = TableWriter(probe.table, building)
        # A last batch without events: the list may hold processes found after the last event.
        for batch in itertools.chain(timeline.batches(), [no_events()]):
            resolver.resolve(batch)
            assert batch.launching is not None
            group = groups[batch.type]
            order = np.argsort(group, kind="stable")
            bounds = np.searchsorted(group[order], np.arange(len(probes) + 1))
            others = batch.launching if batch.wanted is None else batch.launching | ~batch.wanted
            for number, probe in enumerate(probes):
                rows = order[bounds[number] : bounds[number + 1]]
                assembler = assemblers[probe.name]
                if probe.scope is Scope.TARGET and not assembler.sees_others and others.any():
                    rows = rows[~others[rows]]
                writers[probe.name].add(assembler.rows(batch, rows))
            if progress:
                progress(timeline.units_read, timeline.units)
        for probe in probes:
            writers[probe.name].add(assemblers[probe.name].finish())
        tables: dict[str, TableFacts] = {}
        for writer in writers.values():
            writer.close()
            tables[writer.table.name] = {"rows": writer.rows, "bytes": writer.path.stat().st_size}
    finally:
        for stream in streams:
            stream.close()
        for writer in writers.values():
            writer.discard()
    clock = manifest["clock"]
    names = listed.read(folder / RAW / MARKS / NAMES, MarkFacts)
    start, end = clock["start_ns"], clock.get("end_ns")
    found, lost = phases.write_phases(folder / RAW / MARKS, start, end, building, names)
    size = (building / f"{PHASES.name}.parquet").stat().st_size
    tables[PHASES.name] = {"rows": found, "bytes": size}
    last_event = max((stream.last_seen for stream in streams), default=0) or None
    gaps = [*_gaps(manifest, timeline), *membership.gaps, *not_kept]
    callgraphs = "callgraphs" in manifest.get("perf", {})
    gaps += loss.of_new_cpus(folder / RAW, streams, callgraphs, start)
    gaps += left_out.gaps(folder / RAW, start, end)
    cut = lost.pop(phases.CUT, 0)
    gaps += left_out.of("marks", lost, start, end)
    gaps += left_out.of(PHASES.name, {phases.CUT: cut} if cut else {}, start, end)
    tables |= perf.decode(folder / RAW, manifest, building, gaps, progress, symbols)
    if symbols is not None:
        gaps += loss.of_functions(symbols.left_out, start, end)
    tables |= summary.decode(folder / RAW, manifest, building, gaps)
    tables |= samples.decode(folder / RAW, manifest, building)
    tables |= python_stacks.decode(folder / RAW, manifest, building)
    return tables, gaps, last_event


def _resolver(manifest: Manifest) -> Resolver | None:
    """Returns a resolver of symbols for a recording of this boot; else None: files may differ."""
    if FAULTS_TABLE.name not in manifest["probes"] and "callgraphs" not in manifest.get("perf", {}):
        return None  # no table has a function column
    clock = manifest["clock"]
    if manifest["host"].get("boot_id") != boot_id() or "realtime_offset_ns" not in clock:
        return None
    end = clock["end_ns"]
    latest = None if end is None else end + clock["realtime_offset_ns"]
    folders = {mount["dev"]: mount["path"] for mount in reversed(manifest.get("mounts", []))}

    def roots(file: MappedFile) -> list[str]:
        # A container's file lies on an overlay that is also mounted on the host.
        mounted = folders.get(f"{file.dev[0]}:{file.dev[1]}", "/")
        return ["", mounted] if mounted != "/" else [""]

    symbols = Resolver(latest, roots, layers=Layers(manifest.get("containers", [])).places)
    symbols.start()
    return symbols


def _assembler(context: AssemblyContext) -> Assembler:
    if context.probe.assembler is None:
        return EventRows(context)
    made: Assembler = context.probe.assembler(context)
    return made


def _blind(manifest: Manifest, streams: list[RawStream]) -> dict[str, list[tuple[int, int]]]:
    """Returns the time spans in which samples of perf's events may have been lost unnoticed."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for entry, stream in zip(manifest["capture"]["streams"], streams, strict=True):
        if isinstance(stream, ChunkStream) and (samples := entry.get("samples")):
            spans.setdefault(samples, []).extend(stream.blind)
    return spans


def _groups(probes: list[Probe], formats: dict[str, EventFormat]) -> Any:
    """Returns the number of the probe by event id; len(probes) for events without a probe."""
    groups = np.full(1 << 16, len(probes), np.uint8)
    for number, probe in enumerate(probes):
        for event in probe.events:
            if event.name in formats:
                groups[formats[event.name].id] = number
    return groups


def raw_streams(folder: Path, manifest: Manifest) -> tuple[dict[str, EventFormat], list[RawStream]]:
    """Returns the event formats and the opened raw streams of a trace. Raises BadTrace."""
    capture = manifest["capture"]
    if "formats" not in capture or "streams" not in capture:
        raise BadTrace(f"{folder} does not list its events and streams", "record again")
    formats = {name: event_format.parse(name, text) for name, text in capture["formats"].items()}
    pages = any("samples" not in entry for entry in capture["streams"])
    layout = event_format.parse_page(capture.get("header_page", "")) if pages else None
    common = common_fields(formats)
    streams: list[RawStream] = []
    allow_open_files(len(capture["streams"]))
    try:
        for entry in capture["streams"]:
            name = entry["file"]
            if not _FILE_NAME.match(name):
                raise BadTrace(
                    f"{folder} names a raw stream with an invalid name: {name!r}", "record again"
                )
            label, cpu, path = entry["stream"], entry["cpu"], folder / RAW / name
            samples = entry.get("samples")
            if samples is None:
                assert layout is not None
                stalls = entry.get("stalls", [])
                streams.append(PageStream(label, cpu, path, layout, common, stalls))
            elif samples == program_records.SAMPLES:
                streams.append(ChunkStream(label, cpu, path, program_records.decoder(cpu)))
            elif samples == "ebpf":
                streams.append(ChunkStream(label, cpu, path, bpf_records.decode))
            elif samples in (tracepoints.SAMPLES, tracepoints.SAMPLES_WITH_STACKS):
                chains = samples == tracepoints.SAMPLES_WITH_STACKS
                streams.append(ChunkStream(label, cpu, path, tracepoints.decoder(common, chains)))
            else:
                streams.append(ChunkStream(label, cpu, path, records.decoder(samples)))
    except BaseException:
        for stream in streams:
            stream.close()
        raise
    return formats, streams


def _launched(manifest: Manifest) -> int | None:
    """Returns the process of the recorded command; None if there is none."""
    for target in manifest["targets"]:
        if target["kind"] == "command":
            return target["pid"]
    return None


def _gaps(manifest: Manifest, timeline: Timeline) -> list[Gap]:
    gaps = list(timeline.gaps)
    stats = manifest["capture"].get("stats", {})
    gaps += loss.uncounted(gaps, stats, timeline.streams)
    gaps += loss.at_the_end(manifests.with_end(manifest), timeline.streams)
    return sorted(gaps, key=lambda g: (g.start or 0, g.stream))
