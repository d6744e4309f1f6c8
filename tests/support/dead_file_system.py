"""A file system in user space whose server dies: whoever asks it then waits for ever.

It has one file and one folder. The server is a thread of the test, which speaks to /dev/fuse itself
(include/uapi/linux/fuse.h).
"""

from __future__ import annotations

import ctypes
import os
import select
import stat
import struct
import threading
from pathlib import Path

import pytest

from tests.conftest import do_without

_ROOT, _INODE, _FOLDER = 1, 2, 3
_INNER = "inner"
_MNT_DETACH = 2
_PATIENCE_S = 20
_ENOENT, _ENOSYS = 2, 38
_REQUEST = struct.Struct("<IIQQIIIHH")
_REPLY = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _STATFS = 1, 2, 3, 14, 15, 17
_RELEASE, _FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _BATCH_FORGET = 18, 25, 26, 27, 28, 29, 42


class DeadFileSystem:
    """Mounted on `folder`, with the file `path`; it answers until it dies."""

    def __init__(self, folder: Path, data: bytes, name: str) -> None:
        self.folder = folder
        self.path = folder / name
        self.inner = folder / _INNER
        """The folder that it has."""
        self._data = data
        self._silent: set[int] | None = set()
        """The request that it does not answer; None: any."""
        self._mounted = True
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"dead", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
            os.close(self._fd)
            raise OSError(ctypes.get_errno(), "a file system in user space cannot be mounted")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def dies(self) -> None:
        """Answer nothing from now on."""
        self._silent = None

    def lives(self) -> None:
        """Answer again what comes from now on."""
        self._silent = set()

    def dies_when_read(self) -> None:
        """Open the file from now on, but give nothing of what is in it."""
        self._silent = {_READ}

    def close(self) -> None:
        """End every wait, and unmount it."""
        self._mounted = False
        self._thread.join()
        os.close(self._fd)
        ctypes.CDLL(None).umount2(os.fsencode(self.folder), _MNT_DETACH)

    def _serve(self) -> None:
        while self._mounted:
            if not select.select([self._fd], [], [], 0.02)[0]:
                continue
            try:
                request = os.read(self._fd, 1 << 18)
            except OSError:
                return  # unmounted
            _, what, unique, inode, *_ = _REQUEST.unpack_from(request)
            if self._silent is None or what in self._silent or what in (_FORGET, _BATCH_FORGET):
                continue
            error, answer = self._answer(what, inode, request[_REQUEST.size :])
            head = _REPLY.pack(_REPLY.size + len(answer), -error, unique)
            os.write(self._fd, head + answer)

    def _answer(self, what: int, inode: int, request: bytes) -> tuple[int, bytes]:
        if what == _INIT:
            major, minor = 7, 31
            return 0, struct.pack(
                "<IIIIHHIIHHI28x", major, minor, 0, 0, 16, 12, 1 << 17, 1, 0, 0, 0
            )
        if what == _LOOKUP:
            names = {self.path.name.encode(): _INODE, _INNER.encode(): _FOLDER}
            found = names.get(request.rstrip(b"\0"))
            if found is None:
                return _ENOENT, b""
            # Nothing is remembered: each look asks again.
            return 0, struct.pack("<QQQQII", found, 0, 0, 0, 0, 0) + self._attributes(found)
        if what == _GETATTR:
            return 0, struct.pack("<QII", 0, 0, 0) + self._attributes(inode)
        if what in (_OPEN, _OPENDIR):
            return 0, struct.pack("<QII", 1, 0, 0)
        if what == _READ:
            _, offset, size = struct.unpack_from("<QQI", request)
            return 0, self._data[offset : offset + size]
        if what == _STATFS:
            return 0, bytes(80)
        return (0 if what in (_FLUSH, _RELEASE, _READDIR, _RELEASEDIR) else _ENOSYS), b""

    def _attributes(self, inode: int) -> bytes:
        is_file = inode == _INODE
        mode = (stat.S_IFREG if is_file else stat.S_IFDIR) | 0o755
        size = len(self._data) if is_file else 0
        return _ATTRIBUTES.pack(inode, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answers(function, *arguments):
    """Call a function in a thread, which is abandoned; a list of its result, or none."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)), daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return found


@pytest.fixture
def dead_file_system(tmp_path):
    """Mount a file system with one file; it lives until it is told to die."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        reason = "file systems in user space need root and /dev/fuse"
        do_without("/dev/fuse", "TRACER_REQUIRE_KERNEL", reason)
    mounted = []

    def make(data: bytes = b"", name: str = "file") -> DeadFileSystem:
        folder = tmp_path / f"dead{len(mounted)}"
        folder.mkdir()
        mounted.append(DeadFileSystem(folder, data, name))
        return mounted[-1]

    yield make
    for each in mounted:
        each.close()
