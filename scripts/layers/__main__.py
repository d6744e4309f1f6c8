"""`python -m scripts.layers`: stacked devices and real layers in QEMU; see `make test-layers`."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scripts.kernels import machine
from scripts.kernels.architectures import ARCHITECTURES
from scripts.kernels.boot import boot
from scripts.kernels.debian import KERNELS, Kernel, kernel_of
from scripts.kernels.errors import CannotTest
from scripts.kernels.facts import FACTS
from scripts.kernels.recorded import Failed
from scripts.kernels.roots import PROJECT
from scripts.kernels.table import FAILS, OK, aligned
from scripts.layers import compare
from scripts.layers.checks import CHECKS, opened
from scripts.layers.layers import FAST, META, SLOW
from scripts.layers.page import page
from scripts.layers.slow_disk import SSD_REQUEST_MS, slow_disk
from scripts.layers.stacks import MODULES, PARTITION_SECTOR, STACKS, disks_of
from tracer.probes.errors import TracerError

PARTS = ("stacks", "layers")
_DISK_BYTES = 96 << 20
_FAST_BYTES, _META_BYTES = 8 << 20, 4 << 20
_CACHE_BYTES = 4 << 30
"""bcache keeps few free buckets ready in a small cache, and then writes around it."""
_PMEM = f"memmap={_FAST_BYTES >> 20}M!2G"
"""Makes a part of the guest's memory a device of persistent memory, from 2 GiB on."""
_TOOLS = {
    "sfdisk": "fdisk",
    "dmsetup": "dmsetup",
    "mdadm": "mdadm",
    "make-bcache": "bcache-tools",
    "mkfs.ext4": "e2fsprogs",
    "nbdkit": "nbdkit",
}
"""Programs of this machine that the test or its guest runs, and Debian's package of each."""


