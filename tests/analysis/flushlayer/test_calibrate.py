"""Calibration: a real fio on a small file, and what it must not touch."""

import os
import tomllib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.bios import bios
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.devices import PAGE
from tracer.analysis.flushlayer.devices.calibrate import Point, calibrate, entry
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.probes.errors import FeatureMissing, TracerError, UsageError

pytestmark = pytest.mark.slow

SMALL = {"size": 1 << 20, "seconds": 0.1, "depth": 4}
MS = 1_000_000


def script(folder, monkeypatch, text):
    """A shell script in the place of fio."""
    fio = folder / "fio"
    fio.write_text(f"#!/bin/sh\n{text}\n")
    fio.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def points(read_ns=100_000, write_ns=200_000):
    shapes = [("random", 4096, 1, 1), ("random", 4096, 8, 4), ("sequential", 131072, 8, 0.5)]
    return [
        Point(op, order, size, depth, rate * 1e9 / ns, ns, 3 * ns)
        for op, ns in (("read", read_ns), ("write", write_ns))
        for order, size, depth, rate in shapes
    ]


def test_a_device_is_measured_and_can_be_simulated(tmp_path):
    said = []
    disk = TemporaryDirectory()  # not in memory, which has other limits than a disk
    target = Path(disk.name) / "a:b.data"
    text = calibrate(target, "mine", "ssd", progress=said.append, **SMALL)
    assert len(said) == 12
    assert not target.exists()
    disk.cleanup()
    (tmp_path / "mine.toml").write_text(text)
    mine = devices.find_device("mine", "disk", tmp_path / "mine.toml")
    assert mine.confidence == "measured"
    assert mine.value("flush_latency") > 0
    assert "fio on " in mine.source
    outcome = simulate(bios([(0, "write", 1, 1)]), Disk(mine))
    assert outcome.response_ns[0] == pytest.approx(mine.write_ns, abs=2)


def test_an_entry_that_cannot_be_written_is_printed(tmp_path):
    (tmp_path / "out").mkdir()
    measured = tmp_path / "x.data"
    process = Tracer(
        "calibrate", measured, "--name", "mine", "--kind", "ssd", "--size", "1M", "--seconds",
        "0.1", "-o", tmp_path / "out/mine.toml",
    )  # fmt: skip
    wait_for(measured.exists, "the measurement")
    (tmp_path / "out").rmdir()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert tomllib.loads(out)["mine"]["kind"] == "ssd"
    assert "mine.toml: No such file or directory; the entry is printed instead" in err


def test_an_entry_is_what_was_measured(tmp_path):
    (tmp_path / "mine.toml").write_text(entry("mine", "ssd", points(), 50_000, 8))
    mine = devices.find_device("mine", "disk", tmp_path / "mine.toml")
    assert (mine.read_ns, mine.write_ns) == (100_000, 200_000)
    assert mine.value("iops_read") == 40_000
    assert mine.value("bandwidth_write") == 131072 * 0.5 * 5000
    assert mine.value("queue_depth") == 8


def test_a_disk_that_slowed_while_it_was_measured_still_answers_one_access_in_its_latency(tmp_path):
    """The other rates were half of what one access at a time reached."""
    slowed = [
        replace(point, per_s=5e8 / point.mean_ns * PAGE / point.size)
        if (point.order, point.depth) != ("random", 1)
        else point
        for point in points()
    ]
    for kind in ("ssd", "nvm"):
        (tmp_path / "mine.toml").write_text(entry("mine", kind, slowed, 50_000, 8))
        mine = devices.find_device(
            "mine", kind if kind == "nvm" else "disk", tmp_path / "mine.toml"
        )
        assert mine.value("bandwidth_write") == pytest.approx(PAGE * 5000)
        if kind == "ssd":
            assert mine.value("iops_read") == pytest.approx(10_000)
            outcome = simulate(bios([(0, "write", 1, 1)]), Disk(mine))
        else:
            slow = Disk(devices.find_device("hdd-paper", "disk"))
            outcome = simulate(bios([(0, "write", 1, 1)]), slow, Layer(10, mine))
        assert outcome.response_ns[0] == pytest.approx(200_000, abs=2)


