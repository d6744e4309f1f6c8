"""Import of a file of printed events: perf script, trace-cmd report, blkparse."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from analysis.exchange.printed.lines import (
    BLKPARSE_LINES,
    EVENT_LINES,
    NOT_UNDERSTOOD,
    OTHER_EVENT,
    lines_to_records,
)
from analysis.exchange.printed.patterns import Patterns, compile_patterns
from analysis.exchange.printed.prints import BLKPARSE_EVENTS, BLKPARSE_PRINTS, PRINTS
from analysis.exchange.reading import opened, text
from probes.errors import BadTrace
from probes.limits import CPU_LIMIT, PID_LIMIT
from probes.loss import Gap
from tracer.store.foreign import RECORD_HEAD, ForeignRecording, Records
from tracer.store.importing import Source
from tracer.store.manifest import Manifest

PERF_SCRIPT, TRACE_CMD, BLKPARSE = "perf-script", "trace-cmd", "blktrace"

_BLOCK_BYTES = 4 << 20
_MOST_LINES = 1 << 14
"""Number of lines at a time: each may make a record as long as the longest."""
_MOST_NAMED = 1000
_MOST_GAPS = 10_000
_MOST_THREADS = 1 << 20
_STREAM = "imported-target-machine-text"

_LOST = re.compile(
    rb"CPU:\s?(\d{1,5}) \[(?:(\d{1,18}) EVENTS DROPPED|LOST (\d{1,18}) EVENTS|EVENTS DROPPED)\]"
)
_HEADS = re.compile(rb"\s*(#|cpus=\d|version = |CPU \d+ is empty|trace-cmd )|\s*$")
_STACK = re.compile(rb"\s+[0-9a-f]{4,16} |\s*$")
_SUMMARY = re.compile(rb"(CPU\d+|Total) \(|Throughput |Skips: ")
_ARCH = re.compile(rb"# arch : (\w{1,20})")
_TIMES_OF_BLKPARSE = "from the first event"


@dataclass
class _Met:
    """The findings in a file, apart from events that make rows."""

    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Process (0: not known) and name of each thread."""
    names: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(PID_LIMIT, np.uint64))
    """A hash of process and name, by thread; untouched pages cost no memory."""
    of_cpu: NDArray[np.int64] = field(default_factory=lambda: np.full(CPU_LIMIT, -1, np.int64))
    """Time of the last event of each CPU; -1: none yet."""
    first_ns: int = -1
    lines: int = 0
    first: str = ""
    stacks: int = 0
    events: Counter[bytes] = field(default_factory=Counter)
    prints: Counter[bytes] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)
    machine: str | None = None
    over: bool = False
    """True if the lines that follow are a summary."""


def import_lines(path: Path, output: Path, format: str, force: bool = False) -> Manifest:
    """Makes the trace `output` from printed events.

    `format` is perf-script (perf script), trace-cmd (trace-cmd report) or blktrace (blkparse).
    Raises BadTrace if no line is an event of our tables. Lines that are not understood, and events
    that belong to no table, are counted in the manifest; losses named in the text are in `loss`.
    """
    style = BLKPARSE_LINES if format == BLKPARSE else EVENT_LINES
    if style == BLKPARSE_LINES:
        patterns = compile_patterns(BLKPARSE_PRINTS, BLKPARSE_EVENTS)
    else:
        patterns = compile_patterns(PRINTS)
    source = Source(format, path.name)
    met = _Met()
    with opened(path) as file, ForeignRecording(output, source, force) as recording:
        records = recording.records()
        done = 0
        for block in _blocks(file, met):
            done += _add(block, style, patterns, records, met)
        if not done:
            said = f" ({met.first})" if met.first else ""
            raise BadTrace(
                f"{path} has no line that is an event of our tables{said}",
                "give the unchanged output of perf script, trace-cmd report or blkparse",
            )
        _say(source, style, met)
        return recording.finish(
            patterns.formats(),
            met.threads,
            met.first_ns,
            gaps=met.gaps,
            machine=met.machine,
        )


def _blocks(file: BinaryIO, met: _Met) -> Iterator[bytes]:
    """Yields the file in blocks of whole lines; a line longer than a block is skipped."""
    rest = b""
    while data := file.read(_BLOCK_BYTES):
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        elif len(rest) < _BLOCK_BYTES:
            rest += data
        else:  # too long for any event: keep only a mark that it existed
            met.lines += 1
            rest = b""
            while data and b"\n" not in data:
                data = file.read(_BLOCK_BYTES)
            rest = data[data.find(b"\n") + 1 :]
    if rest:
        yield rest + b"\n"