def main() -> int:
    """Returns the exit status: 0 if no check fails."""
    parser = argparse.ArgumentParser(prog="python -m scripts.layers", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"all: {' '.join(PARTS)}, each in its own guest"
    )
    # The guest runs this machine's programs.
    here = [name for name, (_, made) in KERNELS.items() if ARCHITECTURES[made].is_here]
    parser.add_argument(
        "--kernel", metavar="KERNEL", help=f"the newest of Debian's releases, or {', '.join(here)}"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=PROJECT / "build/kernels",
        help="folder for the kernel and traces",
    )
    parser.add_argument(
        "--minutes", type=float, default=30, help="most minutes of one guest (%(default)s)"
    )
    parser.add_argument(
        "--again", action="store_true", help="boot nothing; check the last recordings again"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the tables as a page")
    chosen = parser.parse_args()
    parts = chosen.parts or list(PARTS)
    if chosen.kernel is not None and chosen.kernel not in here:
        parser.error(f"there is no kernel {chosen.kernel!r} here; choose from {', '.join(here)}")
    for name in parts:
        if name not in PARTS:
            parser.error(f"there is no {name!r}; choose from {', '.join(PARTS)}")
    if chosen.write is not None and set(parts) != set(PARTS):
        parser.error("--write needs all parts")
    try:
        tables, fails = _tested(
            parts, chosen.kernel or _release(here), chosen.cache.absolute(), chosen
        )
    except CannotTest as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("\n\n".join(tables.values()) + "\n")
    if chosen.write is not None:
        chosen.write.write_text(page(tables))
    return int(fails)


def _release(here: list[str]) -> str:
    """Returns the newest kernel here that is of a release, as sid is not. Raises CannotTest."""
    released = [name for name in here if KERNELS[name][0] != "sid"]
    if not released:
        raise CannotTest("no kernel is known for this machine's architecture")
    return released[-1]


def _tested(
    parts: list[str], name: str, cache: Path, chosen: argparse.Namespace
) -> tuple[dict[str, str], bool]:
    """Returns the table of each part, and whether a check fails. Raises CannotTest."""
    missing = {package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    if missing:
        raise CannotTest(f"programs are missing: apt-get install {' '.join(sorted(missing))}")
    kernel = kernel_of(name, cache)
    tables, fails = {"kernel": f"Kernel {kernel.release}"}, False
    for part in parts:
        share = cache / name / f"layers-{part}"
        if not chosen.again:
            sys.stderr.write(f"{part}: {kernel.release} records; see {share / machine.CONSOLE}\n")
            _run(part, kernel, cache / name, share, chosen.minutes * 60)
        if not (share / FACTS).exists():
            raise CannotTest(f"the guest found out nothing; see {share / machine.CONSOLE}")
        facts = json.loads((share / FACTS).read_text())[part]
        table, failed = (_stacks if part == "stacks" else _layers)(share, facts)
        tables[part] = table
        fails = fails or failed
    return tables, fails


def _run(part: str, kernel: Kernel, folder: Path, share: Path, limit_s: float) -> None:
    """Runs the guest of a part, which leaves its results in `share`."""
    with ExitStack() as stack:
        disks: dict[str, Path | str] = {}
        if part == "stacks":
            disks |= _disks(folder / "stacks", stack)
        else:
            disks[SLOW] = stack.enter_context(slow_disk(folder, _DISK_BYTES))
            ssd = slow_disk(folder, _FAST_BYTES, FAST, SSD_REQUEST_MS, parallel=True)
            disks[FAST] = stack.enter_context(ssd)
            disks[META] = _image(folder / f"{META}.img", _META_BYTES)
        job = {"part": part}
        counted = part == "layers"
        boot(
            kernel,
            folder,
            share,
            "scripts.layers.guest",
            job,
            disks,
            limit_s,
            MODULES,
            _PMEM,
            counted,
        )


def _disks(folder: Path, context: ExitStack) -> dict[str, Path | str]:
    """Makes the disks of all stacks; returns their images or URLs by serial number.

    Those with a URL end with `context`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Path | str] = {}
    for number, stack in enumerate(STACKS):
        if stack.is_cache:
            slow, ssd = disks_of(number, stack)
            made[slow] = context.enter_context(slow_disk(folder, _DISK_BYTES, slow))
            served = slow_disk(folder, _CACHE_BYTES, ssd, SSD_REQUEST_MS, parallel=True)
            made[ssd] = context.enter_context(served)
            continue
        for serial in disks_of(number, stack):
            image = _image(folder / f"{serial}.img", _DISK_BYTES)
            if stack.partitioned:
                table = f"label: gpt\nstart={PARTITION_SECTOR}\n"
                ran = subprocess.run(
                    ["sfdisk", "--quiet", image],
                    input=table,
                    text=True,
                    check=False,
                    capture_output=True,
                )
                if ran.returncode:
                    raise CannotTest(f"sfdisk failed: {ran.stderr.strip()}")
            made[serial] = image
    return made


def _image(path: Path, size: int) -> Path:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def _stacks(share: Path, facts: dict[str, Any]) -> tuple[str, bool]:
    """Returns the table of the stacks, and whether a check fails."""
    try:
        recorded = opened(share, facts)
    except (Failed, TracerError) as error:
        raise CannotTest(f"no recording of the stacks: {error}") from None
    table = [["stack", *(check.short for check in CHECKS)]]
    why: list[str] = []
    for stack in STACKS:
        cells = [stack.name]
        for check in CHECKS:
            try:
                check.look(recorded, stack)
                cells.append(OK)
            except Failed as reason:
                why.append(f"{len(why) + 1}. {reason}")
                cells.append(f"{FAILS} [{len(why)}]")
        table.append(cells)
    recorded.trace.close()
    return "\n".join([*aligned(table), *(["", *why] if why else [])]), bool(why)


def _layers(share: Path, facts: dict[str, Any]) -> tuple[str, bool]:
    """Returns the table of the real layers, and whether a check fails."""
    try:
        rows = compare.rows(share, facts)
    except Failed as error:
        raise CannotTest(str(error)) from None
    return "\n".join(compare.lines(rows)), bool(compare.failing(rows))


if __name__ == "__main__":
    sys.exit(main())
