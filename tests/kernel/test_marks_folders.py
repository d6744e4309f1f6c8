"""A target names the folder of its marks: one on a file system of its own holds nobody up."""

import contextlib
import os
import subprocess

import pytest

from tests.support.dead_file_system import dead_file_system  # noqa: F401 a fixture
from tracer.phases import MARKS_ENV
from tracer.probes.workers.opening import open_aside
from tracer.session import marks
from tracer.session.marks import Marks
from tracer.targets.processes import from_pids


@pytest.fixture
def target():
    """A process whose marks would go to a folder."""
    started = []

    def start(folder):
        environment = {**os.environ, MARKS_ENV: str(folder)}
        started.append(subprocess.Popen(["sleep", "100"], env=environment))
        return from_pids(str(started[-1].pid))

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("dies", [True, False])
def test_a_folder_in_user_space_is_left_out_and_counted(
    target,
    dead_file_system,  # noqa: F811
    tmp_path,
    monkeypatch,
    dies,
):
    monkeypatch.setattr(marks, "_SECONDS", 0.2)
    theirs = dead_file_system()
    found = target(theirs.folder)
    if dies:
        theirs.dies()
    asked = Marks(tmp_path, tmp_path / "live")
    asked.find(found)
    assert asked.marking == set()
    assert asked._lost == {"their folder's file system may never answer": 1}


OVERLAY = 'mount -t overlay overlay -o "lowerdir=$1:$2" "$3" && exec cat'


@pytest.fixture
def in_overlay(dead_file_system, tmp_path):  # noqa: F811
    """A process in an overlay that it has mounted above a file system in user space."""
    theirs, others, place = dead_file_system(), tmp_path / "others", tmp_path / "place"
    others.mkdir()
    place.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", OVERLAY, "sh"]
    with subprocess.Popen(
        [*command, theirs.folder, others, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, MARKS_ENV: str(place)},
    ) as process:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"?\n")
            process.stdin.flush()
        if not process.stdout.readline():
            pytest.skip("users may mount no overlays here")
        yield process
        process.kill()


def test_a_folder_in_an_overlay_above_user_space_is_left_out(in_overlay, tmp_path):
    """The overlay asks the file system with its user's rights, so that it does not refuse root."""
    asked = Marks(tmp_path, tmp_path / "live")
    asked.find(from_pids(str(in_overlay.pid)))
    assert asked.marking == set()
    assert asked._lost == {"their folder's file system may never answer": 1}


def test_many_processes_that_name_a_dead_folder_are_not_waited_for_one_by_one(
    target,
    dead_file_system,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    asked_aside = []

    def counted(find, seconds):
        asked_aside.append(seconds)
        return open_aside(find, seconds)

    monkeypatch.setattr(marks, "_SECONDS", 0.2)
    monkeypatch.setattr(marks, "_SECONDS_IN_ALL", 0.4, raising=False)
    monkeypatch.setattr(marks, "open_aside", counted)
    theirs = dead_file_system()
    found = [each for _ in range(7) for each in target(theirs.folder)]
    theirs.dies()
    asked = Marks(tmp_path, tmp_path / "live")
    asked.find(found)
    assert len(asked_aside) <= 3
    assert asked._lost == {"their folder's file system may never answer": 7}


def test_a_folder_on_a_disk_is_opened(target, tmp_path):
    (tmp_path / "theirs").mkdir()
    found = target(tmp_path / "theirs")
    asked = Marks(tmp_path, tmp_path / "live")
    asked.find(found)
    assert asked.marking == {found[0].describe()["pid"]}
    assert not asked._lost
    asked.collect()
