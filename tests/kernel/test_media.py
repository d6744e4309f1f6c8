"""Storage media for real: limits that bite, images on other media, and nothing left behind."""

import contextlib
import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.loads import finished
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.workloads.containers.limits import Speed
from tracer.workloads.errors import JobError
from tracer.workloads.studies import media, scheduler, throttle
from tracer.workloads.studies.scratch import Scratch
from tracer.workloads.studies.speeds import Measured, SpeedTest, require_as_fast, require_limited
from tracer.workloads.studies.throttle import Throttle

pytestmark = pytest.mark.settings

SIZE = 256 << 20
MIB = 1 << 20
SLOW = Speed(8 * MIB, 8 * MIB, 100_000, 100_000)
FEW = Speed(10**9, 10**9, 40, 40)
KEPT = 0.75
"""Smallest share of the time that a limit takes on average: at first, some bytes pass at once."""


@pytest.fixture
def scratch(tmp_path):
    with Scratch(tmp_path, SIZE, media.find_medium("disk")) as mounted:
        yield mounted


@pytest.fixture
def file(scratch):
    """16 MiB that no cache has."""
    path = scratch.mount / "file"
    with path.open("wb") as opened:
        opened.write(os.urandom(16 * MIB))
        opened.flush()
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def seconds_of(*command):
    began = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    return time.monotonic() - began


def limits_on(device):
    """Lines of all groups' limits that name the device."""
    return [
        line
        for name in ("blkio.throttle.*_device", "io.max")
        for path in throttle.find_hierarchy().root.rglob(name)
        for line in path.read_text().splitlines()
        if line.split()[0] == device
    ]


@pytest.fixture(scope="module", autouse=True)
def limits():
    if throttle.find_hierarchy() is None:
        pytest.skip("this kernel cannot limit devices")


def test_a_read_through_the_cache_takes_as_long_as_the_limit_has_it(scratch, file):
    with Throttle(scratch.device, SLOW, scratch.mount.parent):
        assert seconds_of("dd", f"if={file}", "of=/dev/null", "bs=1M") >= 2 * KEPT
        # By now the cache has it.
        assert file.read_bytes()


def test_write_back_is_limited_like_direct_writes(scratch):
    with Throttle(scratch.device, SLOW, scratch.mount.parent):
        (scratch.mount / "dirty").write_bytes(bytes(16 * MIB))
        assert seconds_of("sync", "--file-system", scratch.mount) >= 2 * KEPT


