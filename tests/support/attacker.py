"""A real second user, who acts while root works for it, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from tests.support.warm import Tracer

NOBODY = 65534
SECRET = "root:$6$not for everybody"
BY_SUDO = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}


@pytest.fixture
def place():
    """A folder that everybody may pass through, with `theirs`, which is the attacker's."""
    folder = Path(tempfile.mkdtemp(prefix="tracer-test-"))
    folder.chmod(0o755)
    (folder / "theirs").mkdir()
    os.chown(folder / "theirs", NOBODY, NOBODY)
    (folder / "root's").mkdir(mode=0o700)
    (folder / "root's/secret").write_text(SECRET)
    (folder / "root's/secret").chmod(0o600)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def attack(place):
    """Run a shell command as the attacker, in its folder; returns whether it succeeded."""

    def run(script: str) -> bool:
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        ended = subprocess.run(
            [*command, "sh", "-c", script], cwd=place / "theirs", capture_output=True, check=False
        )
        return ended.returncode == 0

    return run


@pytest.fixture
def victim():
    """A process that makes a system call a millisecond until the test ends."""
    source = "import os, time\nwhile True: os.getppid(); time.sleep(0.001)"
    with subprocess.Popen([sys._base_executable, "-S", "-E", "-c", source]) as process:
        yield process
        process.kill()


@contextlib.contextmanager
def recorded(victim: subprocess.Popen[bytes], folder: Path, *options: str) -> Iterator[Tracer]:
    """A recording that root makes for the attacker, in the attacker's folder."""
    recorder = Tracer(
        *("record", "-o", "x.trace", *options, "-p", victim.pid),
        cwd=folder,
        env={**os.environ, **BY_SUDO},
    )
    try:
        wait_for((folder / "x.trace/raw/threads.json").exists, "the recording")
        yield recorder
    finally:
        recorder.kill()
        recorder.close()


def end(recorder: Tracer) -> None:
    """Ends a recording, which must succeed."""
    recorder.send_signal(signal.SIGINT)
    _, err = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, err
