"""Facts about block devices, from folders as the kernel has them in /sys."""

import pytest

from tracer.session.environment import behind_cache


@pytest.fixture
def block(tmp_path):
    """The folders of a disk, of its partition with bcache on it, and of bcache's device."""
    partition, bcache = tmp_path / "sda/sda1", tmp_path / "bcache0"
    for folder, dev, size in ((partition, "8:1", 1000), (bcache, "252:0", 984)):
        folder.mkdir(parents=True)
        (folder / "dev").write_text(f"{dev}\n")
        (folder / "size").write_text(f"{size}\n")
    (partition / "bcache").mkdir()
    (bcache / "bcache").symlink_to("../sda/sda1/bcache")
    return tmp_path


def test_the_device_behind_bcache_is_known_with_the_first_sector_of_the_data(block):
    assert behind_cache(block / "bcache0") == ("8:1", 16)


def test_a_device_below_bcache_and_another_device_have_none_behind_them(block):
    assert behind_cache(block / "sda/sda1") is None
    assert behind_cache(block / "sda") is None


def test_a_device_smaller_than_bcaches_is_not_behind_it(block):
    (block / "sda/sda1/size").write_text("983\n")
    assert behind_cache(block / "bcache0") is None
