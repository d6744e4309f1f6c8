"""A Docker daemon of the tests' own: its own folders, socket and cgroup, no network, no images."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from concurrent import futures
from pathlib import Path

import docker.errors
import docker.models.containers

from tests.support.in_memory import roomy_place
from tests.support.waiting import wait_for
from tracer.workloads.containers.connection import Client
from tracer.workloads.containers.engines import ENGINES, EngineName

_PR_SET_PDEATHSIG = 1
IMAGE = "tracer-tests/bare"
_FOLDERS = ("dev", "proc", "sys", "tmp", "usr", "etc", "shared")
_LIBRARIES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_START_S = 60


_LIKE_SYSTEMD = """
import ctypes, os, signal, socket, subprocess, sys, time
path, containerd, *dockerd = sys.argv[1:]
ctypes.CDLL(None).prctl(15, b"systemd")  # PR_SET_NAME
own = subprocess.Popen(["containerd", "--config", "/dev/null", "--address", containerd,
                        "--root", containerd + "-root", "--state", containerd + "-state"])
while not os.path.exists(containerd): time.sleep(0.01)
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
child = os.fork()
if child == 0:
    os.dup2(listening.fileno(), 3)
    os.set_inheritable(3, True)  # it may have been 3 before
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
    os.execvp("dockerd", ["dockerd", "--host=fd://", "--containerd=" + containerd, *dockerd])
def end(*_):
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    own.terminate()
    own.wait()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
while True: signal.pause()
"""
"""Listens for dockerd and starts containerd beside it, as systemd's units do."""


class Dockerd:
    """A running daemon."""

    def __init__(self, by_systemd: bool = False, data: Path | None = None) -> None:
        """Start it. RuntimeError, with its last words, where it does not come up.

        `data`: the folder of its images and containers; None: one of its own.
        """
        prefix = f"tracer-tests-{os.getpid()}-docker-"
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=roomy_place()))
        self.cgroup = f"/tracer-tests-{os.getpid()}"
        self.host = f"unix://{self.folder}/docker.sock"
        self._containers: list[docker.models.containers.Container] = []
        self._log = (self.folder / "log").open("w+")
        options = [
            f"--data-root={data or self.folder / 'data'}",
            f"--exec-root={self.folder}/exec",
            f"--pidfile={self.folder}/pid",
            f"--cgroup-parent={self.cgroup}",
            f"--containerd-namespace=tracer-tests-{os.getpid()}",
            "--storage-driver=overlay2",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
        ]
        command = ["dockerd", f"--host={self.host}", *options]
        if by_systemd:
            places = [f"{self.folder}/docker.sock", f"{self.folder}/containerd.sock"]
            command = [sys.executable, "-c", _LIKE_SYSTEMD, *places, *options]
        self.process = subprocess.Popen(
            command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # Tests that are killed, with all their group, leave no daemon behind.
            start_new_session=True,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
        )
        try:
            self.client = self._connect()
            self.client.api.import_image_from_data(image_tar(), repository=IMAGE)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Client:
        deadline = time.monotonic() + _START_S
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                raise RuntimeError(f"dockerd: {self._log.read()[-500:]}")
            time.sleep(0.05)
        client = Client(self.host, timeout=60)
        client.engine = ENGINES[EngineName.DOCKER]
        return client

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as asking:
            return asking.connect_ex(self.host.removeprefix("unix://")) == 0

    def run(
        self,
        name: str,
        source: str,
        *arguments: object,
        shared: Path,
        folders: Iterable[str] = (),
        **options: object,
    ):
        """Start a container that runs a Python program; `shared` of the host is its /shared.

        `folders` of the host are there, too, to be read.
        """
        binds = {path: {"bind": path, "mode": "ro"} for path in (*from_host(), *folders)}
        binds[str(shared)] = {"bind": "/shared", "mode": "rw"}
        options = {"volumes": binds, "network_mode": "none", "init": False, **options}
        command = python(source, *arguments)
        container = self.client.containers.create(IMAGE, command, name=name, **options)
        self._containers.append(container)
        container.start()
        return container

    def execute(self, container, command: list[str]) -> int:
        """Run a command in a container (`docker exec`) to its end; its exit status."""
        api = self.client.api
        identity = api.exec_create(container.id, command)["Id"]
        api.exec_start(identity, detach=True)
        while (state := api.exec_inspect(identity))["Running"]:
            time.sleep(0.01)
        return state["ExitCode"]

    def remove_all(self) -> None:
        """Remove every container, all at once."""
        found = self.client.containers.list(all=True, ignore_removed=True)
        with futures.ThreadPoolExecutor(max(1, len(found))) as pool:
            list(pool.map(_remove, found))

    def close(self) -> None:
        """End the daemon and remove what it left: mounts, cgroups, folders."""
        if hasattr(self, "client"):
            if self.process.poll() is None:
                self.remove_all()
            self.client.close()
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted(mounts, reverse=True):
            if mount.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", mount], check=False)
        with contextlib.suppress(AssertionError):  # a test may have left a process in one
            wait_for(self._without_cgroups, "the end of the last processes", 5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _without_cgroups(self) -> bool:
        """Removes the daemon's cgroups; returns False while one has a process."""
        found = list(Path("/sys/fs/cgroup").glob(f"**{self.cgroup}"))
        for cgroup in found:
            for folder, _, _ in os.walk(cgroup, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
        return not any(cgroup.exists() for cgroup in found)


def _remove(container: docker.models.containers.Container) -> None:
    with contextlib.suppress(docker.errors.NotFound):
        container.remove(force=True)


def python(source: str, *arguments: object) -> list[str]:
    """The command line of a Python program; as few system calls of its own as can be."""
    return [sys._base_executable, "-S", "-E", "-c", source, *map(str, arguments)]


def from_host() -> list[str]:
    """Folders of the host that a container needs to run the host's Python."""
    libraries = [f"/{name}" for name in _LIBRARIES if Path("/", name).is_dir()]
    real = [path for path in libraries if not Path(path).is_symlink()]
    return sorted({"/usr", "/etc", *real, sys.base_prefix} - {"/usr/local"})


def image_tar() -> bytes:
    """A tar with the folders to mount on, and the host's own links of /bin and /lib."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name in _LIBRARIES:
            if Path("/", name).is_symlink():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, str(Path("/", name).readlink())
                tar.addfile(entry)
    return data.getvalue()
