"""A file system of the study's own, on a loop device, so that only its run writes to it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from tracer.free_space import free_bytes, room_bytes
from tracer.workloads.errors import (
    BrokenJobError,
    JobError,
    MissingFeatureError,
    RefusedJobError,
    explained,
)
from tracer.workloads.interrupt import held
from tracer.workloads.studies import scheduler, throttle
from tracer.workloads.studies.media import RAM, Medium

IMAGE = "scratch.img"
MOUNT = "scratch"
MEMORY = "memory"

_MEND_FOLDER = "check that its folder exists, free some space there, or remove the image"
_OF_MEMORY = 0.5
"""The share of the free memory that the medium `ram` may take."""
_OF_ROOM = 0.5
"""The share of a disk's room that an image may take. Traces and results may lie beside it."""
_LEAST_BYTES = 16 << 20
_BLOCK_BYTES = 512
"""Unit of st_blocks."""


class Scratch:
    """The file system of a run. A context manager: it is mounted inside the block.

    The image is kept from run to run. It lies in the study's folder. With the medium `ram` it lies
    on a tmpfs that ends with the run; with a user's folder it lies there until `remove`.
    `commit_s`: seconds after which the journal is committed; None: the file system's own.
    """

    def __init__(
        self, folder: Path, size_bytes: int, medium: Medium, commit_s: int | None = None
    ) -> None:
        self._commit = "" if commit_s is None else f",commit={commit_s}"
        self.mount = folder / MOUNT
        self.medium = medium
        self.scheduler: str | None = None
        """The I/O scheduler of the mounted device; None: the kernel does not tell."""
        self._folder = folder
        self._memory = folder / MEMORY
        self._size = size_bytes
        self.image = folder / IMAGE
        if medium.name == RAM:
            self.image = self._memory / IMAGE
        elif medium.folder is not None:
            digest = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
            self.image = medium.folder / f"traintrace-{digest}.img"

    def __enter__(self) -> Scratch:
        """Unmounts what a killed run left, then mounts the file system. Raises JobError."""
        self.close()
        try:
            self._mount()
        except BaseException:
            self.close()
            raise
        return self

    def _mount(self) -> None:
        if self.medium.name == RAM:
            self._size = min(self._size, int(psutil.virtual_memory().available * _OF_MEMORY))
            self._memory.mkdir(exist_ok=True)
            options = f"size={self._size},mode=700"
            with _held(self._memory, os.O_DIRECTORY) as memory:
                _run(
                    ["mount", "--no-canonicalize", "-t", "tmpfs", "-o", options, "tmpfs",
                     f"/proc/self/fd/{memory}"],
                    (memory,),
                )  # fmt: skip
        with explained(f"cannot make or use {self.image}", _MEND_FOLDER):
            if self.image.exists():
                self._require_rest()
            else:
                self._make()
        self.mount.mkdir(mode=0o755, exist_ok=True)
        # By descriptor: other users may own the parent folders and replace the paths.
        with _held(self.image, os.O_RDWR) as image, _held(self.mount, os.O_DIRECTORY) as mount:
            _run(
                ["mount", "--no-canonicalize", "-o", f"loop,nosuid,nodev{self._commit}",
                 f"/proc/self/fd/{image}", f"/proc/self/fd/{mount}"],
                (image, mount),
            )  # fmt: skip
        self.scheduler = scheduler.set_inserting(self.device, self._folder)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def device(self) -> str:
        """MAJOR:MINOR of the mounted device, as the kernel's events name it."""
        number = self.mount.stat().st_dev
        return f"{os.major(number)}:{os.minor(number)}"

    @property
    def node(self) -> str:
        """The device node, such as /dev/loop3."""
        return f"/dev/{Path('/sys/dev/block', self.device).resolve().name}"

    def forget(self) -> None:
        """Writes back the file system and its image, and drops the image's pages from the cache."""
        with _held(self.mount, os.O_DIRECTORY) as mount:
            _run(["sync", "--file-system", f"/proc/self/fd/{mount}"], (mount,))
        with _held(self.image, os.O_RDONLY) as image:
            os.fsync(image)
            os.posix_fadvise(image, 0, 0, os.POSIX_FADV_DONTNEED)

    def drop_caches(self) -> None:
        """Does the same, and drops the machine's page cache, dentries and inodes.

        Other file systems are not written back: one of them may be on a dead server.
        """
        self.forget()
        with contextlib.suppress(PermissionError):
            Path("/proc/sys/vm/drop_caches").write_text("3\n")

    def close(self) -> None:
        """Removes all mounts of the image, its loop devices, their limits and schedulers.

        Ctrl-C waits until this is done.
        """
        with held():
            self._close()

    def _close(self) -> None:
        devices = list(_loop_devices(self.image)) if _is_own(self.image) else []
        numbers = {_number(device) for device in devices}
        if os.path.ismount(self.mount):  # after a kill, another medium may be mounted there
            numbers.add(self.device)
        throttle.take_down(self._folder, numbers)
        scheduler.put_back(numbers, self._folder)
        _unmount(self.mount)
        # This may have freed a device, and somebody else may have it now.
        for device in devices and _loop_devices(self.image):
            _quietly(["losetup", "-d", device])
        _unmount(self._memory)

    def remove(self) -> None:
        """Removes the image from a user's folder; does nothing for other media."""
        if self.medium.folder is not None and _is_own(self.image):
            self.close()
            self.image.unlink()

    def _require_rest(self) -> None:
        """Raises OSError if the disk has no room for the blocks that the image still lacks."""
        has = self.image.lstat()
        if has.st_size - has.st_blocks * _BLOCK_BYTES > free_bytes(self.image.parent):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _size_on(self, fd: int) -> int:
        """Returns the bytes that an image on the disk of `fd` may have. Raises OSError."""
        if self.medium.name == RAM:
            return self._size
        size = min(self._size, int(room_bytes(fd) * _OF_ROOM))
        if size < min(self._size, _LEAST_BYTES):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size

    def _make(self) -> None:
        """Makes a sparse image, which the jobs fill."""
        part = self.image.with_suffix(".part")
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.truncate(fd, self._size_on(fd))
            make = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"]
            _run([*make, f"/proc/self/fd/{fd}"], (fd,))
            part.rename(self.image)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)


