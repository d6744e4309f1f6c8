"""A trace as Chrome's Trace Event Format: JSON that chrome://tracing, Perfetto and others open.

Events are written one by one. Times are in microseconds with three decimals (nanoseconds). A
thread's system calls and faults are on the thread's row, nested in its phases. Other tracks are
rows of artificial processes, whose numbers are above any real one.
"""

from __future__ import annotations

import json
from collections.abc import Set
from typing import BinaryIO

from tracer.analysis.exchange.marks import Kind, Marks, Track, What

_BEYOND_PIDS = 1 << 23
_MOST_TEXT = 4096


class ChromeWriter:
    """A writer of tracks and marks, in the order in which they arrive."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._rows: dict[int, tuple[int, int]] = {}
        self._threads: set[int] = set()
        self._counters: dict[int, str] = {}
        self._first = True
        out.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')

    def _line(self, line: str) -> None:
        self._out.write((line if self._first else ",\n" + line).encode())
        self._first = False

    def track(self, track: Track) -> None:
        """Declares a track."""
        name = track.name[:_MOST_TEXT]
        if track.kind is Kind.PROCESS:
            self._name("process_name", track.pid or 0, 0, name)
        elif track.kind is Kind.THREAD:
            self._rows[track.number] = (track.pid or 0, track.tid or 0)
            self._threads.add(track.number)
            self._name("thread_name", track.pid or 0, track.tid or 0, name)
        elif track.kind is Kind.GROUP:
            self._rows[track.number] = (_BEYOND_PIDS + track.number, 0)
            self._name("process_name", _BEYOND_PIDS + track.number, 0, name)
        else:
            parent = track.parent or 0
            pid, tid = self._rows.get(parent, (_BEYOND_PIDS, 0))
            if parent not in self._threads or name == "phases that overlap":
                tid = _BEYOND_PIDS + track.number
                self._name("thread_name", pid, tid, name)
            self._rows[track.number] = (pid, tid)
            if track.kind is Kind.COUNTER:
                self._counters[track.number] = f"{name} ({track.unit})" if track.unit else name

    def _name(self, what: str, pid: int, tid: int, name: str) -> None:
        if name:
            shown = _quoted(name)
            self._line(
                f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"name":{shown}}}}}'
            )

    def marks(self, marks: Marks) -> None:
        """Adds marks."""
        names = [_quoted(name[:_MOST_TEXT]) for name in marks.name.values]
        category = _quoted(marks.category)
        numbers = [
            (_quoted(name), values.tolist(), there.tolist())
            for name, (values, there) in marks.numbers.items()
        ]
        texts = [
            (_quoted(name), [_quoted(v[:_MOST_TEXT]) for v in found.values], found.codes.tolist())
            for name, found in marks.texts.items()
        ]
        codes = marks.name.codes.tolist()
        dur = [] if marks.dur is None else marks.dur.tolist()
        value = [] if marks.value is None else marks.value.tolist()
        for n, (track, ts) in enumerate(zip(marks.track.tolist(), marks.ts.tolist(), strict=True)):
            pid, tid = self._rows[track]
            place = f'"ts":{_us(ts)},"pid":{pid},"tid":{tid}'
            if marks.what is What.COUNTERS:
                name = _quoted(self._counters.get(track, ""))
                args = f'{{"value":{value[n]!r}}}'
                self._line(f'{{"ph":"C","name":{name},{place},"args":{args}}}')
                continue
            said = [f"{name}:{values[n]}" for name, values, there in numbers if there[n]]
            said += [f"{name}:{values[of[n]]}" for name, values, of in texts if of[n] >= 0]
            name = names[codes[n]] if codes[n] >= 0 else '""'
            kind = '"ph":"i","s":"t"'
            if marks.what is What.SLICES:
                kind = f'"ph":"X","dur":{_us(dur[n])}'
            self._line(
                f'{{{kind},"cat":{category},"name":{name},{place},"args":{{{",".join(said)}}}}}'
            )

    def lines(self, tracks: Set[int]) -> int:
        """Returns the number of rows on which the marks of some tracks lie."""
        return len({self._rows[track] for track in tracks})

    def close(self) -> None:
        """Ends the JSON."""
        self._out.write(b"\n]}\n")


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _quoted(value: str) -> str:
    """Returns a JSON string in ASCII."""
    return json.dumps(value)
