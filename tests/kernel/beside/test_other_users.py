"""Attacks by the user whom root records for, or by a recorded process: root lends no rights.

The attacker is a real second user. It acts while the recorder runs, in a folder of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.attacker import BY_SUDO, NOBODY, SECRET, end, recorded
from tests.support.compared import make_run
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.probes.errors import TracerError
from tracer.session.output import Output
from tracer.store.trace import Trace


@pytest.fixture
def recording(place, victim):
    """A recording of which few tables are made."""
    with recorded(victim, place / "theirs", "-e", "syscalls") as recorder:
        yield recorder


def contents(folder: Path) -> bytes:
    """Everything in all files of a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


AGAIN = """
print(flush=True)
while True:
    try: act()
    except OSError: pass
"""
OPEN_UP = "import os\ndef act(): os.chmod('x.trace', 0o777)"
SWAP = """
import ctypes
EXCHANGE, HERE = 2, -100
swap = ctypes.CDLL(None).renameat2
def act(): swap(HERE, b"folder", HERE, b"link", EXCHANGE)
"""
TRIES = 300


@contextlib.contextmanager
def racing(folder, source):
    """The attacker's process, which does the same again and again in its folder."""
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command = [*user, sys._base_executable, "-S", "-E", "-c", source + AGAIN]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline()
            yield
        finally:
            process.kill()


@pytest.fixture
def by_sudo(monkeypatch):
    """This process makes folders as root does that the attacker has called by sudo."""
    for name, number in BY_SUDO.items():
        monkeypatch.setenv(name, number)


def test_a_folder_that_is_being_made_is_opened_to_nobody(place, by_sudo):
    """It is the user's until root takes it."""
    path = place / "theirs/x.trace"
    made = 0
    with racing(path.parent, OPEN_UP):
        for _ in range(TRIES):
            try:
                output = Output(path)
            except TracerError:
                continue
            made += 1
            status = path.stat()
            output.close()
            shutil.rmtree(path)
            assert (status.st_uid, status.st_mode & 0o777) == (0, 0o711)
    assert made


def test_no_folder_of_roots_is_taken_for_the_one_that_was_just_made(place, by_sudo):
    """It would be given to the user at the end."""
    theirs, roots = place / "theirs", place / "public/x.trace"
    (theirs / "folder").mkdir()
    os.chown(theirs / "folder", NOBODY, NOBODY)
    (theirs / "link").symlink_to(roots.parent)
    roots.mkdir(parents=True)
    with racing(theirs, SWAP):
        for _ in range(TRIES):
            with contextlib.suppress(TracerError):
                Output(theirs / "folder/x.trace").close()
            assert os.listdir(roots) == []
            for name in ("folder", "link"):
                if not (theirs / name).is_symlink():
                    with contextlib.suppress(OSError):
                        shutil.rmtree(theirs / name / "x.trace")
            roots.mkdir(exist_ok=True)


def test_another_folder_in_the_place_of_the_trace_gets_nothing(recording, place, attack):
    assert attack(f'mv x.trace moved && ln -s "{place}/root\'s" x.trace')
    end(recording)
    assert os.listdir(place / "root's") == ["secret"]
    with Trace(place / "theirs/moved") as trace:
        assert trace.manifest["complete"]
        assert trace.manifest["tables"]["syscalls"]["rows"] > 0
    assert (place / "theirs/moved").stat().st_uid == NOBODY


def test_another_folder_gets_nothing_from_a_guardian_either(recording, place, attack):
    assert attack(f'mv x.trace moved && ln -s "{place}/root\'s" x.trace')
    recording.kill()
    recording.wait()
    wait_for(lambda: (place / "theirs/moved").stat().st_uid == NOBODY, "the guardian")
    told = json.loads((place / "theirs/moved/manifest.json").read_text())
    assert told["ended_by"] == "killed"
    assert os.listdir(place / "root's") == ["secret"]


LIVE = "x.trace/raw/marks.live"


@pytest.mark.parametrize(
    "planted",
    [
        'ln -s "$SECRET" 1-1-1.marks',
        'ln -s "$SECRET" 1-1.note',
        "mkfifo 1-1-1.marks",
        "mkdir 1-1-1.marks",
        "truncate -s 1T 1-1-1.marks",
    ],
)
def test_marks_that_are_no_marks_are_left_out_and_counted(recording, place, attack, planted):
    assert attack(f'cd {LIVE} && SECRET="{place}/root\'s/secret" && {planted}')
    end(recording)
    trace = place / "theirs/x.trace"
    assert SECRET.encode() not in contents(trace)
    assert not (trace / "raw/marks.live").exists()
    with Trace(trace) as opened:
        causes = opened.sql("SELECT cause FROM loss WHERE stream = 'marks'")["cause"].to_list()
    (cause,) = causes
    assert cause.startswith("1 files of marks left out: ")


DEEP = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"


