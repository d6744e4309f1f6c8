"""Which page of which file was written back, by the file systems' own extents."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from analysis.flushlayer.trace.accesses import Identity, page_writebacks

REWRITE = """
import os
def put(path, first, pages, flags):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | flags, 0o600)
    assert os.pwrite(fd, os.urandom(4096 * pages), 4096 * first) == 4096 * pages
    os.fsync(fd)
    os.close(fd)
put("{mount}/checkpoint", 0, 23, os.O_TRUNC)
put("{mount}/checkpoint", 0, 29, os.O_TRUNC)
put("{mount}/checkpoint", 5, 3, 0)
put("{mount}/before", 7, 2, 0)
os.unlink("{mount}/checkpoint")
"""


def in_files(trace, dev):
    """The page accesses to data of files on a device, as numbers in order of first access."""
    found = page_writebacks(trace, [dev], Identity.FILE)
    data = np.repeat(
        [found.bios.names["reason"][code] == "fsync" for code in found.bios.reason],
        found.bios.pages,
    )
    assert found.by_mapping["not mapped"] == 0
    pages = found.page[data].tolist()
    order = {page: number for number, page in enumerate(dict.fromkeys(pages))}
    return [order[page] for page in pages]


@pytest.mark.parametrize(
    ("kind", "mkfs", "backend"),
    [
        ("ext4", (), "ftrace"),
        ("ext4", (), "ebpf"),
        ("ext4", (), "perf"),
        ("ext4", ("-b", "1024"), "ftrace"),
        ("xfs", (), "ftrace"),
    ],
    ids=str,
)
def test_pages_of_a_rewritten_file_are_hot_though_their_blocks_are_new(
    kind, mkfs, file_system, record, load
):
    mount, dev = file_system(kind=kind, mkfs=mkfs)
    (mount / "before").write_bytes(bytes(4096 * 11))
    subprocess.run(["sync", "-f", str(mount)], check=True)
    trace = record(load(REWRITE.format(mount=mount)), "--sample-hz", "0")
    first, second, over = list(range(23)), list(range(29)), list(range(5, 8))
    assert in_files(trace, dev) == [*first, *second, *over, 29, 30]
    by_block = page_writebacks(trace, [dev])
    assert by_block.unique >= 23 + 29 + 2  # the same by block: new ones


def test_a_partition_s_files_are_found(tmp_path, record, load):
    image, mount = tmp_path / "disk.img", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    made = subprocess.run(
        ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
    )
    loop = made.stdout.strip()
    try:
        # By hand: a kernel may know no kind of partition table.
        subprocess.run(["addpart", loop, "1", "4096", "100000"], check=True)
        partition = Path(f"{loop}p1")
        subprocess.run(["mkfs.ext4", "-q", partition], check=True)
        subprocess.run(["mount", partition, mount], check=True)
        try:
            disk = Path("/sys/class/block", Path(loop).name, "dev").read_text().strip()
            (mount / "before").write_bytes(bytes(4096 * 11))
            subprocess.run(["sync", "-f", mount], check=True)
            trace = record(load(REWRITE.format(mount=mount)), "--sample-hz", "0")
            assert len(set(in_files(trace, disk))) == 29 + 2
        finally:
            subprocess.run(["umount", mount], check=True)
    finally:
        subprocess.run(["delpart", loop, "1"], check=True)
        subprocess.run(["losetup", "-d", loop], check=True)
