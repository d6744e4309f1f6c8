"""Tables of what the kernel counted: `summaries` and `histograms`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probes.backends import event_format
from probes.backends.ebpf.summary import FAULT, REQUEST, SYSCALL, WRITEBACK
from probes.errors import BadTrace
from probes.loss import Gap
from probes.summaries import HISTOGRAMS, SUMS
from tracer.store.checked import checker, what_is_wrong
from tracer.store.files import read_bounded
from tracer.store.lists import SummaryFacts
from tracer.store.manifest import Manifest, TableFacts
from tracer.store.tables import write_rows

FILE = "summary.jsonl"
_MAX_BYTES = 1 << 30
_MINOR_BITS, _OPERATION_BITS = 20, 8
_KINDS = {SYSCALL: "syscall", FAULT: "fault", REQUEST: "request", WRITEBACK: "writeback"}
_OPERATIONS = {"R": "read", "W": "write", "D": "discard", "F": "flush"}


def decode(raw: Path, manifest: Manifest, building: Path, gaps: list[Gap]) -> dict[str, TableFacts]:
    """Write the tables, where the recording has a summary; what was not counted is a gap.

    Raises BadTrace for a file that cannot be read.
    """
    if not manifest.get("summed_up"):
        return {}
    names = _Names(manifest)
    sums: list[dict[str, Any]] = []
    slots: list[dict[str, Any]] = []
    for entry in _entries(raw / FILE):
        for kind, what, pid, count, errors, total_ns, amount in entry["sums"]:
            name, dev = names.of(kind, what)
            timed = kind in (SYSCALL, REQUEST)
            written = amount * names.page_bytes if kind == WRITEBACK else amount
            sums.append(
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
        for kind, what, slot, count in entry["slots"]:
            name, dev = names.of(kind, what)
            slots.append(
                {
                    "kind": _KINDS[kind],
                    "name": name,
                    "dev": dev,
                    "low_ns": 1 << slot if slot else 0,
                    "high_ns": 1 << (slot + 1),
                    "count": count,
                }
            )
        if entry["uncounted"]:
            lost = Gap("summary", 0, entry["start"], entry["end"], entry["uncounted"], "map full")
            gaps.append(lost)
    tables: dict[str, TableFacts] = {}
    for table, rows in ((SUMS, sums), (HISTOGRAMS, slots)):
        values = [[row[column.name] for column in table.columns] for row in rows]
        written_rows = write_rows(table, building, values)
        size = (building / f"{table.name}.parquet").stat().st_size
        tables[table.name] = {"rows": written_rows, "bytes": size}
    return tables


class _Names:
    """Numbers of the kernel's maps into names."""

    def __init__(self, manifest: Manifest) -> None:
        self._calls = manifest.get("syscall_names", {})
        start = manifest["ftrace"].get("formats", {}).get("writeback:writeback_start", "")
        parsed = event_format.parse("writeback:writeback_start", start) if start else None
        self._reasons = parsed.symbols.get("reason", {}) if parsed else {}
        self.page_bytes = manifest["host"].get("page_size", 4096)

    def of(self, kind: int, what: int) -> tuple[str, str | None]:
        """Name and device of what was counted."""
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
    """The intervals that were written whole."""
    try:
        lines = read_bounded(path, _MAX_BYTES).split(b"\n")
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise BadTrace(f"{path} cannot be read: {error}", "record again") from None
    for line in lines[:-1]:  # behind the last newline lies what a killed recorder left
        try:
            yield checker(SummaryFacts).validate_json(line)
        except ValueError as error:
            raise BadTrace(f"{path} is damaged: {what_is_wrong(error)}", "record again") from None
