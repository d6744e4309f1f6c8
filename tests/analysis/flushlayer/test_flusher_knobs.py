"""The sysctls of write-back: as recorded, turned, checked."""

import pytest

from tests.conftest import ROOT
from tests.support.dirtied import DEFAULTS
from tests.support.flushed import DEV, EXT4, JOB, KWORKER, S, Story
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.answers import sweep
from tracer.analysis.flushlayer.flusher import knobs
from tracer.analysis.flushlayer.flusher.knobs import NAMES
from tracer.probes.errors import UsageError

DOC = ROOT / "docs" / "what-if.md"
GIB = 1 << 30


def test_ratios_are_of_the_memory_that_can_be_dirty():
    thresholds = DEFAULTS.changed(dirtyable_bytes=GIB).thresholds
    assert (thresholds.background, thresholds.limit) == (26_214, 52_428)
    assert thresholds.freerun == 39_321


def test_without_that_memory_only_bytes_give_thresholds():
    assert DEFAULTS.thresholds.background is None
    assert DEFAULTS.thresholds.freerun is None
    turned = DEFAULTS.changed(dirty_background_bytes=8193, dirty_bytes=40_960)
    assert (turned.thresholds.background, turned.thresholds.limit) == (3, 10)


def test_a_background_threshold_above_the_limit_is_half_of_it():
    turned = DEFAULTS.changed(dirty_background_ratio=50, dirtyable_bytes=GIB)
    assert turned.thresholds.background == turned.thresholds.limit // 2


def test_bytes_put_the_ratio_to_0_and_the_other_way_round():
    turned = DEFAULTS.changed(dirty_bytes=1 << 20)
    assert (turned.dirty_ratio, turned.dirty_bytes) == (0, 1 << 20)
    assert turned.changed(dirty_ratio=5).dirty_bytes == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dirty_ratio", float("nan")),
        ("dirty_ratio", 101),
        ("dirty_background_ratio", -1),
        ("dirty_bytes", -4096),
        ("dirty_bytes", 1),
        ("dirty_expire_centisecs", float("inf")),
        ("dirty_expire_centisecs", 0.5),
        ("dirty_writeback_centisecs", 1 << 60),
        ("dirtyable_bytes", float("nan")),
    ],
)
def test_a_value_that_cannot_be_is_one_clear_line(name, value):
    with pytest.raises(UsageError, match=f"{name} cannot be .*; give "):
        DEFAULTS.changed(**{name: value})


def test_an_unknown_knob_names_those_there_are():
    with pytest.raises(UsageError, match=r"no knob 'dirty_ration'; known: dirty_ratio, "):
        DEFAULTS.changed(dirty_ration=5)


def test_knobs_are_those_of_the_trace(tmp_path):
    vm = {"dirty_ratio": 40, "dirty_background_ratio": 5, "dirty_expire_centisecs": 1000}
    samples = [
        {"ts": ts, "name": "memory_used", "value": used, "unit": "bytes"}
        for ts, used in enumerate([2e8, 1e8, 9e8])
    ]
    with make_trace(tmp_path / "t", {"samples": samples}, vm=vm) as trace:
        found = knobs.recorded_knobs(trace)
    assert (found.dirty_ratio, found.dirty_expire_centisecs) == (40, 1000)
    assert found.dirtyable_bytes == GIB - 200_000_000
    assert found.assumed == ("dirty_bytes", "dirty_background_bytes", "dirty_writeback_centisecs")
    assert found.changed(dirty_writeback_centisecs=100).assumed == (
        "dirty_bytes",
        "dirty_background_bytes",
    )


def test_thresholds_of_a_kernel_with_large_pages_are_whole_ones(tmp_path):
    """include/linux/math.h DIV_ROUND_UP(): 100,000 bytes are two pages of 64 KiB."""
    host = {"machine": "aarch64", "cpus": 2, "memory_bytes": GIB, "page_size": 1 << 16}
    vm = {"dirty_bytes": 100_000, "dirty_background_bytes": 40_000}
    with make_trace(tmp_path / "t", {"block": []}, vm=vm, host=host) as trace:
        found = knobs.recorded_knobs(trace)
    assert (found.thresholds.background, found.thresholds.limit) == (16, 32)
    assert found.changed(dirty_background_bytes=150_000).thresholds.background == 16
    by_ratio = found.changed(dirty_ratio=20, dirty_background_ratio=10, dirtyable_bytes=GIB)
    assert (by_ratio.thresholds.background, by_ratio.thresholds.limit) == (26_208, 52_416)


def test_a_trace_that_tells_nothing_has_the_kernels_defaults(tmp_path):
    with make_trace(tmp_path / "t", {"block": []}) as trace:
        found = knobs.recorded_knobs(trace)
    assert found.assumed == NAMES
    assert found.dirtyable_bytes is None
    assert found.changed(**{name: getattr(DEFAULTS, name) for name in NAMES[:2]}).dirty_ratio == 20


def test_values_of_a_trace_are_checked_too(tmp_path):
    with (
        make_trace(tmp_path / "t", {"block": []}, vm={"dirty_ratio": -5}) as trace,
        pytest.raises(UsageError, match="dirty_ratio cannot be -5"),
    ):
        knobs.recorded_knobs(trace)


def test_no_bytes_leave_the_ratio_and_no_ratio_takes_the_bytes():
    by_ratio = knobs.Knobs(20, 10, 0, 0, 3000, 500, dirtyable_bytes=GIB)
    assert by_ratio.changed(dirty_background_bytes=0, dirty_bytes=0) == by_ratio
    by_bytes = by_ratio.changed(dirty_background_bytes=1 << 20)
    assert by_bytes.dirty_background_ratio == 0
    assert by_bytes.changed(dirty_background_ratio=0).dirty_background_bytes == 0


def test_a_sweep_says_on_which_side_each_bound_errs(tmp_path):
    """One page is dirtied once, and its inode is marked dirty twice more while it is dirty."""
    story = Story().lies(0, 100, 10).dirtied(1, 0)
    again = {"tid": JOB, "pid": JOB, "dev": DEV, "ino": 11, "event": "mark_inode_dirty"}
    story.dirty += [{"ts": at * S, **again} for at in (10, 20)]
    by = {"tid": KWORKER, "pid": KWORKER, "reason": "periodic", "bdi": DEV}
    for at in (2, 7, 12, 17, 22, 27):
        story.writeback += [
            {"ts": at * S, **by, "event": "start"},
            {"ts": at * S + 900, **by, "event": "written"},
        ]
    story.flushed(32, (100, 1), age=31)
    (tmp_path / "sweep.toml").write_text(
        'capacity = ["64K"]\nidentity = ["file"]\n[knobs]\ndirty_expire_centisecs = [100]\n'
        "dirty_writeback_centisecs = [100]\n"
    )
    with story.made(tmp_path / "t", 60, file_systems=[EXT4]) as trace:
        frame = sweep.run(trace, sweep.load(tmp_path / "sweep.toml"))
    # Nobody knows whether the marks at 10 s and 20 s were of writes to the page.
    assert frame.set_index("bound")["requests"].to_dict() == {"least": 1, "most": 3}
    said = " ".join(frame.attrs["assumptions"])
    assert "never too many" not in said
    assert "least has too few pages, most may have too many" in said
    assert "stores to mapped memory show in neither" in said
    about = " ".join(DOC.read_text().split())
    assert "`least` has too few pages, `most` may have too many" in about
    assert "Stores to mapped memory show in neither" in about
