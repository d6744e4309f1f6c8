"""The Docker daemon as a target: all its processes, and none of those in containers."""

import os
import socket
from pathlib import Path

import pytest

from tests.docker.conftest import BRIEF, CALLS, calls, init_of, wait_for
from tests.support.dockerd import Dockerd, python
from tests.support.losses import losses
from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.targets import docker_api
from tracer.targets.containers import from_names
from tracer.targets.daemon import from_socket

LATER = 1009
TIMES = "import os\nfor _ in range({}): os.times()"


def test_processes_in_a_container_do_not_belong_to_the_daemon(start, tell, record, dockerd):
    before = start("before", CALLS, 1)
    tell(None, "before-is-up")
    recording = record("--docker-daemon")
    container = start("during", TIMES.format(LATER))
    tell("go", "during-is-up")
    container.wait()
    assert dockerd.execute(before, python(TIMES.format(LATER))) == 0
    with recording.stop() as trace:
        (target,) = trace.manifest["targets"]
        assert (target["kind"], target["role"]) == ("daemon", "daemon")
        assert target["pid"] == dockerd.process.pid
        assert calls(trace, "times") == []
        # Other processes made their calls for the daemon, before they entered their container.
        found = trace.connection.execute(
            "SELECT DISTINCT p.role, p.target, p.container_name FROM syscalls s "
            "LEFT JOIN processes p USING (pid, tid) ORDER BY 3 NULLS FIRST"
        ).fetchall()
        assert found[0] == ("daemon", target["name"], None)
        assert set(found[1:]) <= {("other", None, "before"), ("other", None, "during")}
        names = trace.connection.execute(
            "SELECT DISTINCT comm FROM processes WHERE role = 'daemon'"
        ).fetchall()
        assert {"dockerd", "containerd", "containerd-shim", "runc"} <= {name for (name,) in names}
        inside = trace.connection.execute(
            "SELECT container_name, role, count(*) > 0 FROM processes "
            "WHERE container_name IS NOT NULL GROUP BY 1, 2 ORDER BY 1"
        ).fetchall()
        assert inside == [("before", "other", True), ("during", "other", True)]
        assert losses(trace) == []


def test_the_daemon_and_a_container_are_recorded_at_once(dockerd, start, tell, record):
    """A process that the daemon makes for the container joins the target when it enters it.

    `test_awaited_containers.py` records both by every backend.
    """
    container = start("one", CALLS, 101)
    tell(None, "one-is-up")
    recording = record("--docker-daemon", "--container", "one", *BRIEF)
    tell("go", "one-is-done")
    assert dockerd.execute(container, python(TIMES.format(LATER))) == 0
    with recording.stop() as trace:
        assert calls(trace, "times") == [("one", "target", LATER)]
        assert ("one", "target", 101) in calls(trace)
        found = trace.connection.execute(
            "SELECT DISTINCT role, container_name FROM processes WHERE role <> 'other' "
            "AND role <> 'flusher' AND role <> 'journal' ORDER BY 1"
        ).fetchall()
        assert found == [("daemon", None), ("target", "one")]


def test_a_container_that_comes_and_goes_has_its_name(dockerd, shared, record):
    recording = record("--docker-daemon", *BRIEF)
    container = dockerd.run("fleeting", TIMES.format(LATER), shared=shared, auto_remove=True)
    wait_for(lambda: dockerd.client.api.containers(all=True) == [], "its removal")
    with recording.stop() as trace:
        found = trace.connection.execute(
            "SELECT DISTINCT container_name FROM processes WHERE container_id = ?", [container.id]
        ).fetchall()
    assert found == [("fleeting",)]


def test_shims_and_containerd_are_found(dockerd, start, tell):
    container = start("up", CALLS, 1)
    tell(None, "up-is-up")
    target = from_socket()
    comms = sorted(Path(f"/proc/{pid}/comm").read_text().strip() for pid in target.roots)
    assert comms == ["containerd", "containerd-shim", "dockerd"]
    assert init_of(container) not in target.members()


def test_a_daemon_with_a_socket_of_systemd_is_found(monkeypatch, shared):
    """Tests a daemon whose socket belongs to systemd and whose containerd has no parent."""
    dockerd = Dockerd(by_systemd=True)
    try:
        monkeypatch.setenv("DOCKER_HOST", dockerd.host)
        container = dockerd.run("up", "import time; time.sleep(1000)", shared=shared)
        target = from_socket()
        comms = {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in target.roots}
        assert set(comms) == {"containerd", "containerd-shim", "dockerd"}
        assert target.pid == comms["dockerd"]
        (found,) = from_names([container.id])
        assert found.makers() == {comms["containerd"], comms["containerd-shim"]}
    finally:
        dockerd.close()


