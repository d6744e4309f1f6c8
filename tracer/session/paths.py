"""The names of used files and their places on the device, found at the recording's end.

Events contain inode numbers. The file system opens the inode, and the kernel tells the inode's
name in one of our mounts. If that fails, as for a file whose name has left the kernel's memory, the
folders of the file system are searched, first those that the job probably uses. A name is used
only if it leads back to the same inode. An inode is used only if it was made before the end of the
recording, because inode numbers are reused.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tracer.probes.openat import open_beneath
from tracer.probes.proc import MountPoint, read_mounts
from tracer.probes.workers.process import Channel, Unanswered, Worker
from tracer.session import extent_maps
from tracer.session.file_handles import birth_ns, open_inode, sole_subvolume
from tracer.session.mount_tree import leads_back, reachable
from tracer.session.used_files import likely_folders, opened_names, used_files
from tracer.store.checked import encoded
from tracer.store.devices import Devices
from tracer.store.lists import ExtentFacts, FileFacts
from tracer.store.manifest import Manifest
from tracer.store.names import escaped, original

_MOST_EXTENTS = 1 << 17
_MOST_EXTENTS_OF_A_FILE = 1 << 12
_MOST_SECONDS = 5.0
_SEARCH_SECONDS = 2.0
"""Part of that time that is kept for the search of folders, if there is something to search for."""
_MORE_SECONDS = 1.0
"""Extra time in s for the request that is in progress when the time is up."""
_AT_ONCE = 1024
_MOST_PIECES = 1 << 20
_MOST_ENTRIES = 2_000_000
"""Directory entries read per file system, at most."""
_WITHOUT_NAME = "files without a name"
_RENAMES = 2
"""Times that a file's name is asked for again because it has just been renamed."""
_NONE_SUCH = (errno.ESTALE, errno.ENOENT)

_Take = Callable[[tuple[int | None, int], int, bytes, str], None]
_Unnamed = dict[int, dict[int | None, tuple[int | None, int]]]
"""Keys by inode number, then by st_dev (None: unknown), which distinguishes btrfs's subvolumes."""


@dataclass
class _Volume:
    """A mounted file system and the files wanted from it."""

    name: str
    """The analysis's name for it: MAJOR:MINOR, or the bdi's name."""
    places: list[MountPoint]
    mounts: list[tuple[MountPoint, int]] = field(default_factory=list)
    """The mounts that could be opened, each with a descriptor."""
    asked: dict[tuple[int | None, int], None] = field(default_factory=dict)
    """Keys (root, ino), in the order in which they are asked for."""
    subvolume: int | None = None
    """Subvolume of files whose events name none; None: not known, or no btrfs."""
    first: list[bytes] = field(default_factory=list)
    """Absolute names of what is searched first, wherever it lies."""


def find_files(
    tables: Path, manifest: Manifest, folders: Sequence[Path] = ()
) -> tuple[list[FileFacts], list[ExtentFacts], dict[str, int]]:
    """Returns the rows of the tables `files` and `extent_map`: used files that still exist.

    The third value has numbers of files that were not looked up, by the reason.

    `tables` is the folder of the tables just made. Files, directory entries, extents and time are
    limited. A worker process asks the file systems, because some may never answer. A search of
    folders begins with `folders`, with what the command names, and with the working folders.
    """
    files: list[FileFacts] = []
    extents: list[ExtentFacts] = []
    late = 0
    used, names = used_files(tables), opened_names(tables)
    if not used and not names:
        return files, extents, {}
    try:
        worker = Worker(partial(_serve, used, names, manifest, likely_folders(manifest, folders)))
        try:
            for answer in worker.answers(b"", _MOST_PIECES, _MOST_SECONDS + _MORE_SECONDS):
                if not answer:
                    break
                some_files, some_extents, more_late = json.loads(answer)
                files += map(tuple, some_files)
                extents += map(tuple, some_extents)
                late += more_late
        finally:
            worker.close()
    except Unanswered as error:
        return files, extents, {f"{_WITHOUT_NAME}: {error.why}": max(1, len(used) - len(files))}
    return files, extents, {f"{_WITHOUT_NAME}: the search took too long": late} if late else {}


