"""Direct writes beside regenerated write-back: their pages are those of their files."""

import pytest

from tests.support.flushed import DEV, EXT4, S, Story, bio
from tracer.analysis.flushlayer.answers import sweep
from tracer.analysis.flushlayer.flusher.fixed_writes import prepared
from tracer.probes.errors import BadTrace

pytestmark = pytest.mark.slow

VM = {"dirty_expire_centisecs": 3000, "dirty_writeback_centisecs": 500}
KNOBS = "[knobs]\ndirty_expire_centisecs = [3000]\n"


@pytest.fixture
def swept(tmp_path):
    """Returns (write-backs, distinct pages) of a story by file, with the recorded knobs."""

    def run(story, knobs=KNOBS, **manifest):
        (tmp_path / "s.toml").write_text(f'capacity = [1.0]\nidentity = ["file"]\n{knobs}')
        folder = tmp_path / ("knobs" if knobs else "recorded")
        with story.made(folder, 500, vm=VM, **{"file_systems": [EXT4], **manifest}) as trace:
            frame = sweep.run(trace, sweep.load(tmp_path / "s.toml"))
        ((requests, pages),) = set(zip(frame["requests"], frame["unique_pages"], strict=True))
        return requests, pages, " ".join(frame.attrs["assumptions"])

    return run


def rewritten(count):
    """A file that is truncated and written directly, `count` times: four pages, elsewhere each."""
    story = Story()
    for k in range(count):
        story.lies(10 * k + 1, 100 + 10 * k, 4).wrote(10 * k + 1, (100 + 10 * k, 4))
    return story


@pytest.mark.parametrize("knobs", ["", KNOBS])
def test_a_file_that_is_rewritten_directly_has_the_same_pages(swept, knobs):
    assert swept(rewritten(4), knobs)[:2] == (16, 4)


@pytest.mark.parametrize("knobs", ["", KNOBS])
def test_pages_of_the_page_cache_are_those_that_are_written_directly(swept, knobs):
    """Three pages by the flusher, pages 2 and 3 directly; another job's file stays apart."""
    story = Story().dirtied(1, 0, 1, 2).lies(2, 500, 8).flushed(40, (500, 3))
    story.wrote(50, (502, 2))
    story.lies(60, 900, 8, ino=12).wrote(60, (900, 2), ino=12)
    assert swept(story, knobs)[:2] == (7, 6)


@pytest.mark.parametrize("knobs", ["", KNOBS])
def test_a_new_file_with_a_removed_one_s_number_has_pages_of_its_own(swept, knobs):
    story = rewritten(1).freed(50)
    story.lies(60, 800, 4).wrote(60, (800, 4))
    story.dirtied(70, 0).flushed(105, (800, 1))
    assert swept(story, knobs)[:2] == (9, 8)


@pytest.mark.parametrize("knobs", ["", KNOBS])
def test_a_page_of_a_file_on_two_pages_of_the_disk_is_one(swept, knobs):
    """Blocks of 1 KiB: the file's two pages begin at block 2 of the disk, and touch three pages."""
    story = Story()
    story.lies(1, 2, 8).wrote(1, (0, 3))
    story.block[0] |= {"sector": 4, "nr_sector": 16}
    small = {"file_systems": [{**EXT4, "block_bytes": 1024}]}
    assert swept(story, knobs, **small)[:2] == (2, 2)


@pytest.mark.parametrize("knobs", ["", KNOBS])
def test_two_pages_of_a_file_on_one_page_of_the_disk_are_two(swept, knobs):
    """Blocks of 1 KiB: the file begins at sector 4; the disk's page 1 has parts of both pages."""
    story = Story()
    story.lies(1, 2, 8).wrote(1, (1, 1))
    small = {"file_systems": [{**EXT4, "block_bytes": 1024}]}
    assert swept(story, knobs, **small)[:2] == (2, 2)


@pytest.mark.parametrize("knobs", ["", KNOBS])
@pytest.mark.parametrize(("at", "page"), [(1, 77), (50, 76)])
def test_a_block_of_metadata_is_one_page_whoever_writes_it(swept, knobs, at, page):
    """The flusher writes block 77, a page of the disk's own inode; the journal writes two blocks.

    No event tells of the journal's pages before the block is dirtied, and none of block 76.
    """
    story = Story().dirtied(5, 77, ino=254 << 20).flushed(40, (77, 1), ino=254 << 20)
    story.block.append(bio(at * S, page, 2, tid=60, rwbs="WM"))
    assert swept(story, knobs)[:2] == (3, 2)


def test_pages_of_unknown_files_are_identified_by_block_and_said_to_be(swept):
    """The blocks of the second time are those of the first; metadata belongs to no file."""
    story = Story().wrote(1, (100, 4)).wrote(11, (100, 4)).wrote(21, (200, 4))
    story.block.append(bio(30 * S, 100, 1, tid=60, rwbs="WM"))
    requests, pages, said = swept(story)
    assert (requests, pages) == (13, 8)
    assert "the file of 12 of 13 pages is not known" in said


def test_a_direct_write_that_no_disk_takes_is_refused(swept):
    story = Story().wrote(1, (100, 1 << 37))
    with pytest.raises(BadTrace, match="has a bio with more than"):
        swept(story)


def test_the_runs_of_a_bio_follow_the_file(tmp_path):
    """Pages 0, 1 and 7 of the file lie side by side on the disk, before two of nobody known."""
    story = Story().lies(0, 100, 2).lies(0, 102, 1, first=7).wrote(1, (100, 5))
    with story.made(tmp_path / "t", file_systems=[EXT4]) as trace:
        found, _ = prepared(trace)
    columns = ["dev", "page", "pages", "inode", "index"]
    assert found.passed[columns].to_numpy().tolist() == [
        [DEV, 100, 2, 0, 0],
        [DEV, 102, 1, 0, 7],
        [DEV, 103, 2, -1, 0],
    ]
    assert found.inodes[["ino", "life"]].to_numpy().tolist() == [[11, 0]]
