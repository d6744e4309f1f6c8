"""Lists beside the raw streams: threads, mappings, members, files, samples, counts, counters."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.json_mutation import mutated_json, mutated_json_lines
from tests.fuzz.mutation import mutated_text
from tests.fuzz.parts import joined, mutated_parts, parted
from tests.fuzz.target import target
from tests.fuzz.targets.rings import format_texts, ring_page
from tests.support import pages
from tracer.store import left_out, maps, samples, summary
from tracer.store.finalize import DESCRIPTORS, EXTENTS, FILES, MEMBERS, THREADS
from tracer.store.trace import Trace

_COUNTERS = "stat.csv"
_PAGES = "pages"
_LISTS: dict[str, list[Any]] = {
    THREADS: [[7, 7, 1, "python", "/c"], [8, 7, 1, "worker", None], [9, 9, None, "shim", None]],
    MEMBERS: [[5, 7, 0, -1, 3, False], [6, 8, 1, 0, 4, True], [7, 0, -1, -1, 0, False]],
    FILES: [["8:0", 12, 0, "/data/x", 4096, 8192, "handle"]],
    DESCRIPTORS: [[0, 5, 7, 3, 1, 4096, 0o100000, "/data/a"]],
    EXTENTS: [["8:0", 12, 0, 100, 8]],
    maps.FILE: [[7, 5, [["/usr/lib/x.so", [8, 1], 12]], [[4096, 8192, 0, 0]]]],
    samples.FILE: [[5, -1, [["cpu_time", None, 5.5]]], [9, 0, [["cpu_time", None, 6.5]]]],
    summary.FILE: [
        {"start": 1, "end": 9, "sums": [[1, 0, 7, 1, 2, 3, 4]], "slots": [[1, 0, 5, 9]],
         "uncounted": 2}
    ],
    left_out.FILE: [{"stream": {"lines left out: too long": 3}}],
}  # fmt: skip
_STAT = b"""5;;page-faults;100;100.00;;
3.25;msec;task-clock;3250000;100.00;0.9;CPUs utilized
<not supported>;;cycles;0;100.00;;
<not counted>;;faults;0;0.00;;
"""


def _encoded(name: str, entries: list[Any]) -> bytes:
    if name.endswith(".jsonl"):
        return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    return json.dumps(entries[0] if name == left_out.FILE else entries).encode()


def _seeds() -> list[bytes]:
    lists = {name: _encoded(name, entries) for name, entries in _LISTS.items()}
    events = {_PAGES: bytes(pages.PAGE)}
    return [joined({**lists, _COUNTERS: _STAT, **events}), joined(events)]


def _one(chance: Random, name: str, data: bytes) -> bytes:
    if name == _PAGES:
        return ring_page(chance)
    if name == _COUNTERS:
        return mutated_text(chance, data)
    lines = name.endswith(".jsonl")
    return mutated_json_lines(chance, data) if lines else mutated_json(chance, data)


def _mutate(chance: Random, data: bytes) -> bytes:
    return mutated_parts(chance, data, _one)


@target(_seeds, _mutate, tries=8)
def raw_lists(data: bytes, folder: Path) -> None:
    """A recording whose recorder was killed, and the lists that it kept: made into tables."""
    files = parted(data)
    trace = folder / "t.trace"
    pages.raw_trace(
        trace,
        {0: [files.pop(_PAGES)[: pages.PAGE].ljust(pages.PAGE, b"\0")]},
        formats=format_texts(),
        probes=["syscalls", "page_faults", "block", "writeback"],
        targets=[
            {"name": "job", "role": "target", "kind": "pid", "pid": 7},
            {"name": "c", "role": "target", "kind": "container", "pid": 8, "makers": [9],
             "cgroups": [{"hierarchy": 0, "path": "/c"}]},
        ],
        perf={"counters": [{"target": "job", "file": _COUNTERS, "missing": ["x"]}]},
        samples={"hz": 1.0},
        summed_up=["syscalls"],
    )  # fmt: skip
    for name, content in files.items():
        (trace / "raw" / name).write_bytes(content)
    with Trace(trace) as opened:
        for name in opened.tables:
            opened.arrow(f'SELECT * FROM "{name}"')
