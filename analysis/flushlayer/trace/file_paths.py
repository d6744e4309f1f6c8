"""The path of each file that was written back, through the renames that put one over another.

No event gives the names of a rename. But ext4 reports, within the call, the file that takes
another's place (alloc_da_blocks), and the file that loses its last name there (free_inode). The
first has the second's path from then on. Names themselves are known only at the end of the
recording (`files`): a file's path is the last that it had.

Kernel: fs/ext4/namei.c, ext4_rename, which calls ext4_alloc_da_blocks if the new name exists (not
with the mount option noauto_da_alloc); fs/ext4/inode.c, ext4_evict_inode.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.store.trace import Trace

RENAMES = ("rename", "renameat", "renameat2")
_Life = tuple[str, int, int]
"""A file: device, inode number, and how often the number was freed before it."""

# A call is used if it says exactly which file came and which one went.
_REPLACED = f"""
WITH renames AS (
    SELECT tid, ts, ts + dur_ns AS returned FROM syscalls
    WHERE name IN {RENAMES} AND ret = 0 AND dur_ns >= 0
), told AS (
    SELECT tid, ts, event, dev, ino, row, row_number() OVER inode AS n
    FROM file_writes_rows WHERE event = 'free_inode' AND dev IS NOT NULL AND ino IS NOT NULL
    WINDOW inode AS (PARTITION BY dev, ino ORDER BY ts, row)
    UNION ALL
    SELECT tid, ts, event, dev, ino, row, NULL
    FROM file_writes_rows WHERE event = 'alloc_da_blocks' AND dev IS NOT NULL AND ino IS NOT NULL
), within AS (
    SELECT t.*, r.ts AS call FROM told t ASOF JOIN renames r ON t.tid = r.tid AND t.ts >= r.ts
    WHERE t.ts <= r.returned
), calls AS (
    SELECT call, any_value(dev) AS dev, max(ts) AS ts,
        max(ino) FILTER (event = 'free_inode') AS old, max(n) - 1 AS old_born,
        max(ino) FILTER (event = 'alloc_da_blocks') AS new
    FROM within GROUP BY tid, call
    HAVING count(DISTINCT dev) = 1 AND count(*) FILTER (event = 'free_inode') = 1
        AND count(DISTINCT ino) FILTER (event = 'alloc_da_blocks') = 1 AND old != new
), freed AS (
    SELECT dev, ino, ts, max(n) AS n FROM told WHERE event = 'free_inode' GROUP BY ALL
)
SELECT c.dev, old, old_born, new, coalesce(f.n, 0) AS new_born
FROM calls c ASOF LEFT JOIN freed f ON c.dev = f.dev AND c.new = f.ino AND c.ts >= f.ts
ORDER BY c.ts DESC
"""
# The last file with each inode number, if it has a name at the end. xfs also reports files that
# live on as freed, so its files are told apart by their number alone.
_NAMED = """
SELECT f.dev, f.ino, coalesce(z.n, 0) AS born FROM files f LEFT JOIN (
    SELECT dev, ino, count(*) AS n FROM file_writes WHERE event = 'free_inode'
    AND list_contains(?::VARCHAR[], dev) GROUP BY ALL
) z ON f.dev = z.dev AND f.ino = z.ino
WHERE f.root IS NULL AND f.dev IS NOT NULL AND f.ino IS NOT NULL AND f.path IS NOT NULL
"""


def file_paths(trace: Trace, files: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Returns (path, known) of each file of `file_pages`.

    path: a number that files share if one took the other's place. known: the path exists at the
    end. If not, the file was removed, and another one with its path cannot be recognized.
    """
    for table in ("file_writes", "syscalls", "files"):
        trace.empty_if_missing(table)
    last: dict[_Life, _Life] = {}
    # The latest rename comes first, so the path of the file that took the place is complete.
    for dev, old, old_born, new, new_born in trace.rows(_REPLACED):
        taken: _Life = (dev, new, new_born)
        last[dev, old, old_born] = last.get(taken, taken)
    counted = [
        system["dev"]
        for system in trace.manifest.get("file_systems", [])
        if "group_blocks" not in system
    ]
    told = trace.sql(_NAMED, counted)
    named: set[_Life] = {*zip(told["dev"], told["ino"], told["born"], strict=True)}
    lives: list[_Life] = list(
        zip(files["dev"], files["ino"].tolist(), files["born"].tolist(), strict=True)
    )
    ends = [last.get(life, life) for life in lives]
    numbers: dict[_Life, int] = {}
    path = [numbers.setdefault(end, len(numbers)) for end in ends]
    return np.array(path, np.int32), np.array([end in named for end in ends], bool)