def test_requests_are_counted_whatever_their_size(scratch, file):
    pages = random.Random(0).sample(range(file.stat().st_size // 4096), 60)
    with Throttle(scratch.device, FEW, scratch.mount.parent), file.open("rb", 0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        began = time.monotonic()
        for page in pages:
            os.pread(opened.fileno(), 4096, page * 4096)
        assert time.monotonic() - began >= 60 / 40 * KEPT


def test_the_test_of_speed_sees_the_limit_and_its_lack(scratch):
    with SpeedTest(scratch.mount, SLOW) as test:
        free = test.measure()
        with Throttle(scratch.device, SLOW, scratch.mount.parent):
            limited = test.measure()
    assert limited.read_bytes_per_s < free.read_bytes_per_s
    require_limited(limited, SLOW)
    with pytest.raises(JobError, match="the limit is not in force"):
        require_limited(Measured(SLOW.read_bytes_per_s * 2.0, 1.0), SLOW)
    with pytest.raises(JobError, match="slower than the medium"):
        require_as_fast(limited, Speed(10**12, 1, 1, 1), "the disk")
    assert list(scratch.mount.glob("speed*")) == []


def test_nothing_is_left_of_a_limit(scratch):
    device, hierarchy = scratch.device, throttle.find_hierarchy()
    before, groups = hierarchy.own(), set(hierarchy.root.glob("traintrace-*"))
    enabled = hierarchy.control.read_text() if hierarchy.unified else None
    with Throttle(device, SLOW, scratch.mount.parent):
        assert limits_on(device)
        assert hierarchy.own() != before
    assert hierarchy.own() == before
    assert limits_on(device) == []
    assert set(hierarchy.root.glob("traintrace-*")) == groups
    if enabled is not None:
        assert hierarchy.control.read_text() == enabled


def test_a_limit_waits_for_the_last_process_below_it(scratch):
    before = throttle_groups()
    with Throttle(scratch.device, SLOW, scratch.mount.parent):
        process = subprocess.Popen(["sleep", "1"])
    assert throttle_groups() == before
    assert process.wait() == 0


def test_memory_and_a_folder_hold_the_image(tmp_path):
    with Scratch(tmp_path, SIZE, media.find_medium("ram")) as scratch:
        assert os.path.ismount(scratch.mount)
        assert os.path.ismount(tmp_path / "memory")
        assert scratch.image.parent == tmp_path / "memory"
    assert not os.path.ismount(tmp_path / "memory")
    card = tmp_path / "card"
    card.mkdir()
    with Scratch(tmp_path, SIZE, media.find_medium(str(card))) as scratch:
        (scratch.mount / "kept").touch()
        assert [path.suffix for path in card.iterdir()] == [".img"]
    with Scratch(tmp_path, SIZE, media.find_medium(str(card))) as scratch:
        assert (scratch.mount / "kept").exists()
    scratch.remove()
    assert list(card.iterdir()) == []


STUDY = """
name = "media"
repeats = 1
scale = 0.002
time_scale = 0.01
record = ["-e", "block"]
[[runs]]
model = "lenet"
workers = 0
epochs = 1_000_000
cache = "kept"
medium = "{medium}"
"""


class Studied:
    """A study of a limited medium, whose runner was killed; then one in its folder that fails.

    `tests/docker/test_whole_study.py` has runs on this medium and on others to their ends.
    """

    def __init__(self, folder):
        self.folder = folder
        self.groups = throttle_groups()
        with Tracer(*self.command("sd-card"), cwd=folder) as runner:
            wait_for(lambda: any(map(trains, commands_with(folder))), "the job", 200)
            number = (folder / "s/scratch").stat().st_dev
            self.device = f"{os.major(number)}:{os.minor(number)}"
            runner.kill()
        self.limits_left = limits_on(self.device)
        (folder / "s/study.json").unlink()  # so that the same folder may go on with another study
        ran = finished(self.command(folder / "absent"), folder)
        assert ran.status == 1, ran.err
        (self.absent,) = (json.loads(path.read_text()) for path in folder.glob("s/runs/*/run.json"))

    def command(self, medium):
        (self.folder / "mine.toml").write_text(STUDY.format(medium=medium))
        return ("study", "run", "mine.toml", "-o", "s", "--scratch", "512m")


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return Studied(tmp_path_factory.mktemp("study"))


def throttle_groups():
    return set(throttle.find_hierarchy().root.glob("traintrace-*"))


def commands_with(folder):
    """Returns the command lines of processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[1-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if str(folder) in (line := path.read_text(errors="replace")):
                found.append(line.split("\0"))
    return found


def trains(words):
    """Returns whether a command line is that of a job, not of its recorder."""
    return "train" in words and "record" not in words


def test_a_run_on_a_medium_that_is_not_there_fails(studied):
    found = studied.absent
    assert (found["state"], found["factors"]["medium"]) == ("failed", f"{studied.folder}/absent")
    assert "No such file or directory; check that its folder exists" in found["reason"]


def test_a_killed_run_on_a_limited_medium_is_taken_down(studied):
    assert studied.limits_left
    assert limits_on(studied.device) == []
    assert throttle_groups() == studied.groups
    assert not (studied.folder / "s" / scheduler.NOTE).exists()
    for name in ("scratch", "memory"):
        assert not os.path.ismount(studied.folder / "s" / name)
    said = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    assert str(studied.folder) not in said
    assert commands_with(studied.folder) == []
