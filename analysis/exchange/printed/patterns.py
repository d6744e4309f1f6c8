"""Patterns of printed events as regular expressions, and the records that their fields fill.

Each event gets its own record layout and format file: first the fields that every pattern has, then
those that some patterns lack. A record of a line without the latter ends before them, so that they
read as null.

Text is matched up to the first place at which the next literal stands, without a second try: the
time for a line is in proportion to its length, whatever the line is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tracer.analysis.exchange.printed.heads import Head, is_placeholder
from tracer.analysis.exchange.printed.prints import OPTIONAL, TEXT_BYTES
from tracer.store.foreign import COMMON_BYTES, record_format, record_number

_PART = re.compile(r"\{(?:(\w+):(\w+))?\}")
_LITERAL, _SKIP = "literal", "skip"
_RECORD_HEAD = "<QQIIHHI"
"""Length of the rest, ns, thread, process; the payload's event id, CPU and thread."""
_MOST_NAMES = 256
_MOST_NUMBER = (1 << 64) - 1


@dataclass
class Field:
    """A field of an event's records."""

    name: str
    offset: int
    """Bytes from the payload's begin."""
    size: int
    is_text: bool


class _Variant:
    """One pattern of an event."""

    def __init__(self, pattern: str, fields: list[Field], names: dict[bytes, int]) -> None:
        parts = _parts(pattern)
        self._match = re.compile(_expression(parts), re.DOTALL).match
        kinds = {name: kind for kind, name in parts if kind not in (_LITERAL, _SKIP)}
        printed = [name for name, kind in kinds.items() if kind not in ("zero", "head")]
        present = [f for f in fields if f.name in kinds or f.name not in OPTIONAL]
        self._sources: list[tuple[int, Callable[[bytes], int | bytes] | None]] = []
        """Group of each field and its conversion. Group 0: the field has no text."""
        self._blank: list[int | bytes] = []
        """The values of fields that have no text."""
        self._device: list[int] = []
        """The places of fields with the device in the line's head."""
        for place, one in enumerate(present):
            kind = kinds.get(one.name, "zero")
            self._blank.append(b"" if one.is_text else 0)
            if kind == "head":
                self._device.append(place)
            if one.name in printed:
                conversion = _named(names) if kind == "name" else _CONVERSIONS[kind]
                self._sources.append((printed.index(one.name) + 1, conversion))
            else:
                self._sources.append((0, None))
        form = "".join(f"{one.size}s" if one.is_text else "Q" for one in present)
        self._record = struct.Struct(_RECORD_HEAD + form)
        self._nameless: struct.Struct | None = None
        """The layout of a record without the thread's name, its last field."""
        if present and present[-1].name == "comm":
            self._nameless = struct.Struct(_RECORD_HEAD + form.removesuffix(f"{present[-1].size}s"))

    def record(self, number: int, head: Head) -> bytes | None:
        """Returns a line's record for the event with this id; None if the line does not fit."""
        match = self._match(head.fields)
        if match is None:
            return None
        values = self._blank.copy()
        try:
            for place, (group, conversion) in enumerate(self._sources):
                if conversion is not None:
                    values[place] = conversion(match[group])
        except ValueError:
            return None
        for place in self._device:
            values[place] = head.device
        ts, cpu, tid, pid = head[:4]
        record = self._record
        if self._nameless is not None and is_placeholder(bytes(values[-1]), tid):
            record = self._nameless
            del values[-1]
        return record.pack(record.size - 8, ts, tid, pid, number, cpu, tid, *values)


@dataclass
class PrintedEvent:
    """An event whose lines are understood."""

    name: str
    """SYSTEM:EVENT."""
    number: int
    """The id in its records."""
    fields: list[Field]
    variants: list[_Variant]

    def record(self, head: Head) -> bytes | None:
        """Returns the record of a line of this event; None if no pattern fits the line."""
        for variant in self.variants:
            if (made := variant.record(self.number, head)) is not None:
                return made
        return None


@dataclass
class Patterns:
    """The events whose lines are understood, by the names that the lines have."""

    events: dict[bytes, PrintedEvent]
    names: dict[bytes, int] = field(default_factory=dict)
    """Number of each name that a line had in place of an integer."""

    def formats(self) -> dict[str, str]:
        """Returns the format files of the records, by SYSTEM:EVENT, with the names met."""
        pairs = ", ".join(f'{{ {n}, "{name.decode("ascii")}" }}' for name, n in self.names.items())
        made = {}
        for event in self.events.values():
            lines = "".join(
                f"\tfield:char {f.name}[{f.size}];\toffset:{f.offset};\tsize:{f.size};\tsigned:0;\n"
                if f.is_text
                else f"\tfield:long {f.name};\toffset:{f.offset};\tsize:8;\tsigned:1;\n"
                for f in event.fields
            )
            printed = '""'
            if pairs and any(f.name == "reason" for f in event.fields):
                printed = f'"%s", __print_symbolic(REC->reason, {pairs})'
            made[event.name] = record_format(event.name, event.number, lines, printed)
        return made


