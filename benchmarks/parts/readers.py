"""Jobs that read files below memory limits, each with a file system of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tracer.workloads.modes import cgroups

_MOST_BYTES = (1 << 63) - 4096
"""A limit that is none: the most that the kernel can count."""
_FILES = 64
_PACE_S = 0.04
"""Seconds that a paced job sleeps after each file: a run then takes several times the 2 s after
which the kernel brings the statistics of cgroups up to date, by which it reclaims."""
_UNEVEN = 4

_JOB = """
import os, random, sys, time
folder, epochs, order = sys.argv[1], int(sys.argv[2]), sys.argv[3]
pace, part = float(sys.argv[4]), int(sys.argv[5])
names = sorted(os.listdir(folder), key=lambda name: int(name) if name.isdigit() else -1)
names = [name for name in names if name.isdigit()]
names, epochs = names[: len(names) // part], epochs * part
draw = random.Random(7)
print("ready", flush=True)
sys.stdin.readline()
for epoch in range(epochs):
    if order == "shuffled":
        draw.shuffle(names)
    for name in names:
        file = os.open(f"{folder}/{name}", os.O_RDONLY)
        if order == "sparse":
            for at in range(0, os.fstat(file).st_size, 262144):
                os.pread(file, 65536, at)
        else:
            while os.read(file, 65536):
                pass
        os.close(file)
        if pace:
            time.sleep(pace)
"""
"""Reads each file of a folder, or a quarter of it, once an epoch."""


@dataclass(frozen=True)
class Case:
    """Jobs that run together."""

    order: str
    jobs: str = "alone"
    uneven: bool = False
    paced: bool = False

    @property
    def shared(self) -> bool:
        """True if the jobs have one limit for both."""
        return self.jobs in ("pod", "cgroup")

    @property
    def words(self) -> set[str]:
        """The words that --only selects it by."""
        pace = "paced" if self.paced else "unpaced"
        return {self.order, self.jobs, pace, "uneven" if self.uneven else "even"}

    def parts(self) -> tuple[int, ...]:
        """The divisors of each job's files, by which its epochs are multiplied."""
        return (1,) if self.jobs == "alone" else (1, _UNEVEN if self.uneven else 1)


class Group:
    """A memory cgroup."""

    def __init__(self, name: str, stack: contextlib.ExitStack, parent: bool = False) -> None:
        """Makes it, as the parent of others or for jobs; `stack` removes it."""
        planned = cgroups.plan(cgroups.Share(), name, memory=cgroups.Memory(_MOST_BYTES))
        (self.folder,) = cgroups.make(planned)
        stack.callback(cgroups.remove, planned)
        control = self.folder / "cgroup.subtree_control"
        if parent and control.exists():
            control.write_text("+memory")

    def limit(self, limit: int | None) -> None:
        """Sets the memory limit in bytes; None: none."""
        for name, none in (("memory.limit_in_bytes", "-1"), ("memory.max", "max")):
            if (self.folder / name).exists():
                (self.folder / name).write_text(none if limit is None else str(limit))


class Tenant:
    """A job's data set on a device of its own, and a memory cgroup below another one."""

    def __init__(
        self, folder: Path, number: int, mib: int, pod: str, stack: contextlib.ExitStack
    ) -> None:
        """Makes the file system, the files and the cgroup; `stack` removes them."""
        image = folder / f"{number}.img"
        with image.open("wb") as file:
            file.truncate((mib + mib // 8 + 64) << 20)
        ran("mkfs.ext4", "-q", "-F", image)
        self.device = ran("losetup", "--find", "--show", image)
        stack.callback(ran, "losetup", "-d", self.device)
        self.mount = folder / f"mount-{number}"
        self.mount.mkdir()
        ran("mount", "-o", "noatime", self.device, self.mount)
        stack.callback(ran, "umount", self.mount)
        for name in range(_FILES):
            (self.mount / str(name)).write_bytes(os.urandom((mib << 20) // _FILES))
        ran("sync", "-f", self.mount)
        self.group = Group(f"{pod}/{image.stem}", stack)

    @property
    def read_ahead_kb(self) -> int:
        """The read-ahead of the device in KiB."""
        return int(self._read_ahead.read_text())

    @read_ahead_kb.setter
    def read_ahead_kb(self, kib: int) -> None:
        self._read_ahead.write_text(str(kib))

    @property
    def _read_ahead(self) -> Path:
        return Path("/sys/class/block", Path(self.device).name, "queue/read_ahead_kb")

    @property
    def sectors(self) -> int:
        """Sectors read of the device so far."""
        return int(Path("/sys/class/block", Path(self.device).name, "stat").read_text().split()[2])

    def start(self, case: Case, part: int, epochs: int, group: Group) -> subprocess.Popen[str]:
        """Starts the job in a cgroup; it waits for a line before it reads."""
        procs = group.folder / "cgroup.procs"
        enter = f"import os\nopen('{procs}', 'w').write(str(os.getpid()))\n"
        pace = _PACE_S if case.paced else 0
        job = subprocess.Popen(
            [sys.executable, "-S", "-c", enter + _JOB, self.mount, str(epochs), case.order,
             str(pace), str(part)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert job.stdout is not None
        job.stdout.readline()
        return job


def go(jobs: list[subprocess.Popen[str]]) -> None:
    """Lets jobs begin, and waits for their ends. Raises OSError if one fails."""
    for job in jobs:
        assert job.stdin is not None
        job.stdin.write("\n")
        job.stdin.flush()
    for job in jobs:
        if job.wait():
            raise OSError(f"a job ended with status {job.returncode}")


def ran(*command: object) -> str:
    """Runs a command; returns what it prints. Raises CalledProcessError if it fails."""
    ended = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return ended.stdout.strip()


def drop() -> None:
    """Empties the page cache."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
