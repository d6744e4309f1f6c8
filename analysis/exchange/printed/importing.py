"""Import of a file of printed events: perf script, trace-cmd report, blkparse."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tracer.analysis.exchange.printed.heads import Head, blkparse_head, event_head
from tracer.analysis.exchange.printed.patterns import Patterns, compile_patterns
from tracer.analysis.exchange.printed.prints import BLKPARSE_EVENTS, BLKPARSE_PRINTS, PRINTS
from tracer.analysis.exchange.reading import text, whole_lines
from tracer.probes.errors import BadTrace, UsageError
from tracer.probes.limits import CPU_LIMIT
from tracer.probes.loss import Gap
from tracer.store.foreign import ForeignRecording, Records
from tracer.store.importing import Source
from tracer.store.manifest import Manifest

PERF_SCRIPT, TRACE_CMD, BLKPARSE = "perf-script", "trace-cmd", "blktrace"

_BLOCK_BYTES = 4 << 20
_MOST_LINES = 1 << 14
"""Lines whose records are written at once."""
_MOST_LINE = 8192
"""Bytes of the longest line that may be an event."""
_MOST_NAMED = 1000
_MOST_GAPS = 10_000
_MOST_THREADS = 1 << 20
_STREAM = "imported-target-machine-text"

_LOST = re.compile(
    rb"CPU:\s?(\d{1,5}) \[(?:(\d{1,18}) EVENTS DROPPED|LOST (\d{1,18}) EVENTS|EVENTS DROPPED)\]"
)
_LOST_BY_PERF = re.compile(
    rb"(?:[ \t]*+[^ \t].*?\[(\d{1,5})\][ \t]++(?:\S{1,8}[ \t]++)??"
    rb"(\d{1,10})\.(\d{1,9}):)?+[ \t]*+"
    rb"PERF_RECORD_LOST(_SAMPLES)?+(?:[ \t]++lost[ \t]++(\d{1,18}))?+[ \t]*+\Z"
)
_HEADS = re.compile(rb"\s*(#|cpus=\d|version = |CPU \d+ is empty|trace-cmd )|\s*$")
_STACK = re.compile(rb"\s+[0-9a-f]{4,16} |\s*$")
_SUMMARY = re.compile(rb"(CPU\d+|Total) \(|Throughput |Skips: ")
_ARCH = re.compile(rb"# arch : (\w{1,20})")
_TIMES_OF_BLKPARSE = "from the first event"


@dataclass
class _Met:
    """The findings in a file, apart from events that make rows."""

    threads: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Process (0: not known) and name of each thread."""
    of_cpu: dict[int, int] = field(default_factory=dict)
    """Time of the last event of each CPU, in ns."""
    first_ns: int = -1
    lines: int = 0
    first: str = ""
    stacks: int = 0
    events: Counter[bytes] = field(default_factory=Counter)
    prints: Counter[bytes] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)
    open_gap: bool = False
    """True if the last gap ends with the next event."""
    machine: str | None = None
    over: bool = False
    """True if the lines that follow are a summary."""

    def see(self, head: Head) -> None:
        """Notes the time of a line, and its thread."""
        if self.open_gap:
            self.gaps[-1] = replace(self.gaps[-1], end=head.ts)
            self.open_gap = False
        self.of_cpu[head.cpu] = head.ts

    def name(self, head: Head) -> None:
        """Notes the name and the process of a line's thread."""
        thread = (head.pid, head.comm[:64])
        known = self.threads.get(head.tid)
        if known == thread or (known and not head.comm):
            return
        if known or len(self.threads) < _MOST_THREADS:
            self.threads[head.tid] = thread


def import_lines(
    path: Path, output: Path, format: str, force: bool = False, arch: str | None = None
) -> Manifest:
    """Makes the trace `output` from printed events.

    `format` is perf-script (perf script), trace-cmd (trace-cmd report) or blktrace (blkparse).
    `arch` is the architecture (x86_64, aarch64) of the recorded machine if the text does not name
    it. Raises UsageError if the text names another one, BadTrace if no line is an event of our
    tables. Lines that are not understood, and events that belong to no table, are counted in the
    manifest; losses named in the text are in `loss`.
    """
    if format == BLKPARSE:
        parse, patterns = blkparse_head, compile_patterns(BLKPARSE_PRINTS, BLKPARSE_EVENTS)
    else:
        parse, patterns = event_head, compile_patterns(PRINTS)
    source = Source(format, path.name)
    met = _Met()
    lines, notes = whole_lines(path)
    source.notes += notes
    with lines as file, ForeignRecording(output, source, force) as recording:
        records = recording.records()
        done = 0
        for some in _lines(file, met):
            done += _add(some, parse, patterns, records, met)
        if not done:
            said = f" ({met.first})" if met.first else ""
            raise BadTrace(
                f"{path} has no line that is an event of our tables{said}",
                "give the unchanged output of perf script, trace-cmd report or blkparse",
            )
        if arch and met.machine not in (None, arch):
            raise UsageError(
                f"{path} comes from {met.machine}, not from {arch}", "leave out --arch"
            )
        _say(source, format, met)
        return recording.finish(
            patterns.formats(),
            {tid: (pid, text(name)) for tid, (pid, name) in met.threads.items()},
            met.first_ns,
            gaps=met.gaps,
            machine=met.machine or arch,
        )


