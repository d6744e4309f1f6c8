"""A study ends the processes of a killed one, and no others, even if the note is forged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_for
from tracer.probes.kernel import boot_id, process_alive, process_start_time
from tracer.workloads.errors import JobError
from tracer.workloads.session_notes import Noted
from tracer.workloads.sessions import SESSION_ENV, begun, end_left

NOBODY = 65534
GONE = (1, 0)
"""A pid and a start time that no process has."""
ORPHANED = "sleep 1000 & echo $!"
RESTARTING = 'again="exec sh -c \\"\\$again\\""; export again; sh -c "$again" & echo $!'
"""A shell whose child does nothing but start itself as a new program."""


@pytest.fixture
def session():
    """Starts a shell command in its own session, whose processes end with the test."""
    made = []

    def start(script="sleep 1000 & wait", **environment):
        process = subprocess.Popen(
            ["sh", "-c", script],
            start_new_session=True,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        made.append(process)
        return process

    yield start
    for process in made:
        for pid in members(process.pid):
            os.kill(pid, 9)
        process.kill()
        process.wait()
        process.stdout.close()


def members(session):
    found = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session and process_alive(pid, process_start_time(pid)):
                found.append(pid)
        except ProcessLookupError:
            continue
    return found


def noted(process, token="their token"):
    start = process_start_time(process.pid)
    return Noted(process.pid, start, *GONE, boot_id(), token)


def written(note: Path, *sessions: Noted) -> Path:
    note.write_text(json.dumps([asdict(one) for one in sessions]))
    note.chmod(0o600)
    return note


def test_all_processes_of_a_session_are_ended(session, tmp_path):
    process = session()
    wait_for(lambda: len(members(process.pid)) == 2, "both processes")
    note = written(tmp_path / "running.json", noted(process))
    end_left(note)
    assert members(process.pid) == []
    assert not note.exists()


def test_a_session_without_its_first_process_is_known_by_its_token(session, tmp_path):
    process = session(ORPHANED, **{SESSION_ENV: "ours"})
    one = noted(process, "ours")
    left = int(process.stdout.readline())
    process.wait()
    end_left(written(tmp_path / "running.json", one))
    assert not process_alive(left, process_start_time(left))


def test_a_process_that_starts_programs_all_the_time_is_known_by_its_token(session, tmp_path):
    for _ in range(40):  # each has no environment some 8 % of the time
        process = session(RESTARTING, **{SESSION_ENV: "ours"})
        one = noted(process, "ours")
        left = int(process.stdout.readline())
        process.wait()
        end_left(written(tmp_path / "running.json", one))
        assert not process_alive(left, process_start_time(left))


def test_a_session_without_the_token_is_not_ended(session, tmp_path):
    process = session(ORPHANED)
    one = noted(process)
    left = int(process.stdout.readline())
    process.wait()
    end_left(written(tmp_path / "running.json", replace(one, start=one.start - 100)))
    assert members(process.pid) == [left]


def test_a_process_with_a_reused_pid_is_not_ended(session, tmp_path):
    process = session()
    one = noted(process)
    end_left(written(tmp_path / "running.json", replace(one, start=one.start - 100)))
    assert process.poll() is None


def test_a_note_of_an_earlier_boot_ends_nothing(session, tmp_path):
    process = session()
    note = written(tmp_path / "running.json", replace(noted(process), boot="another"))
    end_left(note)
    assert process.poll() is None
    assert not note.exists()


def test_a_note_of_a_running_study_ends_nothing(session, tmp_path):
    process = session()
    runner = (os.getppid(), process_start_time(os.getppid()))
    one = replace(noted(process), runner=runner[0], runner_start=runner[1])
    end_left(written(tmp_path / "running.json", one))
    assert process.poll() is None


def another_user_s(note, aside):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(note, NOBODY, NOBODY)


def writable_by_others(note, aside):
    note.chmod(0o622)


def a_link(note, aside):
    note.rename(aside)
    note.symlink_to(aside)


def a_second_name(note, aside):
    aside.hardlink_to(note)


def a_fifo(note, aside):
    note.unlink()
    os.mkfifo(note)


def no_note(note, aside):
    note.write_text('[{"session": 1}]')


@pytest.mark.parametrize(
    "attack", [another_user_s, writable_by_others, a_link, a_second_name, a_fifo, no_note]
)
def test_a_note_that_others_could_write_is_refused(session, tmp_path, attack):
    process = session()
    note = written(tmp_path / "running.json", noted(process))
    attack(note, tmp_path / "aside")
    with pytest.raises(JobError, match="the note of a killed study"):
        end_left(note)
    assert process.poll() is None


STUBBORN = """
import signal, subprocess, sys
from pathlib import Path
from tracer.workloads import sessions
script = 'trap "touch told" TERM; touch ready; while :; do sleep 1 & wait; done'
nothing = subprocess.DEVNULL
with sessions.begun(["sh", "-c", script], Path("running.json"), nothing, nothing) as process:
    print(process.pid, flush=True)
    while not Path("ready").exists(): pass
    signal.raise_signal(signal.SIGINT)
"""
"""A runner that Ctrl-C ends. Its command goes on after SIGTERM, and starts children."""


def test_a_second_ctrl_c_leaves_no_process_of_a_session(tmp_path):
    runner = subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    session = int(runner.stdout.readline())
    try:
        wait_for((tmp_path / "told").exists, "SIGTERM")
        runner.send_signal(signal.SIGINT)
        runner.communicate()
        assert members(session) == []
        assert not (tmp_path / "running.json").exists()
    finally:
        for pid in members(session):
            os.kill(pid, 9)


def test_an_error_leaves_no_process_of_a_command_that_has_ended(tmp_path):
    with (
        (tmp_path / "out").open("w+b") as out,
        pytest.raises(RuntimeError),
        begun(["sh", "-c", ORPHANED], None, out, subprocess.DEVNULL) as process,
    ):
        process.wait()
        left = int((tmp_path / "out").read_text())
        assert members(process.pid) == [left]
        raise RuntimeError
    assert not process_alive(left, process_start_time(left))
