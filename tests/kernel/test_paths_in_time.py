"""Names of inodes whose search takes too long, or whose files change meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.dead_file_system import dead_file_system  # noqa: F401 a fixture
from tests.support.found_names import ino, refused
from tracer.session import paths
from tracer.store import manifest as manifests
from tracer.store.finalize import finalize
from tracer.store.trace import Trace


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


def test_files_that_were_not_looked_up_are_told_with_the_losses(tracer, tmp_path):
    tracer("record", "-o", "x.trace", "--", "true")
    folder = tmp_path / "x.trace"
    lost = {"files without a name: the search took too long": 7}
    for find in (lambda tables, manifest: ([], [], lost), None):
        finalize(folder, manifests.read(folder), find_files=find)
        with Trace(folder) as trace:
            told = trace.rows("SELECT cause FROM loss WHERE stream = 'files'")
            assert told == [("7 files without a name: the search took too long",)]
            assert trace.manifest["loss"]["others"] == 1


def test_a_file_system_that_never_answers_hides_only_its_own_files(
    file_system,
    names,
    dead_file_system,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr(paths, "_MOST_SECONDS", 0.3)
    monkeypatch.setattr(paths, "_MORE_SECONDS", 0.1)
    mount, dev = file_system()
    plain = mount / "plain"
    plain.write_bytes(b"x" * 4096)
    dead = dead_file_system(b"x" * 4096)
    status = dead.path.stat()
    of_dead = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    assert names(of_dead, [status.st_ino]) == {}  # it lists nothing, but it answers
    dead.dies()
    assert names(of_dead, [status.st_ino], others={dev: [ino(plain)]}) == {
        ino(plain): (str(plain), "handle")
    }
    assert names.late == {"files without a name: no answer in time": 1}