def _lines(file: BinaryIO, met: _Met) -> Iterator[list[bytes]]:
    """Yields the lines of a file, many at a time. A line longer than a block is skipped."""
    for block in _blocks(file, met):
        lines = block.split(b"\n")
        for first in range(0, len(lines), _MOST_LINES):
            yield lines[first : first + _MOST_LINES]


def _blocks(file: BinaryIO, met: _Met) -> Iterator[bytes]:
    """Yields the file in blocks of whole lines, without the last line's end."""
    rest = b""
    while data := file.read(_BLOCK_BYTES):
        cut = data.rfind(b"\n")
        if cut >= 0:
            yield rest + data[:cut]
            rest = data[cut + 1 :]
        elif len(rest) < _BLOCK_BYTES:
            rest += data
        else:  # too long for any event: keep only a mark that it existed
            met.lines += 1
            rest = b""
            while data and b"\n" not in data:
                data = file.read(_BLOCK_BYTES)
            rest = data[data.find(b"\n") + 1 :]
    if rest:
        yield rest


def _add(
    lines: list[bytes],
    parse: Callable[[bytes], Head | None],
    patterns: Patterns,
    records: Records,
    met: _Met,
) -> int:
    """Adds the events of some lines; returns their number."""
    made = []
    first = last = -1
    for whole in lines:
        line = whole.removesuffix(b"\r")
        head = parse(line) if len(line) <= _MOST_LINE else None
        if head is None:
            if line:
                _note(line, parse is blkparse_head, met)
            continue
        met.see(head)
        event = patterns.events.get(head.event)
        if event is None:
            _count(met.events, head.event)
        elif (record := event.record(head)) is None:
            _count(met.prints, head.event)
        else:
            made.append(record)
            met.name(head)
            first = head.ts if first < 0 else min(first, head.ts)
            last = max(last, head.ts)
    if made:
        records.add(np.frombuffer(b"".join(made), np.uint8), first, last)
        met.first_ns = first if met.first_ns < 0 else min(met.first_ns, first)
    return len(made)


def _note(line: bytes, of_blkparse: bool, met: _Met) -> None:
    """Counts a line that is not a line of an event, by kind."""
    line = line[:300]
    if _HEADS.match(line):
        if arch := _ARCH.match(line):
            met.machine = text(arch[1])
    elif met.over or (of_blkparse and _SUMMARY.match(line)):
        met.over = True
    elif lost := _LOST.match(line):
        count = lost[2] or lost[3]
        if len(met.gaps) < _MOST_GAPS:
            cpu = int(lost[1])
            begin, size = met.of_cpu.get(cpu), int(count) if count else None
            cpu = min(cpu, CPU_LIMIT - 1)
            met.gaps.append(Gap(_STREAM, cpu, begin, None, size, "buffer overrun"))
            met.open_gap = True
    elif not of_blkparse and (lost := _LOST_BY_PERF.match(line)):
        _lost_by_perf(lost, met)
    elif _STACK.match(line):
        met.stacks += 1
    else:
        met.lines += 1
        met.first = met.first or text(line[:80])


def _lost_by_perf(lost: re.Match[bytes], met: _Met) -> None:
    """Notes a loss that perf reports. Samples may be missing at any time before their report."""
    cpu, seconds, fraction, samples, count = lost.groups()
    begin = end = None
    number = -1
    if cpu is not None and not samples:
        number, begin = int(cpu), met.of_cpu.get(int(cpu))
        end = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, b"0"))
    if len(met.gaps) < _MOST_GAPS:
        size = None if count is None else int(count)
        met.gaps.append(Gap(_STREAM, number, begin, end, size, "buffer overrun"))


def _count(counter: Counter[bytes], name: bytes) -> None:
    if name in counter or len(counter) < _MOST_NAMED:
        counter[name] += 1
    else:
        counter[b"others"] += 1


def _say(source: Source, format: str, met: _Met) -> None:
    """Puts the findings about the file into the manifest's source."""
    source.clock = "the clock of the source, which does not name it"
    if format == BLKPARSE:
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
