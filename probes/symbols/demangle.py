"""C++ names as they were written, by libstdc++'s `__cxa_demangle` in a confined process.

A name of 200 bytes can stand for gigabytes, each part of it repeating the parts before, and a
demangler that writes it out takes memory and time without end. So it has little of both, and its
process dies of too much.
"""

from __future__ import annotations

import ctypes
import re
import signal
import threading
from collections.abc import Sequence
from functools import cache

from probes.workers.confinement import Limits, confine
from probes.workers.process import Channel, Unanswered, Worker

MAX_MANGLED_BYTES = 1 << 14

_MANGLED = re.compile(rb"_Z[A-Za-z0-9_.$]+")
_MAX_ANSWER_BYTES = 4096
_BATCH = 256
_MAX_DEATHS = 8
"""Hostile names cost at most this many processes; then names stay as they are."""
_MEMORY_BYTES = 512 << 20
_SECONDS_A_NAME = 0.25
_SECONDS = 20
"""Seconds of processor time, for all names."""
_SECONDS_A_BATCH = _BATCH * _SECONDS_A_NAME
"""Until there is an answer."""


class Demangler:
    """Asks one worker process, started when first needed; ends with this object."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._spent_s = 0.0
        self._deaths = 0
        self._one_at_a_time = threading.Lock()

    def demangle(self, names: Sequence[bytes]) -> list[str | None]:
        """Returns the meaning of each name; None if it is not a C++ name or cannot be demangled.

        At most 4096 bytes of it. Rust's older names (`_ZN..17h..E`) read as C++.
        """
        result: list[str | None] = [None] * len(names)
        wanted = [
            index
            for index, name in enumerate(names)
            if len(name) <= MAX_MANGLED_BYTES and _MANGLED.fullmatch(name)
        ]
        at = 0
        with self._one_at_a_time:
            while at < len(wanted) and self._deaths < _MAX_DEATHS:
                batch = wanted[at : at + _BATCH]
                answers = self._ask([names[index] for index in batch])
                for index, answer in zip(batch, answers, strict=False):
                    result[index] = answer or None
                # A worker that died did so of the first name that it left unanswered.
                at += min(len(answers) + 1, len(batch))
        return result

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._spent_s += self._worker.cpu_s
            self._worker = None

    def _ask(self, names: list[bytes]) -> list[str]:
        answers: list[str] = []
        try:
            if self._worker is None:
                limits = Limits(_MEMORY_BYTES, max(int(_SECONDS - self._spent_s), 1))
                self._worker = Worker(lambda channel: _serve(channel, limits))
            request = b"\0".join(names)
            for answer in self._worker.answers(request, len(names), _SECONDS_A_BATCH):
                answers.append(answer[:_MAX_ANSWER_BYTES].decode("utf-8", "backslashreplace"))
        except Unanswered:
            self.close()
            self._deaths = self._deaths + 1 if self._spent_s < _SECONDS else _MAX_DEATHS
        return answers


def _serve(channel: Channel, limits: Limits) -> None:
    """Answer each name with what it stands for, cut short; with nothing where it is no name."""
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int),
    ]
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    confine(limits)
    status = ctypes.c_int()
    while (request := channel.receive()) is not None:
        for name in request.split(b"\0"):
            # SIGPROF kills: processor time, so that a busy machine makes no difference.
            signal.setitimer(signal.ITIMER_PROF, _SECONDS_A_NAME)
            answer = b""
            pointer = demangle(name, None, None, ctypes.byref(status))
            if pointer:
                answer = (ctypes.cast(pointer, ctypes.c_char_p).value or b"")[:_MAX_ANSWER_BYTES]
                free(pointer)
            channel.send(answer)
        signal.setitimer(signal.ITIMER_PROF, 0)


@cache
def shared_demangler() -> Demangler:
    """The one demangler of this process."""
    return Demangler()
