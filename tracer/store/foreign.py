"""A trace directory made from another recorder's events, with our own decoder.

Another tool's events become raw streams like those of our recorder: ring-buffer pages unchanged,
other events as records with their own format. `finalize` then makes the tables, so calls are
paired, threads separated and losses placed as in any trace. The raw streams are then removed,
because the imported file has their contents.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends import chunks
from tracer.probes.backends.event_format import parse_page
from tracer.probes.catalogue import ALWAYS, PROBES
from tracer.probes.errors import BadTrace
from tracer.probes.kernel import syscall_names_of
from tracer.probes.loss import TABLE as LOSS
from tracer.probes.loss import Gap, fitting
from tracer.store import listed, loss
from tracer.store import manifest as manifests
from tracer.store.files import create, make_folder
from tracer.store.finalize import EVENTS, RAW, THREADS, Progress, finalize
from tracer.store.importing import Source, check_output, first_manifest, put_in_place
from tracer.store.manifest import Manifest
from tracer.store.manifest_parts import TableFacts
from tracer.store.tables import write_table

SCOPES = "target-machine"
"""Part of the name of every stream: its events belong to both scopes."""
RECORD_HEAD, COMMON_BYTES = 32, 8
"""Bytes of a record's length and head; the head's last bytes are the payload's common fields."""

_MOST_THREADS = 1 << 20
_FIRST_ID = 1000


def record_format(name: str, number: int, fields: str, print_format: str = '""') -> str:
    """Returns a format file for records that we make; `fields` holds its field lines."""
    return (
        f"name: {name}\nID: {number}\nformat:\n"
        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
        "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
        f"{fields}\nprint fmt: {print_format}\n"
    )


def record_number(place: int) -> int:
    """Returns the event id for the place of an event in a list."""
    return _FIRST_ID + place


