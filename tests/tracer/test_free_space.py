"""The room on a disk, as df tells it, less what stays free for others."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tracer.free_space import MOST_SPARE_BYTES, free_bytes, require_room, room_bytes, spare_bytes


def told_by_df(folder):
    command = ["df", "-B1", "--output=avail,size", folder]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return map(int, ran.stdout.splitlines()[-1].split())


def test_a_twentieth_of_a_disk_and_at_most_a_gibibyte_stays_free(tmp_path):
    _, size = told_by_df(tmp_path)
    assert spare_bytes(tmp_path) == pytest.approx(min(MOST_SPARE_BYTES, size / 20), abs=1)
    with (tmp_path / "x").open("wb") as file:
        assert spare_bytes(file.fileno()) == spare_bytes(tmp_path)


def test_the_room_is_what_is_available_less_the_spare(tmp_path):
    looks = []
    for _ in range(2):  # other programs write meanwhile
        available, _ = told_by_df(tmp_path)
        looks.append(max(0, available - spare_bytes(tmp_path)))
        found = room_bytes(tmp_path)
    assert min(looks) <= found + (1 << 20) and found - (1 << 20) <= max(looks)
    assert free_bytes(tmp_path) > found


def test_more_than_the_room_is_refused_as_a_full_disk_refuses_it(tmp_path):
    require_room(tmp_path, 0)
    with pytest.raises(OSError, match="No space left") as raised:
        require_room(tmp_path, free_bytes(tmp_path))
    assert raised.value.errno == errno.ENOSPC


def test_a_file_system_without_a_size_is_not_taken_for_a_full_one():
    assert free_bytes(Path("/proc")) == sys.maxsize
    assert spare_bytes(Path("/proc")) == 0
    require_room(Path("/proc"), 1 << 60)
