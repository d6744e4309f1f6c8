"""The files of a recording whose names and places are asked for: by inode, and by opened name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tracer.probes.catalogue import TABLES
from tracer.store.manifest import Manifest
from tracer.store.table_file import open_table

_MOST_FILES = 65536
_MOST_FIRST = 64
_MOST_BYTES = "256MB"
"""Memory limit of the query for the used files."""

_NAMED_BY_FILE_SYSTEMS = """
SELECT dev, fsid, root, ino, count(*) AS n, true AS written, MINE AS mine FROM (FILE_WRITES)
WHERE ino IS NOT NULL AND event IN
    ('writepages_start', 'map_blocks', 'ordered_extent', 'direct_start', 'fsync', 'fsync_start')
GROUP BY ALL
"""
_NAMED_BY_WRITEBACK = """
SELECT dev, NULL AS fsid, NULL AS root, ino, count(*) AS n, true AS written,
    MINE AS mine FROM (DIRTY)
WHERE event = 'dirty_folio' AND ino IS NOT NULL GROUP BY ALL
"""
_NAMED_BY_PAGE_CACHE = """
SELECT dev, NULL AS fsid, NULL AS root, ino, count(*) AS n, false AS written,
    MINE AS mine FROM (PAGE_CACHE)
WHERE event IN ('access', 'fault', 'map', 'add') AND ino IS NOT NULL GROUP BY ALL
"""
_MINE = "bool_or(pid IN (SELECT pid FROM (PROCESSES) WHERE target IS NOT NULL))"
"""SQL, true for a file that a process of a target used; null: its event names no process."""
_NAMING = {
    "file_writes": _NAMED_BY_FILE_SYSTEMS,
    "dirty": _NAMED_BY_WRITEBACK,
    "page_cache": _NAMED_BY_PAGE_CACHE,
}


_OPENED = """
SELECT o.path FROM (NAMES) o LEFT JOIN (
    SELECT pid, bool_or(container_id IS NOT NULL) AS elsewhere FROM (PROCESSES) GROUP BY pid
) p ON o.pid = p.pid
WHERE starts_with(o.path, '/') AND NOT coalesce(p.elsewhere, false)
GROUP BY o.path HAVING NOT bool_and(o.failed) ORDER BY count(*) DESC, o.path
"""
"""Names by which processes outside of containers opened files, or have them open."""
_NAMES = {
    "opens": "SELECT pid, path, false AS failed FROM (OPENS)",
    "descriptors": "SELECT pid, path, false AS failed FROM (DESCRIPTORS)",
}
_TRIED = """
SELECT o.pid, o.path, coalesce(c.ret < 0 AND (o.next IS NULL OR c.ts < o.next), false) AS failed
FROM (SELECT *, lead(ts) OVER (PARTITION BY tid ORDER BY ts) AS next FROM (OPENS)) o
ASOF LEFT JOIN (
    SELECT tid, ts, ret FROM (SYSCALLS) WHERE name IN ('open', 'openat', 'openat2', 'creat')
) c ON o.tid = c.tid AND o.ts <= c.ts
"""
"""The names of `opens`, and whether the call that follows each one is known to have failed."""


def used_files(tables: Path) -> list[tuple[str, str | None, int | None, int]]:
    """Returns (dev, fsid, root, ino) from the events: the targets' files first.

    Of these, and of the others, written files come first, then those with the most events.
    """
    queries = {name: query for name, query in _NAMING.items() if _exists_table(tables, name)}
    if not queries:
        return []
    told = _exists_table(tables, "processes")
    named = " UNION ALL ".join(queries.values()).replace("MINE", _MINE if told else "false")
    query = (
        "SELECT coalesce(dev, '') AS place, fsid, root, ino "
        f"FROM ({named}) GROUP BY ALL ORDER BY coalesce(bool_or(mine), false) DESC,"
        " bool_or(written) DESC, sum(n) DESC, place, fsid, root, ino "
        f"LIMIT {_MOST_FILES}"
    )
    return _asked(tables, query, [*queries, "processes"] if told else queries)


def opened_names(tables: Path) -> list[str]:
    """Returns absolute names of opened files, the most frequent first.

    Names that were only opened in vain are left out: if they lead to a file at the end of the
    recording, nobody used it.
    """
    queries = {name: query for name, query in _NAMES.items() if _exists_table(tables, name)}
    if not queries or not _exists_table(tables, "processes"):
        return []
    names = [*queries, "processes"]
    if "opens" in queries and _exists_table(tables, "syscalls"):
        queries["opens"] = _TRIED
        names.append("syscalls")
    query = _OPENED.replace("NAMES", " UNION ALL ".join(queries.values()))
    rows = _asked(tables, f"{query} LIMIT {_MOST_FILES}", names)
    return [name for (name,) in rows]


def likely_folders(manifest: Manifest, folders: Sequence[Path]) -> list[bytes]:
    """Returns absolute names of folders in which a job's files probably lie, the likeliest first.

    Nothing is asked about them, since their file system may never answer. Some may not exist.
    """
    places = [os.fsencode(folder) for folder in folders]
    places += [os.fsencode(part) for part in manifest.get("command") or [] if part[:1] != "-"]
    with contextlib.suppress(OSError):  # the working folder was removed
        working = os.fsencode(Path.cwd())
        places = [os.path.join(working, place) for place in places] + [working]  # noqa: PTH118 bytes
    for target in manifest.get("targets", []):
        with contextlib.suppress(OSError, KeyError, TypeError):  # it has ended, or is no process
            places.append(os.readlink(b"/proc/%d/cwd" % target["pid"]))  # noqa: PTH115 bytes
    known = dict.fromkeys(os.path.normpath(place) for place in places if b"\0" not in place)
    return list(known)[:_MOST_FIRST]


def _exists_table(tables: Path, name: str) -> bool:
    return (tables / f"{name}.parquet").exists()


def _asked(tables: Path, query: str, names: Iterable[str]) -> list[Any]:
    """Returns the rows of a query, in which the names of tables are in capitals."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]]
    config = {"memory_limit": _MOST_BYTES, "temp_directory": str(tables / "spilled")}
    with contextlib.ExitStack() as files:
        for name in names:
            found = open_table(tables / f"{name}.parquet", TABLES[name], "record again")
            files.enter_context(found.file)
            query = query.replace(f"({name.upper()})", f"({found.select()})")
        try:
            with duckdb.connect(config=config) as connection:
                connection.execute("SET enable_progress_bar=false")  # it prints to standard output
                rows: list[Any] = connection.execute(query).fetchall()
        except (duckdb.OutOfMemoryException, duckdb.IOException):
            # No memory or no disk space: missing names must not fail the recording.
            return []
    return rows
