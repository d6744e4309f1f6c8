"""Docker limits a container to the speed of its medium."""

import os

import pytest

from tracer.workloads.containers.limits import Limits, Speed
from tracer.workloads.studies import media
from tracer.workloads.studies.scratch import Scratch

pytestmark = pytest.mark.quiet

MIB = 1 << 20
KEPT = 0.75
"""Least share of the expected time: a limit lets some requests through at once at first."""

READ = """
import time
began = time.monotonic()
with open("/shared/file", "rb", buffering=0) as file:
    while file.read(1 << 20): pass
print(time.monotonic() - began)
"""


def test_a_container_reads_no_faster_than_its_medium(dockerd, tmp_path):
    speed = Speed(16 * MIB, 16 * MIB, 100_000, 100_000)
    with Scratch(tmp_path, 256 * MIB, media.find_medium("disk")) as scratch:
        with (scratch.mount / "file").open("wb") as file:
            file.write(os.urandom(16 * MIB))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        limits = Limits(device=scratch.node, speed=speed.shared(2)).options()
        box = dockerd.run("reader", READ, shared=scratch.mount, **limits)
        assert box.wait()["StatusCode"] == 0
        assert float(box.logs()) >= 2 * KEPT
        box.remove()
