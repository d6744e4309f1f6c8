"""Disks of a guest that take the same time for each request: nbdkit."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.kernels.errors import CannotTest

REQUEST_MS, SSD_REQUEST_MS = 20, 4
"""The time of a request of the slow disk and of an SSD; long compared with the time that the
emulated CPU needs for it."""
_START_S = 10.0


@contextmanager
def slow_disk(
    folder: Path,
    size: int,
    name: str = "slow",
    request_ms: int = REQUEST_MS,
    parallel: bool = False,
) -> Iterator[str]:
    """Serves a disk in memory; yields its URL for QEMU. Its log is NAME.log in the folder.

    `parallel`: it serves several requests at a time, instead of one.
    """
    if shutil.which("nbdkit") is None:
        raise CannotTest("nbdkit is not installed: apt-get install nbdkit")
    socket, log = folder / f"{name}.socket", folder / f"{name}.log"
    for old in (socket, log):
        old.unlink(missing_ok=True)
    command = ["nbdkit", "--foreground", "--exit-with-parent", "--unix", str(socket)]
    filters = ("log", "delay") if parallel else ("log", "noparallel", "delay")
    command += [f"--filter={one}" for one in filters]
    times = [f"{one}={request_ms}ms" for one in ("rdelay", "wdelay")]
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
