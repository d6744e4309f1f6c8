"""The part of a guest's program that records reads of files and sleeps by each backend.

Needs only Python's standard library.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from scripts.kernels.facts import SHARED, Disk, Load, Recording
from scripts.kernels.recording import PLACE, record
from scripts.kernels.waiting import loads

_OPTIONS = ("--stacks", "-e", "default,page_cache")
_NAMES = "raw/files.json"
"""The file of a trace with the names of used files. The recorder writes it when it makes tables."""


def recorded(backend: str, disks: dict[str, Disk]) -> Recording:
    """Records all loads by a backend; the host gets the names of their files, except for one."""
    disk = disks["ext4"]
    folder = Path(disk["mount"], backend)
    folder.mkdir()
    files = loads.make_files(folder)
    os.sync()
    ran, job = PLACE / f"{backend}.ran.json", PLACE / f"{backend}.job.json"
    place = str(folder)
    told = {
        "reading": ["reading", place],
        "mapping": ["mapping", place],
        "sleeping": ["sleeping"],
        "asking": ["asking"],
        "syncing": ["syncing", place],
    }
    job.write_text(json.dumps({"ran": str(ran), "loads": told}))
    command = [sys.executable, "-S", "-m", "scripts.kernels.waiting.loads", str(job)]
    begun = time.monotonic()
    error = record(backend, ["--backend", backend, *_OPTIONS], command)
    seconds = time.monotonic() - begun
    found: dict[str, Load] = json.loads(ran.read_text()) if ran.exists() else {}
    inodes = {name: ino for name, (ino, _) in files.items()}
    for load in found.values():
        load["said"]["inodes"] = inodes
    if error is None:
        names = [
            (disk["dev"], None, ino, f"{place}/{name}", None, size, "handle")
            for name, (ino, size) in files.items()
            if name != "nameless"
        ]
        (SHARED / f"{backend}.trace" / _NAMES).write_text(json.dumps(names))
    return {"captured": error is None, "seconds": seconds, "error": error or "", "loads": found}
