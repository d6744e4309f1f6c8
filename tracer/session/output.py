"""The trace directory of a recording: checked, made, held open, and given to the user."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tracer.probes.errors import PermissionMissing, TracerError
from tracer.store import manifest as manifests
from tracer.store.files import (
    MENDS,
    as_invoking_user,
    empty,
    give_to_user,
    hand_over,
    hold,
    invoking_user,
)
from tracer.store.finalize import LIVE_MARKS, MARKS, RAW

_WHILE_RECORDING = 0o711
"""Mode of the folder: others may pass through to the folder of the live marks."""
_DEPTH = 3
"""Depth of the files of marks: raw, their folder, a file."""
_MOST_INODES = 200_000
"""Most inodes listed as the recorder's own. Further or deeper ones count as the targets' files."""
_MOST_REMOVED = 2_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Output:
    """A new trace directory, held open by a descriptor from its making to its end.

    Another user may own the parent folder, rename this folder, or put a link in its place. So
    every file in it is opened through the descriptor (`place`). Everything in it belongs to this
    process's user, and only that user can change it, until `hand_over`.
    """

    def __init__(self, path: Path) -> None:
        """Makes the folder, replacing one that passed `check`. Raises a TracerError.

        An error leaves no new folder, and keeps a folder that was to be replaced.
        """
        self.path = path
        """The user's name for it, for messages."""
        try:
            with _set_aside(path) as old:
                with as_invoking_user():
                    path.mkdir(mode=0o700)
                    self._fd = os.open(path, _FOLDER)
                self.place = Path(f"/proc/self/fd/{self._fd}")
                """The path to its files, in this process and in processes forked from it."""
                self._take()
                self._fill(old)
        except PermissionError:
            raise PermissionMissing(
                f"{path} cannot be written", "name a folder that you own with -o"
            ) from None
        except OSError as error:
            raise TracerError(
                f"{path} cannot be written: {error.strerror}",
                MENDS.get(error.errno or 0, "give another name with -o"),
            ) from None

    def _take(self) -> None:
        """Changes the owner to this user, if this is the folder that was just made.

        The owner changes before the mode: until then the user may change the mode again.
        """
        maker, _ = invoking_user() or (os.geteuid(), os.getegid())
        replaced = os.fstat(self._fd).st_uid != maker
        if not replaced:
            os.fchown(self._fd, os.geteuid(), os.getegid())
            os.fchmod(self._fd, _WHILE_RECORDING)  # also limits the rights from an ACL
        if replaced or os.listdir(self._fd):
            os.close(self._fd)
            raise TracerError(
                f"another process has replaced {self.path}", "name a folder that you own with -o"
            )

    def _fill(self, old: Path | None) -> None:
        """Makes the inner folders, then removes the folder that is replaced."""
        try:
            hold(self._fd)
            self._make_folders()
            if old is not None:
                with as_invoking_user():
                    shutil.rmtree(old)
        except BaseException:
            self._remove()
            self.close()
            raise

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
        """Removes the folder for the command's marks, after they were collected.

        Files that a target still adds may remain: the folder belongs to the user.
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
        """Returns the error with the user's name of the trace instead of the descriptor's path."""
        return error.replacing(str(self.place), str(self.path))

    def found(self) -> Path:
        """Returns the path of the folder now: it may have been renamed while it was recorded."""
        try:
            is_there = os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            is_there = False
        return self.path if is_there else self.place.readlink()

    def hand_over(self) -> None:
        """Gives everything to the invoking user; removes the folder if it has no manifest.

        Called once: by the recorder, or by the guardian of a killed recorder.
        """
        if (self.place / manifests.FILE).exists():
            hand_over(self._fd, but=LIVE_MARKS)  # it belongs to the user and may hold anything
        else:  # nothing was recorded
            self._remove()

    def close(self) -> None:
        """Closes the folder, as the last step: readers wait until then (`files.is_held`)."""
        os.close(self._fd)

    def _remove(self) -> None:
        for name in os.listdir(self._fd):
            shutil.rmtree(self.place / name, ignore_errors=True)
        give_to_user(self._fd)
        with contextlib.suppress(OSError), as_invoking_user():
            self.path.rmdir()  # the path may lead elsewhere by now


@contextlib.contextmanager
def handed_over(path: Path) -> Iterator[Output]:
    """Makes a trace directory. Its end gives it to the invoking user, and its name to errors."""
    made = Output(path)
    try:
        yield made
    except TracerError as error:
        raise made.named(error) from error.__cause__
    finally:
        made.hand_over()
        made.close()


@contextlib.contextmanager
def _set_aside(path: Path) -> Iterator[Path | None]:
    """Renames a folder, and renames it back if the block fails. Yields its new name, if any."""
    with as_invoking_user():
        aside = path.parent / f".replaced.{os.getpid()}"
        old = path.rename(aside) if path.exists() else None
    try:
        yield old
    except BaseException:
        if old is not None:
            with contextlib.suppress(OSError), as_invoking_user():
                old.rename(path)
        raise


def live_marks(path: Path) -> Path:
    """Returns the folder for a command's marks, as a path that its processes can use."""
    return path.resolve() / RAW / LIVE_MARKS


def inodes(folder: Path) -> dict[str, list[int]]:
    """Returns the inodes of the files of the recorder and the marks, by device (MAJOR:MINOR)."""
    found: dict[str, list[int]] = {}
    # A target may nest any number of folders in its folder of marks.
    below = itertools.chain(*(folder.glob("/".join("*" * depth)) for depth in range(1, _DEPTH + 1)))
    for path in itertools.chain([folder], itertools.islice(below, _MOST_INODES)):
        with contextlib.suppress(OSError):
            stat = path.stat(follow_symlinks=path == folder)
            dev = f"{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}"
            found.setdefault(dev, []).append(stat.st_ino)
    return found
