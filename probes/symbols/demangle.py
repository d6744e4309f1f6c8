"""C++ names as they were written, by libstdc++'s `__cxa_demangle` in a process with limits."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO

_WORKER = Path(__file__).resolve().with_name("demangle_worker.py")
_MANGLED = re.compile(rb"_Z[A-Za-z0-9_.$]+")
_MAX_MANGLED_BYTES = 1 << 14
_BATCH = 256
_MAX_DEATHS = 8
"""A file of hostile names costs at most this many processes; then names stay as they are."""


class Demangler:
    """Asks one worker process, started when first needed; ends with this object."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[[subprocess.Popen[bytes], int], Demangler] | None = None
        self._deaths = 0
        self._one_at_a_time = threading.Lock()

    def demangle(self, names: Sequence[bytes]) -> list[str | None]:
        """What each name stands for; None where it is no C++ name or cannot be told.

        At most 4096 bytes of it. Rust's older names (`_ZN..17h..E`) read as C++.
        """
        result: list[str | None] = [None] * len(names)
        wanted = [
            index
            for index, name in enumerate(names)
            if len(name) <= _MAX_MANGLED_BYTES and _MANGLED.fullmatch(name)
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
        if self._end is not None:
            self._end()
        self._worker = self._end = None

    def _ask(self, names: list[bytes]) -> list[str]:
        if self._worker is None:
            self._start()
        worker = self._worker
        if worker is None or worker.stdin is None or worker.stdout is None:
            return []
        request = b"".join(name + b"\0" for name in names)
        answers: list[str] = []
        # Every end of a worker is counted below.
        with contextlib.suppress(OSError):
            # The worker reads all of it before it answers, so neither can wait for the other.
            worker.stdin.write(len(request).to_bytes(4, "little") + request)
            worker.stdin.flush()
            answers = _read_answers(worker.stdout, len(names))
        if len(answers) < len(names):
            self._deaths += 1
            self.close()
        return answers

    def _start(self) -> None:
        try:
            self._worker = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
        except OSError:
            self._deaths = _MAX_DEATHS
            return
        self._end = weakref.finalize(self, _end_worker, self._worker, os.getpid())


def _read_answers(stream: IO[bytes], count: int) -> list[str]:
    answers: list[str] = []
    rest = b""
    while len(answers) < count:
        part = stream.read1(1 << 16)  # type: ignore[attr-defined]
        if not part:
            break
        *whole, rest = (rest + part).split(b"\0")
        answers += [answer.decode("utf-8", "backslashreplace") for answer in whole]
    return answers


def _end_worker(worker: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the owner: the worker is not its own
    worker.kill()
    worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # what was not yet written is of no use
                stream.close()


@cache
def shared_demangler() -> Demangler:
    """The one demangler of this process."""
    return Demangler()