def _serve(
    used: list[tuple[str, str | None, int | None, int]],
    names: list[str],
    manifest: Manifest,
    first: list[bytes],
    channel: Channel,
) -> None:
    """Sends the results in pieces, volume by volume, then an empty message. Runs in the worker."""
    channel.receive()
    deadline = time.monotonic() + _MOST_SECONDS
    most = _MOST_EXTENTS
    there: set[tuple[str, int]] = set()
    with contextlib.ExitStack() as stack:
        # Ask file systems that may never answer last, so that they block no other.
        volumes = _volumes(used, manifest)
        for volume in sorted(volumes, key=lambda v: v.places[0].answered_by_others):
            volume.mounts = _opened(volume.places, stack)
            volume.first = first
            _know_subvolume(volume)
            extents: list[ExtentFacts] = []
            files: list[FileFacts] = []
            late = 0
            if volume.mounts:
                files, late = _found(volume, manifest, deadline, extents, most)
            most -= len(extents)
            there |= {(dev, ino) for dev, _, ino, *_ in files}
            for at in range(0, max(len(files), len(extents), late > 0), _AT_ONCE):
                piece = files[at : at + _AT_ONCE], extents[at : at + _AT_ONCE], late
                channel.send(encoded(piece))
                late = 0
    # A name may lead to a file system that never answers, so these are the last.
    for at in range(0, len(names), _AT_ONCE):
        if time.monotonic() > deadline:
            channel.send(encoded(([], [], len(names) - at)))
            break
        channel.send(encoded((_by_name(names[at : at + _AT_ONCE], there, manifest), [], 0)))
    channel.send(b"")


def _know_subvolume(volume: _Volume) -> None:
    """Forgets the files of a btrfs with several subvolumes whose events do not name theirs.

    An inode number may stand for another file in each of them.
    """
    if volume.places[0].kind != b"btrfs":
        return
    with contextlib.suppress(OSError, IndexError):  # no rights, or no mount could be opened
        volume.subvolume = sole_subvolume(volume.mounts[0][1])
    if volume.subvolume is None:
        volume.asked = {key: None for key in volume.asked if key[0] is not None}


def _by_name(names: list[str], there: set[tuple[str, int]], manifest: Manifest) -> list[FileFacts]:
    """Returns the files on block devices that names lead to, except for those in `there`."""
    found: list[FileFacts] = []
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            fd = os.open(original(name), os.O_PATH | os.O_CLOEXEC)
            try:
                facts = os.fstat(fd)
                dev = f"{os.major(facts.st_dev)}:{os.minor(facts.st_dev)}"
                key = dev, facts.st_ino
                if os.major(facts.st_dev) and stat.S_ISREG(facts.st_mode) and key not in there:
                    born = _born(fd, manifest)
                    if born is None or born <= (manifest["clock"]["end_ns"] or 0):
                        found.append((dev, None, facts.st_ino, name, born, facts.st_size, "name"))
                        there.add(key)
            finally:
                os.close(fd)
    return found


def _born(fd: int, manifest: Manifest) -> int | None:
    """Returns a file's birth in ns of the trace's clock; None if it is not known."""
    born = birth_ns(fd)
    return None if born is None else born - manifest["clock"].get("realtime_offset_ns", 0)


def _volumes(
    used: list[tuple[str, str | None, int | None, int]],
    manifest: Manifest,
) -> list[_Volume]:
    """Returns the volumes of these files that are mounted where this process can see them."""
    mounts = read_mounts()
    mounted = {mount.dev for mount in mounts}
    btrfs = {fs["fsid"]: fs for fs in manifest.get("btrfs", [])}
    bdis = {fs["bdi"] for fs in btrfs.values()}
    devices = Devices(manifest)
    volumes: dict[str, _Volume] = {}
    for dev, fsid, root, ino in used:
        if fsid is not None:
            if fsid not in btrfs:
                continue
            name, number = btrfs[fsid]["bdi"], btrfs[fsid]["dev"]
        elif dev in bdis:
            continue  # the subvolume of the inode is unknown
        elif dev in mounted:
            name = number = dev
        elif len(on_disk := [d for d in devices.mounted_on(dev) if d in mounted]) == 1:
            # Write-back events name the disk of a partition.
            name = number = on_disk[0]
        else:
            continue
        if name not in volumes:
            volumes[name] = _Volume(name, reachable(mounts, number))
        volumes[name].asked[root, ino] = None
    return [volume for volume in volumes.values() if volume.places]


def _opened(mounts: list[MountPoint], stack: contextlib.ExitStack) -> list[tuple[MountPoint, int]]:
    found = []
    for mount in mounts[:16]:
        with contextlib.suppress(OSError):  # a mount point may be a file
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(mount.path, flags)
            stack.callback(os.close, fd)
            found.append((mount, fd))
    return found


def _found(
    volume: _Volume,
    manifest: Manifest,
    deadline: float,
    extents: list[ExtentFacts],
    most_extents: int,
) -> tuple[list[FileFacts], int]:
    """Returns the volume's files that still exist, and the number of files not looked up in time.

    Adds the extents of the files to `extents`.
    """
    found: dict[tuple[int | None, int], FileFacts] = {}
    unnamed: _Unnamed = {}

    def take(key: tuple[int | None, int], fd: int, path: bytes, how: str) -> None:
        born = _born(fd, manifest)
        if born is not None and born > (manifest["clock"]["end_ns"] or 0):
            return  # made after the recording
        root, ino = key
        text = escaped(path)
        size = os.fstat(fd).st_size
        found[key] = (volume.name, root, ino, text, born, size, how)
        if (
            root is None and volume.subvolume is None
        ):  # btrfs has logical addresses, not device addresses
            most = min(_MOST_EXTENTS_OF_A_FILE, most_extents - len(extents))
            with contextlib.suppress(OSError):
                extents.extend((volume.name, ino, *e) for e in extent_maps.extents(fd, most))

    late = 0
    for number, key in enumerate(volume.asked):
        kept = _SEARCH_SECONDS if unnamed else 0.0
        if time.monotonic() > deadline - kept:
            late = len(volume.asked) - number
            break
        try:
            device = _by_handle(volume, key, take)
        except OSError as error:
            if error.errno in _NONE_SUCH or key[0] is not None:
                continue
            device = None
        else:
            if device is None:
                continue
        unnamed.setdefault(key[1], {})[device] = key
    if unnamed and not _by_walk(volume, unnamed, take, deadline):
        late += sum(_exists(volume, key) for keys in unnamed.values() for key in keys.values())
    return list(found.values()), late


