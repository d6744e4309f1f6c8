"""Word from the kernel that a file was made in a folder, as soon as it is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select

_CREATE = 0x100
"""IN_CREATE: include/uapi/linux/inotify.h. The flags of inotify_init1 are those of open."""
_READ_BYTES = 64 << 10
_MOST_READS = 64
"""More than the kernel keeps for one user by default (fs.inotify.max_queued_events)."""


class Watch:
    """Folders under inotify: `fd` can be read when a file was made in one of them.

    None where this user has no watch left; who waits then looks now and again.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.fd: int | None = fd if fd >= 0 else None

    def add(self, folder: int) -> None:
        """Watch the open folder, too."""
        if self.fd is not None:
            self._libc.inotify_add_watch(self.fd, f"/proc/self/fd/{folder}".encode(), _CREATE)

    @property
    def told(self) -> bool:
        """Whether a file was made since the last `clear`."""
        if self.fd is None:
            return False
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    def clear(self) -> None:
        """Read what is there, so that `fd` is readable at the next file, not before."""
        with contextlib.suppress(BlockingIOError):
            # Files may be made as fast as this reads.
            for _ in range(_MOST_READS if self.fd is not None else 0):
                os.read(self.fd, _READ_BYTES)  # type: ignore[arg-type]

    def close(self) -> None:
        """Stop watching."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