def compile_patterns(
    prints: Mapping[str, tuple[str, ...]], printed_as: Mapping[str, str] | None = None
) -> Patterns:
    """Returns the events of `prints`. `printed_as` has printed names that differ from the event's.

    The keys of `printed_as` are the printed names.
    """
    called = {event: name for name, event in (printed_as or {}).items()}
    found = Patterns({})
    for place, (name, patterns) in enumerate(prints.items()):
        fields = _fields(patterns)
        variants = [_Variant(pattern, fields, found.names) for pattern in patterns]
        printed = called.get(name, name.partition(":")[2]).encode()
        found.events[printed] = PrintedEvent(name, record_number(place), fields, variants)
    return found


def _parts(pattern: str) -> list[tuple[str, str]]:
    """Returns the parts of a pattern: (kind, literal or field)."""
    parts = []
    at = 0
    for match in _PART.finditer(pattern):
        if match.start() > at:
            parts.append((_LITERAL, pattern[at : match.start()]))
        name, kind = match.groups()
        parts.append((_SKIP, "") if name is None else (kind, name))
        at = match.end()
    if at < len(pattern):
        parts.append((_LITERAL, pattern[at:]))
    return parts


def _expression(parts: list[tuple[str, str]]) -> bytes:
    """Returns the regular expression of a pattern, with one group per printed field."""
    made = ""
    place = 0
    while place < len(parts):
        kind, value = parts[place]
        place += 1
        if kind == _LITERAL:
            made += re.escape(value)
        elif kind in _BOUNDED:
            made += f"({_BOUNDED[kind]})"
        elif kind in ("zero", "head"):
            continue
        else:  # text up to the next literal, or to the end
            text = "{}" if kind == _SKIP else "({})"
            if place == len(parts):
                made += text.format(".*+")
                continue
            literal = re.escape(parts[place][1])
            place += 1
            if place == len(parts):  # this literal must end the line
                made += text.format(".*") + rf"{literal}\Z"
            else:
                made += f"(?>{text.format('.*?')}{literal})"
    return made.encode()


def _fields(patterns: tuple[str, ...]) -> list[Field]:
    """Returns the fields of an event. Those that some patterns lack come last."""
    kinds: dict[str, str] = {}
    for pattern in patterns:
        kinds |= {name: kind for kind, name in _parts(pattern) if kind not in (_LITERAL, _SKIP)}
    fields = []
    at = COMMON_BYTES
    for name in sorted(kinds, key=lambda name: name in OPTIONAL):
        is_text = kinds[name] in _TEXTS
        size = _ARGUMENTS.size if kinds[name] == "args" else TEXT_BYTES[name] if is_text else 8
        fields.append(Field(name, at, size, is_text))
        at += fields[-1].size
    return fields


_HEX = r"-?(?:0x)?+[0-9a-fA-F]{1,40}+"
_BOUNDED = {
    "dec": r"-?\d{1,40}+",
    "status": r"-?\d{1,40}+",
    "hex": _HEX,
    "dev": r"\d{1,9}+[,:]\d{1,9}+",
    "args": rf"{_HEX}(?:, {_HEX}){{5}}",
    "word": r"[^ ]{1,16}+",
}
"""Regular expressions of the kinds that end by themselves."""
_TEXTS = ("text", "word", "args")
"""Kinds whose values are bytes."""
_ARGUMENTS = struct.Struct("<6Q")


def _fitting(value: int) -> int:
    """Returns a number of 64 bits, signed or not, as one without a sign."""
    if not -_MOST_NUMBER // 2 <= value <= _MOST_NUMBER:
        raise ValueError("the number has more than 64 bits")
    return value & _MOST_NUMBER


def _device(text: bytes) -> int:
    major, minor = map(int, text.replace(b":", b",").split(b","))
    if major >= 1 << 12 or minor >= 1 << 20:
        raise ValueError("no device has this number")
    return major << 20 | minor


def _status(text: bytes) -> int:
    """Returns an error that was printed as a number of 16 bits without a sign."""
    value = int(text)
    return _fitting(value - (1 << 16) if 1 << 15 <= value < 1 << 16 else value)


def _arguments(text: bytes) -> bytes:
    return _ARGUMENTS.pack(*(_fitting(int(one, 16)) for one in text.split(b", ")))


def _named(names: dict[bytes, int]) -> Callable[[bytes], int]:
    """Returns the conversion of a name into its number; a new name gets the next number."""

    def number(text: bytes) -> int:
        found = names.get(text)
        if found is None:
            if not re.fullmatch(rb"[\w-]{1,32}", text) or len(names) >= _MOST_NAMES:
                raise ValueError("this is not a name, or there are too many names")
            found = names[text] = len(names)
        return found

    return number


_CONVERSIONS: dict[str, Callable[[bytes], int | bytes]] = {
    "dec": lambda text: _fitting(int(text)),
    "hex": lambda text: _fitting(int(text, 16)),
    "dev": _device,
    "status": _status,
    "args": _arguments,
    "text": bytes,
    "word": bytes,
}
