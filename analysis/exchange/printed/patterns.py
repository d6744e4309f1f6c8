"""Patterns of printed events as arrays for compiled loops.

Each event gets its own record layout and format file: first the fields that every pattern has, then
those that some patterns lack. A record of a line without the latter ends before them, so that they
read as null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analysis.exchange.printed.prints import OPTIONAL, TEXT_BYTES
from tracer.store.foreign import COMMON_BYTES, record_format, record_number

LITERAL, DEC, HEX, DEV, TEXT, NAME, SKIP, ZERO, HEAD = range(9)
_KINDS = {"dec": DEC, "hex": HEX, "dev": DEV, "text": TEXT, "name": NAME, "zero": ZERO}
_KINDS |= {"head": HEAD}
_PART = re.compile(r"\{(?:(\w+):(\w+))?\}")

MOST_SYMBOLS, SYMBOL_BYTES = 256, 32
_TABLE_BITS = 10
HASH_SLOTS = 1 << _TABLE_BITS


@dataclass
class Patterns:
    """The arrays of patterns. Offsets into `arena` point to literals and names of events."""

    tokens: NDArray[np.int64]
    """One row per part: kind; offset in the record, of a literal in the arena; size; whether it is
    the last."""
    variants: NDArray[np.int64]
    """One row per pattern: its first part, their number, bytes of its payload."""
    events: NDArray[np.int64]
    """One row per event: its first pattern, their number, its id, its name in the arena (2)."""
    arena: NDArray[np.uint8]
    slots: NDArray[np.int64]
    """Hash table of the names: number of the event, or -1."""
    longest: int
    """Bytes of the longest payload."""
    names: list[str] = field(default_factory=list)
    """SYSTEM:EVENT of each event."""
    layouts: list[list[tuple[str, int, int, bool]]] = field(default_factory=list)
    """The fields of each event: (name, offset, size, whether text)."""
    symbols: NDArray[np.uint8] = field(
        default_factory=lambda: np.zeros((MOST_SYMBOLS, SYMBOL_BYTES), np.uint8)
    )
    """Names printed in place of integers; the row is the integer."""
    symbol_sizes: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(MOST_SYMBOLS + 1, np.int64)
    )
    """Lengths of the names; the last entry is the number of names."""

    def formats(self) -> dict[str, str]:
        """Returns the format files of the records, by SYSTEM:EVENT, with the names met."""
        count = int(self.symbol_sizes[MOST_SYMBOLS])
        pairs = ", ".join(
            f'{{ {n}, "{self.symbols[n, : self.symbol_sizes[n]].tobytes().decode("ascii")}" }}'
            for n in range(count)
        )
        made = {}
        for number, (name, layout) in enumerate(zip(self.names, self.layouts, strict=True)):
            lines = "".join(
                f"\tfield:char {f}[{size}];\toffset:{at};\tsize:{size};\tsigned:0;\n"
                if text
                else f"\tfield:long {f};\toffset:{at};\tsize:{size};\tsigned:1;\n"
                for f, at, size, text in layout
            )
            printed = '""'
            if any(f == "reason" for f, *_ in layout) and pairs:
                printed = f'"%s", __print_symbolic(REC->reason, {pairs})'
            made[name] = record_format(name, record_number(number), lines, printed)
        return made


def compile_patterns(
    prints: Mapping[str, tuple[str, ...]], printed_as: Mapping[str, str] | None = None
) -> Patterns:
    """Returns patterns as arrays. `printed_as` has printed names that differ from the event's."""
    called = {event: name for name, event in (printed_as or {}).items()}
    arena = bytearray()
    tokens: list[tuple[int, int, int, int]] = []
    variants: list[tuple[int, int, int]] = []
    events: list[tuple[int, int, int, int, int]] = []
    layouts = []
    slots = np.full(HASH_SLOTS, -1, np.int64)
    longest = 0

    def keep(text: str) -> int:
        at = len(arena)
        arena.extend(text.encode())
        return at

    for number, (name, patterns) in enumerate(prints.items()):
        layout, needed = _layout(patterns)
        layouts.append(layout)
        where = {f: (at, size) for f, at, size, _ in layout}
        first = len(variants)
        for pattern in patterns:
            begun = len(tokens)
            length = needed
            parts = _parts(pattern)
            for place, (kind, text) in enumerate(parts):
                last = int(place == len(parts) - 1)
                if kind == LITERAL:
                    tokens.append((LITERAL, keep(text), len(text), last))
                elif kind == SKIP:
                    tokens.append((SKIP, 0, 0, last))
                else:
                    at, size = where[text]
                    tokens.append((kind, at, size, last))
                    length = max(length, at + size)
            variants.append((begun, len(tokens) - begun, length))
            longest = max(longest, length)
        bare = called.get(name, name.partition(":")[2])
        events.append((first, len(patterns), record_number(number), keep(bare), len(bare)))
        slot = name_hash(bare.encode()) & (HASH_SLOTS - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (HASH_SLOTS - 1)
        slots[slot] = number
    return Patterns(
        np.array(tokens, np.int64),
        np.array(variants, np.int64),
        np.array(events, np.int64),
        np.frombuffer(bytes(arena), np.uint8).copy(),
        slots,
        longest,
        list(prints),
        layouts,
    )


def name_hash(name: bytes) -> int:
    """Returns FNV-1a of 32 bits, the same as in the compiled loops."""
    value = 2166136261
    for byte in name:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def _parts(pattern: str) -> list[tuple[int, str]]:
    """Returns the parts of a pattern: (kind, literal or field)."""
    parts = []
    at = 0
    for match in _PART.finditer(pattern):
        if match.start() > at:
            parts.append((LITERAL, pattern[at : match.start()]))
        name, kind = match.groups()
        parts.append((SKIP, "") if name is None else (_KINDS[kind], name))
        at = match.end()
    if at < len(pattern):
        parts.append((LITERAL, pattern[at:]))
    return parts


def _layout(patterns: tuple[str, ...]) -> tuple[list[tuple[str, int, int, bool]], int]:
    """Returns the layout of an event's fields, and the bytes of those that are always present."""
    fields: dict[str, bool] = {}
    for pattern in patterns:
        for kind, name in _parts(pattern):
            if kind not in (LITERAL, SKIP):
                fields[name] = kind == TEXT
    layout = []
    at = COMMON_BYTES
    needed = at
    for name, text in sorted(fields.items(), key=lambda f: f[0] in OPTIONAL):
        size = TEXT_BYTES[name] if text else 8
        layout.append((name, at, size, text))
        at += size
        if name not in OPTIONAL:
            needed = at
    return layout, needed
