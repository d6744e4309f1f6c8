"""Recordings in the background, a process to record, and what is left of both in the kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_for
from tests.support.warm import Tracer

CALLS = ("-e", "syscalls")
"""Options for tests that need no other table: making all tables takes a second."""
_OURS = re.compile(r"^tracer-(\d+)-")


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
