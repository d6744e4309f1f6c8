"""An image of this machine's Python needs room on the disk of the engine."""

import pytest

from tests.support.dockerd import IMAGE, Dockerd
from tests.support.file_systems import file_system  # noqa: F401 a fixture
from tracer.free_space import free_bytes
from tracer.workloads.containers import image
from tracer.workloads.containers.versions import TRAINING
from tracer.workloads.errors import BrokenJobError

pytest.importorskip("torch", reason="PyTorch is not installed")


def test_an_image_that_does_not_fit_on_the_engines_disk_is_not_begun(file_system):  # noqa: F811
    mount, _ = file_system(128)
    engine = Dockerd(data=mount / "data")
    try:
        before = free_bytes(mount)
        with pytest.raises(BrokenJobError, match=rf"bytes in {mount}/data, which has room for"):
            image.ensure(engine.client, TRAINING)
        assert [one.tags for one in engine.client.images.list()] == [[f"{IMAGE}:latest"]]
        assert free_bytes(mount) > before - (1 << 20)
    finally:
        engine.close()
