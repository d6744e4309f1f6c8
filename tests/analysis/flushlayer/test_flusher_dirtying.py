"""The dirtying that each written page comes from: folios without a size, bios without an offset."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.flushed import DEV, EXT4, JOB, S, Story, bio, pieces
from tests.support.recordings import make_hostile, make_recording
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.flusher import paired, pairing
from tracer.analysis.flushlayer.flusher.check import check
from tracer.analysis.flushlayer.flusher.fixed_writes import prepared
from tracer.probes.errors import BadTrace, UsageError
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

LENET = Path(__file__).parents[3] / "fixtures/lenet.trace"


def test_a_page_a_folio_each_has_its_own_time(tmp_path):
    story = Story().dirtied(1, 0).dirtied(2, 1).dirtied(3, 2).flushed(40, (500, 3))
    found, _ = story.prepared(tmp_path)
    assert pieces(found, "ts", "index", "pages", "page", "dirtier", "until", "how") == [
        (1.0, 0, 1, 500, JOB, 40, "seen"),
        (2.0, 1, 1, 501, JOB, 40, "seen"),
        (3.0, 2, 1, 502, JOB, 40, "seen"),
    ]


def test_pages_of_a_large_folio_are_counted_from_the_bio(tmp_path):
    story = Story().dirtied(1, 0).dirtied(2, 16).flushed(40, (500, 28))
    found, _ = story.prepared(tmp_path)
    assert pieces(found) == [(1.0, 0, 16, "seen"), (2.0, 16, 12, "seen")]


def test_a_page_amid_a_large_folio_is_known_by_its_block(tmp_path):
    story = Story().dirtied(1, 0).flushed(40, (500, 16)).dirtied(50, 0).flushed(90, (505, 1))
    found, _ = story.prepared(tmp_path)
    assert pieces(found) == [(1.0, 0, 16, "seen"), (50.0, 5, 1, "seen")]


def test_a_file_with_gaps_is_followed_through_its_folios(tmp_path):
    story = Story().dirtied(1, 3, 9, 40).flushed(40, (500, 1), (600, 1), (700, 2))
    found, _ = story.prepared(tmp_path)
    assert pieces(found, "index", "pages", "page") == [(3, 1, 500), (9, 1, 600), (40, 2, 700)]


def test_a_file_that_is_rewritten_elsewhere_has_the_same_pages(tmp_path):
    story = Story().dirtied(1, 0, 1).flushed(40, (500, 2)).dirtied(50, 0, 1).flushed(90, (800, 2))
    found, _ = story.prepared(tmp_path)
    assert pieces(found, "ts", "index", "pages", "page") == [(1.0, 0, 2, 500), (50.0, 0, 2, 800)]


def test_a_page_dirty_before_the_recording_is_as_old_as_its_inode(tmp_path):
    found, _ = Story().flushed(12, (500, 4), age=30).prepared(tmp_path)
    # The bracket's start is a ns after the work's.
    assert pieces(found, "ts", "pages", "how") == [(-18 + 1e-9, 4, "earlier")]
    assert found.marks["ts"].to_list() == [-18 * S + 1]


def test_dirty_pages_that_are_gone_when_the_flusher_comes_were_dropped(tmp_path):
    story = Story().dirtied(1, 0, 1).flushed(40, ino=11, left=0).dirtied(2, 0, ino=12)
    story.flushed(41, (500, 1), ino=12)
    found, _ = story.prepared(tmp_path)
    assert pieces(found, "index", "until", "how") == [
        (0, 40, "dropped"),
        (1, 40, "dropped"),
        (0, 41, "seen"),
    ]


def test_a_page_that_nobody_wrote_stays_dirty_to_the_end(tmp_path):
    story = Story().dirtied(70, 0).dirtied(2, 0, ino=12).flushed(41, (500, 1), ino=12)
    found, _ = story.prepared(tmp_path)
    assert pieces(found, "ts", "until", "how") == [(2.0, 41, "seen"), (70.0, 100, "unwritten")]


def test_an_ended_inode_drops_its_pages(tmp_path):
    story = Story().dirtied(1, 0).dirtied(2, 0, ino=12).flushed(41, (500, 1), ino=12)
    found, recorded = story.freed(9).prepared(tmp_path)
    assert pieces(found, "ts", "until", "how") == [(1.0, 9, "dropped"), (2.0, 41, "seen")]
    assert recorded.freed["ts"].to_list() == [9 * S]


def test_dirtied_again_while_it_is_written_belongs_to_the_next_write_out(tmp_path):
    story = Story().dirtied(1, 0).dirtied(40.000000005, 0).flushed(40, (500, 1))
    found, _ = story.flushed(80, (500, 1)).prepared(tmp_path)
    assert pieces(found, "ts", "until") == [(1.0, 40), (40.000000005, 80)]


def test_the_recorders_own_files_are_left_out(tmp_path):
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).dirtied(1, 0, ino=99)
    found, _ = story.flushed(41, (600, 5), ino=99).prepared(tmp_path, own_files={DEV: [99]})
    assert found.inodes["ino"].to_list() == [11]
    assert found.written["pages"].sum() == 1


def test_writes_without_a_dirtied_page_are_passed_on(tmp_path):
    story = Story().dirtied(1, 0).flushed(40, (500, 1))
    story.block.append(bio(50 * S, 10, 2, tid=60, rwbs="WS"))
    found, _ = story.prepared(tmp_path)
    assert found.passed[["page", "pages"]].to_numpy().tolist() == [[10, 2]]


def test_metadata_that_a_journal_writes_is_of_the_disks_own_inode(tmp_path):
    story = Story().dirtied(1, 700, 702, ino=254 << 20)
    for number, page in enumerate((702, 700)):
        story.block.append(bio((50 + number) * S, page, 1, tid=60, rwbs="WM"))
    found, _ = story.prepared(tmp_path)
    assert pieces(found, "index", "page", "until") == [(700, 700, 51), (702, 702, 50)]
    assert len(found.passed) == 0


def test_a_trace_without_dirtyings_says_what_to_record(tmp_path):
    with (
        make_trace(tmp_path / "t", {"block": []}) as trace,
        pytest.raises(BadTrace, match="-e dirty"),
    ):
        prepared(trace)


def test_at_its_own_settings_a_story_is_told_again(tmp_path):
    story = Story().dirtied(1, 0, 1, 2).dirtied(2, 0, ino=12)
    # Looks each 5 s from the first inode on: 6, ..., 31, 36.
    story.flushed(6, ino=10, left=0).flushed(31, (500, 3)).flushed(36, (600, 4), ino=12)
    vm = {"dirty_expire_centisecs": 3000, "dirty_writeback_centisecs": 500}
    with story.made(tmp_path / "t", vm=vm) as trace:
        result = check(trace, 5)
    assert result.by_reason.to_numpy().tolist() == [["periodic", 7, 7, 0]]
    assert result.over_time[["recorded", "regenerated"]].to_numpy().tolist() == [[3, 3], [4, 4]]
    assert result.misplaced_share == 0


@pytest.mark.parametrize("length", [0, -1, float("nan"), 1e9])
def test_bins_that_cannot_be_are_refused(tmp_path, length):
    with (
        make_trace(tmp_path / "t", {"block": [], "dirty": []}) as trace,
        pytest.raises(UsageError, match="a bin cannot be"),
    ):
        check(trace, length)


def test_a_training_run_is_regenerated(tmp_path):
    with make_recording(tmp_path / "t") as trace:
        found, _ = prepared(trace)
        result = check(trace)
    assert found.pieces["pages"].min() >= 1
    written = found.pieces[found.pieces["how"].isin((paired.SEEN, paired.EARLIER))]
    assert written["pages"].sum() == found.written["pages"].sum() > 0
    assert result.by_reason["recorded"].sum() == found.written["pages"].sum()


def test_a_recording_of_the_kernel_is_made_again():
    """A second of LeNet, and a sync: what was dirty before it is all that is written."""
    with Trace(LENET) as trace:
        result = check(trace)
    assert result.by_reason.to_numpy().tolist() == [["other", 9, 9, 0], ["sync", 1328, 1328, 0]]
    assert result.misplaced_share == 0


def test_an_enemys_trace_breaks_nothing(tmp_path):
    with make_hostile(tmp_path / "t", processes=10) as trace:
        result = check(trace)
    assert result.by_reason["recorded"].sum() >= 0


@settings(deadline=None)  # numba compiles at the first call
@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(0, 60)), max_size=25),
    st.lists(st.tuples(st.integers(1, 90), st.integers(0, 80), st.integers(1, 20)), max_size=15),
)
def test_every_written_page_is_in_one_piece(folios, bios):
    """Holds for any folios and bios of a file, in any order."""
    index = sorted({index for _, index in folios})
    rows = [(at, pairing.DIRTIED, index.index(place), 0) for at, place in folios]
    rows += [(at, pairing.WRITTEN, first, pages) for at, first, pages in bios]
    ts, kind, x, pages = np.array(sorted(rows), np.int64).reshape(-1, 4).T.copy()
    nothing = np.zeros(len(ts), np.int64)
    found = pairing.pair(
        {
            "inode": nothing.astype(np.int32), "kind": kind.astype(np.int8), "ts": ts, "x": x,
            "pages": pages, "first": np.cumsum(pages) - pages, "who": nothing + JOB,
            "started": ts, "since": nothing + paired.NEVER,
        },
        np.array([0, len(index)]),
        np.array(index, np.int64),
        paired.folio_room(np.array(index, np.int64)),
        np.arange(100),
        np.full(1, -1),
        np.full(pages.sum(), -1),
        0,
        100,
    )  # fmt: skip
    written = found[found[:, paired.BLOCK] >= 0]
    blocks = Counter(
        (row[paired.UNTIL], block)
        for row in written
        for block in range(row[paired.BLOCK], row[paired.BLOCK] + row[paired.PAGES])
    )
    assert blocks == Counter(
        (at, block) for at, first, many in bios for block in range(first, first + many)
    )
    assert (found[:, paired.UNTIL] >= found[:, paired.TS]).all()
    # A dirtying gives each page of its folio once at most, and none is thought up.
    seen = found[found[:, paired.KIND] != paired.EARLIER]
    assert {row[paired.TS] for row in seen} == {at for at, _ in folios}


def test_a_page_lies_where_the_file_system_says(tmp_path):
    # A folio was read into memory; its page 5 is written, then page 2.
    story = Story().dirtied(1, 0).flushed(40, (505, 1)).dirtied(50, 0).flushed(90, (502, 1))
    found, _ = story.lies(0, 500, 16).prepared(tmp_path, file_systems=[EXT4])
    assert pieces(found, "ts", "index", "how") == [(1.0, 5, "seen"), (50.0, 2, "seen")]
    assert found.counts["pages_told"] == 2


def test_both_dirtyings_of_a_folio_end_if_a_write_out_leaves_it_unwritten():
    columns = ("inode", "kind", "ts", "x", "pages", "who", "started", "since", "first")
    types = {"inode": np.int32, "kind": np.int8}
    rows = np.array(
        [
            (0, pairing.DIRTIED, 1, 0, 0, 7, 0, 0, 0),
            (0, pairing.DIRTIED, 2, 0, 0, 8, 0, 0, 0),
            (0, pairing.VISITED, 9, 0, 0, 0, 5, 0, 0),
        ]
    )
    none = np.zeros(0, np.int64)
    one = np.zeros(1, np.int64)
    pieces = pairing.pair(
        {name: rows[:, i].astype(types.get(name, np.int64)) for i, name in enumerate(columns)},
        np.array([0, 1]), one, paired.folio_room(one), none, one - 1, none, 0, 20,
    )  # fmt: skip
    asked = (paired.TS, paired.WHO, paired.UNTIL, paired.KIND)
    assert pieces[:, asked].tolist() == [
        [1, 7, 2, paired.DROPPED],
        [2, 8, 5, paired.DROPPED],
    ]
