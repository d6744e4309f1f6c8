"""Memory limits, swap and the background threshold of the real kernel, restored after a kill."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from tracer.workloads.errors import JobError
from tracer.workloads.modes.cgroups import Memory, entering
from tracer.workloads.modes.dirty_background import BYTES, RATIO, DirtyBackground
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.modes.swap_area import SwapArea

pytestmark = pytest.mark.settings

MIB = 1 << 20
# Touches each page, goes over all of them again, and prints its major faults.
TOUCH = """
import mmap, resource, sys
size = int(sys.argv[1]) << 20
held = mmap.mmap(-1, size)
for _ in range(2):
    for page in range(0, size, 4096):
        held[page] = page >> 12 & 255
print(resource.getrusage(resource.RUSAGE_SELF).ru_majflt, flush=True)
sys.stdin.read()
"""

KILLED = """
import sys, time
from pathlib import Path
from tracer.workloads.modes.cgroups import Memory
from tracer.workloads.modes.dirty_background import DirtyBackground
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.modes.swap_area import SwapArea
area = (SwapArea(folder=Path(sys.argv[1])), 96 << 20)
with PowerModes(True, Path(sys.argv[2])) as modes:
    with (
        modes.applied(None, False, Memory(48 << 20, 95 << 20), [area]) as setting,
        modes.also(DirtyBackground(), 23 << 20),
    ):
        print(*setting.cgroups, flush=True)
        time.sleep(1000)
"""


def swaps():
    return Path("/proc/swaps").read_text().splitlines()[1:]


def background():
    return {name: Path("/proc/sys/vm", name).read_text() for name in (BYTES, RATIO)}


def loops():
    return subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout


def area_loops(folder):
    return [line for line in loops().splitlines() if f"({folder}/" in line]


@pytest.fixture
def place(tmp_path):
    """The folder of the swap area, and the folder of the note; neither may keep anything."""
    beside, state = tmp_path / "study", tmp_path / "state"
    beside.mkdir()
    before = swaps(), background()
    yield beside, state
    assert (swaps(), background()) == before
    assert area_loops(beside) == []
    assert list(beside.iterdir()) == []
    assert list(state.iterdir()) == []


@pytest.fixture
def touching():
    """Processes that touch memory in cgroups; killed at the end."""
    started = []

    def start(cgroups, mib):
        command = entering(cgroups, [sys.executable, "-S", "-c", TOUCH, str(mib)])
        started.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_job_above_its_limit_swaps_on_an_area_of_the_run_s_own(place, touching):
    beside, state = place
    area = (SwapArea(folder=beside), 96 * MIB)
    others = swaps()
    with (
        PowerModes(True, state) as modes,
        modes.applied(None, False, Memory(48 * MIB, 95 * MIB), [area]) as setting,
    ):
        assert len(swaps()) == len(others) + 1
        assert len(area_loops(beside)) == 1
        assert list(beside.iterdir()) == []  # nobody can open what was swapped
        job = touching(setting.cgroups, 97)
        # At most 48 of its 97 MiB are in memory, so the second round reads at least 49 back. The
        # kernel reads pages around a fault, too (vm.page-cluster: at most eight).
        assert int(job.stdout.readline()) >= 49 * 256 // 8


def test_without_swap_a_job_above_its_limit_is_killed(place, touching):
    _, state = place
    with (
        PowerModes(True, state) as modes,
        modes.applied(None, False, Memory(48 * MIB)) as setting,
    ):
        job = touching(setting.cgroups, 97)
        assert job.stdout.readline() == ""
        assert job.wait(timeout=60) == -signal.SIGKILL
        assert int(touching(setting.cgroups, 11).stdout.readline()) >= 0  # it is no other reason


def test_a_container_s_run_has_an_area_but_no_cgroup(place):
    beside, state = place
    area = (SwapArea(folder=beside), 16 * MIB)
    with PowerModes(True, state) as modes, modes.applied(None, True, None, [area]) as setting:
        assert setting.cgroups == []
        assert len(area_loops(beside)) == 1


def test_the_next_runner_takes_away_what_a_killed_one_left(place, touching):
    beside, state = place
    before = swaps(), background()
    runner = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(beside), str(state)], stdout=subprocess.PIPE, text=True
    )
    cgroups = [Path(name) for name in runner.stdout.readline().split()]
    job = touching(cgroups, 97)
    assert int(job.stdout.readline()) > 0
    wait_for(lambda: background()[BYTES] == f"{23 * MIB}\n", "the threshold")
    assert background()[RATIO] == "0\n"
    assert len(swaps()) == len(before[0]) + 1
    runner.kill()
    runner.communicate()
    assert [one["by"] for one in json.loads((state / "power_mode.json").read_text())] == [
        "SwapArea", "cgroups", "DirtyBackground",
    ]  # fmt: skip
    with PowerModes(False, state):
        assert (swaps(), background()) == before
        assert not any(path.exists() for path in cgroups)
    assert job.wait(timeout=60) == -signal.SIGKILL


def test_a_threshold_in_per_cent_and_one_in_bytes_are_both_restored(place, sysctls):
    _, state = place
    sysctls(dirty_background_ratio=7)
    threshold = DirtyBackground()
    for of_before in ({BYTES: "0\n", RATIO: "7\n"}, {BYTES: f"{31 * MIB}\n", RATIO: "0\n"}):
        if of_before[RATIO] == "0\n":
            threshold.set(31 * MIB)
        with PowerModes(True, state) as modes, modes.also(threshold, 23 * MIB):
            assert background() == {BYTES: f"{23 * MIB}\n", RATIO: "0\n"}
        assert background() == of_before


def test_an_area_that_has_no_room_takes_none_from_others(place):
    beside, state = place
    room = os.statvfs(beside)
    area = (SwapArea(folder=beside), 2 * room.f_blocks * room.f_frsize)
    free = [room.f_bavail * room.f_frsize]
    ended = threading.Event()

    def look():
        while not ended.wait(0.002):
            free.append(os.statvfs(beside).f_bavail * room.f_frsize)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with (
            PowerModes(True, state) as modes,
            pytest.raises(JobError, match=r"cannot make a swap area in .*: No space left"),
            modes.applied(None, True, None, [area]),
        ):
            pass
    finally:
        ended.set()
        looking.join()
    assert min(free) > free[0] / 2


def test_a_loop_device_of_another_owner_stays(place, tmp_path):
    beside, state = place
    image = tmp_path / "other.img"
    image.touch()
    os.truncate(image, 16 * MIB)
    subprocess.run(["mkswap", str(image)], capture_output=True, check=True)
    node = subprocess.run(
        ["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=True
    ).stdout.strip()
    try:
        with (
            PowerModes(True, state) as modes,
            modes.applied(None, True, None, [(SwapArea(folder=beside), 16 * MIB)]),
        ):
            pass
        assert f"{node}: " in loops()
    finally:
        subprocess.run(["losetup", "--detach", node], check=True)
