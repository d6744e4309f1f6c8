"""The fields of an event, parsed from the kernel's `format` file of the event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tracer.probes.errors import BadTrace

_MAX_TEXT = 256 * 1024
_MAX_OFFSET = 1 << 16
_DATA_LOC_BYTES = 4
_DEVICE_BYTES = 4
_LEAST_PAGE, _MOST_PAGE = 64, 1 << 20
_RECORD_AGAIN = "the trace is damaged: record again"
# The text may come from an attacker, so no pattern may match the same characters in two ways:
# a match that fails late would try every combination. The number of digits is bounded too.
_ID = re.compile(r"^ID:[ \t]*+([0-9]{1,5})[ \t]*$", re.MULTILINE)
_FIELD = re.compile(
    r"^[ \t]*+field:(?P<declaration>[^;\n]{1,256});[ \t]*+offset:(?P<offset>[0-9]{1,9});"
    r"[ \t]*+size:(?P<size>[0-9]{1,9});(?:[ \t]*+signed:(?P<signed>[01]);)?",
    re.MULTILINE,
)
_ARRAY = re.compile(r"\[[^\]]*\]$")
_SYMBOLIC = re.compile(
    r"__print_symbolic\(\s*+REC->(\w++)\s*+,\s*+((?:\{[^{}]*+\}\s*+,?+\s*+)++)\)"
)
_FLAGS = re.compile(
    r'__print_flags\(\s*+REC->(\w++)[^"{]{0,1024}+"[^"]{0,4}+"\s*+,'
    r"\s*+((?:\{[^{}]*+\}\s*+,?+\s*+)++)\)"
)
_PAIR = re.compile(r'\{\s*+(-?)(?:0x([0-9a-fA-F]{1,16})|([0-9]{1,19}))\s*+,\s*+"([^"]*+)"\s*+\}')
_JIFFIES = re.compile(r"\(\s*+jiffies\s*+-\s*+REC->\w++\s*+\)\s*+/\s*+([0-9]{1,9})")


@dataclass(frozen=True)
class Field:
    """One field: its offset and size in bytes in the event's payload, and its type."""

    name: str
    offset: int
    size: int
    signed: bool
    text: bool
    """True for a character array, of fixed size or `data_loc`."""
    data_loc: bool
    """True if the field holds the offset (low 16 bits) and length (high 16 bits) of its value."""
    device: bool = False
    """True for a dev_t."""


@dataclass(frozen=True)
class EventFormat:
    """The format of one event."""

    name: str
    id: int
    fields: dict[str, Field] = field(default_factory=dict)
    symbols: dict[str, dict[int, str]] = field(default_factory=dict)
    """Field name to {value: name}, from __print_symbolic."""
    flags: dict[str, dict[int, str]] = field(default_factory=dict)
    """Field name to {bit: name}, from __print_flags."""
    jiffies_hz: int | None = None
    """Ticks of `jiffies` per second, if the print format divides by this number."""

    def field(self, name: str) -> Field:
        """Returns the field called `name`. Raises BadTrace if the event has no such field."""
        if name not in self.fields:
            raise BadTrace(f"event {self.name} has no field {name}", _RECORD_AGAIN)
        return self.fields[name]

    def first(self, names: tuple[str, ...]) -> Field | None:
        """Returns the first field of `names` that this kernel's event has, or None."""
        for name in names:
            if name in self.fields:
                return self.fields[name]
        return None


def parse(name: str, text: str) -> EventFormat:
    """Returns the format of event `name`, parsed from the text of its format file.

    Raises BadTrace if the text is not a valid format file.
    """
    if len(text) > _MAX_TEXT:
        raise BadTrace(
            f"the format of event {name} is too long ({len(text)} bytes, limit {_MAX_TEXT})",
            _RECORD_AGAIN,
        )
    head, _, print_format = text.partition("print fmt:")
    number = _ID.search(head)
    if number is None or int(number.group(1)) >= 1 << 16:
        raise BadTrace(f"the format of event {name} has no usable ID", _RECORD_AGAIN)
    fields = {}
    for match in _FIELD.finditer(head):
        parsed = _field(match)
        if parsed.offset + parsed.size > _MAX_OFFSET:
            raise BadTrace(
                f"field {parsed.name} of event {name} has an offset or size that is too large",
                _RECORD_AGAIN,
            )
        if parsed.data_loc and parsed.size != _DATA_LOC_BYTES:
            raise BadTrace(
                f"field {parsed.name} of event {name} is {parsed.size} bytes long, "
                f"but a __data_loc field has {_DATA_LOC_BYTES}",
                _RECORD_AGAIN,
            )
        fields[parsed.name] = parsed
    hz = _JIFFIES.search(print_format)
    return EventFormat(
        name,
        int(number.group(1)),
        fields,
        _names(_SYMBOLIC, print_format),
        _names(_FLAGS, print_format),
        int(hz.group(1)) if hz and int(hz.group(1)) > 0 else None,
    )


