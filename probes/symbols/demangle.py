"""The demangling of C++ names by libstdc++'s `__cxa_demangle` in a confined process.

A mangled name of 200 bytes can stand for gigabytes, because each part can repeat the parts before
it. A demangler that writes out such a name needs endless memory and time. The process therefore has
little of both, and dies if it needs more.
"""

from __future__ import annotations

import ctypes
import re
import signal
import threading
from collections.abc import Sequence
from functools import cache

from tracer.probes.workers.confinement import Limits, confine
from tracer.probes.workers.process import Channel, Unanswered, Worker

MAX_MANGLED_BYTES = 1 << 14

_MANGLED = re.compile(rb"_Z[A-Za-z0-9_.$]+")
_MAX_ANSWER_BYTES = 4096
_BATCH = 256
_MAX_DEATHS = 8
"""Most processes that hostile names can kill; after that, names stay mangled."""
_MEMORY_BYTES = 512 << 20
_SECONDS_A_NAME = 0.25
_SECONDS = 20
"""Processor time in s for all names."""
_SECONDS_A_BATCH = _BATCH * _SECONDS_A_NAME
"""Time limit in s for the answers to a batch."""


class Demangler:
    """A demangler with one worker process, which starts when first needed."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._spent_s = 0.0
        self._deaths = 0
        self._one_at_a_time = threading.Lock()

    def demangle(self, names: Sequence[bytes]) -> list[str | None]:
        """Returns each name demangled; None if it is not a C++ name or cannot be demangled.

        A result has at most 4096 bytes. Rust's older names (`_ZN..17h..E`) are demangled like C++.
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
                # If a worker died, the first name without an answer killed it.
                at += min(len(answers) + 1, len(batch))
        return result

    def close(self) -> None:
        """Ends the worker."""
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
    """Answers each name demangled and cut to the limit; empty if it is not a C++ name."""
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
            # SIGPROF kills the process. It counts processor time: a busy machine does not matter.
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
    """Returns the demangler that all of this process shares."""
    return Demangler()
