"""Recordings in the background, a process to record, and what is left of both in the kernel."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.waiting import wait_for
from tests.support.warm import Tracer

CALLS = ("-e", "syscalls")
"""Options for tests that need no other table: making all tables takes a second."""
_OURS = re.compile(r"^tracer-(\d+)-")


def record_until(log: Path, more: int, *options: object, **where: Any) -> None:
    """Records until a job has written `more` bytes to its log, however long that takes.

    `where`: the folder and the environment of the recorder, as for `Tracer`.
    """
    with Tracer("record", *options, **where) as recorder:
        said = recorder.stderr.readline()
        enough = log.stat().st_size + more
        try:
            wait_for(lambda: log.stat().st_size >= enough, f"{more} bytes more")
        finally:
            recorder.send_signal(signal.SIGINT)
        _, err = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, said + err


@pytest.fixture
def loop():
    """A process that makes calls until it is killed."""
    source = "import os, time\nwhile True:\n    os.getppid()\n    time.sleep(0.001)\n"
    with subprocess.Popen([sys.executable, "-c", source]) as process:
        yield process
        process.kill()


@pytest.fixture
def recorder(tmp_path, instances):
    """Start `tracer record` in the background; returns it once it traces."""
    started = []

    def start(*arguments, output="x.trace"):
        process = Tracer("record", "-o", output, *arguments, cwd=tmp_path)
        started.append(process)
        raw = tmp_path / output / "raw"
        wait_for(
            lambda: process.poll() is not None or (raw / "threads.json").exists(), "the recording"
        )
        assert process.poll() is None, process.communicate()
        if not {"ebpf", "perf"} & {*arguments}:
            assert ours(instances, process)
        return process

    yield start
    for process in started:
        kill(process)


def guardian_of(folder: Path) -> psutil.Process:
    """Returns the guardian of a recording."""
    pid, _ = json.loads((folder / "manifest.json").read_bytes())["recorder"]["guardian"]
    return psutil.Process(pid)


def ours(instances: Callable[[], set[str]], process: Tracer) -> set[str]:
    """Returns the tracefs instances of a recorder that there are now."""
    return {n for n in instances() if (m := _OURS.match(n)) and int(m[1]) == process.pid}


def target_bytes(folder: Path) -> int:
    """Returns the size of the raw data of a recording's targets."""
    return sum(path.stat().st_size for path in folder.glob("raw/*-target*.raw"))


def kill(process: Tracer) -> None:
    """Kills a recorder, and waits for its end."""
    process.kill()
    process.communicate()
