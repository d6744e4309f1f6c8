"""The share of a folder's files that is in the page cache, as vmtouch measures it."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tracer.probes.folders import walk
from tracer.probes.openat import open_regular
from tracer.probes.sampler.reading import NotAvailable, Reader, Reading, Series

RESIDENT = Series("resident_pages", "pages", "pages of the folder's files in the page cache")
PAGES = Series("file_pages", "pages", "pages of the folder's files")
SHARE = Series("residency", "%", "share of the folder's pages in the page cache")

MOST_FILES = 10_000
_MOST_NAMED = 100
"""Most files whose pages are not known that are named."""
_LEAST_REST = 50
"""Least pause between two looks at a folder, as a multiple of the time that a look took: some 2 %
of a CPU."""
_CACHESTAT = 451
"""Number of the call on all architectures except alpha (kernel commit cf264e1329fb)."""
_WINDOW = 1 << 30
"""Bytes per call of mincore."""
_PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_FAILED = ctypes.c_void_p(-1).value


class _Range(ctypes.Structure):
    """The kernel's struct cachestat_range; zeros: the whole file."""

    _fields_ = (("off", ctypes.c_uint64), ("len", ctypes.c_uint64))


class _Cachestat(ctypes.Structure):
    """The kernel's struct cachestat, in pages."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")
    )


class Residency(Reader):
    """A reader of the regular files below some folders, at most MOST_FILES per folder.

    Links are not followed.
    """

    name = "residency"
    series = (RESIDENT, PAGES, SHARE)

    def __init__(self, folders: list[Path], still_there: Callable[[], None] = lambda: None) -> None:
        """Keeps the folders. `still_there` is called for each file."""
        super().__init__()
        self._still_there = still_there
        self._folders = folders
        self._looked: dict[Path, tuple[float, float]] = {}
        """Time of the last look at each folder, and its duration."""

    def read(self) -> list[Reading]:
        """Returns the pages of each folder whose pause is over; instance: the folder as given."""
        found: list[Reading] = []
        for folder in self._folders:
            begun = time.monotonic()
            before, took = self._looked.get(folder, (0.0, 0.0))
            if begun - before < _LEAST_REST * took and not self.last:
                continue
            resident, pages = self._of_folder(folder)
            now = time.monotonic()
            self._looked[folder] = now, now - begun
            name = os.fsencode(folder).decode("utf-8", "replace")
            found.append((RESIDENT.name, name, resident))
            found.append((PAGES.name, name, pages))
            if pages:
                found.append((SHARE.name, name, 100 * resident / pages))
        return found

    def _of_folder(self, folder: Path) -> tuple[int, int]:
        resident = pages = 0
        for number, path in enumerate(_files(folder)):
            self._still_there()
            if number == MOST_FILES:
                self.missing[f"residency of {folder}"] = f"all but the first {MOST_FILES} files"
                break
            try:
                in_cache, in_all = resident_pages(path)
            except NotAvailable as error:
                what = path if len(self.missing) < _MOST_NAMED else "further files"
                self.missing[f"residency of {what}"] = error.why
                continue
            resident += in_cache
            pages += in_all
        return resident, pages


def _files(folder: Path) -> Iterator[str]:
    for base, names in walk(str(folder)):
        for name in names:
            yield os.path.join(base, name)  # noqa: PTH118 a million Paths cost


def resident_pages(path: str) -> tuple[int, int]:
    """Returns (pages in the page cache, pages in all) of a regular file; (0, 0) for other files.

    A file that is gone also gives (0, 0). Uses cachestat if the kernel has it, else mincore on a
    mapping. Raises NotAvailable if this user may not open the file or learn its residency.
    """
    try:
        fd = open_regular(path)
    except (FileNotFoundError, ValueError):
        return 0, 0
    except OSError as error:
        raise NotAvailable(os.strerror(error.errno or 0)) from None
    try:
        status = os.fstat(fd)
        if not status.st_size:
            return 0, 0
        pages = -(-status.st_size // _PAGE)
        found = _cachestat(fd)
        if found is None:
            if not _may_know(path, status):
                raise NotAvailable("mincore answers only the file's owner and users who may write")
            found = _mincore(fd, status.st_size)
        return min(found, pages), pages
    finally:
        os.close(fd)


def _cachestat(fd: int) -> int | None:
    """Returns the pages in the cache; None if the kernel or the file system does not tell."""
    told = _Cachestat()
    whole = _Range(0, 0)
    if _libc.syscall(_CACHESTAT, fd, ctypes.byref(whole), ctypes.byref(told), 0) != 0:
        return None
    return int(told.cache)


def _may_know(path: str, status: os.stat_result) -> bool:
    """Returns whether mincore tells this user the truth.

    To other users it reports all pages as resident (kernel: mm/mincore.c, can_do_mincore).
    """
    return os.geteuid() in (0, status.st_uid) or os.access(path, os.W_OK)


def _mincore(fd: int, size: int) -> int:
    resident = 0
    for start in range(0, size, _WINDOW):
        length = min(_WINDOW, size - start)
        told = (ctypes.c_ubyte * -(-length // _PAGE))()
        address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, start)
        if address == _FAILED:
            raise NotAvailable(f"it cannot be mapped: {os.strerror(ctypes.get_errno())}")
        try:
            if _libc.mincore(address, length, told) != 0:
                raise NotAvailable(f"mincore: {os.strerror(ctypes.get_errno())}")
        finally:
            _libc.munmap(address, length)
        resident += sum(byte & 1 for byte in told)
    return resident
