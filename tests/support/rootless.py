"""podman of a user without rights, in a delegated cgroup of version 2, as systemd gives one."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.dockerd import IMAGE, image_tar
from tests.support.waiting import wait_for
from tracer.targets.cgroups import hierarchies

_USER = "daemon"
"""A user that every system has. It has no further ids, and containers of one user need none."""
_PYTHON = "/usr/bin/python3"
_NEEDS = ("podman", "conmon", "runc", "crun", "unshare", "setpriv", _PYTHON)
_ENTER = """
set -e
own=$1 user=$2 group=$3; shift 3
mount --make-rprivate /
for list in $LEAVE; do echo $$ > $list; done
echo $$ > $own/cgroup.procs
umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec setpriv --reuid=$user --regid=$group --clear-groups -- "$@"
"""
"""Runs a command as a user, in a cgroup, on a machine that seems to have version 2 only."""
_SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024"]
volumes = ["/usr:/usr:ro", "/etc:/etc:ro"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_STORAGE = '[storage]\ndriver = "vfs"\n'


class RootlessPodman:
    """podman of a user, with a home of its own."""

    def __init__(self) -> None:
        """RuntimeError, with the reason, if it does not run here."""
        missing = [program for program in _NEEDS if shutil.which(program) is None]
        if missing:
            raise RuntimeError(f"{', '.join(missing)} not found")
        unified = next((h for h in hierarchies() if not h.controllers), None)
        if unified is None:
            raise RuntimeError("no cgroups of version 2 are mounted")
        self._user = pwd.getpwnam(_USER)
        self.folder = Path(tempfile.mkdtemp(prefix="tracer-rootless-"))
        self.shared = self.folder / "shared"
        self._group = unified.mount / f"tracer-tests-rootless-{os.getpid()}"
        for place in (self._group, self.shared, self.folder / "run"):
            place.mkdir()
        for place in (self._group, *self._group.glob("cgroup.procs"), *self.folder.glob("*")):
            os.chown(place, self._user.pw_uid, self._user.pw_gid)
        files = {"containers.conf": _SETTINGS, "storage.conf": _STORAGE}
        for name, text in files.items():
            (self.folder / name).write_text(text)
        (self.folder / "image.tar").write_bytes(image_tar())
        os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": f"{self.folder}/run",
            "CONTAINERS_CONF": f"{self.folder}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{self.folder}/storage.conf",
            "LEAVE": " ".join(f"{h.mount}/cgroup.procs" for h in hierarchies() if h.controllers),
        }
        try:
            self.call("import", self.folder / "image.tar", IMAGE)
        except BaseException:
            self.close()
            raise

    def call(self, *words: object) -> str:
        """Run a command of podman; its output."""
        own = [str(self._group), str(self._user.pw_uid), str(self._user.pw_gid)]
        ran = subprocess.run(
            ["unshare", "--mount", "sh", "-c", _ENTER, "sh", *own, "podman", *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self._environment,
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(f"{words}: {ran.stderr[-500:]}")
        return ran.stdout.strip()

    def run(self, name: str, source: str, *arguments: object, cgroup: bool = True) -> str:
        """Start a container that runs a Python program; its id. `cgroup`: it has one of its own."""
        own = ["--cgroups=split"] if cgroup else ["--cgroups=disabled", "--runtime=crun"]
        return self.call(
            "run", "--detach", f"--name={name}", "--network=none", *own,
            f"--volume={self.shared}:/shared", IMAGE,
            _PYTHON, "-S", "-E", "-c", source, name, *arguments,
        )  # fmt: skip

    def close(self) -> None:
        """Remove all that is left: containers, the process that holds the namespace, cgroups."""
        with contextlib.suppress(RuntimeError):
            self.call("rm", "--all", "--force", "--time=0")
            self.call("system", "migrate")
        wait_for(self._empty, "the end of podman")
        for place in (*sorted(self._group.rglob("*/"), reverse=True), self._group):
            place.rmdir()
        shutil.rmtree(self.folder)

    def _empty(self) -> bool:
        lists = self._group.rglob("cgroup.procs")
        return not any(list.read_text().split() for list in lists)
