"""Names of inodes, as the recorder finds them; files that are gone, or change meanwhile."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.found_names import ino, refused
from tracer.session import paths

KINDS = ("ext4", "xfs", "btrfs")


@pytest.mark.parametrize("kind", KINDS)
def test_names_however_odd(kind, file_system, names):
    mount, dev = file_system(kind=kind)
    folder = mount / "a folder\nof lines" / ("d" * 255)
    folder.mkdir(parents=True)
    plain, odd = folder / "plain", Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe\n%s\x1b[31m"))
    long, deleted = folder / ("x" * 255), folder / "x (deleted)"
    for path in (plain, odd, long, deleted):
        path.write_bytes(b"x" * 4096)
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(plain)
    asked = [ino(path) for path in folder.iterdir()]
    asked += [ino(folder), ino(mount), 8, 1 << 31, (1 << 64) - 1]
    assert names(dev, asked) == {
        ino(path): (os.fsencode(path).decode("utf-8", "backslashreplace"), "handle")
        for path in (plain, odd, long, deleted)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_gone_have_none(kind, file_system, names):
    mount, dev = file_system(kind=kind)
    gone, held = mount / "gone", mount / "held"
    for path in (gone, held):
        path.write_bytes(b"x" * 4096)
    asked = [ino(gone), ino(held)]
    with held.open() as file:
        gone.unlink()
        held.unlink()
        assert names(dev, asked) == {}
        assert os.fstat(file.fileno()).st_nlink == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_made_since_is_another(kind, file_system, names):
    mount, dev = file_system(kind=kind)
    ended = time.monotonic_ns()
    time.sleep(0.05)  # birth times are of the last tick
    late = mount / "late"
    late.write_bytes(b"x" * 4096)
    assert names(dev, [ino(late)], until=ended) == {}
    assert names(dev, [ino(late)]) == {ino(late): (str(late), "handle")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_that_is_gone_is_no_name(kind, file_system, names):
    """The kernel calls it "first (deleted)", and there is another file of that very name."""
    mount, dev = file_system(kind=kind)
    first, other = mount / "first", mount / "other link"
    other.write_bytes(b"x" * 4096)
    first.hardlink_to(other)
    with first.open():
        first.unlink()
        (mount / "first (deleted)").write_bytes(b"another")
        found = names(dev, [ino(other)])
    assert found[ino(other)][0] == str(other)


def test_subvolumes_of_btrfs_are_told_apart(file_system, names):
    mount, dev = file_system(kind="btrfs")
    asked = []
    for name in ("one", "two"):
        subprocess.run(
            ["btrfs", "subvolume", "create", str(mount / name)], check=True, capture_output=True
        )
        (mount / name / "file").write_bytes(b"x" * 4096)
        shown = subprocess.run(
            ["btrfs", "inspect-internal", "rootid", str(mount / name)],
            check=True,
            capture_output=True,
            text=True,
        )
        asked.append((int(shown.stdout), ino(mount / name / "file")))
    assert asked[0][1] == asked[1][1]
    for (root, number), name in zip(asked, ("one", "two"), strict=True):
        assert names(dev, [number], root=root) == {number: (str(mount / name / "file"), "handle")}


def test_more_than_the_time_allows_is_left_out(file_system, names, monkeypatch):
    mount, dev = file_system()
    file = mount / "file"
    file.write_bytes(b"x" * 4096)
    monkeypatch.setattr("tracer.session.paths._MOST_SECONDS", -1.0)
    monkeypatch.setattr("tracer.session.paths._MORE_SECONDS", 60.0)
    assert names(dev, [ino(file)]) == {}
    assert names.late == {"files without a name: the search took too long": 1}


def test_a_walk_that_takes_too_long_says_what_it_has_not_found(file_system, names, monkeypatch):
    mount, dev = file_system()
    first, second = mount / "first", mount / "folder/second"
    second.parent.mkdir()
    for file in (first, second):
        file.write_bytes(b"x" * 4096)
    monkeypatch.setattr("tracer.session.paths.open_inode", refused)
    assert len(names(dev, [ino(first), ino(second)])) == 2
    assert names.late == {}
    monkeypatch.setattr("tracer.session.paths._MOST_ENTRIES", 0)
    assert names(dev, [ino(first), ino(second)]) == {}
    assert names.late == {"files without a name: the search took too long": 2}


def test_folders_of_the_job_are_searched_before_all_others(file_system, names, monkeypatch):
    """A search of the whole file system would see other files first, and end before the data."""
    mount, dev = file_system()
    for number in range(20):
        (mount / f"other{number}").touch()
    data = mount / "a/b/c/data"
    data.parent.mkdir(parents=True)
    data.write_bytes(b"x" * 4096)
    outside = mount / "link"
    outside.symlink_to(data.parent)
    monkeypatch.setattr("tracer.session.paths.open_inode", refused)
    monkeypatch.setattr("tracer.session.paths._MOST_ENTRIES", 8)
    found = {ino(data): (str(data), "walk")}
    assert names(dev, [ino(data)]) == {}
    assert names(dev, [ino(data)], folders=[data.parent]) == found
    assert names(dev, [ino(data)], command=["train", "--x", str(data.parent.parent)]) == found
    assert names(dev, [ino(data)], command=["train", f"{data.parent}/../c/"]) == found
    odd = ["", "-", "\0", "x" * 9000, "/", "..", str(outside), "\udcff\n"]
    assert names(dev, [ino(data)], command=odd) == {}
    monkeypatch.chdir(data.parent)
    assert names(dev, [ino(data)]) == found


def test_a_search_has_time_left_after_many_files_were_asked_for(file_system, names, monkeypatch):
    """The files are found nowhere but by a search; asking for them takes all of the other time."""
    mount, dev = file_system()
    files = [mount / f"file{number}" for number in range(9)]
    for file in files:
        file.write_bytes(b"x" * 4096)
    refuse = paths._by_handle

    def slow(*arguments):
        time.sleep(0.6)
        return refuse(*arguments)

    monkeypatch.setattr("tracer.session.paths.open_inode", refused)
    monkeypatch.setattr(paths, "_by_handle", slow)
    found = names(dev, [ino(file) for file in files])
    assert found and all(how == "walk" for _, how in found.values())


def test_a_file_that_is_renamed_or_removed_meanwhile_is_no_loss(file_system, names, monkeypatch):
    mount, dev = file_system()
    renamed, removed = mount / "renamed", mount / "removed"
    for file in (renamed, removed):
        file.write_bytes(b"x" * 4096)
    inodes = [ino(renamed), ino(removed)]
    leads_back = paths.leads_back

    def meanwhile(place, mount_fd, path, facts):
        if Path(os.fsdecode(path)) == renamed and renamed.exists():
            renamed.rename(mount / "new name")
        removed.unlink(missing_ok=True)
        return leads_back(place, mount_fd, path, facts)

    monkeypatch.setattr(paths, "leads_back", meanwhile)
    monkeypatch.setattr(paths, "_MOST_ENTRIES", 0)  # no file is searched for
    assert names(dev, inodes) == {inodes[0]: (str(mount / "new name"), "handle")}
    assert names.late == {}


def test_a_file_that_is_removed_during_the_search_is_no_loss(file_system, names, monkeypatch):
    mount, dev = file_system()
    for name in ("stays", "goes"):
        (mount / name).write_bytes(b"x" * 4096)
    inodes = [ino(mount / "stays"), ino(mount / "goes")]

    def removes(*_):
        (mount / "goes").unlink()
        return False

    monkeypatch.setattr(paths, "leads_back", lambda *_: False)  # as if a mount hid both
    monkeypatch.setattr(paths, "_by_walk", removes)
    assert names(dev, inodes) == {}
    assert names.late == {"files without a name: the search took too long": 1}
