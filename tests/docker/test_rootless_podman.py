"""Containers of a user's own podman, recorded by root."""

import pytest

from tests.conftest import do_without
from tests.docker.conftest import BRIEF, CALLS, WAITING, calls
from tests.support.losses import losses
from tests.support.rootless import RootlessPodman

A, LATER = 9973, 757

TIMES = """
for _ in range(int(sys.argv[2])): os.times()
say(name + "-is-done")
"""


@pytest.fixture(scope="module")
def podman():
    """Runs the user's podman; skips the test, with the reason, if it does not run here."""
    try:
        podman = RootlessPodman()
    except RuntimeError as error:
        do_without("podman of a user", "TRACER_REQUIRE_DOCKER", str(error))
    yield podman
    podman.close()


@pytest.fixture
def shared(podman):
    """Returns the folder that is /shared in every container."""
    return podman.shared


def test_the_calls_of_a_users_container_and_of_later_programs_are_exact(podman, tell, record):
    identity = podman.run("mine", WAITING + CALLS, A)
    tell(None, "mine-is-up")
    recording = record("--container", "mine", *BRIEF)
    tell("go", "mine-is-done")
    program = WAITING.replace('"go"', '"go-on"') + TIMES
    podman.call("exec", "--detach", "mine", "/usr/bin/python3", "-S", "-c", program, "late", LATER)
    tell(None, "late-is-up")
    tell("go-on", "late-is-done")
    with recording.stop() as trace:
        assert calls(trace) == [("mine", "target", A)]
        assert calls(trace, "times") == [("mine", "target", LATER)]
        (facts,) = (c for c in trace.manifest["containers"] if c["name"] == "mine")
        assert set(losses(trace)) <= {"joins: ? joined before it was followed"}
    assert (facts["id"], facts["engine"]) == (identity, "podman")
    # The folders that a user names are not followed.
    assert "mounts" not in facts


def test_a_container_without_a_cgroup_is_recorded_by_its_process(podman, tell, tracer, record):
    podman.run("bare", WAITING.replace('"go"', '"go-bare"') + CALLS, A, cgroup=False)
    tell(None, "bare-is-up")
    ran = tracer("record", "--container", "bare", status=5)
    assert "container bare has no cgroup of its own" in ran.err
    pid = ran.err.rpartition("-p ")[2].split()[0]
    recording = record("-p", pid, *BRIEF)
    tell("go-bare", "bare-is-done")
    with recording.stop() as trace:
        assert [(role, n) for _, role, n in calls(trace)] == [("target", A)]
