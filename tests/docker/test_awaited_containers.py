"""Containers that begin, and are removed, while they are recorded: `tracer record --wait`."""

import os

import pytest

from tests.docker.conftest import calls, wait_for
from tests.support.backends import every_backend

TIMES = "import os\nfor _ in range({}): os.times()"


def is_gone(dockerd, *names):
    def gone():
        return not {c.name for c in dockerd.client.containers.list(all=True)} & set(names)

    return gone


@every_backend
def test_two_containers_are_recorded_from_their_start_to_their_removal(
    dockerd, shared, record, backend
):
    """An earlier container of the same name and a stranger's container do not count."""
    earlier = dockerd.run("a", TIMES.format(997), shared=shared)
    earlier.wait()
    recording = record(
        "--docker-daemon", "--container", "a,b", "--wait", "--backend", backend, "--perf-stat"
    )
    earlier.remove()
    ours = {}
    for name, times in (("a", 1009), ("stranger", 1013), ("b", 1019)):
        options = {"shared": shared, "auto_remove": True}
        ours[name] = dockerd.run(name, TIMES.format(times), **options).id
    wait_for(is_gone(dockerd, *ours), "the removal of the containers")
    with recording.stop() as trace:
        assert calls(trace, "times") == [("a", "target", 1009), ("b", "target", 1019)]
        targets = {target["name"]: target for target in trace.manifest["targets"]}
        assert targets["a"]["container"] == ours["a"] != earlier.id
        assert targets["b"]["container"] == ours["b"]
        found = trace.connection.execute(
            "SELECT DISTINCT target, container_name FROM processes WHERE role = 'target'"
        ).fetchall()
        assert sorted(found) == [("a", "a"), ("b", "b")]
        comms = trace.connection.execute("SELECT DISTINCT comm FROM processes WHERE role='daemon'")
        assert {"dockerd", "containerd", "containerd-shim", "runc"} <= {
            c for (c,) in comms.fetchall()
        }
        print(
            trace.connection.execute(
                "SELECT target, event, value, state FROM counters where value is not null"
            ).fetchall()
        )
        print(trace.manifest["loss"], trace.manifest["perf"])