def test_a_measured_disk_is_flat(tmp_path):
    (tmp_path / "mine.toml").write_text(entry("mine", "disk", points(), 50_000, 8))
    mine = Disk(devices.find_device("mine", "disk", tmp_path / "mine.toml"))
    outcome = simulate(bios([(0, "write", 1, 1), (MS, "read", 900, 5)]), mine)
    assert outcome.response_ns.tolist() == [200_000, 100_000]
    assert simulate(bios([(0, "flush", 0, 0)]), mine).response_ns.tolist() == [50_000]


def test_a_measured_memory_adds_up_to_what_was_measured(tmp_path):
    (tmp_path / "mine.toml").write_text(entry("mine", "nvm", points(), 50_000, 8))
    mine = devices.find_device("mine", "nvm", tmp_path / "mine.toml")
    assert mine.value("channels") == 4
    layer = Layer(10, mine)
    outcome = simulate(
        bios([(0, "write", 1, 1)]), Disk(devices.find_device("hdd-paper", "disk")), layer
    )
    assert outcome.response_ns[0] == pytest.approx(200_000, abs=2)


def test_a_file_that_holds_data_is_left_alone(tmp_path):
    target = tmp_path / "precious"
    target.write_bytes(b"data")
    with pytest.raises(UsageError, match="precious may hold data"):
        calibrate(target, "mine", "ssd", **SMALL)
    assert target.read_bytes() == b"data"


def test_a_file_may_be_overwritten_when_told(tmp_path, monkeypatch):
    target = tmp_path / "old"
    target.write_bytes(b"data")
    # A fio that leaves its arguments in the target, and fails.
    script(tmp_path, monkeypatch, f"echo $* > {target}; exit 1")
    with pytest.raises(TracerError, match="fio failed"):
        calibrate(target, "mine", "ssd", overwrite=True, **SMALL)
    assert f"--filename={target} --size=1048576" in target.read_text()
    assert "--rw=write" in target.read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": 0}, "0 bytes cannot be"),
        ({"size": 1 << 50}, "bytes cannot be"),
        ({"seconds": float("nan")}, "nan s cannot be"),
        ({"seconds": 0}, "0 s cannot be"),
        ({"depth": 1}, "1 accesses at once"),
    ],
)
def test_numbers_that_cannot_be_are_refused(tmp_path, change, said):
    with pytest.raises(UsageError, match=said):
        calibrate(tmp_path / "new", "mine", "ssd", **(SMALL | change))


def test_a_file_that_is_there_and_would_fill_the_disk_is_refused(tmp_path):
    there = tmp_path / "there"
    there.touch()
    os.truncate(there, 1 << 20)
    for overwrite in (False, True):
        os.truncate(there, (1 << 20) * overwrite)
        with pytest.raises(UsageError, match="no room for 1099511627776 bytes"):
            calibrate(there, "mine", "ssd", **(SMALL | {"size": 1 << 40, "overwrite": overwrite}))
        assert there.stat().st_blocks == 0


def test_targets_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(UsageError, match="neither a file nor a block device"):
        calibrate(tmp_path, "mine", "ssd", **SMALL)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "missing")
    with pytest.raises(UsageError, match="link is a link to a file that does not exist"):
        calibrate(link, "mine", "ssd", **SMALL)
    assert link.is_symlink()
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        calibrate(tmp_path / "nowhere" / "new", "mine", "ssd", **SMALL)
    with pytest.raises(UsageError, match="no room for 1099511627776 bytes"):
        calibrate(tmp_path / "new", "mine", "ssd", **(SMALL | {"size": 1 << 40}))
    with pytest.raises(UsageError, match="cannot be called 'a b'"):
        calibrate(tmp_path / "new", "a b", "ssd", **SMALL)


def test_without_fio_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FeatureMissing, match="fio is not installed; apt-get install fio"):
        calibrate(tmp_path / "new", "mine", "ssd", **SMALL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo no such engine >&2; exit 1", "fio failed on .*: no such engine"),
        ("echo '{'", "not understood"),
        ("echo '{\"jobs\": []}'", "not understood"),
        (
            'echo \'{"jobs": [{"write": {"iops": 0, "lat_ns": {"mean": 0}, "clat_ns":'
            ' {"percentile": {"99.000000": 0}}}}]}\'',
            "finished no random write",
        ),
    ],
)
def test_a_fio_that_fails_is_one_line(tmp_path, monkeypatch, text, said):
    script(tmp_path, monkeypatch, text)
    with pytest.raises(TracerError, match=said) as raised:
        calibrate(tmp_path / "new", "mine", "ssd", **SMALL)
    assert "\n" not in str(raised.value)
