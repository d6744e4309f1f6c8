"""Servers as runs: driven from outside over a Unix socket, ended by SIGTERM, failing in a line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.support.serving import Trained
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.workloads import launch
from tracer.workloads.errors import BrokenJobError
from tracer.workloads.serving import unix
from tracer.workloads.serving.drive import SOCKET, Server, drive
from tracer.workloads.serving.endpoint import AnswerError, Endpoint

pytestmark = pytest.mark.slow

LOAD = ["--rate", "100", "--requests", "23"]
SMALL = ["--samples", "160", "--device", "cpu"]


def running(*words: str) -> list[int]:
    """Processes that have all these words in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", pid, "cmdline").read_text(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words):
            found.append(int(pid))
    return found


@pytest.fixture
def run(tracer: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    def workload(*options: str, status: int = 0) -> Ran:
        where = ("--mode", "serve", "-o", tmp_path / "out")
        return tracer("workload", "run", "lenet", *where, *options, status=status)

    return workload


def test_a_server_is_driven_at_its_rate_and_both_tell(run, tmp_path: Path):
    ran = run(*LOAD, *SMALL, "--handlers", "2", "--timeout", "60")
    assert ran.err == ""
    result = ran.json
    assert (result["mode"], result["where"], result["failures"]) == ("serve", "host", [])
    (job,) = result["jobs"]
    assert result["weights"] is None
    assert job["client"]["wrong"] > 23 / 2  # fresh weights guess nine of ten wrong
    assert (job["server"]["answered"], job["server"]["handlers"]) == (23, 2)
    assert (job["client"]["answered"], job["client"]["rate"]) == (23, 100.0)
    assert job["client"]["latency_ms"]["p99"] >= job["client"]["latency_ms"]["p50"] > 0
    assert running("tracer.workloads", str(tmp_path)) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--requests", "3"], "needs a rate and an end; give --rate"),
        (["--rate", "3"], "give --rate and one of --requests, --seconds"),
        ([*LOAD, "--seconds", "1"], "give --rate and one of --requests, --seconds"),
        ([*LOAD, *SMALL, "--handlers", "0"], "Invalid value for '--handlers'"),
        ([*LOAD, *SMALL, "--arrivals", "late"], "Invalid value for '--arrivals'"),
        ([*LOAD, *SMALL, "--workers", "2"], "No such option: --workers"),
    ],
)
def test_a_job_that_cannot_be_served_is_refused_in_one_line_before_anything_is_made(
    run, tmp_path: Path, options: list[str], complaint: str
):
    err = run(*options, status=2).err
    assert complaint in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_load_is_of_servers(tracer):
    ran = tracer("workload", "run", "lenet", "--rate", "3", status=2)
    assert "--rate applies only to servers; give --mode serve" in ran.err


def test_ctrl_c_ends_server_and_client(tmp_path: Path):
    served = ("workload", "run", "lenet", "--mode", "serve", "-o", tmp_path / "out", *SMALL)
    with Tracer(*served, "--rate", "5", "--seconds", "1000", cwd=tmp_path) as process:
        try:
            wait_for((tmp_path / "out/weights.pt").exists, "the weights", 120)
            wait_for(lambda: running("request", str(tmp_path)), "the client", 120)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert running("tracer.workloads", str(tmp_path)) == []


def test_a_server_that_dies_under_load_is_a_failed_run(trained: Trained, tmp_path: Path):
    shutil.copy(trained.checkpoint, tmp_path / "weights.pt")
    load = ["--samples", "160", "--rate", "50", "--seconds", "10", "--timeout", "1"]
    job = launch.Job("lenet", "serve", tmp_path, data=trained.data, options=load)

    def kill() -> None:
        wait_for(lambda: running("\0request\0", str(trained.data)), "the client", 120)
        (pid,) = running("\0serve\0", str(tmp_path))
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    ran = launch.run_on_host(job)
    killer.join()
    assert ran.summaries == [None]
    assert ran.failures == ["killed by signal 9"]


def test_a_server_that_never_answers_or_has_ended_is_given_up(tmp_path: Path):
    silent = Server(tmp_path / SOCKET, lambda: False)
    with pytest.raises(subprocess.TimeoutExpired):
        drive("lenet", [silent], ["false"], until=time.monotonic() + 0.2)
    with pytest.raises(BrokenJobError, match="ended before it answered"):
        drive("lenet", [Server(tmp_path / SOCKET, lambda: True)], ["false"])


SERVES_AMID_AN_ATTACK = """
import os, sys
from pathlib import Path
from tracer.workloads.errors import JobError
from tracer.workloads.options import ServeOptions
from tracer.workloads.serving.server import serve

socket, victim = sys.argv[1:]


def attack(event, arguments):
    if event == "os.chmod":
        os.unlink(socket)
        os.symlink(victim, socket)


sys.addaudithook(attack)
try:
    serve(ServeOptions(model="lenet", checkpoint=Path("none"), socket=Path(socket)))
except JobError as error:
    print(error)
print(oct(os.umask(0)))
"""


def test_a_link_put_in_place_of_the_socket_opens_no_other_file(tmp_path: Path):
    """Somebody puts it there just before the server changes the mode of a path, if it does."""
    victim = tmp_path / "victim"
    victim.touch(0o600)
    ran = subprocess.run(
        [sys.executable, "-c", SERVES_AMID_AN_ATTACK, str(tmp_path / SOCKET), str(victim)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        umask=0o27,
    )
    assert "none" in ran.stdout.splitlines()[0]
    assert (ran.returncode, ran.stdout.splitlines()[1]) == (0, "0o27"), ran.stderr
    assert victim.stat().st_mode & 0o777 == 0o600


def test_a_server_at_a_socket_answers_and_leaves_none(start, command, trained, tmp_path: Path):
    path = tmp_path / SOCKET
    serving = ("serve", "lenet", "--checkpoint", trained.checkpoint, "--device", "cpu")
    server = start(*serving, "--socket", path)
    assert server.stderr.readline() == f"Serving lenet at unix:{path}\n"
    assert unix.listener(str(path)) == server.pid
    assert path.stat().st_mode & 0o777 == 0o666
    client = command(
        *("request", "lenet", "--data", trained.data, "--url", f"unix:{path}"),
        *("--rate", 100, "--requests", 40, "--timeout", 60),
    )
    summary = json.loads(client.out)
    wrong = sum(a != b for a, b in zip(trained.labels, trained.predictions, strict=True))
    assert (client.status, summary["answered"], summary["wrong"]) == (0, 40, wrong)
    taken = command(*serving, "--socket", path)
    assert (taken.status, taken.err.count("\n")) == (2, 1)
    assert f"cannot listen at {path}: Address already in use" in taken.err
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    assert json.loads(server.stdout.read())["answered"] == 40
    assert not path.exists()
    endpoint = Endpoint(f"unix:{path}")
    with pytest.raises(AnswerError, match="refused"):
        endpoint.predict(b"", 1, 1.0)
