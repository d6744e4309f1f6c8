"""Names of inodes on file systems that are mounted anew, over others, or twice.

No other recorder may look for names meanwhile: it holds mounts, and brings folders into memory.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.dead_file_system import dead_file_system  # noqa: F401 a fixture
from tests.support.found_names import ino, refused
from tracer.session import environment, paths
from tracer.store.names import escaped

KINDS = ("ext4", "xfs", "btrfs")


def mount_anew(mount: Path) -> None:
    device = subprocess.run(
        ["findmnt", "-no", "SOURCE", str(mount)], check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run(["umount", str(mount)], check=True)
    subprocess.run(["mount", device, str(mount)], check=True)


def deepest(mount: Path) -> Path:
    path = mount
    for name in "abc":
        path = path / name
        path.mkdir()
        for number in range(7):
            (path / str(number)).write_bytes(b"x" * 4096)
    return path / "3"


@pytest.mark.parametrize("kind", KINDS)
def test_the_recorder_searches_for_files_that_the_kernel_does_not_name(kind, file_system, names):
    """After a new mount no folder is in memory: an inode has no place yet."""
    mount, dev = file_system(kind=kind)
    file = deepest(mount)
    asked = [ino(file), 1 << 31]
    mount_anew(mount)
    assert names(dev, asked) == {asked[0]: (str(file), "walk")}
    # Found by itself, it has a name.
    file.stat()
    assert names(dev, asked) == {asked[0]: (str(file), "handle")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_leads_elsewhere_is_none(kind, file_system, names, monkeypatch):
    """A folder that another file system is mounted over, and a link in its place."""
    mount, dev = file_system(kind=kind)
    hidden = mount / "hidden"
    hidden.mkdir()
    file = hidden / "file"
    file.write_bytes(b"x" * 4096)
    asked = [ino(file)]
    with monkeypatch.context() as nothing_is_searched:
        nothing_is_searched.setattr(paths, "_MOST_ENTRIES", 0)
        subprocess.run(["mount", "-t", "tmpfs", "none", str(hidden)], check=True)
        try:
            (hidden / "file").write_bytes(b"another")
            assert names(dev, asked) == {}
            assert names.late == {}
        finally:
            subprocess.run(["umount", str(hidden)], check=True)
    assert names(dev, asked) == {asked[0]: (str(file), "handle")}


@pytest.mark.parametrize("kind", KINDS)
def test_another_link_of_a_hidden_file_is_found(kind, file_system, names):
    mount, dev = file_system(kind=kind)
    hidden, other = mount / "hidden/file", mount / "other"
    hidden.parent.mkdir()
    hidden.write_bytes(b"x" * 4096)
    other.hardlink_to(hidden)
    asked = ino(other)
    mount_anew(mount)
    with hidden.open():  # the kernel names the file by the link in use
        subprocess.run(["mount", "-t", "tmpfs", "none", str(hidden.parent)], check=True)
        try:
            assert names(dev, [asked]) == {asked: (str(other), "walk")}
        finally:
            subprocess.run(["umount", str(hidden.parent)], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_a_mount_point_keeps_its_name(kind, file_system, names, tmp_path):
    """A name space of Docker's: an empty file, covered by a file of another file system."""
    mount, dev = file_system(kind=kind)
    (mount / "netns").mkdir()
    below, covered = mount / "netns/ID", mount / "covered"
    inodes = []
    (tmp_path / "another").touch()
    for file, source in ((below, "/proc/self/ns/net"), (covered, str(tmp_path / "another"))):
        file.write_bytes(b"")
        inodes.append(ino(file))
        subprocess.run(["mount", "--bind", source, str(file)], check=True)
    try:
        assert names(dev, inodes) == {
            inodes[0]: (str(below), "handle"),
            inodes[1]: (str(covered), "handle"),
        }
        assert names.late == {}
    finally:
        for file in (below, covered):
            subprocess.run(["umount", str(file)], check=True)