def require_root() -> None:
    """Raises RefusedJobError unless this process is root, which mounting needs."""
    if os.geteuid() != 0:
        raise RefusedJobError("a study mounts a file system of its own", "run it as root (sudo)")


def fill_cache(folder: Path) -> None:
    """Reads all files of a folder into the page cache, as far as they fit."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass


def _unmount(folder: Path) -> None:
    while os.path.ismount(folder):
        if _quietly(["umount", str(folder)]):
            _run(["umount", "--lazy", str(folder)])


def _loop_devices(image: Path) -> Iterable[str]:
    said = subprocess.run(
        ["losetup", "-j", str(image)], capture_output=True, text=True, check=False, process_group=0
    )
    return (line.partition(":")[0] for line in said.stdout.splitlines())


def _number(device: str) -> str:
    number = Path(device).stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def _quietly(command: list[str]) -> int:
    # On a terminal, Ctrl-C ends the processes of this process's group.
    return subprocess.run(command, capture_output=True, check=False, process_group=0).returncode


def _is_own(path: Path) -> bool:
    """Returns whether `path` is a regular file of this user, not a link to one."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


@contextlib.contextmanager
def _held(path: Path, flags: int) -> Iterator[int]:
    """Opens a file or folder of this user. Raises JobError for a link or another user's file."""
    with explained(f"cannot use {path}", "remove it, or use a study folder of your own"):
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise JobError(
                f"{path} belongs to another user, or other users may write to it",
                "remove it, or use a study folder of your own",
            )
        yield fd
    finally:
        os.close(fd)


def _run(command: list[str], fds: tuple[int, ...] = ()) -> None:
    try:
        subprocess.run(
            command, capture_output=True, text=True, check=True, pass_fds=fds, process_group=0
        )
    except FileNotFoundError:
        raise MissingFeatureError(
            f"{command[0]} is not installed", "install e2fsprogs and mount"
        ) from None
    except subprocess.CalledProcessError as error:
        words = " ".join(error.stderr.split())[:300]
        raise BrokenJobError(f"{command[0]} failed: {words}", "check the scratch image") from None
