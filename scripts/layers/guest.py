"""The program of a guest with stacked devices: builds them, and records loads on them.

It is the guest's first process, and needs only Python's standard library.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from scripts.kernels.recording import PLACE, ROOT, as_first_process, hand_over, record
from scripts.layers import layers
from scripts.layers.stacks import STACKS, built, disks_of, found, number_of, sectors

_LOADS = [sys.executable, "-S", "-E", str(ROOT / "scripts/layers/loads.py")]


def work(job: dict[str, Any]) -> None:
    """Does all that a job asks for."""
    os.environ.update(DM_DISABLE_UDEV="1", MDADM_NO_UDEV="1")
    facts: dict[str, Any] = {"release": os.uname().release}
    if job["part"] == "stacks":
        facts["stacks"] = _stacks()
        hand_over(facts)
    else:
        facts["layers"] = {}
        for found_out in layers.measured(_LOADS):
            facts["layers"] |= found_out
            hand_over(facts)


def _stacks() -> dict[str, Any]:
    """Builds every stack, and records files written on each, all in one recording."""
    disks = found()
    facts: dict[str, Any] = {"built": {}, "error": None, "load": None}
    for number, stack in enumerate(STACKS):
        try:
            facts["built"][stack.name] = _built(number, disks)
        except (RuntimeError, OSError) as error:
            facts["built"][stack.name] = {"error": str(error)}
    notes = PLACE / "written.json"
    mounts = [made["mount"] for made in facts["built"].values() if "mount" in made]
    os.sync()
    command = [*_LOADS, "written", str(notes), *mounts]
    facts["error"] = record("stacks", ["--backend", "ftrace"], command)
    if notes.exists():
        facts["load"] = json.loads(notes.read_text())
    return facts


def _built(number: int, disks: dict[str, str]) -> dict[str, Any]:
    stack = STACKS[number]
    lowest = [disks[serial] for serial in disks_of(number, stack)]
    below = [f"{disk}1" for disk in lowest] if stack.partitioned else lowest
    levels = stack.build(f"stack{number}", below)
    mount = PLACE / f"stack{number}"
    mount.mkdir(parents=True)
    make = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
    built([*make, levels[-1]])
    built(["mount", "-t", "ext4", "-o", "no_prefetch_block_bitmaps", levels[-1], str(mount)])
    return {
        "mount": str(mount),
        "disks": [number_of(disk) for disk in lowest],
        "levels": [number_of(device) for device in levels],
        "first": sectors(lowest[0]) - sectors(levels[-1]) if stack.is_cache else 0,
    }


if __name__ == "__main__":
    as_first_process(work)
