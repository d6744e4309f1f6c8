"""The trace directory of a recording: checked, made, held open, and handed to the user."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from pathlib import Path

from probes.errors import BadTrace, PermissionMissing, TracerError, UsageError
from tracer.store import manifest as manifests
from tracer.store.files import (
    as_invoking_user,
    empty,
    give_to_user,
    hand_over,
    hold,
    invoking_user,
)
from tracer.store.finalize import EVENTS, LIVE_MARKS, LOSS, MARKS, RAW
from tracer.store.trace import refuse_live

_LAYOUT = {manifests.FILE, RAW, EVENTS, LOSS}
_WHILE_RECORDING = 0o711
"""Others may pass through to the folder of the live marks, which is the user's."""
_DEPTH = 3
"""Of the files of marks: raw, their folder, a file."""
_MOST_INODES = 200_000
"""Those beyond, and those that lie deeper, are taken for the targets' own files."""
_MOST_REMOVED = 2_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check(path: Path, force: bool) -> None:
    """Refuse a place that holds something else, or a trace that is not to be replaced."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise UsageError(f"{path} exists and is no trace", "give another name with -o")
    if path.exists():
        if not _is_trace_or_empty(path):
            raise UsageError(f"{path} exists and is no trace", "give another name with -o")
        if not force:
            raise UsageError(f"{path} exists", "give another name with -o, or --force")
        with contextlib.suppress(BadTrace):
            refuse_live(path, manifests.read(path))
    elif not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.absolute().parent}", "make it first: mkdir -p")


def _is_trace_or_empty(path: Path) -> bool:
    """Whether --force may remove it: it holds nothing but what a trace holds."""
    entries = {entry.name for entry in path.iterdir() if not entry.name.startswith(f".{EVENTS}.")}
    # A recorder that was killed at once has left the raw folder alone.
    return entries <= {RAW} or (manifests.FILE in entries and entries <= _LAYOUT)


class Output:
    """A new trace directory, held open by a descriptor from its making to its end.

    Another user may own the folder that it lies in, and rename it or put a link in its place. So
    every file in it is reached by way of the descriptor (`place`), and everything in it belongs to
    this process's user, who alone can change it, until `hand_over`.
    """

    def __init__(self, path: Path) -> None:
        """Make it, in place of one that `check` let pass. Raises a TracerError."""
        self.path = path
        """The name that the user gave: for messages."""
        try:
            with as_invoking_user():
                if path.exists():
                    shutil.rmtree(path)
                path.mkdir(mode=0o700)
                self._fd = os.open(path, _FOLDER)
            self.place = Path(f"/proc/self/fd/{self._fd}")
            """Where its files are reached, in this process and those forked from it."""
            self._take()
            hold(self._fd)
            self._make_folders()
        except PermissionError:
            raise PermissionMissing(
                f"{path} cannot be written", "name a folder of yours with -o"
            ) from None
        except OSError as error:
            raise TracerError(
                f"{path} cannot be written: {error.strerror}", "name another with -o"
            ) from None

    def _take(self) -> None:
        """Make it ours, if it is the one that was just made.

        Its owner comes first: until then the user may change its mode again.
        """
        maker, _ = invoking_user() or (os.geteuid(), os.getegid())
        replaced = os.fstat(self._fd).st_uid != maker
        if not replaced:
            os.fchown(self._fd, os.geteuid(), os.getegid())
            os.fchmod(self._fd, _WHILE_RECORDING)  # as it limits what an ACL gives
        if replaced or os.listdir(self._fd):
            os.close(self._fd)
            raise TracerError(
                f"another process has replaced {self.path}", "name a folder of yours with -o"
            )

    def _make_folders(self) -> None:
        raw = self.place / RAW
        raw.mkdir(mode=0o700)
        raw.chmod(_WHILE_RECORDING)
        (raw / MARKS).mkdir(mode=0o700)
        (raw / LIVE_MARKS).mkdir(mode=0o700)
        fd = os.open(raw / LIVE_MARKS, _FOLDER)
        try:
            give_to_user(fd)
        finally:
            os.close(fd)

    def remove_live_marks(self) -> None:
        """Remove the folder that a command marked into, once its marks were collected.

        What a target does not let go of is left: it is the user's.
        """
        live = self.place / RAW / LIVE_MARKS
        with contextlib.suppress(OSError):
            fd = os.open(live, _FOLDER)
            try:
                empty(fd, _MOST_REMOVED)
            finally:
                os.close(fd)
            live.rmdir()

    def named(self, error: TracerError) -> TracerError:
        """The error with the trace's name as the user knows it, not by the descriptor."""
        return error.replacing(str(self.place), str(self.path))

    def hand_over(self) -> None:
        """Give everything to the invoking user, or remove it if it got no manifest.

        To be called once: by a recorder, or by the guardian of one that was killed.
        """
        if (self.place / manifests.FILE).exists():
            hand_over(self._fd, but=LIVE_MARKS)  # which is the user's, and may hold anything
        else:  # nothing was recorded
            self._remove()

    def close(self) -> None:
        """Let the folder go, last of all: until then readers wait (`files.is_held`)."""
        os.close(self._fd)

    def _remove(self) -> None:
        for name in os.listdir(self._fd):
            shutil.rmtree(self.place / name, ignore_errors=True)
        give_to_user(self._fd)
        with contextlib.suppress(OSError), as_invoking_user():
            self.path.rmdir()  # which may lead elsewhere by now


def live_marks(path: Path) -> Path:
    """The folder that a command marks into, by the name that its processes can use."""
    return path.resolve() / RAW / LIVE_MARKS


def inodes(folder: Path) -> dict[str, list[int]]:
    """Inodes of what the recorder and the marks wrote, by device (MAJOR:MINOR)."""
    found: dict[str, list[int]] = {}
    # A target may make any number of folders in that of its marks, one below the other.
    below = itertools.chain(*(folder.glob("/".join("*" * depth)) for depth in range(1, _DEPTH + 1)))
    for path in itertools.chain([folder], itertools.islice(below, _MOST_INODES)):
        with contextlib.suppress(OSError):
            stat = path.stat(follow_symlinks=path == folder)
            dev = f"{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}"
            found.setdefault(dev, []).append(stat.st_ino)
    return found
