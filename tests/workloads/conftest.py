"""Fixtures of the tests of training jobs: the command, and a reader of its marks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.in_memory import tmp_path, tmp_path_factory  # noqa: F401
from tests.support.machines import machine  # noqa: F401
from tracer import phases
from tracer.phases import format as marks_format
from tracer.workloads.cli import main

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Span:
    """One marked phase; `inside` names the phases around it, outermost first."""

    pid: int
    name: str
    epoch: int | None
    step: int | None
    inside: tuple[str, ...]


def _spans(folder: Path) -> list[Span]:
    records = [
        record
        for path in folder.glob(f"*{marks_format.SUFFIX}")
        for record in marks_format.RECORD.iter_unpack(path.read_bytes())
        if record[-1] == marks_format.COMMITTED
    ]
    spans = []
    open_phases: dict[tuple[int, int], list[str]] = {}
    for _, pid, tid, epoch, step, kind, padded, _ in sorted(records):
        name = padded.rstrip(b"\0").decode()
        stack = open_phases.setdefault((pid, tid), [])
        if kind == marks_format.BEGIN:
            numbers = (None if n == marks_format.ABSENT else n for n in (epoch, step))
            spans.append(Span(pid, name, *numbers, inside=tuple(stack)))
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not any(open_phases.values()), "a phase was never ended"
    return spans


@pytest.fixture
def marks(tmp_path: Path) -> Iterator[Callable[[], list[Span]]]:  # noqa: F811
    """Keeps the marks of this process during the test; the fixture, called, returns them."""
    folder = tmp_path / "marks"
    folder.mkdir()
    phases.enable(str(folder))
    yield lambda: _spans(folder)
    phases.disable()


@pytest.fixture
def spans() -> Callable[[Path], list[Span]]:
    """Returns a function that reads the marks of other processes from a folder."""
    return _spans


@pytest.fixture
def no_large_files() -> Callable[[int], AbstractContextManager[None]]:
    """Returns a context manager in which the system limits files to a number of bytes."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@dataclass(frozen=True)
class Answer:
    """The exit status, stdout and stderr of a command."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """Runs `python -m tracer.workloads ARGUMENTS` in this process, which has imported torch."""

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["workloads", *map(str, arguments)])
        status = main()
        out, err = capsys.readouterr()
        return Answer(status, out, err)

    return run


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `python -m tracer.workloads ARGUMENTS` as a separate process."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tracer.workloads", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
