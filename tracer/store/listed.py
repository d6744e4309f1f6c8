"""Lists beside the raw streams (`lists`), as JSON: bounded when they are written and when read.

What is beyond the limit is counted (`left_out`). A list is written whole, or line by line as a
recording goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from probes.errors import BadTrace
from tracer.store import left_out
from tracer.store.checked import Listed, encoded, parsed, what_is_wrong
from tracer.store.files import create, read_bounded, write_whole

MOST_BYTES = 64 << 20
"""The most of one list."""
_MOST_PARTS = 3_000_000
"""The most of one list as JSON: its items, and those that these hold."""

LINES = ".jsonl"
"""The end of the name of a list that is written line by line."""


def write(raw: Path, name: str, entries: Iterable[Any]) -> None:
    """Write a list in the folder of raw data, whole or not at all. OSError where that fails."""
    parts: list[bytes] = []
    left = MOST_BYTES - 2
    beyond = 0
    for entry in entries:
        part = encoded(entry)
        left -= len(part) + 1
        if left < 0:
            beyond += 1
        else:
            parts.append(part)
    write_whole(raw / name, b"[" + b",".join(parts) + b"]")
    _note(raw, name, beyond)


class Lines:
    """A list that is written entry by entry, each a line."""

    def __init__(self, raw: Path, name: str) -> None:
        """Make the file; FileExistsError where there is one."""
        self._raw, self._name = raw, name
        self._file = create(raw / name)
        self._left = MOST_BYTES
        self._beyond = 0

    def add(self, entries: Iterable[Any]) -> None:
        """Write entries. OSError where that fails."""
        for entry in entries:
            line = encoded(entry) + b"\n"
            self._left -= len(line)
            if self._left < 0:
                self._beyond += 1
            else:
                self._file.write(line)
        self._file.flush()

    def close(self) -> None:
        """Close the file and note what is not in it; more than once does no harm."""
        self._file.close()
        beyond, self._beyond = self._beyond, 0
        _note(self._raw, self._name, beyond)


def _note(raw: Path, name: str, beyond: int) -> None:
    if beyond:
        what = Path(name).stem
        left_out.note(raw, what, {f"{what} left out: {MOST_BYTES >> 20} MiB are full": beyond})


def read(path: Path, kind: Any) -> Any:
    """A list of entries of that kind, checked; empty where there is no file. Raises BadTrace.

    Of a list of lines, the last is left out where a killed recorder has not ended it.
    """
    try:
        data = read_bounded(path, MOST_BYTES)
        if path.suffix == LINES:
            data = b"[" + data[: data.rfind(b"\n") + 1].strip().replace(b"\n", b",") + b"]"
        return parsed(Listed[kind], data, _MOST_PARTS)
    except FileNotFoundError:
        return []
    except (ValueError, OSError) as error:
        raise BadTrace(f"{path} is damaged: {what_is_wrong(error)}", "record again") from None
