"""Lists beside the raw streams (`lists`), as JSON, limited in size when written and when read.

Entries beyond the limits are counted (`left_out`). A list is written as a whole, or line by line
during a recording.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tracer.probes.errors import BadTrace
from tracer.store import left_out
from tracer.store.checked import Listed, encoded, parsed, parts, what_is_wrong
from tracer.store.files import create, read_bounded, write_whole

MOST_BYTES = 64 << 20
"""Most bytes of one list."""
MOST_PARTS = 3_000_000
"""Most JSON parts of one list: its items and their items."""

LINES = ".jsonl"
"""Suffix of a list that is written line by line."""


class _Room:
    """The room that is left in a list."""

    def __init__(self) -> None:
        self._bytes, self._parts = MOST_BYTES - 2, MOST_PARTS - 1  # without the list's brackets
        self.beyond = 0
        """Number of entries that there was no room for."""

    def takes(self, entry: bytes) -> bool:
        """Returns whether an entry fits, and counts it."""
        self._bytes -= len(entry) + 1
        self._parts -= parts(entry) + 1
        fits = self._bytes >= 0 and self._parts >= 0
        self.beyond += not fits
        return fits


def write(raw: Path, name: str, entries: Iterable[Any]) -> None:
    """Writes a list into the raw folder, completely or not at all. OSError if that fails."""
    room = _Room()
    found = [entry for entry in map(encoded, entries) if room.takes(entry)]
    write_whole(raw / name, b"[" + b",".join(found) + b"]")
    _note(raw, name, room.beyond)


class Lines:
    """A list that is written entry by entry, one per line."""

    def __init__(self, raw: Path, name: str) -> None:
        """Makes the file. Raises FileExistsError if it exists."""
        self._raw, self._name = raw, name
        self._file = create(raw / name)
        self._room = _Room()

    @classmethod
    def continued(cls, raw: Path, name: str) -> Lines:
        """Goes on with the list that a killed process left, without an incomplete line.

        Makes the file if there is none. OSError if that fails.
        """
        path = raw / name
        before = read_bounded(path, MOST_BYTES).split(b"\n")[:-1] if path.exists() else []
        path.unlink(missing_ok=True)
        lines = cls(raw, name)
        lines._file.writelines(entry + b"\n" for entry in before if lines._room.takes(entry))
        lines._file.flush()
        return lines

    def add(self, entries: Iterable[Any]) -> None:
        """Writes entries. OSError if that fails."""
        for entry in map(encoded, entries):
            if self._room.takes(entry):
                self._file.write(entry + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file and notes the number of left-out entries. Repeated calls do no harm."""
        self._file.close()
        beyond, self._room.beyond = self._room.beyond, 0
        _note(self._raw, self._name, beyond)


def _note(raw: Path, name: str, beyond: int) -> None:
    if beyond:
        what = Path(name).stem
        limits = f"{MOST_BYTES >> 20} MiB or {MOST_PARTS} values"
        left_out.note(raw, what, {f"{what} left out: {limits} are full": beyond})


def read(path: Path, kind: Any) -> Any:
    """Returns a checked list of entries of `kind`; empty without a file. Raises BadTrace.

    Skips a line that a killed recorder left incomplete.
    """
    try:
        data = read_bounded(path, MOST_BYTES)
        if path.suffix == LINES:
            data = b"[" + data[: data.rfind(b"\n") + 1].strip().replace(b"\n", b",") + b"]"
        return parsed(Listed[kind], data, MOST_PARTS)
    except FileNotFoundError:
        return []
    except (ValueError, OSError) as error:
        raise BadTrace(f"{path} is damaged: {what_is_wrong(error)}", "record again") from None