def test_a_walk_stays_on_its_own_file_system(file_system, names, monkeypatch):
    mount, dev = file_system()
    (mount / "a").mkdir()
    (mount / "b/c").mkdir(parents=True)
    file = mount / "b/c/file"
    file.write_bytes(b"x" * 4096)
    other, _ = file_system(name="other")
    same = other / "0"
    for number in range(100):
        same = other / str(number)
        same.write_bytes(b"x" * 4096)
        if ino(same) == ino(file):
            break
    assert ino(same) == ino(file)
    monkeypatch.setattr("tracer.session.paths.open_inode", refused)
    subprocess.run(["mount", "--bind", str(other), str(mount / "a")], check=True)
    try:
        assert names(dev, [ino(file)]) == {ino(file): (str(file), "walk")}
    finally:
        subprocess.run(["umount", str(mount / "a")], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_mount_with_the_shortest_path_names_the_file(kind, file_system, names, tmp_path):
    mount, dev = file_system(kind=kind, name="a long name")
    (mount / "sub").mkdir()
    inside, outside = mount / "sub/inside", mount / "outside"
    for path in (inside, outside):
        path.write_bytes(b"x" * 4096)
    short, part = tmp_path / "s", tmp_path / "p"
    for folder, source in ((short, mount), (part, mount / "sub")):
        folder.mkdir()
        subprocess.run(["mount", "--bind", str(source), str(folder)], check=True)
    try:
        assert names(dev, [ino(inside), ino(outside)]) == {
            ino(inside): (str(short / "sub/inside"), "handle"),
            ino(outside): (str(short / "outside"), "handle"),
        }
        # Only the files in the visible part of the file system have paths.
        asked = [ino(inside), ino(outside)]
        subprocess.run(["umount", str(short)], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", str(mount)], check=True)
        try:
            assert names(dev, asked) == {asked[0]: (str(part / "inside"), "handle")}
        finally:
            subprocess.run(["umount", str(mount)], check=True)
    finally:
        for folder in (short, part):
            subprocess.run(["umount", str(folder)], check=False, capture_output=True)


def test_a_walk_tells_them_apart_too(file_system, names):
    mount, dev = file_system(kind="btrfs")
    first, second = mount / "first/file", mount / "second"
    subprocess.run(
        ["btrfs", "subvolume", "create", str(first.parent)], check=True, capture_output=True
    )
    for path in (first, second):
        path.write_bytes(b"x" * 4096)
    root = subprocess.run(
        ["btrfs", "inspect-internal", "rootid", str(first.parent)],
        check=True,
        capture_output=True,
        text=True,
    )
    number = ino(first)
    assert number == ino(second)
    # Found later than the other.
    for of, path in ((5, second), (int(root.stdout), first)):
        mount_anew(mount)
        assert names(dev, [number], root=of) == {number: (str(path), "walk")}


def test_a_disk_whose_image_lies_on_a_server_that_died(tmp_path, dead_file_system):  # noqa: F811
    dead = dead_file_system(bytes(1 << 20))
    status = dead.path.stat()
    made = ["losetup", "--find", "--show", str(dead.path)]
    loop = subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()
    try:
        dead.dies()
        found = [disk for disk in environment.disks() if disk["name"] == Path(loop).name]
        assert found[0]["on"] == [f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"]
        assert found[0]["backing_file"] == str(dead.path)
    finally:
        dead.lives()
        subprocess.run(["losetup", "-d", loop], check=True)


def test_a_disk_whose_image_has_a_name_that_is_no_text(tmp_path):
    image = os.fsencode(tmp_path) + b"/d\xffisk "
    Path(os.fsdecode(image)).write_bytes(bytes(1 << 20))
    made = [b"losetup", b"--find", b"--show", image]
    loop = subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()
    try:
        found = [disk for disk in environment.disks() if disk["name"] == Path(loop).name]
        assert found[0]["backing_file"] == escaped(image)
        assert found[0]["on"]
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)


def test_a_file_of_the_only_subvolume_has_a_name_without_its_number(file_system, names):
    """Events of the page cache name no subvolume: of several, each may have the inode number."""
    mount, dev = file_system(kind="btrfs")
    path = mount / "file"
    path.write_bytes(b"x" * 4096)
    number = next(fs["dev"] for fs in environment.btrfs() if dev in fs["devices"])
    asked = {"root": None, "others": {number: [ino(path)]}}
    assert names(dev, [], **asked) == {ino(path): (str(path), "handle")}
    subprocess.run(
        ["btrfs", "subvolume", "create", str(mount / "more")], check=True, capture_output=True
    )
    assert names(dev, [], **asked) == {}
