"""The other engines of containers, for tests that run with each: own folders, no network."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from concurrent import futures
from pathlib import Path

import psutil

from tests.support.dockerd import IMAGE, from_host, image_tar, python
from tests.support.in_memory import roomy_place
from tests.support.waiting import wait_for

_PR_SET_PDEATHSIG = 1
_CACHE = Path("/var/lib/containers/cache/blob-info-cache-v1.boltdb")
"""podman writes it at an import, wherever its store is."""
_PARENT = "libpod_parent"
"""The cgroup in which podman makes those of containers, if it is given no other."""
_ROOT = Path(__file__).resolve().parents[2]
_SETTINGS = """
[containers]
# A test without CAP_SYS_RESOURCE may set these.
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
env = [{env}]
volumes = [{volumes}]
[engine]
# crun refuses hierarchies of version 1 beside the unified one.
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{folder}/tmp"
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/root"
runroot = "{folder}/run"
"""


class EngineOfTests:
    """An engine and the containers that a test has made with it."""

    name: str
    follows_joins = False
    """True if the recorder follows the process that makes further processes of a container."""

    def __init__(self) -> None:
        """RuntimeError, with the reason, if the engine is not there or does not start."""
        missing = [program for program in self.needs if shutil.which(program) is None]
        if missing:
            raise RuntimeError(f"{', '.join(missing)} not found")
        self.environment: dict[str, str] = {}
        """Variables by which a command finds this engine."""
        prefix = f"tracer-tests-{os.getpid()}-{self.name}-"
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=roomy_place()))
        self.group = f"tracer-tests-{self.name}-{os.getpid()}"
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    needs: tuple[str, ...] = ()

    def start(self) -> None:
        """Start the engine."""

    def call(self, *words: object, given: bytes | None = None) -> str:
        """Run a command of the engine; its output."""
        ran = subprocess.run(
            [*self.command, *map(str, words)],
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            env={**os.environ, **self.environment},
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(f"{words}: {ran.stderr.decode(errors='replace')[-500:]}")
        return ran.stdout.decode().strip()

    @property
    def command(self) -> list[str]:
        """The engine's command with its options."""
        raise NotImplementedError

    def _tidy(self) -> None:
        # A monitor has podman tidy up, which mounts the store again.
        wait_for(lambda: not self._busy(), f"the end of {self.name}")
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted(mounts, reverse=True):
            if mount.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", mount], check=False)
        for cgroup in Path("/sys/fs/cgroup").glob(f"**/{self.group}"):
            for place in (*sorted(cgroup.rglob("*/"), reverse=True), cgroup):
                with contextlib.suppress(OSError):
                    place.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _busy(self) -> bool:
        """True while a process runs that has this folder in its command line."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if process.pid != os.getpid() and any(str(self.folder) in word for word in words):
                return True
        return False

    def close(self) -> None:
        """Remove all that is left: containers, mounts, cgroups, folders."""
        raise NotImplementedError


class Podman(EngineOfTests):
    """podman with a store of its own. It has no daemon."""

    name = "podman"
    needs = ("podman", "conmon", "runc")

    @property
    def command(self) -> list[str]:
        """podman, which finds its folders by the environment."""
        return ["podman"]

    def start(self) -> None:
        """Import the image. Its containers can run this Python, with the project."""
        self._new_cache = not _CACHE.exists()
        self._new_parents = [p for p in _hierarchies(_PARENT) if not p.exists()]
        (self.folder / "image.tar").write_bytes(image_tar())
        folders = {*from_host(), sys.prefix, str(_ROOT)}
        volumes = ", ".join(f'"{path}:{path}:ro"' for path in sorted(folders))
        env = f'"PYTHONPATH={_ROOT}"'
        files = {"CONTAINERS_CONF": _SETTINGS, "CONTAINERS_STORAGE_CONF": _STORAGE}
        self.environment = {name: f"{self.folder}/{name}" for name in files}
        for name, text in files.items():
            told = text.format(folder=self.folder, volumes=volumes, env=env)
            (self.folder / name).write_text(told)
        label = f"LABEL traintrace.python={sys.executable}"
        self.call("import", f"--change={label}", self.folder / "image.tar", IMAGE)

    def run(self, name: str, source: str, *arguments: object, shared: Path) -> str:
        """Start a container that runs a Python program; `shared` is its /shared. Its id."""
        return self.call(
            "run", "--detach", f"--name={name}", "--network=none", f"--cgroup-parent=/{self.group}",
            f"--volume={shared}:/shared", IMAGE, *python(source, *arguments),
        )  # fmt: skip

    def execute(self, identity: str, command: list[str]) -> None:
        """Run a command in a container in the background."""
        self.call("exec", "--detach", identity, *command)

    def restart(self, identity: str) -> None:
        """End a container and start it again."""
        self.call("restart", "--time=0", identity)

    def stop(self, identity: str) -> None:
        """End a container."""
        self.call("stop", "--time=0", identity)

    def remove(self, identity: str) -> None:
        """Remove a container."""
        self.call("rm", "--force", "--time=0", identity)

    def pid(self, identity: str) -> int:
        """The first process of a container, in podman's own words."""
        return int(self.call("inspect", "--format={{.State.Pid}}", identity))

    def layers(self, identity: str) -> dict[str, str]:
        """The folders of a container's overlay, in podman's own words."""
        found: dict[str, str] = json.loads(self.call("inspect", identity))[0]["GraphDriver"]["Data"]
        return found

    def remove_all(self) -> None:
        """Remove every container."""
        self.call("rm", "--all", "--force", "--time=0")

    def close(self) -> None:
        """Remove all that is left."""
        with contextlib.suppress(RuntimeError):
            self.remove_all()
        self._tidy()
        for parent in getattr(self, "_new_parents", []):
            for place in (parent / "conmon", parent):
                with contextlib.suppress(OSError):
                    place.rmdir()
        if getattr(self, "_new_cache", False):
            with contextlib.suppress(OSError):
                _CACHE.unlink()
                _CACHE.parent.rmdir()
                _CACHE.parent.parent.rmdir()


