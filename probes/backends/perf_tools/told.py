"""The device and the operation that a tracepoint's raw data tell, by the event's own format.

The data come from a trace that may be hostile: a field that does not lie in them is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tracer.probes.backends.event_format import EventFormat, Field, parse
from tracer.probes.events.block import operation

_DEVICES = ("dev", "s_dev")
_RWBS = "rwbs"
_MINOR_BITS = 20
"""Bits of a minor number in the kernel: include/linux/kdev_t.h."""
_DEVICE_BYTES = 4
_LONGEST = 64
"""The most bytes of a text that are looked at: the kernel's rwbs has ten."""

_KEPT = 1 << 12
"""The most devices, or operations, whose names are kept."""

UNTOLD: tuple[str | None, str | None] = None, None
"""The device and the operation of an event that tells neither."""


@dataclass(frozen=True)
class Told:
    """The places of the two fields in an event's raw data; None: the event has no such field."""

    device: Field | None
    rwbs: Field | None

    @classmethod
    def of(cls, event: EventFormat) -> Told:
        """Returns the places of the fields of an event; a field of another type is no device."""
        device = event.first(_DEVICES)
        if device is not None and not device.device:
            device = None
        rwbs = event.fields.get(_RWBS)
        return cls(device, rwbs if rwbs is not None and rwbs.text else None)

    def read(self, raw: bytes) -> tuple[str | None, str | None]:
        """Returns the device, MAJOR:MINOR, and the operation as in the table call_graphs."""
        device = None
        if self.device is not None:
            found = raw[self.device.offset : self.device.offset + _DEVICE_BYTES]
            if len(found) == _DEVICE_BYTES:
                device = _device(found)
        return device, None if self.rwbs is None else _operation(_value(self.rwbs, raw))


def told_by_number(formats: Iterable[Mapping[str, str]]) -> dict[int, Told]:
    """Returns what events tell, by the number of the event, from the texts of their formats.

    Raises BadTrace for a text that is not a format.
    """
    parsed = (parse(name, text) for texts in formats for name, text in texts.items())
    return {event.id: Told.of(event) for event in parsed}


@lru_cache(_KEPT)
def _device(found: bytes) -> str:
    number = int.from_bytes(found, "little")
    return f"{number >> _MINOR_BITS}:{number & ((1 << _MINOR_BITS) - 1)}"


@lru_cache(_KEPT)
def _operation(rwbs: bytes) -> str | None:
    return operation(rwbs.decode("ascii", "backslashreplace")) if rwbs else None


def _value(field: Field, raw: bytes) -> bytes:
    """Returns the bytes of a text before its end; none if it does not lie in the raw data."""
    place, size = field.offset, field.size
    if place + size > len(raw):
        return b""
    if field.data_loc:
        where = int.from_bytes(raw[place : place + size], "little")
        place, size = where & 0xFFFF, where >> 16
        if place + size > len(raw):
            return b""
    return raw[place : place + min(size, _LONGEST)].partition(b"\0")[0]
