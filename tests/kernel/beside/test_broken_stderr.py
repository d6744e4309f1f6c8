"""A standard error that cannot be written ends neither the recorded command nor the recording."""

import os
import pty
import shlex
import subprocess

import pytest

from tests.conftest import tracer_command
from tests.support.broken_streams import BROKEN, broken_stream
from tests.support.recorder import CALLS
from tracer.store.trace import Trace


def assert_recorded_to_its_end(folder, status):
    """Fails if the job of a recording, its status or the tables were lost."""
    assert (folder / "ended").exists()
    assert status == 5
    with Trace(folder / "x.trace") as trace:
        assert trace.manifest["complete"] is True
        assert trace.manifest["ended_by"] == "command"
        assert trace.manifest["targets"][0]["exit_status"] == 5
        assert trace.connection.execute("SELECT count(*) FROM syscalls").fetchone()[0] > 0


@pytest.mark.parametrize("kind", BROKEN)
def test_the_command_and_its_recording_go_on_with_a_broken_standard_error(tmp_path, kind):
    job = ("sh", "-c", "sleep 0.3; touch ended; exit 5")
    command = tracer_command("record", *CALLS, "-o", "x.trace", "--", *job)
    with broken_stream(kind) as stream:
        ran = subprocess.run(command, stderr=stream, cwd=tmp_path, timeout=120, check=False)
    assert_recorded_to_its_end(tmp_path, ran.returncode)


def test_the_command_and_its_recording_go_on_if_the_terminal_goes(tmp_path):
    job = "for i in $(seq 300); do [ -e gone ] || sleep 0.1; done; sleep 0.5; touch ended; exit 5"
    command = tracer_command("record", *CALLS, "-o", "x.trace", "--", "sh", "-c", job)
    ours, its = pty.openpty()
    env = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stderr=its, cwd=tmp_path, env=env) as recorder:
        os.close(its)
        shown = b""
        while b"captured" not in shown:  # the line of progress is on the terminal
            shown += os.read(ours, 4096)
        os.close(ours)
        (tmp_path / "gone").touch()
        recorder.wait(120)
    assert_recorded_to_its_end(tmp_path, recorder.returncode)


def test_the_line_about_the_report_is_a_command_for_any_path(tracer, tmp_path):
    name = "a run; $HOME's 'x'.trace"
    said = tracer("record", *CALLS, "-o", name, "--", "true").err.splitlines()
    (told,) = [line for line in said if line.startswith("See it: ")]
    assert shlex.split(told.removeprefix("See it: ")) == ["tracer", "report", name]


def test_the_line_about_the_report_escapes_control_characters(tracer, tmp_path):
    said = tracer("record", *CALLS, "-o", "a\x1b[31m.trace", "--", "true").err
    assert "\x1b" not in said
    assert "See it: tracer report $'a\\033[31m.trace'" in said
