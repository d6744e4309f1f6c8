"""The tables made from the kernel's counts: `summaries` and `histograms`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracer.probes.backends import event_format
from tracer.probes.backends.ebpf.summary import FAULT, REQUEST, SYSCALL, WRITEBACK
from tracer.probes.errors import BadTrace
from tracer.probes.loss import Gap, fitting
from tracer.probes.summaries import HISTOGRAMS, SUMS
from tracer.store.checked import json_lines, what_is_wrong
from tracer.store.lists import SummaryFacts
from tracer.store.manifest import Manifest, page_bytes
from tracer.store.manifest_parts import TableFacts
from tracer.store.tables import TableWriter, batch_of

FILE = "summary.jsonl"
_MINOR_BITS, _OPERATION_BITS = 20, 8
_KINDS = {SYSCALL: "syscall", FAULT: "fault", REQUEST: "request", WRITEBACK: "writeback"}
_OPERATIONS = {"R": "read", "W": "write", "D": "discard", "F": "flush"}


def decode(raw: Path, manifest: Manifest, building: Path, gaps: list[Gap]) -> dict[str, TableFacts]:
    """Writes the tables, if the recording has a summary. Uncounted events become gaps.

    Raises BadTrace for an unreadable file.
    """
    if not manifest.get("summed_up"):
        return {}
    names = _Names(manifest)
    writers = {table.name: TableWriter(table, building) for table in (SUMS, HISTOGRAMS)}
    try:
        for entry in _entries(raw / FILE):
            _add(writers[SUMS.name], _sums(entry, names))
            _add(writers[HISTOGRAMS.name], _slots(entry, names))
            if entry["uncounted"]:
                start, end = entry["start"], entry["end"]
                gaps.append(Gap("summary", 0, start, end, entry["uncounted"], "map full"))
        for writer in writers.values():
            writer.close()
    finally:
        for writer in writers.values():
            writer.discard()
    return {
        name: {"rows": writer.rows, "bytes": writer.path.stat().st_size}
        for name, writer in writers.items()
    }


def _add(writer: TableWriter, rows: list[dict[str, Any]]) -> None:
    values = [[row[column.name] for column in writer.table.columns] for row in rows]
    writer.add(batch_of(writer.table, values))


def _sums(entry: SummaryFacts, names: _Names) -> list[dict[str, Any]]:
    found = []
    for kind, what, pid, count, errors, total_ns, amount in entry["sums"]:
        name, dev = names.of(kind, what)
        timed = kind in (SYSCALL, REQUEST)
        written = fitting(amount * names.page_bytes) if kind == WRITEBACK else amount
        found.append(
            {
                "start": entry["start"],
                "end": entry["end"],
                "kind": _KINDS[kind],
                "name": name,
                "dev": dev,
                "pid": pid,
                "count": count,
                "errors": errors if timed else None,
                "total_ns": total_ns if timed else None,
                "bytes": written if kind in (REQUEST, WRITEBACK) else None,
            }
        )
    return found


def _slots(entry: SummaryFacts, names: _Names) -> list[dict[str, Any]]:
    found = []
    for kind, what, slot, count in entry["slots"]:
        name, dev = names.of(kind, what)
        found.append(
            {
                "kind": _KINDS[kind],
                "name": name,
                "dev": dev,
                "low_ns": 1 << slot if slot else 0,
                "high_ns": 1 << (slot + 1),
                "count": count,
            }
        )
    return found


class _Names:
    """Converts numbers in the kernel's maps to names."""

    def __init__(self, manifest: Manifest) -> None:
        self._calls = manifest.get("syscall_names", {})
        start = manifest["capture"].get("formats", {}).get("writeback:writeback_start", "")
        parsed = event_format.parse("writeback:writeback_start", start) if start else None
        self._reasons = parsed.symbols.get("reason", {}) if parsed else {}
        self.page_bytes = page_bytes(manifest)

    def of(self, kind: int, what: int) -> tuple[str, str | None]:
        """Returns the name and the device of a count."""
        if kind == SYSCALL:
            return self._calls.get(str(what), f"syscall_{what}"), None
        if kind == FAULT:
            return ("major" if what else "minor"), None
        if kind == WRITEBACK:
            return self._reasons.get(what, str(what)), None
        letter = chr(what & ((1 << _OPERATION_BITS) - 1))
        device = what >> _OPERATION_BITS
        dev = f"{device >> _MINOR_BITS}:{device & ((1 << _MINOR_BITS) - 1)}"
        return _OPERATIONS.get(letter, "other"), dev


def _entries(path: Path) -> Iterator[SummaryFacts]:
    """Yields the complete intervals."""
    try:
        yield from json_lines(path, SummaryFacts)
    except (OSError, ValueError) as error:
        raise BadTrace(f"{path} is damaged: {what_is_wrong(error)}", "record again") from None
