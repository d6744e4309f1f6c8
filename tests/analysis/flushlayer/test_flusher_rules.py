"""The flusher's rules, one by one: who is written when, and why."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dirtied import DEFAULTS, regenerated, said
from tracer.probes.errors import UsageError

pytestmark = pytest.mark.slow

PAGE = 4096


def limits(background, limit):
    """Thresholds in pages."""
    return DEFAULTS.changed(dirty_background_bytes=background * PAGE, dirty_bytes=limit * PAGE)


def test_an_inode_is_written_by_the_first_look_that_finds_it_old():
    # The first dirty inode sets the timer: looks at 6, 11, ..., 31, 36.
    assert said(regenerated([(1, 0, 0, 3), (2, 1, 0, 2)])) == [
        (31.0, 0, 0, 3, "periodic"),
        (36.0, 1, 0, 2, "periodic"),
    ]


def test_an_inode_that_is_dirtied_again_keeps_its_time():
    assert said(regenerated([(1, 0, 0, 1), (30, 0, 5, 2)])) == [
        (31.0, 0, 0, 1, "periodic"),
        (31.0, 0, 5, 2, "periodic"),
    ]


def test_a_mark_without_a_page_begins_an_inodes_time():
    assert said(regenerated([(20, 0, 0, 1)], marks=[(1, 0)])) == [(31.0, 0, 0, 1, "periodic")]


def test_a_page_that_is_dirty_already_is_written_once():
    made = regenerated([(1, 0, 0, 2, 7), (10, 0, 1, 1, 8)])
    assert [row[:4] for row in said(made)] == [(31.0, 0, 0, 1), (31.0, 0, 1, 1)]
    assert made.writes["dirtier"].to_list() == [7, 8]
    assert (made.summary["pages_dirtied"], made.summary["pages_absorbed"]) == (3, 1)


def test_a_written_inode_is_clean_and_begins_anew():
    assert said(regenerated([(1, 0, 0, 1), (40, 0, 0, 1)])) == [
        (31.0, 0, 0, 1, "periodic"),
        (70.0, 0, 0, 1, "periodic"),
    ]


def test_expiry_of_0_writes_at_the_next_look():
    knobs = DEFAULTS.changed(dirty_expire_centisecs=0)
    assert said(regenerated([(1, 0, 0, 1), (5.5, 1, 0, 1)], knobs)) == [
        (6.0, 0, 0, 1, "periodic"),
        (6.0, 1, 0, 1, "periodic"),
    ]


def test_an_interval_of_0_never_looks():
    knobs = DEFAULTS.changed(dirty_writeback_centisecs=0)
    made = regenerated([(1, 0, 0, 3)], knobs)
    assert said(made) == []
    assert (made.summary["pages_still_dirty"], made.summary["looks"]) == (3, 0)


def test_the_timer_is_as_coarse_as_the_wheel():
    # 250 Hz: 1250 ticks are rounded up to the next multiple of 64: 6.144 s, then each 5.12 s.
    made = regenerated([(1, 0, 0, 1)], tick=(4_000_000, 0))
    assert said(made) == [(31.744, 0, 0, 1, "periodic")]


def test_looks_go_on_from_the_recorded_one():
    assert said(regenerated([(1, 0, 0, 1)], looks={"254:0": 4 * 10**9})) == [
        (34.0, 0, 0, 1, "periodic")
    ]


def test_above_the_background_threshold_pages_are_written_at_once():
    made = regenerated([(1, 0, 0, 10), (2, 1, 0, 1), (2.5, 1, 1, 4)], limits(10, 100))
    # At the threshold is not above it.
    assert said(made) == [
        (2.0, 0, 0, 10, "background"),
        # It was queued with the other one, and is taken from the queue however young.
        (7.0, 1, 0, 5, "periodic"),
    ]


def test_background_write_out_ends_below_the_threshold():
    made = regenerated([(1, 0, 0, 2000), (2, 1, 0, 2000)], limits(3000, 8000))
    assert said(made) == [
        (2.0, 0, 0, 1024, "background"),
        # A queued inode has its turn at the next look, however young: one chunk.
        (7.0, 1, 0, 1024, "periodic"),
        (7.0, 0, 1024, 976, "periodic"),
        (32.0, 1, 1024, 976, "periodic"),
    ]
    assert made.summary["peak_dirty_pages"] == 4000


def test_inodes_take_turns_of_a_chunk_each():
    # writeback_chunk_size(): 12,800 pages and MIN_WRITEBACK_PAGES, rounded down to 13 x 1024.
    assert said(regenerated([(1, 0, 0, 20_000), (1, 1, 0, 20_000)])) == [
        (31.0, 0, 0, 13_312, "periodic"),
        (31.0, 1, 0, 13_312, "periodic"),
        (31.0, 0, 13_312, 6_688, "periodic"),
        (31.0, 1, 13_312, 6_688, "periodic"),
    ]


def test_a_device_with_no_part_in_what_is_written_has_an_eighth_of_what_is_free():
    # (800 - 202) // 8 = 74: above it at its next look, though far below the threshold.
    made = regenerated(
        [(1, 0, 0, 101), (1, 1, 0, 101)],
        limits(800, 8000),
        devices={0: "254:0", 1: "7:0"},
        written={0: 5, 1: 0},
    )
    assert said(made) == [(6.0, 1, 0, 101, "background"), (31.0, 0, 0, 101, "periodic")]


def test_devices_have_timers_of_their_own():
    made = regenerated([(1, 0, 0, 1), (3, 1, 0, 1)], devices={0: "254:0", 1: "7:0"})
    assert [row[:2] for row in said(made)] == [(31.0, 0), (33.0, 1)]


def test_sync_writes_all_and_inodes_are_clean():
    made = regenerated([(1, 0, 0, 1), (2, 1, 0, 2), (4, 0, 0, 1)], syncs=[3])
    assert said(made) == [
        (3.0, 0, 0, 1, "sync"),
        (3.0, 1, 0, 2, "sync"),
        (34.0, 0, 0, 1, "periodic"),
    ]


def test_fsync_writes_one_inode_that_keeps_its_time():
    made = regenerated([(1, 0, 0, 1), (1, 1, 0, 1), (28, 0, 1, 1)], fsyncs=[(2, 0)])
    assert said(made) == [
        (2.0, 0, 0, 1, "fsync"),
        (31.0, 0, 1, 1, "periodic"),
        (31.0, 1, 0, 1, "periodic"),
    ]


def test_an_ended_inode_is_never_written():
    made = regenerated([(1, 0, 0, 5), (2, 1, 0, 1)], freed=[(5, 0)])
    assert said(made) == [(36.0, 1, 0, 1, "periodic")]
    assert made.summary["pages_dropped"] == 5


def test_processes_that_would_have_been_paused_are_counted_and_not_slowed_down():
    # 150 pages take 1.5 s to write; 100 more are dirtied meanwhile: above (100 + 300) / 2.
    made = regenerated([(1, 0, 0, 150), (2, 1, 0, 100)], limits(100, 300), pages_per_s=100)
    assert said(made)[0] == (1.0, 0, 0, 150, "background")
    counted = {key: made.summary[key] for key in ("pages_above_freerun", "ns_above_freerun")}
    assert counted == {"pages_above_freerun": 100, "ns_above_freerun": 500_000_000}
    assert made.summary["peak_dirty_pages"] == 250


def test_pages_are_written_where_they_were():
    made = regenerated([(1, 2, 4, 3)])
    assert made.writes[["dev", "ino", "index", "page", "pages"]].to_numpy().tolist() == [
        ["254:0", 102, 4, 2004, 3]
    ]


def test_a_re_written_page_is_the_same_page():
    made = regenerated([(1, 0, 3, 2), (40, 0, 4, 2)])
    assert made.writes["first"].to_list() == [0, 1]
    assert (made.summary["unique_pages"], made.summary["pages_rewritten"]) == (3, 1)


def test_without_memory_thresholds_are_not_known_and_said_so():
    made = regenerated([(1, 0, 0, 1)])
    assert made.summary["ns_above_background"] is None
    assert "thresholds given as ratios are not modelled" in " ".join(made.assumptions)


def test_nothing_dirtied_writes_nothing():
    made = regenerated([])
    assert said(made) == []
    assert made.summary["pages_written"] == 0


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_that_cannot_be_is_refused(rate):
    with pytest.raises(UsageError, match="cannot write"):
        regenerated([(1, 0, 0, 1)], pages_per_s=rate)


SECONDS = st.integers(0, 120).map(lambda n: n / 2)
INODES = st.integers(0, 3)
DIRTIED = st.lists(
    st.tuples(SECONDS, INODES, st.integers(0, 8), st.integers(1, 4)), min_size=1, max_size=40
)
KNOBS = st.builds(
    lambda expire, every, background: DEFAULTS.changed(
        dirty_expire_centisecs=expire,
        dirty_writeback_centisecs=every,
        dirty_background_bytes=background * PAGE,
        dirty_bytes=40 * PAGE,
    ),
    st.integers(0, 4000),
    st.integers(0, 1000),
    st.integers(2, 30),
)


@settings(deadline=None)  # numba compiles at the first call
@given(
    DIRTIED,
    KNOBS,
    st.lists(st.tuples(SECONDS, INODES), max_size=5),
    st.lists(SECONDS, max_size=3),
    st.lists(st.tuples(SECONDS, INODES), max_size=3),
    st.sampled_from([None, 3.0, 1000.0]),
)
def test_no_page_is_made_or_lost(dirtied, knobs, fsyncs, syncs, freed, rate):
    inodes = {row[1] for row in dirtied}
    made = regenerated(
        dirtied,
        knobs,
        fsyncs=[row for row in fsyncs if row[1] in inodes],
        syncs=syncs,
        freed=[row for row in freed if row[1] in inodes],
        pages_per_s=rate,
    )
    fate = made.summary
    assert fate["pages_dirtied"] == sum(row[3] for row in dirtied)
    assert fate["pages_dirtied"] == (
        fate["pages_absorbed"]
        + fate["pages_written"]
        + fate["pages_dropped"]
        + fate["pages_still_dirty"]
    )
    assert fate["pages_written"] == made.writes["pages"].sum()
    # Every page written was dirtied since it was last written.
    last = {}
    for at, inode, first, pages, _ in said(made):
        for page in range(first, first + pages):
            before = last.get((inode, page), -1.0)
            assert any(
                before <= when <= at and of == inode and begin <= page < begin + many
                for when, of, begin, many in dirtied
            )
            last[inode, page] = at
    assert made.writes["ts"].is_monotonic_increasing


@settings(deadline=None)  # numba compiles at the first call
@given(
    st.lists(SECONDS, min_size=1, max_size=30),
    st.integers(0, 2000),
    st.integers(0, 2000),
    st.integers(1, 1000),
)
def test_a_longer_expiry_never_writes_a_lone_page_more_often(times, expire, more, every):
    """A law for a page that is its device's only one: of many, a longer wait may part two that
    a shorter one would have written together."""

    def writes(age):
        knobs = DEFAULTS.changed(dirty_expire_centisecs=age, dirty_writeback_centisecs=every)
        made = regenerated([(at, 0, 0, 1) for at in times], knobs, end=1000)
        return made.summary["pages_written"]

    assert writes(expire + more) <= writes(expire)


def test_only_inode_marks_show_that_a_dirty_page_is_dirtied_again():
    # Recorded at 30 s: one dirtying. At 1 s the page is written at 6, and again for each mark.
    knobs = DEFAULTS.changed(dirty_expire_centisecs=100)
    story = {"marks": [(8, 0), (20, 0), (21, 0)], "end": 60}
    least = regenerated([(1, 0, 0, 2)], knobs, **story)
    most = regenerated([(1, 0, 0, 2)], knobs, **story, at_most=True)
    assert [row[:4] for row in said(least)] == [(6.0, 0, 0, 2)]
    assert [row[:4] for row in said(most)] == [(6.0, 0, 0, 2), (13.0, 0, 0, 2), (25.0, 0, 0, 2)]
    assert most.summary["pages_dirtied_hidden"] == 4


def test_at_the_recorded_settings_nothing_is_hidden():
    # A page that was clean in the recording when its inode was marked was not dirtied by that.
    made = regenerated([(1, 0, 0, 2, 7, 31)], marks=[(20, 0), (40, 0)], at_most=True)
    assert said(made) == [(31.0, 0, 0, 2, "periodic")]
    assert made.summary["pages_dirtied_hidden"] == 0
