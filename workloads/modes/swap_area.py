"""A swap area of a run's own: a file without a name on a loop device.

A file of its own, not one on the run's file system: swapped pages must not count as written files.
Only this process can open the file, so no user can read what was swapped. The area carries a UUID
of ours, by which `restore` finds it after a kill, whichever loop device it has.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import uuid
from pathlib import Path
from typing import Any

from tracer.free_space import require_room
from tracer.workloads.errors import BrokenJobError, MissingFeatureError, explained
from tracer.workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism, read, write

_MEND = "install mount and util-linux, or leave `swap` out"
_UUID = slice(1036, 1052)
"""The UUID's place in a swap area: union swap_header in include/linux/swap.h of the kernel."""


class SwapArea(Mechanism):
    """Adds an area whose file lies in `folder`, and takes it away."""

    name = "swap area on a loop device"
    sets = "swap"

    def __init__(self, root: Path = ROOT, folder: Path | None = None) -> None:
        super().__init__(root)
        self._folder = folder
        self._uuid = str(uuid.uuid4())
        if not (root / "proc/swaps").exists():
            raise Lacking("this kernel has no swap (CONFIG_SWAP)")

    def now(self) -> float | None:
        """Returns None: the areas of other owners do not count."""
        return None

    def choices(self) -> list[Any]:
        """Returns no values."""
        return []

    def remember(self) -> Before:
        """Returns the UUID of the area that `set` will add."""
        return {"uuid": self._uuid}

    def set(self, value: Any) -> None:
        """Adds an area of `value` bytes. Raises JobError."""
        assert self._folder is not None
        folder = self._folder
        with explained(f"cannot make a swap area in {folder}", "free some space in it"):
            fd = _nameless(folder)
            try:
                require_room(fd, int(value))
                os.posix_fallocate(fd, 0, int(value))
                file = f"/proc/self/fd/{fd}"
                _run(["mkswap", "--uuid", self._uuid, file], fd)
                # Buffered, the swapped pages would stay in memory as pages of the file.
                node = _run(["losetup", "--find", "--show", "--direct-io=on", file], fd).strip()
            finally:
                os.close(fd)
        _run(["swapon", node])

    def restore(self, before: Before) -> None:
        """Takes away the area, if it is still there."""
        wanted = uuid.UUID(str(before["uuid"])).bytes
        for block in (self.root / "sys/block").glob("loop*/loop"):
            node = f"/dev/{block.parent.name}"
            if _uuid_of(self.root / node.lstrip("/")) != wanted:
                continue
            if node in {line.split()[0] for line in read(self.root / "proc/swaps").splitlines()}:
                _run(["swapoff", node])
            _run(["losetup", "--detach", node])


class SwapReadahead(Mechanism):
    """Sets the binary logarithm of the pages that are read around a swapped one; 0: only that one.

    A fault on a page that was read with another is a minor one.
    """

    name = "vm.page-cluster"
    sets = "page_cluster"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self._file = root / "proc/sys/vm/page-cluster"
        if not self._file.exists():
            raise Lacking(f"there is no {self._file}")

    def now(self) -> float | None:
        """Returns the current value."""
        return int(read(self._file))

    def choices(self) -> list[Any]:
        """Returns no values."""
        return []

    def remember(self) -> Before:
        """Returns the current value."""
        return {"page_cluster": int(read(self._file))}

    def set(self, value: Any) -> None:
        """Sets the value."""
        write(self._file, str(int(value)))

    def restore(self, before: Before) -> None:
        """Sets the earlier value."""
        write(self._file, str(int(before["page_cluster"])))


def _nameless(folder: Path) -> int:
    """Makes a file that ends with its last descriptor, and returns a descriptor."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        name = f".swap-{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=held)
        try:
            os.unlink(name, dir_fd=held)
        except BaseException:
            os.close(fd)
            raise
        return fd
    finally:
        os.close(held)


def _uuid_of(node: Path) -> bytes:
    with contextlib.suppress(OSError), node.open("rb", buffering=0) as device:
        return device.read(_UUID.stop)[_UUID]
    return b""


def _run(command: list[str], *fds: int) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, pass_fds=fds)
    except FileNotFoundError:
        raise MissingFeatureError(f"{command[0]} is not installed", _MEND) from None
    except subprocess.CalledProcessError as error:
        words = " ".join(error.stderr.split())[:300]
        raise BrokenJobError(f"{command[0]} failed: {words}", "check /proc/swaps") from None
    return done.stdout
