"""Metadata that the journal writes: pages of the device's own inode, each page by itself."""

import random

import pytest

from tests.support.flushed import EXT4, S, Story, bio, pieces
from tracer.analysis.flushlayer.answers import sweep
from tracer.analysis.flushlayer.flusher import paired
from tracer.analysis.flushlayer.flusher.fixed_writes import prepared

pytestmark = pytest.mark.slow

VM = {"dirty_expire_centisecs": 3000, "dirty_writeback_centisecs": 500}
KNOBS = "[knobs]\ndirty_expire_centisecs = [3000]\n"
JOURNAL = 60
OWN = 254 << 20
"""The inode of the disk."""


def by_journal(story, at, page, pages, rwbs="WM"):
    story.block.append(bio(round(at * S), page, pages, JOURNAL, rwbs))
    return story


def passed(found):
    return found.passed[["page", "pages"]].to_numpy().tolist()


def test_pages_amid_a_bio_are_metadata_if_they_were_dirtied(tmp_path):
    story = Story().dirtied(1, 700, ino=OWN).dirtied(2, 703, 704, ino=OWN)
    by_journal(story, 50, 699, 7)
    found, _ = story.prepared(tmp_path)
    assert pieces(found, "ts", "index", "pages", "page", "until", "how") == [
        (1.0, 700, 1, 700, 50, "seen"),
        (2.0, 703, 2, 703, 50, "seen"),
    ]
    assert passed(found) == [[699, 1], [701, 2], [705, 1]]
    assert found.written["pages"].to_list() == [1, 2]


@pytest.mark.parametrize(("first", "where"), [(500, 0), (501, 1), (502, 2)])
def test_pages_of_a_file_beside_metadata_are_those_of_the_file(tmp_path, first, where):
    """A bio of unknown inode has a page of metadata, and two pages of a file."""
    story = Story().lies(0, 500, 3)
    story.dirtied(1, first, ino=OWN)
    by_journal(story, 50, 500, 3, "W")
    found, _ = story.prepared(tmp_path, file_systems=[EXT4])
    assert pieces(found, "index", "page", "how") == [(first, first, "seen")]
    files = found.inodes["ino"].to_numpy()[found.passed["inode"]]
    each = [
        (int(ino), row.first + n)
        for ino, row in zip(
            files, found.passed.rename(columns={"index": "first"}).itertuples(), strict=True
        )
        for n in range(row.pages)
    ]
    assert each == [(11, index) for index in range(3) if index != where]


def test_a_block_that_is_written_again_without_being_dirtied_is_written_as_recorded(tmp_path):
    story = Story().dirtied(5, 77, ino=OWN).flushed(40, (77, 1), ino=OWN)
    by_journal(story, 50, 77, 1)
    found, _ = story.prepared(tmp_path)
    assert pieces(found, "ts", "index", "until", "how") == [(5.0, 77, 40, "seen")]
    assert passed(found) == [[77, 1]]
    story.dirtied(60, 77, ino=OWN)
    by_journal(story, 70, 77, 1)
    (tmp_path / "again").mkdir()
    found, _ = story.prepared(tmp_path / "again")
    assert pieces(found, "ts", "index", "until", "how") == [
        (5.0, 77, 40, "seen"),
        (60.0, 77, 70, "seen"),
    ]
    assert passed(found) == [[77, 1]]


@pytest.mark.parametrize("knobs", ["", KNOBS])
@pytest.mark.parametrize("seed", range(4))
def test_metadata_counts_as_often_as_it_was_written(tmp_path, seed, knobs):
    """Blocks are dirtied, then the journal writes runs in which they lie.

    Nothing is dirty for 30 s, so the flusher never writes.
    """
    draw = random.Random(seed)
    story, requests, touched, at = Story(), 0, set(), 1.0
    for _ in range(30):
        at += 3
        story.dirtied(at, *draw.sample(range(100, 112), draw.randint(1, 6)), ino=OWN)
        first = at + 1
        for number in range(draw.randint(1, 3)):
            page, pages = draw.randrange(98, 112), draw.randint(1, 6)
            by_journal(story, first + number / 10, page, pages)
            requests += pages
            touched |= set(range(page, page + pages))
        # All that is still dirty.
        by_journal(story, first + 0.5, 98, 20)
        requests += 20
        touched |= set(range(98, 118))
    (tmp_path / "s.toml").write_text(f'capacity = [1.0]\nidentity = ["file"]\n{knobs}')
    with story.made(tmp_path / "t", 200, vm=VM) as trace:
        frame = sweep.run(trace, sweep.load(tmp_path / "s.toml"))
        found, _ = prepared(trace)
    counts = set(zip(frame["requests"], frame["unique_pages"], strict=True))
    assert counts == {(requests, len(touched))}
    assert set(found.pieces["how"]) == {paired.SEEN}
    assert found.written["pages"].sum() == found.pieces["pages"].sum()
