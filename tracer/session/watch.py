"""Reports new files in folders as soon as they are made, through inotify."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select

_CREATE = 0x100
"""IN_CREATE: include/uapi/linux/inotify.h. The flags of inotify_init1 are those of open."""
_READ_BYTES = 64 << 10
_MOST_READS = 64
"""64 reads take more than the kernel queues by default (fs.inotify.max_queued_events)."""


class Watch:
    """Folders under inotify: `fd` becomes readable when a file is made in one of them.

    `fd` is None if this user has no inotify instance left; then callers must poll the folders.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.fd: int | None = fd if fd >= 0 else None

    def add(self, folder: int) -> None:
        """Watches an open folder, too."""
        if self.fd is not None:
            self._libc.inotify_add_watch(self.fd, f"/proc/self/fd/{folder}".encode(), _CREATE)

    @property
    def told(self) -> bool:
        """True if a file was made since the last `clear`."""
        if self.fd is None:
            return False
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    def clear(self) -> None:
        """Reads the queued events, so that `fd` becomes readable only at the next file."""
        with contextlib.suppress(BlockingIOError):
            # Targets may make files as fast as this loop reads.
            for _ in range(_MOST_READS if self.fd is not None else 0):
                os.read(self.fd, _READ_BYTES)  # type: ignore[arg-type]

    def close(self) -> None:
        """Stops watching."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