def test_processes_that_join_a_recorded_cgroup_are_recorded(start, tell, record, dockerd):
    """Records the cgroup of all containers, with programs executed and containers started later."""
    first = start("first", CALLS, 101)
    tell(None, "first-is-up")
    recording = record("--cgroup", dockerd.cgroup, *BRIEF)
    tell("go", "first-is-done")
    assert dockerd.execute(first, python(TIMES.format(LATER))) == 0
    second = start("second", TIMES.format(LATER))
    second.wait()
    with recording.stop() as trace:
        assert losses(trace) == []
        found = trace.connection.execute(
            "SELECT p.container_name, p.target, count(*) FROM syscalls s JOIN processes p "
            "USING (pid, tid) WHERE s.name = 'times' GROUP BY 1, 2 ORDER BY 1"
        ).fetchall()
    assert found == [("first", dockerd.cgroup, LATER), ("second", dockerd.cgroup, LATER)]


def one_line(text):
    assert text.count("\n") == 1, text
    assert text.startswith("tracer: ")
    return text


def test_the_error_for_an_unknown_container_lists_the_others(tracer, start, tell):
    start("stopped", "pass")
    start("there", CALLS, 1)
    tell("go", "stopped-is-up", "there-is-up")
    ran = tracer("record", "--container", "gone", "--engine", "docker", status=4)
    assert "there is no container 'gone'; there are: stopped, there" in one_line(ran.err)
    ran = tracer("record", "--container", "\udcff", "-o", "x", status=4)
    assert "there is no container '\\udcff'; there are: stopped, there" in one_line(ran.err)


def test_a_stopped_container_is_refused(tracer, start, tell):
    container = start("stopped", "pass")
    tell("go")
    container.wait()
    ran = tracer("record", "--container", "stopped", status=4)
    assert "container stopped is not running (exited); docker start stopped" in one_line(ran.err)


def test_a_path_is_refused_as_a_container_name(tracer, dockerd):
    for name in ("../version", "a/json?x=", "a b", "x\n\x1b[31m"):
        one_line(tracer("record", "--container", name, status=4).err)
    one_line(tracer("record", "--container", "", status=2).err)


@pytest.mark.parametrize(
    "options", [("--container", "x", "--engine", "docker"), ("--docker-daemon",)]
)
@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("unix:///nowhere/docker.sock", "no Docker daemon answers at /nowhere/docker.sock"),
        ("tcp://127.0.0.1:1", "127.0.0.1:1"),
        ("what is this", "what is this"),
    ],
)
def test_a_missing_daemon_is_reported(tracer, options, host, said):
    ran = tracer("record", *options, status=5, env={**os.environ, "DOCKER_HOST": host})
    assert said in one_line(ran.err)


def test_a_summary_of_the_daemon_is_refused(tracer, dockerd):
    ran = tracer("record", "--summary", "--docker-daemon", status=2)
    assert "cannot separate the Docker daemon" in one_line(ran.err)


def test_a_dead_daemon_is_reported(tracer, tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    environment = {**os.environ, "DOCKER_HOST": f"unix://{path}"}
    options = ("--container", "x", "--engine", "docker")
    ran = tracer("record", *options, status=5, env=environment)
    assert "Connection refused; start it" in one_line(ran.err)
    tracer("record", "-o", "x.trace", "--", "true", env=environment)


def test_a_daemon_that_does_not_answer_times_out(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "s"))
        deaf.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        with pytest.raises(FeatureMissing, match="timed out"):
            docker_api.Engine(answer_s=0.2)


def test_a_user_without_permission_is_refused(dockerd):
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionMissing, match="this user may not use"):
            docker_api.Engine()
    finally:
        os.seteuid(0)


def test_the_recording_ends_with_the_daemon(record, monkeypatch):
    """Uses a daemon of its own, which it ends."""
    dockerd = Dockerd()
    try:
        monkeypatch.setenv("DOCKER_HOST", dockerd.host)
        recording = record("--docker-daemon", *BRIEF)
        dockerd.process.terminate()
        with recording.trace() as trace:
            assert trace.manifest["ended_by"] == "target"
    finally:
        dockerd.close()