def _names(pattern: re.Pattern[str], print_format: str) -> dict[str, dict[int, str]]:
    return {
        field_name: {
            int(sign + (hexadecimal or decimal), 16 if hexadecimal else 10): label
            for sign, hexadecimal, decimal, label in _PAIR.findall(pairs)
        }
        for field_name, pairs in pattern.findall(print_format)
    }


def _field(match: re.Match[str]) -> Field:
    declaration = match["declaration"].strip()
    data_loc = declaration.startswith("__data_loc")
    is_char = re.search(r"\bchar\b", declaration) is not None
    is_array = "[" in declaration
    return Field(
        _name(match),
        int(match["offset"]),
        int(match["size"]),
        match["signed"] == "1",
        is_char and is_array,
        data_loc,
        declaration.startswith("dev_t ") and int(match["size"]) == _DEVICE_BYTES,
    )


def _name(match: re.Match[str]) -> str:
    # "char comm[16]", "__data_loc char[] cmd", "unsigned long args[6]"
    words = _ARRAY.sub("", match["declaration"].strip()).split()
    if not words:
        raise BadTrace("an event's format has a field without a name", _RECORD_AGAIN)
    return words[-1].lstrip("*")


@dataclass(frozen=True)
class CommonFields:
    """The position of the type and the thread id in every event.

    `type_shift` is in bits of the first 32-bit word; `pid_word` is the number of a 32-bit word.
    """

    type_shift: int
    pid_word: int


def common_fields(formats: Mapping[str, EventFormat]) -> CommonFields:
    """Returns the position of type and thread id, which is the same in all tracepoints.

    Raises BadTrace if a format has no usable position.
    """
    for parsed in formats.values():
        if parsed.name.startswith("perf:"):
            continue
        kind, pid = parsed.fields.get("common_type"), parsed.fields.get("common_pid")
        if (
            kind is None
            or pid is None
            or kind.offset + kind.size > 4
            or kind.size != 2
            or pid.size != 4
            or pid.offset % 4
            or pid.offset > 64
        ):
            raise BadTrace(
                f"event {parsed.name} has no usable common_type and common_pid fields",
                _RECORD_AGAIN,
            )
        return CommonFields(kind.offset * 8, pid.offset // 4)
    return CommonFields(0, 1)


@dataclass(frozen=True)
class PageFormat:
    """The layout of a ring-buffer page, from the tracefs file `events/header_page`."""

    page_bytes: int
    timestamp_offset: int
    commit_offset: int
    commit_bytes: int
    data_offset: int


def parse_page(text: str) -> PageFormat:
    """Returns the page layout from the text of `header_page`. Raises BadTrace if it is invalid."""
    fields = {_name(m): m for m in _FIELD.finditer(text[:_MAX_TEXT])}
    try:
        data, commit, stamp = fields["data"], fields["commit"], fields["timestamp"]
    except KeyError as missing:
        raise BadTrace(f"the trace's header_page has no field {missing}", _RECORD_AGAIN) from None
    layout = PageFormat(
        int(data["offset"]) + int(data["size"]),
        int(stamp["offset"]),
        int(commit["offset"]),
        int(commit["size"]),
        int(data["offset"]),
    )
    stamped = layout.timestamp_offset + 8 <= layout.data_offset and int(stamp["size"]) == 8
    committed = layout.commit_offset + layout.commit_bytes <= layout.data_offset
    sane = (
        stamped
        and committed
        and layout.commit_bytes in (4, 8)
        and layout.data_offset % 4 == layout.page_bytes % 4 == 0
        and layout.data_offset < layout.page_bytes
        and _LEAST_PAGE <= layout.page_bytes <= _MOST_PAGE
    )
    if not sane:
        raise BadTrace("the trace's header_page describes an invalid layout", _RECORD_AGAIN)
    return layout
