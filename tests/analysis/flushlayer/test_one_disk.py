"""Devices that lie on one disk: the timed model gives each a disk of its own, and says so."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.answers import curve, sweep, timed
from tracer.analysis.flushlayer.answers.question import Capacity, Question
from tracer.analysis.flushlayer.devices import find_device
from tracer.analysis.flushlayer.timed.destage import Destage
from tracer.analysis.flushlayer.trace.accesses import page_writebacks

DISK, OTHER, ONE, TWO, LOOP = "8:0", "8:16", "253:0", "253:1", "7:0"
PCM, HDD = find_device("pcm-paper", "nvm"), find_device("hdd-paper", "disk")
QUESTION = Question(PCM, HDD, Capacity(pages=1000))
MS = 10**6
SIMPLE = [{"dev": DISK, "bytes": 1 << 40}, {"dev": OTHER, "bytes": 1 << 40}]


def bio(ts, dev, sector=0):
    named = {"dev": dev, "sector": sector, "nr_sector": 8, "rwbs": "WS"}
    return {"ts": ts, "tid": 7, "pid": 7, "event": "bio_queue", **named}


def stacked(dev, *on, **more):
    return {"dev": dev, "bytes": 1 << 30, "on": list(on), **more}


def part(dev, start):
    return {"dev": dev, "bytes": 1 << 30, "partition_of": DISK, "start": start}


def answered(trace, devices=None):
    accesses = page_writebacks(trace, devices, reads=True, flushes_too=True)
    return timed.answer(QUESTION, trace, accesses, Destage())


def said(facts):
    return [one for one in facts["assumptions"] if "a disk of its own" in one]


@pytest.mark.parametrize(
    ("disks", "written", "told"),
    [
        ([stacked(ONE, DISK), stacked(TWO, DISK)], (ONE, TWO), f"{ONE}, {TWO} lie on {DISK}, "),
        (
            [part("8:1", 1 << 11), part("8:2", 1 << 25), stacked(ONE, "8:1"), stacked(TWO, "8:2")],
            (ONE, TWO),
            f"{ONE}, {TWO} lie on {DISK}, ",
        ),
        (
            [stacked(ONE, DISK, OTHER), stacked(TWO, DISK, OTHER)],
            (ONE, TWO),
            f"{ONE}, {TWO} lie on {DISK}, {OTHER}, ",
        ),
        ([stacked(ONE, DISK)], (ONE, OTHER), ""),
        ([stacked(ONE, DISK), stacked(TWO, DISK)], (ONE, ONE), ""),
        ([stacked(ONE, DISK), stacked(TWO, OTHER)], (ONE, TWO), ""),
        ([stacked(ONE, TWO), stacked(TWO, ONE)], (ONE, TWO), ""),
        (
            [stacked(LOOP, DISK, backing_file="/i", backing_ino=77)],
            (LOOP, DISK),
            f"{LOOP}, {DISK} lie on {DISK}, ",
        ),
    ],
    ids=[
        "two volumes", "on partitions", "mirrors", "another disk", "one written", "two disks",
        "a circle", "a loop device",
    ],
)  # fmt: skip
def test_devices_on_one_disk_are_said_to_have_one_each(tmp_path, disks, written, told):
    block = [bio(MS + n, dev) for n, dev in enumerate(written)]
    with make_trace(tmp_path / "t", {"block": block}, disks=[*SIMPLE, *disks]) as trace:
        found = said(answered(trace))
    assert len(found) == bool(told)
    assert not told or (found[0].startswith(told) and f"--dev {DISK} simulates" in found[0])


def test_bios_that_name_partitions_have_no_disk_to_be_simulated(tmp_path):
    block = [bio(MS, "8:1"), bio(MS + 1, "8:2")]
    disks = [*SIMPLE, part("8:1", 1 << 11), part("8:2", 1 << 25)]
    with make_trace(tmp_path / "t", {"block": block}, disks=disks) as trace:
        (found,) = said(answered(trace))
    assert found.startswith(f"8:1, 8:2 lie on {DISK}, ") and "--dev" not in found


def test_the_disk_below_two_volumes_serves_one_after_the_other(tmp_path):
    """Two writes at once take 8 ms each, but 8 and 16 ms on their disk."""
    block = []
    for n, (dev, sector) in enumerate(((ONE, 80), (TWO, 80))):
        lower = bio(MS + n, DISK, (n + 1) * 100_000)
        block += [bio(MS + n, dev, sector)]
        block += [lower | {"event": "remap", "from_dev": dev, "from_sector": sector}, lower]
    disks = [*SIMPLE, stacked(ONE, DISK), stacked(TWO, DISK)]
    with make_trace(tmp_path / "t", {"block": block}, disks=disks) as trace:
        for devices, mean in ((None, 8), ([DISK], 12)):
            facts = answered(trace, devices)
            (row,) = [
                row for row in facts["latency"]
                if row["op"] == "write" and not row["layer"] and row["replay"] == "open"
            ]  # fmt: skip
            assert row["mean_ns"] == pytest.approx(mean * MS, rel=1e-3)
            assert len(said(facts)) == (devices is None)


def test_a_sweep_says_so_if_it_is_timed(tmp_path):
    block = [bio(MS, ONE), bio(MS + 1, TWO)]
    disks = [*SIMPLE, stacked(ONE, DISK), stacked(TWO, DISK)]
    with make_trace(tmp_path / "t", {"block": block}, disks=disks) as trace:
        for model in ("timed", "curve"):
            plan = tmp_path / f"{model}.toml"
            plan.write_text(f'model = "{model}"\ncapacity = [1.0]\n')
            assumed = sweep.run(trace, sweep.load(plan)).attrs["assumptions"]
            assert len(said({"assumptions": assumed})) == (model == "timed")
        assert not said(curve.answer(QUESTION, page_writebacks(trace)))
