"""The study's own disk: its requests are inserted into a scheduler, and nothing of that is left."""

import os
import subprocess
from pathlib import Path

import pytest

from tracer.free_space import free_bytes, room_bytes, spare_bytes
from tracer.workloads.errors import JobError
from tracer.workloads.studies import media, scheduler
from tracer.workloads.studies.scratch import Scratch

pytestmark = pytest.mark.quiet

SIZE = 64 << 20


def listed(number):
    return Path("/sys/dev/block", number, "queue/scheduler").read_text().split()


@pytest.fixture
def loop(tmp_path):
    """A loop device of the test's own; returns its number."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(SIZE)
    found = subprocess.run(
        ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        yield Path("/sys/class/block", Path(found).name, "dev").read_text().strip()
    finally:
        subprocess.run(["losetup", "-d", found], check=True)


def without_one(number):
    """Takes the scheduler away from a disk and from loop devices that nobody uses.

    Skips where the kernel has none to give.
    """
    known = {name.strip("[]") for name in listed(number)}
    if not known & {*scheduler.INSERTING} or "none" not in known:
        pytest.skip("this kernel has no scheduler that inserts requests")
    scheduler._write(number, "none")
    for loop in Path("/sys/class/block").glob("loop*"):
        if not (loop / "loop").exists() and (loop / "queue").exists():
            (loop / "queue/scheduler").write_text("none")


def test_the_disk_has_a_scheduler_while_it_is_mounted(tmp_path, loop):
    without_one(loop)
    with Scratch(tmp_path, SIZE, media.find_medium("disk")) as scratch:
        number = scratch.device
        assert scratch.scheduler in scheduler.INSERTING
        assert f"[{scratch.scheduler}]" in listed(number)
        assert scheduler.current(loop) == "none"  # another's disk
        kept = (tmp_path / scheduler.NOTE).read_text()
    assert f"[{kept}]" in listed(number)
    assert not (tmp_path / scheduler.NOTE).exists()


def test_a_killed_studys_scheduler_is_put_back(tmp_path, loop):
    without_one(loop)
    left = scheduler.set_inserting(loop, tmp_path)
    assert left in scheduler.INSERTING
    # Already there: the note stays that of the first time.
    assert scheduler.set_inserting(loop, tmp_path) == left
    scheduler.put_back([loop], tmp_path)
    assert scheduler.current(loop) == "none"
    scheduler.put_back([loop], tmp_path)  # nothing to do


@pytest.mark.parametrize("note", [b"", b"../../x", b"\xff", b"no-such-one", b"x" * 65])
def test_a_note_that_names_no_scheduler_changes_nothing(tmp_path, loop, note):
    before = scheduler.current(loop)
    (tmp_path / scheduler.NOTE).write_bytes(note)
    scheduler.put_back([loop], tmp_path)
    assert scheduler.current(loop) == before


def test_a_link_in_place_of_the_note_is_not_followed(tmp_path, loop):
    without_one(loop)
    (tmp_path / "elsewhere").write_text(scheduler.INSERTING[0])
    (tmp_path / scheduler.NOTE).symlink_to(tmp_path / "elsewhere")
    scheduler.put_back([loop], tmp_path)
    assert scheduler.current(loop) == "none"
    assert scheduler.set_inserting(loop, tmp_path) in scheduler.INSERTING
    assert (tmp_path / "elsewhere").read_text() == scheduler.INSERTING[0]
    scheduler.put_back([loop], tmp_path)
    assert scheduler.current(loop) == "none"


def test_a_device_without_a_queue_is_left_alone(tmp_path):
    assert scheduler.current("1048:7") is None
    assert scheduler.set_inserting("1048:7", tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_an_image_leaves_half_of_the_room_and_the_spare_to_others(file_system):
    mount, _ = file_system(256)
    room = room_bytes(mount)
    with Scratch(mount, 1 << 40, media.find_medium("disk")) as scratch:
        size = scratch.image.stat().st_size
        assert room // 4 < size <= room // 2
        (scratch.mount / "all").write_bytes(bytes(size // 2))
    assert free_bytes(mount) > spare_bytes(mount)


def test_an_image_that_its_disk_has_no_room_for_any_more_is_not_mounted(file_system):
    mount, _ = file_system(256)
    with Scratch(mount, 1 << 40, media.find_medium("disk")):
        pass
    filler = mount / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free_bytes(mount) - (1 << 20))
    with (
        pytest.raises(JobError, match=r"scratch\.img: No space left"),
        Scratch(mount, 1 << 40, media.find_medium("disk")),
    ):
        pytest.fail("it was mounted")
    filler.unlink()
    with Scratch(mount, 1 << 40, media.find_medium("disk")) as scratch:
        assert os.path.ismount(scratch.mount)


def test_a_disk_without_room_gets_no_image_and_no_part_of_one(file_system):
    mount, _ = file_system(24)
    with (
        pytest.raises(JobError, match=r"scratch\.img: No space left"),
        Scratch(mount, 1 << 40, media.find_medium("disk")),
    ):
        pytest.fail("it was mounted")
    assert not list(mount.glob("scratch*"))


def test_a_part_of_an_image_goes_if_the_file_system_cannot_be_made(tmp_path):
    with (
        pytest.raises(JobError, match=r"mkfs\.ext4 failed"),
        Scratch(tmp_path, 4096, media.find_medium("disk")),
    ):
        pytest.fail("it was mounted")
    assert not list(tmp_path.iterdir())


def cached(path):
    """The bytes of a file that the page cache has, as fincore tells."""
    command = ["fincore", "--bytes", "--noheadings", "--output", "RES", path]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_only_the_image_is_dropped_from_the_cache_before_its_disk_is_measured(tmp_path):
    others = tmp_path / "others"
    others.write_bytes(bytes(SIZE // 8))
    with Scratch(tmp_path, SIZE, media.find_medium("disk")) as scratch:
        (scratch.mount / "file").write_bytes(os.urandom(SIZE // 4))
        subprocess.run(["sync", "-f", scratch.mount], check=True)
        assert cached(scratch.image) > SIZE // 8
        scratch.forget()
        assert cached(scratch.image) < SIZE // 16
        assert cached(others) == SIZE // 8
