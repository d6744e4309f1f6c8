"""The names by which targets open files: uprobes on the C library.

No tracepoint tells which file a call opens. If the kernel logs no accesses of the page cache, the
names tell which open files are the same one. Programs that call the kernel without the C library
(Go, static programs) are not seen.
"""

from __future__ import annotations

from tracer.probes.schema import (
    CPU,
    EVENT,
    PID,
    TID,
    TS,
    Column,
    Event,
    Feed,
    Probe,
    Scope,
    Table,
    Type,
    characters,
)
from tracer.probes.uprobe_place import Place

GROUP = "libc"
PATH = rb"/(libc(-[0-9.]+)?\.so(\.[0-9]+)?|(libc\.|ld-)musl-[^/]*\.so(\.[0-9]+)?)$"
"""Regular expression for their paths: libc.so.6, libc-2.31.so, libc.musl-x86_64.so.1."""
LONGEST = 4096
"""Most bytes of a name: PATH_MAX."""

_FIRST = (("x86_64", "path=+0(%di):ustring"), ("aarch64", "path=+0(%x0):ustring"))
_SECOND = (("x86_64", "path=+0(%si):ustring"), ("aarch64", "path=+0(%x1):ustring"))
PLACES = {
    "open": Place("open", exact=True, arguments=_FIRST),
    "openat": Place("openat", exact=True, arguments=_SECOND),
    "fopen": Place("fopen", exact=True, arguments=_FIRST),
}
"""Functions of the C library. glibc's fopen calls open; musl's does not."""

TABLE = Table(
    "opens",
    "One row per call of the C library that opens a file by its name.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("path", Type.TEXT, "name as the program gave it, cut at 4,096 bytes"),
    ),
    example="SELECT path, count(*) FROM opens GROUP BY ALL ORDER BY 2 DESC",
)

PROBE = Probe(
    "opens",
    "names of opened files; recorded with page_cache if the kernel logs no accesses",
    TABLE,
    tuple(
        Event(
            f"{GROUP}:{label}", label, {"path": characters("path", most=LONGEST)}, feed=Feed.UPROBE
        )
        for label in PLACES
    ),
    Scope.TARGET,
    rate="one per opened file; each costs every program that uses the library 5 to 10 us",
    by_default=False,
    optional=True,
)
