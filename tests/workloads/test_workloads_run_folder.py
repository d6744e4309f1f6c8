"""The temporary folder of a run goes with the run, or with the next one if the run was killed."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from tracer.workloads.owner import has_ended, myself
from tracer.workloads.run_folder import run_folder


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The folder of temporary folders."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


BE_KILLED = """
import os
from tracer.workloads.run_folder import run_folder
with run_folder() as folder:
    (folder / "gates").mkdir()
    os.mkfifo(folder / "gates/0")
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def left(place):
    """The folder of a killed run."""
    env = {**os.environ, "TMPDIR": str(place)}
    ended = subprocess.run([sys.executable, "-c", BE_KILLED], env=env, check=False)
    assert ended.returncode == -signal.SIGKILL
    (found,) = place.iterdir()
    return found


def test_a_folder_goes_with_its_run(place):
    with pytest.raises(KeyboardInterrupt), run_folder() as folder:
        (folder / "socket").touch()
        assert list(place.iterdir()) == [folder]
        raise KeyboardInterrupt
    assert list(place.iterdir()) == []


def test_the_next_run_removes_the_folder_of_a_killed_one(place, left):
    with run_folder() as folder:
        assert list(place.iterdir()) == [folder]


def test_the_folder_of_a_run_that_goes_on_stays():
    with run_folder() as one, run_folder() as other:
        assert one.exists() and other.exists()


def test_only_folders_of_killed_runs_are_removed(place, left, tmp_path):
    left.rename(tmp_path / "elsewhere")
    left.symlink_to(tmp_path / "elsewhere")
    (place / "traintrace-run-mine").mkdir()
    (place / f"x{left.name}").mkdir()
    before = set(place.iterdir())
    with run_folder():
        pass
    assert set(place.iterdir()) == before
    assert (tmp_path / "elsewhere/gates/0").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a folder of another user")
def test_another_users_folder_stays(left):
    os.chown(left, 65534, 65534)
    with run_folder():
        pass
    assert left.exists()


def test_a_process_has_ended_when_its_number_is_anothers_or_the_machine_starts_again(monkeypatch):
    pid, start, boot, namespace, user = myself().split("-")
    assert not has_ended(myself(), here=True)
    assert has_ended(f"{pid}-{int(start) - 1}-{boot}-{namespace}-{user}", here=False)
    monkeypatch.setattr("tracer.workloads.owner.boot_id", lambda: "f" * 32)
    assert has_ended(f"{pid}-{start}-{boot}-{namespace}-{user}", here=True)
    assert not has_ended(f"{pid}-{start}-{boot}-{namespace}-{user}", here=False)


def test_a_process_that_cannot_be_seen_is_not_known_to_have_ended():
    pid, start, boot, namespace, user = myself().split("-")
    ended = f"{pid}-{int(start) - 1}-{boot}"
    assert not has_ended(f"{ended}-{int(namespace) + 1}-{user}", here=True)


@pytest.mark.parametrize("owner", ["", "1", "x-y-z-1-2", "1-2-3", "1-2-3-4-5-6", "{pid}-1764.56"])
def test_a_label_that_names_no_process_names_none_that_has_ended(owner):
    assert not has_ended(owner.format(pid=os.getpid()), here=True)