def _by_handle(volume: _Volume, key: tuple[int | None, int], take: _Take) -> int | None:
    """Passes an inode with its name to `take`. Returns its st_dev if it exists without a name yet.

    Returns None if the name was taken or is not wanted. Raises OSError if the inode does not
    exist or the file system does not support handles.
    """
    root, ino = key
    number = None
    covered = False
    for mount, mount_fd in volume.mounts:
        fd = open_inode(mount_fd, mount.kind, ino, volume.subvolume if root is None else root)
        try:
            for _ in range(_RENAMES + 1):
                facts = os.fstat(fd)
                if not stat.S_ISREG(facts.st_mode) or facts.st_nlink == 0:
                    return None
                number = facts.st_dev
                try:
                    path = os.readlink(b"/proc/self/fd/%d" % fd)  # noqa: PTH115 names are bytes
                except OSError as error:
                    if error.errno == errno.ENAMETOOLONG:
                        break
                    raise
                led = leads_back(mount, mount_fd, path, facts)
                if led:
                    take(key, fd, path, "handle")
                    return None
                # A file with one name, in a folder below a mount, is not worth a search.
                covered = covered or (led is None and facts.st_nlink == 1)
        finally:
            os.close(fd)
    return None if covered else number


def _exists(volume: _Volume, key: tuple[int | None, int]) -> bool:
    """Returns whether an inode still has a name, as far as its file system tells."""
    root, ino = key
    mount, mount_fd = volume.mounts[0]
    try:
        fd = open_inode(mount_fd, mount.kind, ino, volume.subvolume if root is None else root)
    except OSError as error:
        return error.errno not in _NONE_SUCH
    try:
        return os.fstat(fd).st_nlink > 0
    finally:
        os.close(fd)


def _by_walk(volume: _Volume, wanted: _Unnamed, take: _Take, deadline: float) -> bool:
    """Searches the folders of a file system for these inodes: the likely ones, then all of them.

    Each of these searches is breadth first. The likely ones may take half of the time and of the
    entries. No link is followed, and no other mount is entered.

    Removes those that it finds from `wanted`. Returns False if time or entries ran out.
    """
    mount, _ = volume.mounts[0]
    start = mount.path.rstrip(b"/") + b"/"
    first = [
        b"./" + place.removeprefix(start)
        for place in volume.first
        if place.startswith(start) and place != start
    ]
    half = time.monotonic() + (deadline - time.monotonic()) / 2
    _search(volume, first, wanted, take, half, _MOST_ENTRIES // 2)
    return _search(volume, [b"."], wanted, take, deadline, _MOST_ENTRIES)


def _search(
    volume: _Volume,
    places: list[bytes],
    wanted: _Unnamed,
    take: _Take,
    deadline: float,
    most: int,
) -> bool:
    """Searches these folders of the first mount, breadth first. Other arguments: as `_by_walk`."""
    mount, mount_fd = volume.mounts[0]
    start = mount.path.rstrip(b"/")
    folders = deque(places)
    entries = 0
    while folders and wanted:
        folder = folders.popleft()
        try:
            fd = open_beneath(mount_fd, folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # removed, or on another mount
        try:
            with os.scandir(fd) as listed:
                for entry in listed:
                    entries += 1
                    if entries > most or time.monotonic() > deadline:
                        return False
                    name = folder + b"/" + os.fsencode(entry.name)
                    if entry.inode() in wanted:
                        _take_entry(mount_fd, name, start, wanted, take)
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(name)
        except OSError:
            continue
        finally:
            os.close(fd)
    return True


def _take_entry(mount_fd: int, name: bytes, start: bytes, wanted: _Unnamed, take: _Take) -> None:
    try:
        fd = open_beneath(mount_fd, name)
    except OSError:
        return
    try:
        facts = os.fstat(fd)
        keys = wanted.get(facts.st_ino, {})
        number = None if None in keys else facts.st_dev
        if stat.S_ISREG(facts.st_mode) and number in keys:
            take(keys.pop(number), fd, start + b"/" + name.removeprefix(b"./"), "walk")
            if not keys:
                del wanted[facts.st_ino]
    finally:
        os.close(fd)
