"""System calls by what they may wait for."""

from __future__ import annotations

SYNC_FILE = ("fsync", "fdatasync", "sync_file_range", "sync_file_range2", "msync")
SYNC_ALL = ("sync", "syncfs")
SYNC = (*SYNC_FILE, *SYNC_ALL)
"""Calls that are made to wait until data are on the disk: of a file, of all of them."""

WRITE = (
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"),
    *("splice", "io_submit", "io_uring_enter", "io_getevents", "io_pgetevents"),
)
"""Calls that may be slowed down for dirtying pages, or wait for a page, a journal or a device."""

ENDINGS = (
    *("close", "rename", "renameat", "renameat2", "truncate", "ftruncate", "fallocate"),
    *("unlink", "unlinkat"),
)
"""Calls in which file systems may write out a file that was rewritten (ext4: auto_da_alloc)."""

READ = ("read", "pread64", "readv", "preadv", "preadv2")