def test_folders_in_folders_of_marks_end_no_recording(recording, place):
    """There are more of them than a function may call itself."""
    trace = place / "theirs/x.trace"
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    python = [sys._base_executable, "-S", "-E", "-c", DEEP]
    subprocess.run([*user, *python], cwd=trace / "raw/marks.live", check=True)
    end(recording)
    assert not (trace / "raw/marks.live").exists()
    with Trace(trace) as opened:
        assert opened.manifest["complete"]
        assert opened.manifest["tables"]["syscalls"]["rows"] > 0


MARKER = """
import os, sys, time
while True: os.getppid(); time.sleep(0.001)
"""


@pytest.mark.parametrize(
    "planted",
    [
        "ln -s {secret} {name}",
        "mkfifo {name}",
        "mkdir {name}",
        "mknod {name} c 1 5",  # /dev/zero, which never ends
        "truncate -s 1T {name}",
    ],
)
def test_marks_of_a_process_are_only_regular_files_of_its_own(place, planted):
    """The process names any folder in its environment, and puts anything there."""
    marks = place / "marks"
    marks.mkdir()
    name = f"1-{1 << 60}-0.marks"
    script = planted.format(secret=place / "root's/secret", name=name)
    environment = {**os.environ, "TRACER_MARKS": str(marks)}
    command = [sys._base_executable, "-S", "-E", "-c", MARKER]
    with subprocess.Popen(command, env=environment) as process:
        recorder = Tracer("record", "-e", "syscalls", "-o", "x.trace", "-p", process.pid, cwd=place)
        wait_for((place / "x.trace/raw/threads.json").exists, "the recording")
        subprocess.run(["sh", "-c", script.replace("root's", "root\\'s")], cwd=marks, check=True)
        recorder.send_signal(signal.SIGINT)
        _, err = recorder.communicate(timeout=120)
        process.kill()
    assert recorder.returncode == 0, err
    assert SECRET.encode() not in contents(place / "x.trace")
    with Trace(place / "x.trace") as trace:
        assert len(trace.sql("SELECT * FROM loss WHERE stream = 'marks'")) == 1


def test_a_link_does_not_lead_out_of_a_targets_root(place):
    """A chrooted process names a folder by an absolute link, which root must not follow."""
    outside = place / "root's" / f"1-{1 << 60}-0.marks"
    jail = place / "jail"
    jail.mkdir()
    (jail / "marks").symlink_to(outside.parent)
    inside = jail / str(outside).lstrip("/")
    inside.parent.mkdir(parents=True)
    source = f"import os, time\nos.chroot({str(jail)!r})\nos.chdir('/')\n" + (
        "print('in', flush=True)\nwhile True: os.getppid(); time.sleep(0.001)"
    )
    command = [sys._base_executable, "-S", "-E", "-c", source]
    environment = {**os.environ, "TRACER_MARKS": "/marks"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"in\n"
        recorder = Tracer("record", "-e", "syscalls", "-o", "x.trace", "-p", process.pid, cwd=place)
        wait_for((place / "x.trace/raw/threads.json").exists, "the recording")
        outside.write_text(SECRET)
        inside.write_text("of its own")
        recorder.send_signal(signal.SIGINT)
        _, err = recorder.communicate(timeout=120)
        process.kill()
    assert recorder.returncode == 0, err
    assert SECRET.encode() not in contents(place / "x.trace")
    assert b"of its own" in contents(place / "x.trace/raw/marks")


def test_under_sudo_a_page_is_written_with_the_users_rights(place, tracer, attack):
    trace = make_run(place / "x.trace", seconds=0.1)
    forbidden = place / "root's/page.html"
    environment = {**os.environ, **BY_SUDO}
    ran = tracer("report", trace, "--html", forbidden, env=environment, status=3)
    assert "Permission denied" in ran.err
    tracer("report", trace, "--html", place / "theirs/page.html", env=environment)
    assert (place / "theirs/page.html").stat().st_uid == NOBODY
    assert not forbidden.exists()


def test_under_sudo_no_trace_is_made_where_the_user_may_not_write(place, tracer):
    environment = {**os.environ, **BY_SUDO}
    folder = place / "root's/x.trace"
    ran = tracer("record", "-o", folder, "--", "true", env=environment, status=3)
    assert "cannot be written" in ran.err
    assert not folder.exists()


def test_root_makes_no_tables_in_another_users_folder(recording, place, attack, tracer):
    """The folder's owner could redirect what root writes there."""
    recording.kill()
    recording.wait()
    trace = place / "theirs/x.trace"
    wait_for(lambda: trace.stat().st_uid == NOBODY, "the guardian")
    assert attack(f'rm -r x.trace/raw/marks && ln -s "{place}/root\'s" x.trace/raw/marks')
    ran = tracer("info", trace, status=3)
    assert f"sudo -u '#{NOBODY}' tracer info" in ran.err
    assert os.listdir(place / "root's") == ["secret"]


def test_a_job_imports_nothing_from_the_folder_that_its_user_stands_in(place, tracer):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    here = place / "theirs"
    (here / "torch.py").write_text("open('imported', 'w')\nraise ImportError('not the real one')")
    job = ("workload", "run", "lenet", "--samples", "16", "--steps", "1", "-o", place / "out")
    tracer(*job, cwd=here, env={**os.environ, "PYTHONPATH": str(here)})
    assert not (here / "imported").exists()