def _add(block: bytes, style: int, patterns: Patterns, records: Records, met: _Met) -> int:
    """Adds the events of some lines; returns their number."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
    found = begin = 0
    for last in range(0, len(ends), _MOST_LINES):
        some = ends[last : last + _MOST_LINES]
        found += _add_lines(
            block[begin : some[-1] + 1], some - begin, style, patterns, records, met
        )
        begin = some[-1] + 1
    return found


def _add_lines(
    block: bytes,
    ends: NDArray[np.int64],
    style: int,
    patterns: Patterns,
    records: Records,
    met: _Met,
) -> int:
    largest = (RECORD_HEAD + patterns.longest + 7) // 8 * 8
    data = np.frombuffer(block, np.uint8)
    out = np.empty(len(ends) * largest, np.uint8)
    left_out = np.empty((len(ends), 5), np.int64)
    threads = np.empty((len(ends), 4), np.int64)
    times = np.array([-1, 0], np.int64)
    written, found, n_left, n_threads = lines_to_records(
        data, ends, style, patterns.tokens, patterns.variants, patterns.events, patterns.arena,
        patterns.slots, patterns.symbols, patterns.symbol_sizes, met.names, met.of_cpu, out,
        left_out, threads, times,
    )  # fmt: skip
    first, last = times.tolist()
    records.add(out[:written], first, last)
    if found:
        met.first_ns = first if met.first_ns < 0 else min(met.first_ns, first)
    for tid, pid, begin, end in threads[:n_threads].tolist():
        if tid in met.threads or len(met.threads) < _MOST_THREADS:
            met.threads[tid] = (pid, text(block[begin : min(end, begin + 64)]))
    _note(block, left_out[:n_left], style, met)
    return int(found)


def _note(block: bytes, lines: NDArray[np.int64], style: int, met: _Met) -> None:
    """Counts the lines that made no record, by kind."""
    for why, begin, end, before, after in lines.tolist():
        if why == OTHER_EVENT:
            _count(met.events, block[begin:end])
            continue
        if why != NOT_UNDERSTOOD:
            _count(met.prints, block[begin:end])
            continue
        line = block[begin : min(end, begin + 300)]
        if _HEADS.match(line):
            if arch := _ARCH.match(line):
                met.machine = text(arch[1])
        elif met.over or (style == BLKPARSE_LINES and _SUMMARY.match(line)):
            met.over = True
        elif lost := _LOST.match(line):
            count = lost[2] or lost[3]
            if len(met.gaps) < _MOST_GAPS:
                cpu = min(int(lost[1]), CPU_LIMIT - 1)
                start, stop = (None if ns < 0 else ns for ns in (before, after))
                size = int(count) if count else None
                met.gaps.append(Gap(_STREAM, cpu, start, stop, size, "buffer overrun"))
        elif _STACK.match(line):
            met.stacks += 1
        else:
            met.lines += 1
            met.first = met.first or text(line[:80])


def _count(counter: Counter[bytes], name: bytes) -> None:
    if name in counter or len(counter) < _MOST_NAMED:
        counter[name] += 1
    else:
        counter[b"others"] += 1


def _say(source: Source, style: int, met: _Met) -> None:
    """Puts the findings about the file into the manifest's source."""
    source.clock = "the clock of the source, which does not name it"
    if style == BLKPARSE_LINES:
        source.clock = _TIMES_OF_BLKPARSE
        source.notes.append("blkparse counts times from the first event that it shows")
    if any(not pid for pid, _ in met.threads.values()):
        source.notes.append(
            "the text does not say which process each thread is of: of those made before it the"
            " number of the process is the thread's"
        )
    if met.stacks:
        source.notes.append(f"{met.stacks} lines of call stacks are left out")
    if met.lines:
        source.not_understood["lines"] = met.lines
        if met.first:
            source.notes.append(f"the first line that is not understood: {met.first}")
    for name, count in met.prints.items():
        source.not_understood[f"fields of {text(name)}"] = count
    for name, count in met.events.items():
        source.not_understood[f"event {text(name)}"] = count