class Containerd(EngineOfTests):
    """A containerd with its own folders and socket; containers are made by ctr."""

    name = "containerd"
    needs = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
    follows_joins = True

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return f"{self.folder}/socket"

    @property
    def command(self) -> list[str]:
        """ctr with the socket and the tests' own namespace."""
        return ["ctr", f"--address={self.socket}", f"--namespace={self.group}"]

    def start(self) -> None:
        """Start the daemon, and unpack a root folder for containers."""
        self._log = (self.folder / "log").open("w+")
        self.process = subprocess.Popen(
            [
                "containerd", "--config=/dev/null", f"--root={self.folder}/data",
                f"--state={self.folder}/state", f"--address={self.socket}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
        )  # fmt: skip
        wait_for(self._listens, "containerd")
        with tarfile.open(fileobj=io.BytesIO(image_tar())) as tar:
            tar.extractall(self.folder / "rootfs", filter="fully_trusted")

    def _listens(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"containerd: {(self.folder / 'log').read_text()[-500:]}")
        with socket.socket(socket.AF_UNIX) as asking:
            return asking.connect_ex(self.socket) == 0

    def run(
        self,
        name: str,
        source: str,
        *arguments: object,
        shared: Path,
        annotations: object = (),
        labels: object = (),
    ) -> str:
        """Start a container that runs a Python program; `shared` is its /shared. Its id."""
        binds = [f"--mount=type=bind,src={p},dst={p},options=rbind:ro" for p in from_host()]
        self.call(
            "run", "--detach", "--null-io", "--rootfs", *binds,
            f"--mount=type=bind,src={shared},dst=/shared,options=rbind:rw",
            *(f"--annotation={key}={value}" for key, value in dict(annotations).items()),
            *(f"--label={key}={value}" for key, value in dict(labels).items()),
            self.folder / "rootfs", name, *python(source, *arguments),
        )  # fmt: skip
        return name

    def execute(self, identity: str, command: list[str]) -> None:
        """Run a command in a container in the background."""
        fifos = f"--fifo-dir={self.folder}/fifos"
        self.call("tasks", "exec", "--detach", fifos, "--exec-id=e", identity, *command)

    def restart(self, identity: str) -> None:
        """End a container and start it again, with another task."""
        self.stop(identity)
        self.call("tasks", "start", "--detach", "--null-io", identity)

    def stop(self, identity: str) -> None:
        """End a container and delete its task."""
        self.call("tasks", "kill", "--signal=KILL", identity)
        wait_for(lambda: "STOPPED" in self.call("tasks", "ls"), "the container's end")
        # ctr passes the exit status on.
        with contextlib.suppress(RuntimeError):
            self.call("tasks", "rm", identity)

    def remove(self, identity: str) -> None:
        """Remove a container."""
        with contextlib.suppress(RuntimeError):
            self.call("tasks", "rm", "--force", identity)
        self.call("containers", "rm", identity)

    def pid(self, identity: str) -> int:
        """The first process of a container, in ctr's own words."""
        lines = self.call("tasks", "ls").splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == identity)

    def remove_all(self) -> None:
        """Remove every container."""
        found = self.call("containers", "ls", "--quiet").split()
        with futures.ThreadPoolExecutor(max(1, len(found))) as pool:
            list(pool.map(self.remove, found))

    def close(self) -> None:
        """Remove all that is left, and end the daemon."""
        if hasattr(self, "process"):
            if self.process.poll() is None:
                with contextlib.suppress(RuntimeError):
                    self.remove_all()
            self.process.terminate()
            self.process.wait(timeout=60)
            self._log.close()
        self._tidy()


def _hierarchies(name: str) -> list[Path]:
    """The place of a cgroup in each hierarchy."""
    return [place / name for place in Path("/sys/fs/cgroup").glob("*/")]
