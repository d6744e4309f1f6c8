"""Places of the events that we want in a target's library, found by a confined process."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from functools import partial

from tracer.probes.backends.uprobes.library import MOST_PLACES, Library
from tracer.probes.errors import FeatureMissing, TracerError
from tracer.probes.symbols.elf_file import ElfImage
from tracer.probes.text import printable
from tracer.probes.uprobe_place import Place
from tracer.probes.workers.confinement import Limits, confine
from tracer.probes.workers.process import Channel, Unanswered, Worker

_LIMITS = Limits(memory_bytes=1 << 31, cpu_s=30)
_SECONDS = 30.0
_FAILED, _FOUND = b"!", b"="
_MOST_WORDS = 500
_COUNT = struct.Struct("<I")


def find_places(library: int, wanted: Mapping[str, Place]) -> dict[str, tuple[int, ...]]:
    """Offsets in the file of a descriptor (O_PATH is enough) of the places of each event.

    Raises FeatureMissing where one is not to be found. An optional one has no offsets then.
    """
    import capstone  # noqa: F401 a confined process can load nothing

    try:
        worker = Worker(partial(_serve, library, wanted), [library])
    except Unanswered as error:
        raise _unreadable(error.why) from None
    try:
        answer = worker.ask(b"", _SECONDS)
    except Unanswered as error:
        raise _unreadable(error.why) from None
    finally:
        worker.close()
    if answer.startswith(_FAILED):
        words = answer[1 : 1 + _MOST_WORDS].decode("utf-8", "replace")
        raise FeatureMissing(printable(words), "report it")
    return _checked(answer[1:], wanted)


def _checked(answer: bytes, wanted: Mapping[str, Place]) -> dict[str, tuple[int, ...]]:
    """Returns the offsets for each event; raises an error unless the answer has a number and that
    many offsets per event."""
    found: dict[str, tuple[int, ...]] = {}
    at = 0
    try:
        for event in wanted:
            (count,) = _COUNT.unpack_from(answer, at)
            if count > MOST_PLACES:
                raise _unreadable("its answer cannot be read")
            found[event] = struct.unpack_from(f"<{count}q", answer, at + _COUNT.size)
            at += _COUNT.size + 8 * count
    except struct.error:
        raise _unreadable("its answer cannot be read") from None
    return found


def _unreadable(why: str) -> FeatureMissing:
    return FeatureMissing(f"a library of the target cannot be read: {why}", "report it")


def _serve(library: int, wanted: Mapping[str, Place], channel: Channel) -> None:
    """Answer once; runs in the worker."""
    channel.receive()
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(f"/proc/self/fd/{library}", flags)
        confine(_LIMITS)
        answer = _FOUND
        with ElfImage(file, "the library") as elf:
            functions = Library(elf)
            for place in wanted.values():
                offsets = _offsets(functions, place)
                answer += _COUNT.pack(len(offsets)) + struct.pack(f"<{len(offsets)}q", *offsets)
    except TracerError as error:
        answer = _FAILED + error.what.encode("utf-8", "replace")
    except (OSError, MemoryError, OverflowError) as error:
        answer = _FAILED + f"a library of the target cannot be read: {error}".encode()
    channel.send(answer)


def _offsets(functions: Library, place: Place) -> tuple[int, ...]:
    try:
        if place.returns:
            return functions.returns(place.symbol, place.exact)
        if place.called_near:
            return functions.calls(place.symbol, place.called_near)
        return functions.entry(place.symbol, place.exact)
    except FeatureMissing:
        if place.optional:
            return ()
        raise
