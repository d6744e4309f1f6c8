"""A process that runs many inputs of a target, each within its budget."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import resource
import shutil
import signal
import struct
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.target import Target, every_target
from tests.support.budget import CPU_SECONDS, WALL_SECONDS, ending, limit_memory
from tests.support.warm import context
from tracer.probes.errors import TracerError

SEEDS = -1
"""Number of the last seed; the seeds before it have smaller numbers.

Seeds run first and without limits, because they compile loops.
"""

_PROGRESS = struct.Struct("<qqq")
_FOLDER = "in"


@dataclass(frozen=True)
class Plan:
    """The work of a worker: inputs from `first` up to but not including `last`, up to `seconds`."""

    target: str
    seed: int
    first: int
    last: int | None
    seconds: float | None
    data: bytes | None = None
    """The only input to run. It runs first with ten times the time, as it may compile something."""
    seeds: tuple[bytes, ...] = ()
    """The target's seeds, if they are known: some take seconds to make."""


@dataclass(frozen=True)
class Trouble:
    """A wrong result of an input."""

    number: int
    what: str
    place: str
    trace: str
    ended: bool = False
    """The input ended the process."""


class Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, plan: Plan, scratch: Path) -> None:
        self._scratch = scratch
        self._progress = scratch / "progress"
        self._progress.write_bytes(_PROGRESS.pack(SEEDS, 0, 0))
        (scratch / "trace").write_bytes(b"")
        self._ours, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(theirs, plan, str(scratch)))
        self._process.start()
        theirs.close()
        self.crashed = False

    def troubles(self) -> Iterator[Trouble]:
        """Yields wrong results as they occur; ends with the process."""
        with contextlib.suppress(EOFError):
            while True:
                yield pickle.loads(self._ours.recv_bytes())
        self._process.join()
        self._ours.close()
        if self._process.exitcode:
            self.crashed = True
            trace = (self._scratch / "trace").read_text(errors="replace")
            what = _ending(self._process.exitcode)
            yield Trouble(self.progress[0], what, f"{what} {_last_line(trace)}", trace, ended=True)

    @property
    def progress(self) -> tuple[int, int, int]:
        """(number of the next input, or of the one that ended the process; refused; read)"""
        number, refused, read = _PROGRESS.unpack(self._progress.read_bytes())
        return number, refused, read


def _ending(status: int) -> str:
    if status == -signal.SIGPROF:
        return f"more than {CPU_SECONDS} s of CPU time"
    if status == -signal.SIGALRM:
        return f"more than {WALL_SECONDS} s"
    return ending(status)


def _last_line(trace: str) -> str:
    """Returns the innermost frame in the project's code of a trace of `faulthandler`."""
    lines = [line.strip() for line in trace.splitlines() if line.startswith("  File")]
    ours = [line for line in lines if "/.venv/" not in line and "/lib/python" not in line]
    return (ours or lines or [""])[0]


def _work(end: Connection, plan: Plan, scratch: str) -> None:
    """Runs the inputs. A file holds the number of the current one, in case it crashes."""
    import mmap

    # The process may be killed: its parent removes the folder with all of its temporary files.
    tempfile.tempdir = os.environ["TMPDIR"] = scratch
    folder = Path(scratch) / _FOLDER
    chosen = replace(every_target()[plan.target], _seeds=list(plan.seeds))
    with (
        (Path(scratch) / "trace").open("w") as trace,
        (Path(scratch) / "progress").open("r+b") as f,
    ):
        faulthandler.enable(trace)
        for number in (signal.SIGPROF, signal.SIGALRM):
            faulthandler.register(number, trace, chain=True)
        progress = mmap.mmap(f.fileno(), _PROGRESS.size)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if plan.data is None:
            for number, data in enumerate(chosen.seeds, SEEDS - len(chosen.seeds) + 1):
                refusal, trouble = tried(chosen, data, folder, number)
                if refusal is not None:
                    trouble = Trouble(number, f"a seed is refused: {refusal}", "a seed", refusal)
                if trouble is not None:
                    end.send_bytes(pickle.dumps(trouble))
        limit_memory()
        if plan.data is not None:
            _limit_time(10)
            tried(chosen, plan.data, folder, SEEDS)
        until = None if plan.seconds is None else time.monotonic() + plan.seconds
        refused = read = 0
        number = plan.first
        while (plan.last is None or number < plan.last) and (
            until is None or time.monotonic() < until
        ):
            _PROGRESS.pack_into(progress, 0, number, refused, read)
            data = chosen.input(plan.seed, number) if plan.data is None else plan.data
            _limit_time()
            refusal, trouble = tried(chosen, data, folder, number)
            if trouble is not None:
                end.send_bytes(pickle.dumps(trouble))
            refused += refusal is not None
            read += refusal is None and trouble is None
            number += 1
        _PROGRESS.pack_into(progress, 0, number, refused, read)


def _limit_time(times: int = 1) -> None:
    signal.setitimer(signal.ITIMER_PROF, times * CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, times * WALL_SECONDS)


def tried(
    chosen: Target, data: bytes, folder: Path, number: int
) -> tuple[str | None, Trouble | None]:
    """Runs one input; returns the TracerError that refuses it, or the wrong result."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        chosen.run(data, folder)
    except TracerError as error:
        return str(error), None
    except BaseException as error:  # noqa: BLE001 (any other exception is a finding)
        frames = traceback.extract_tb(error.__traceback__)
        ours = [
            f for f in frames if "/.venv/" not in f.filename and "/lib/python" not in f.filename
        ]
        at: Any = (ours or frames)[-1]
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        place = f"{type(error).__name__} {at.filename}:{at.lineno}"
        return None, Trouble(number, what, place, traceback.format_exc())
    return None, None
