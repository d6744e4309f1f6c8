"""Fixtures of tests with a real Docker daemon, real containers and recordings of them."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support.dockerd import Dockerd, python
from tests.support.file_systems import file_system  # noqa: F401 a fixture
from tests.support.kernel_settings import short_grace_periods  # noqa: F401 a fixture
from tests.support.sysctls import sysctls  # noqa: F401 a fixture
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.store.trace import Trace


@pytest.fixture(scope="session")
def daemon():
    """Runs one Docker daemon for all tests."""
    try:
        dockerd = Dockerd()
    except RuntimeError as error:
        do_without("Docker", "TRACER_REQUIRE_DOCKER", str(error))
    yield dockerd
    dockerd.close()


@pytest.fixture
def dockerd(daemon, monkeypatch):
    """Returns the daemon, named by DOCKER_HOST, without containers."""
    monkeypatch.setenv("DOCKER_HOST", daemon.host)
    yield daemon
    daemon.remove_all()


@pytest.fixture
def shared(tmp_path):
    """Returns a folder that is /shared in every container."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def start(dockerd, shared):
    """Starts a container whose program waits for a word: `start(NAME, SOURCE, ARGUMENTS...)`."""

    def run(name, source, *arguments, **options):
        return dockerd.run(name, WAITING + source, name, *arguments, shared=shared, **options)

    return run


WORDS = """
import os, sys, time
def wait_for(word):
    while not os.path.exists("/shared/" + word): time.sleep(0.005)
def say(word):
    os.close(os.open("/shared/" + word, os.O_CREAT | os.O_WRONLY))
"""
"""The begin of a program that says words, and waits for them, by files of a shared folder."""

WAITING = f"""{WORDS}
name = sys.argv[1]
say(name + "-is-up")
wait_for("go")
"""

BRIEF = ("-e", "syscalls")
"""Options for tests that need no other table: to make all takes a second."""

CALLS = """
for _ in range(int(sys.argv[2])): os.getppid()
say(name + "-is-done")
time.sleep(1000)
"""


@pytest.fixture
def start_on_host(shared):
    """Starts a program that waits for a word on the host; returns its process."""
    started = []

    def run(name, source, *arguments):
        source = (WAITING + source).replace("/shared", str(shared))
        started.append(subprocess.Popen(python(source, name, *arguments)))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def tell(shared):
    """Tells the containers to go, and waits for their answers: `tell("go", "a-is-done")`."""

    def words(word, *answers):
        if word:
            (shared / word).touch()
        for answer in answers:
            wait_for((shared / answer).exists, answer)

    return words


class Recording:
    """A recording in the background, which traces when the object is made."""

    def __init__(self, folder: Path, *options: object) -> None:
        self.folder = folder
        self.process = Tracer("record", "-o", folder, *options)
        first = self.process.stderr.readline()
        assert first.startswith("Tracing "), first + self.process.stderr.read()

    def stop(self) -> Trace:
        """Ends the recording, if it has not ended; returns the trace."""
        self.process.send_signal(signal.SIGINT)
        return self.trace()

    def trace(self) -> Trace:
        """Waits until the recording ends by itself; returns the trace."""
        err = self.process.stderr.read()
        assert self.process.wait(timeout=120) == 0, err
        assert "Traceback" not in err
        return Trace(self.folder)


@pytest.fixture
def record(tmp_path):
    """Starts recordings: `record("--container", "a")`."""
    started = []

    def begin(*options):
        started.append(Recording(tmp_path / f"{len(started)}.trace", *options))
        return started[-1]

    yield begin
    for recording in started:
        recording.process.kill()
        recording.process.communicate()


def calls(trace, name="getppid"):
    """Counts the calls of this name by target and role."""
    query = (
        "SELECT p.target, p.role, count(*) FROM syscalls s LEFT JOIN processes p "
        "ON s.pid = p.pid AND s.tid = p.tid WHERE s.name = ? GROUP BY 1, 2 ORDER BY 1, 2"
    )
    return trace.connection.execute(query, [name]).fetchall()


def init_of(container):
    """Returns the host's pid of a container's first process; 0 while it does not run."""
    container.reload()
    return container.attrs["State"]["Pid"]
