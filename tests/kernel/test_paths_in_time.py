"""Names of inodes that nobody looked up, or whose file system never answers."""

from __future__ import annotations

import os

from tests.support.dead_file_system import dead_file_system  # noqa: F401 a fixture
from tests.support.found_names import ino
from tracer.session import paths
from tracer.store import manifest as manifests
from tracer.store.finalize import finalize
from tracer.store.trace import Trace


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
