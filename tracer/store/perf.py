"""The tables made from perf's files in a trace: `counters` and `call_graphs`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tracer.probes import call_graphs, counters
from tracer.probes.backends.perf_tools import stat
from tracer.probes.backends.perf_tools.stacks import CallGraphs, Place, Resolve, unresolved
from tracer.probes.backends.perf_tools.told import told_by_number
from tracer.probes.errors import BadTrace
from tracer.probes.loss import Gap
from tracer.probes.openat import open_regular
from tracer.probes.symbols.kernel import KernelSymbols, kernel_symbols
from tracer.probes.symbols.mappings import MappedFile
from tracer.probes.symbols.reading import UnreadableSymbols
from tracer.probes.symbols.resolver import Resolver
from tracer.store.files import read_bounded
from tracer.store.manifest import Manifest
from tracer.store.manifest_parts import TableFacts
from tracer.store.tables import TableWriter, write_table

KALLSYMS = "kallsyms"

_MAX_CSV_BYTES = 1 << 20
_ROW_GROUP = 1 << 14
_FILE_NAME = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$")


def decode(
    raw: Path,
    manifest: Manifest,
    building: Path,
    gaps: list[Gap],
    progress: Callable[[int, int], None] | None = None,
    symbols: Resolver | None = None,
) -> dict[str, TableFacts]:
    """Writes the tables that perf recorded into `building`; none if perf recorded nothing.

    `symbols` finds the names of user-mode functions. Losses are added to `gaps`. Raises BadTrace
    for unreadable files.
    """
    perf = manifest.get("perf") or {}
    tables: dict[str, TableFacts] = {}
    if "counters" in perf:
        found = []
        for file in perf["counters"]:
            text = _read(raw / _checked(file["file"]), _MAX_CSV_BYTES)
            if text is not None:
                lines = text.decode("utf-8", "backslashreplace")
                values = stat.parse(lines, file["missing"], file.get("cgroup"))
                found += [(file["target"], value) for value in values]
        found = _without_containers(found, manifest)
        rows = write_table(counters.TABLE, building, stat.rows(found))
        tables[counters.TABLE.name] = _facts(building, counters.TABLE.name, rows)
    if "callgraphs" in perf:
        kernel = kernel_functions(raw)
        recorder = manifest["recorder"].get("pid")
        leave_out = {*perf.get("pids", []), *([recorder] if recorder is not None else [])}
        resolve = unresolved if symbols is None else _namer(symbols)
        told = told_by_number(one.get("formats", {}) for one in perf["callgraphs"])
        writer = TableWriter(call_graphs.TABLE, building, _ROW_GROUP)
        try:
            for recorded in perf["callgraphs"]:
                path = raw / _checked(recorded["file"])
                if not path.exists():
                    continue  # the recorder was killed before perf started
                source = CallGraphs(path, kernel, leave_out, resolve, progress, told)
                for batch in source.read(gaps):
                    writer.add(batch)
            writer.close()
        finally:
            writer.discard()
        tables[call_graphs.TABLE.name] = _facts(building, call_graphs.TABLE.name, writer.rows)
    for name, failure in perf.get("failures", {}).items():
        stream = name.partition("-")[0]
        gaps.append(Gap(stream[:40], 0, None, None, None, f"perf failed: {failure}"[:200]))
    return tables


def _without_containers(
    found: list[tuple[str, stat.Value]], manifest: Manifest
) -> list[tuple[str, stat.Value]]:
    """Returns the counts, those of a daemon without those of the containers that it has begun.

    perf counts a daemon's processes with the children that they make from then on, and a
    container's processes are such children. If a container began that was not counted itself, the
    daemon's own counts are not known. Neither are clocks: perf's clock of a control group and that
    of its processes differ by some per cent, which is more than the daemon uses.
    """
    daemons = {target["name"] for target in manifest["targets"] if target["kind"] == "daemon"}
    files = manifest["perf"]["counters"]
    counted = {file["target"] for file in files if file.get("arrived")}
    names = {t["container"]: t["name"] for t in manifest["targets"] if "container" in t}
    began = {
        names.get(container["id"])
        for container in manifest.get("containers", [])
        if container.get("arrived")
    }
    if not daemons or not began | counted:
        return found
    less: dict[str, list[int | None]] = {}
    for target, value in found:
        if target in counted:
            less.setdefault(value.event, []).append(value.value)
    own: list[tuple[str, stat.Value]] = []
    for target, value in found:
        if target in daemons and value.value is not None:
            theirs = less.get(value.event, []) if began <= counted else [None]
            known = [count for count in theirs if count is not None]
            own_count = value.value - sum(known)
            if len(known) == len(theirs) and own_count >= 0 and value.unit != counters.NS:
                value = replace(value, value=own_count)
            else:
                value = replace(value, value=None, state=counters.NOT_COUNTED)
        own.append((target, value))
    return own


def _namer(symbols: Resolver) -> Resolve:
    """Returns a function that names places, grouped by file or by process for run-time code."""

    def name(places: Sequence[Place]) -> list[str | None]:
        found: list[str | None] = [None] * len(places)
        groups: dict[MappedFile | int, list[int]] = {}
        for number, place in enumerate(places):
            own = place.file.path.startswith("[anon")
            groups.setdefault(place.pid if own else place.file, []).append(number)
        for whose, numbers in groups.items():
            if isinstance(whose, int):
                addresses = np.array([places[number].address for number in numbers], np.uint64)
                names = symbols.of_code_made_at_run_time(whose, addresses)
            else:
                offsets = np.array([places[number].offset for number in numbers], np.int64)
                names = symbols.of_file(whose, offsets)
            for number, function in zip(numbers, names, strict=True):
                found[number] = function
        return found

    return name


def kernel_functions(raw: Path) -> KernelSymbols | None:
    """Returns the kernel's functions that were kept with the trace; None if there are none.

    Raises BadTrace if they cannot be read.
    """
    path = raw / KALLSYMS
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadTrace(f"{path} cannot be read: {why}", "record again") from None
    try:
        return kernel_symbols(fd)
    except UnreadableSymbols as error:
        raise BadTrace(f"{path} cannot be read: {error.what}", "record again") from None
    finally:
        os.close(fd)


def _facts(folder: Path, name: str, rows: int) -> TableFacts:
    return {"rows": rows, "bytes": (folder / f"{name}.parquet").stat().st_size}


def _checked(name: str) -> str:
    if not _FILE_NAME.match(name):
        raise BadTrace(f"the trace names a file with an invalid name: {name!r}", "record again")
    return name


def _read(path: Path, limit: int) -> bytes | None:
    """Returns a raw file's bytes; None if the file was never made."""
    try:
        return read_bounded(path, limit)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadTrace(f"{path} cannot be read: {error}", "record again") from None
