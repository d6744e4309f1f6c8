"""A disk of a guest that serves one request at a time and takes the same time for each: nbdkit."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.kernels.errors import CannotTest

REQUEST_MS = 20
"""The time of a request; long compared with the time that the emulated CPU needs for it."""
_START_S = 10.0


@contextmanager
def slow_disk(folder: Path, size: int) -> Iterator[str]:
    """Serves a disk in memory; yields its URL for QEMU. Its log is `slow.log` in the folder."""
    if shutil.which("nbdkit") is None:
        raise CannotTest("nbdkit is not installed: apt-get install nbdkit")
    socket, log = folder / "slow.socket", folder / "slow.log"
    for old in (socket, log):
        old.unlink(missing_ok=True)
    command = ["nbdkit", "--foreground", "--exit-with-parent", "--unix", str(socket)]
    command += [f"--filter={name}" for name in ("log", "noparallel", "delay")]
    times = [f"{name}={REQUEST_MS}ms" for name in ("rdelay", "wdelay")]
    with subprocess.Popen([*command, "memory", str(size), f"logfile={log}", *times]) as server:
        try:
            end = time.monotonic() + _START_S
            while not socket.exists():
                if server.poll() is not None or time.monotonic() > end:
                    raise CannotTest("nbdkit does not start")
                time.sleep(0.05)
            yield f"nbd+unix:///?socket={socket}"
        finally:
            server.terminate()
