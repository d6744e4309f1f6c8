"""A job unmounts a file system that it has filled: it waits although its call has returned."""

import json

import pytest

from tests.support import loads
from tests.support.backends import every_backend
from tests.support.file_systems import FileSystems
from tracer.analysis.views.disks.write_waits import WRITE_WAITS
from tracer.analysis.views.waiting.waits import waits

SOURCE = """
import ctypes, json, os, time
libc = ctypes.CDLL(None, use_errno=True)
with open({mount!r} + "/file", "wb") as file:
    file.write(os.urandom(64 << 20))
for _ in range(100):
    begun = time.monotonic_ns()
    failed = libc.umount2({mount!r}.encode(), 0)
    ended = time.monotonic_ns()
    if not failed:
        break
    time.sleep(0.05)  # the recorder may look at a file of it
with open({told!r}, "w") as file:
    json.dump([failed, begun, ended], file)
"""


@pytest.fixture(scope="module")
def unmounted(backend, tmp_path_factory):
    """The recording, and when the job began and ended to unmount by its own clock (ns)."""
    folder = tmp_path_factory.mktemp("unmounts")
    with FileSystems(folder) as make:
        mount, _ = make(kind="ext4")
        told = folder / "told.json"
        source = SOURCE.format(mount=str(mount), told=str(told))
        recorded = loads.record(folder, {"job": source}, "-e", "default,sched", backend=backend)
        failed, begun, ended = json.loads(told.read_text())
        assert failed == 0
        yield recorded, begun, ended
    recorded.trace.close()


@every_backend
def test_most_of_an_unmount_is_a_wait_for_a_sync(unmounted):
    recorded, begun, ended = unmounted
    waits(recorded.trace)
    asleep = "SELECT sum(dur_ns) FROM waits WHERE pid = ? AND ts BETWEEN ? AND ? AND state = 'D'"
    within = recorded.pid("job"), begun, ended
    slept = recorded.one(asleep, *within)
    assert slept > (ended - begun) / 2
    assert recorded.one(f"{asleep} AND kind = 'sync'", *within) > 0.95 * slept


@every_backend
def test_the_bound_on_waiting_for_writes_has_the_whole_unmount(unmounted):
    recorded, begun, ended = unmounted
    WRITE_WAITS.make(recorded.trace)
    found = recorded.one(
        "SELECT max(dur_ns) FROM write_waits WHERE kind = 'sync' AND ts BETWEEN ? AND ?",
        begun, ended,
    )  # fmt: skip
    assert found == pytest.approx(ended - begun, rel=0.05)