class ForeignRecording:
    """Raw streams of another recorder, and the trace made from them, completely or not at all."""

    def __init__(self, folder: Path, source: Source, force: bool = False) -> None:
        """Raises UsageError if `folder` exists and `force` is not given."""
        self.folder = folder
        self.source = source
        self._building = check_output(folder, force)
        self._streams: list[dict[str, Any]] = []
        self._open: list[BinaryIO] = []

    def __enter__(self) -> ForeignRecording:
        make_folder(self._building)
        make_folder(self._building / RAW)
        return self

    def _new(self, cpu: int, samples: str | None) -> tuple[BinaryIO, str]:
        number = len(self._streams)
        name = f"imported-{SCOPES}-{number}"
        file = create(self._building / RAW / f"{name}.raw")
        entry: dict[str, Any] = {"file": f"{name}.raw", "stream": name, "cpu": cpu}
        if samples is not None:
            entry["samples"] = samples
        self._streams.append(entry)
        self._open.append(file)
        return file, name

    def pages(self, cpu: int) -> tuple[BinaryIO, str]:
        """Returns a new file for ring-buffer pages of a CPU, and the stream's name."""
        return self._new(cpu, None)

    def records(self, cpu: int = -1) -> Records:
        """Returns a new stream of records."""
        return Records(self._new(cpu, "ebpf")[0])

    def finish(
        self,
        formats: Mapping[str, str],
        threads: Mapping[int, tuple[int, str]],
        start_ns: int,
        header_page: str = "",
        gaps: list[Gap] | None = None,
        stats: Mapping[str, Mapping[str, int]] | None = None,
        machine: str | None = None,
        facts: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> Manifest:
        """Makes the tables. Returns the manifest.

        `formats` are format files by SYSTEM:EVENT, `threads` (pid, name) by thread id, `gaps` the
        losses that the source itself reports, `stats` the kernel's counters by stream, `machine`
        the architecture if known, and `facts` more entries of the manifest. Raises BadTrace if no
        table can be made.
        """
        for file in self._open:
            file.close()
        known = {
            event.name
            for probe in PROBES.values()
            for event in probe.events
            if event.name in formats
        }
        if not known:
            raise BadTrace(
                f"{self.source.file} has no events that fit a table",
                "see the known events: tracer list",
            )
        probes = [p.name for p in PROBES.values() if any(e.name in known for e in p.events)]
        names: dict[str, str] = {}
        if machine:  # each architecture numbers the calls differently
            names = {str(nr): name for nr, name in syscall_names_of(machine).items()}
        every = [
            [tid, pid or tid, None, name, None]
            for tid, (pid, name) in sorted(threads.items())[:_MOST_THREADS]
        ]
        listed.write(self._building / RAW, THREADS, every)
        made: Any = {
            **first_manifest(self.source, start_ns, None),
            "state": "captured",
            "host": {"machine": machine} if machine else {},
            "probes": probes,
            "syscall_names": names,
            "capture": {
                "header_page": header_page,
                "formats": {name: formats[name] for name in sorted(known)},
                "streams": self._streams,
                "stats": dict(stats or {}),
            },
            **(facts or {}),
        }
        manifests.write(self._building, made)
        manifest = finalize(self._building, manifests.read(self._building), progress)
        shutil.rmtree(self._building / RAW)
        manifest["tables"] = self._filled(manifest)
        if not set(manifest["tables"]) - set(ALWAYS):
            raise BadTrace(
                f"{self.source.file} has no events that fit a table",
                "see the known events: tracer list",
            )
        _note_unknown_names(manifest, machine, bool(names))
        manifest["probes"] = [p for p in probes if PROBES[p].table.name in manifest["tables"]]
        manifest["capture"]["streams"] = []
        if gaps:
            self._add_gaps(manifest, gaps)
        end = manifest["clock"]["end_ns"]
        manifest["duration_s"] = (end - start_ns) / 1e9 if end is not None else None
        manifests.write(self._building, manifest)
        put_in_place(self._building, self.folder)
        return manifest

    def _filled(self, manifest: Manifest) -> dict[str, TableFacts]:
        """Returns the tables with rows. Empty ones are removed: the source may not record them."""
        kept: dict[str, TableFacts] = {}
        for name, facts in manifest["tables"].items():
            if facts["rows"]:
                kept[name] = facts
            else:
                (self._building / EVENTS / f"{name}.parquet").unlink(missing_ok=True)
        return kept

    def _add_gaps(self, manifest: Manifest, gaps: list[Gap]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._building / "loss.parquet"
        found = pq.read_table(path)
        every = pa.concat_tables([found, pa.Table.from_batches([loss.rows(gaps)])])
        path.unlink()
        rows = every.unify_dictionaries().combine_chunks().to_batches()
        write_table(LOSS, self._building, rows[0] if rows else None)
        more = loss.summary(gaps)
        known = manifest["loss"]
        manifest["loss"] = {
            "events": fitting(known.get("events", 0) + more["events"]),
            "windows": known.get("windows", 0) + more["windows"],
            "unknown": known.get("unknown", 0) + more["unknown"],
            "others": known.get("others", 0) + more["others"],
        }

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._open:
            file.close()
        shutil.rmtree(self._building, ignore_errors=True)


def _note_unknown_names(manifest: Manifest, machine: str | None, named: bool) -> None:
    """Adds a note to the manifest if calls or faults lack what only the architecture tells."""
    notes = manifest["imported"]["notes"]
    calls = "syscalls" in manifest["tables"]
    if not machine and (calls or "page_faults" in manifest["tables"]):
        notes.append(
            "the file does not name its architecture, so system calls have numbers instead of names"
            " and no arguments, and faults have no access: import the output of perf script"
            " --header, or name the architecture with --arch"
        )
    elif calls and not named:
        notes.append(f"the names of the system calls of {machine} are not known on this machine")


class Records:
    """A stream of records that we make, written chunk by chunk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def add(self, records: NDArray[np.uint8], start: int, end: int) -> None:
        """Writes complete records, none of them older than `start`."""
        if not len(records):
            return
        start = max(start, 0)
        self._file.write(
            chunks.header(chunks.DATA, -1, len(records), start, max(start, end), self._at)
        )
        self._file.write(records.tobytes())
        self._at += len(records)


def page_bytes(header_page: str) -> int:
    """Returns the bytes of a ring-buffer page from a header_page. BadTrace if it is invalid."""
    return parse_page(header_page).page_bytes
