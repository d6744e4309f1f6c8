"""Regenerated write-back counts pages of files, wherever these begin on the disk."""

import random

import pytest

from tests.support.flushed import DEV, S, Story, pieces
from tracer.analysis.flushlayer.answers import sweep
from tracer.analysis.flushlayer.flusher import paired
from tracer.analysis.flushlayer.flusher.check import check
from tracer.analysis.flushlayer.flusher.fixed_writes import prepared

pytestmark = pytest.mark.slow

PART = "254:1"
VM = {"dirty_expire_centisecs": 3000, "dirty_writeback_centisecs": 500}
KNOBS = "[knobs]\ndirty_expire_centisecs = [3000]\n"
INODES = (11, 12, 13)
CYCLE_S = 100


def manifest(start, block_sectors):
    """A file system on a partition that begins at a sector, or on the disk itself."""
    dev = PART if start else DEV
    disks = [{"dev": DEV, "bytes": 1 << 40}]
    if start:
        part = {"dev": PART, "bytes": 1 << 30, "partition_of": DEV, "start": start}
        disks.append(part)
    return {
        "disks": disks,
        "mounts": [{"dev": dev, "path": "/", "type": "ext4", "source": "x"}],
        "file_systems": [{"dev": dev, "block_bytes": 512 * block_sectors}],
        "vm": VM,
    }


def flushed(story, at, *runs, **more):
    """The flusher writes a file: runs are (first sector on the disk, sectors)."""
    story.flushed(at, *[(0, 1)] * len(runs), **more)
    for row, (sector, length) in zip(story.block[-len(runs) :], runs, strict=True):
        row |= {"sector": sector, "nr_sector": length}


def lies(story, start, *place, **more):
    story.lies(0, *place, **more)
    story.extents[-1]["dev"] = PART if start else DEV


class Files:
    """Files whose pages are dirtied and written again and again, and a count that knows them.

    The blocks of a page lie side by side. Some pages have only their first blocks, as at the end of
    a file, and some only their last ones, as behind a hole.
    """

    def __init__(self, seed, start, block_sectors):
        self.start, self.block_sectors = start, block_sectors
        self.story, self.draw = Story(), random.Random(seed)
        self.requests, self.on_disk, self.dirtied = 0, 0, []
        self.pages = set()
        self._next = self.draw.randrange(10, 14)
        self.laid = {ino: self._lay(ino) for ino in INODES}
        for cycle in range(4):
            for number, ino in enumerate(INODES):
                self._write(CYCLE_S * cycle, number, ino)

    def _lay(self, ino):
        """Returns the first sector on the disk and the length of each page."""
        in_page, laid = 8 // self.block_sectors, {}
        for page in sorted(self.draw.sample(range(40), 12)):
            count = self.draw.choice([in_page, in_page, in_page, *range(1, in_page + 1)])
            begin = self.draw.choice([0, in_page - count])
            self._next += self.draw.choice([0, 0, 0, 1, 3])
            place = {"first": page * in_page + begin, "ino": ino}
            lies(self.story, self.start, self._next, count, **place)
            sector = self.start + self._next * self.block_sectors
            laid[page] = sector, count * self.block_sectors
            self._next += count
        return laid

    def _write(self, at, number, ino):
        chosen = sorted(self.draw.sample([*self.laid[ino]], self.draw.randint(1, 12)))
        runs = []
        for n, page in enumerate(chosen):
            second = at + 1 + number / 10 + n / 1000
            self.story.dirtied(second, page, ino=ino)
            self.dirtied.append((round(second * S), ino, page))
            sector, length = self.laid[ino][page]
            if runs and runs[-1][0] + runs[-1][1] == sector:
                runs[-1] = runs[-1][0], runs[-1][1] + length
            else:
                runs.append((sector, length))
        flushed(self.story, at + 40 + number, *runs, ino=ino, age=39 + number)
        self.requests += len(chosen)
        self.pages |= {(ino, page) for page in chosen}
        self.on_disk += sum((first + length - 1) // 8 - first // 8 + 1 for first, length in runs)


@pytest.mark.parametrize(("start", "block"), [(0, 2), (0, 4), (63, 2), (63, 8), (34, 8), (0, 8)])
def test_pages_are_those_of_a_file_system_that_knows_its_files(tmp_path, start, block):
    apart = 0
    for seed in range(3):
        files = Files(seed, start, block)
        apart += files.on_disk != files.requests
        folder = tmp_path / str(seed)
        with files.story.made(folder, 4 * CYCLE_S, **manifest(start, block)) as trace:
            for number, knobs in enumerate(("", KNOBS)):
                plan = tmp_path / f"{number}.toml"
                plan.write_text(f'capacity = [1.0]\nidentity = ["file"]\n{knobs}')
                frame = sweep.run(trace, sweep.load(plan))
                found = set(zip(frame["requests"], frame["unique_pages"], strict=True))
                assert found == {(files.requests, len(files.pages))}, (seed, knobs)
            found, _ = prepared(trace)
            rows = found.pieces.merge(found.inodes, left_on="inode", right_index=True)
            each = [
                (row.ts, row.ino, row.first + n)
                for row in rows.rename(columns={"index": "first"}).itertuples()
                for n in range(row.pages)
            ]
            assert sorted(each) == sorted(files.dirtied), seed
            assert set(rows["how"]) == {paired.SEEN}
            assert found.counts["pages_told"] == found.written["pages"].sum() == files.requests
            assert check(trace, CYCLE_S).misplaced_share == 0
    assert bool(apart) == ((start, block) != (0, 8))


def test_two_pages_of_a_file_on_one_page_of_the_disk_are_two(tmp_path):
    """Blocks of 1 KiB: the disk's page 1 has the end of page 0, and the beginning of page 1."""
    story = Story().dirtied(1, 0).dirtied(2, 1)
    lies(story, 0, 2, 8)
    flushed(story, 40, (8, 8))
    found, _ = story.prepared(tmp_path, **manifest(0, 2))
    assert pieces(found, "ts", "index", "pages", "page", "how") == [
        (1.0, 0, 1, 0, "seen"),
        (2.0, 1, 1, 1, "seen"),
    ]


@pytest.mark.parametrize("told", [False, True])
def test_pages_of_a_partition_that_begins_amid_a_page_of_the_disk(tmp_path, told):
    """Two pages that touch three pages of the disk; nobody need tell where the file lies."""
    story = Story().dirtied(1, 0).dirtied(2, 1)
    if told:
        lies(story, 63, 10, 2)
    flushed(story, 40, (63 + 80, 16))
    found, _ = story.prepared(tmp_path, **manifest(63, 8))
    assert pieces(found, "ts", "index", "pages", "page", "how") == [
        (1.0, 0, 1, 17, "seen"),
        (2.0, 1, 1, 18, "seen"),
    ]
    assert found.counts["pages_told"] == 2 * told


def test_a_file_of_unknown_place_on_small_blocks_counts_by_pages_of_the_disk(tmp_path):
    story = Story().dirtied(1, 0).dirtied(2, 1)
    flushed(story, 40, (4, 16))
    found, _ = story.prepared(tmp_path, **manifest(0, 2))
    assert found.written["pages"].to_list() == [3]


def test_a_page_before_the_disk_begins_breaks_nothing(tmp_path):
    """The file's first page would begin at sector -4."""
    story = Story().dirtied(1, 0).dirtied(2, 1)
    lies(story, 0, 1, 4, first=3)
    flushed(story, 40, (2, 8))
    found, _ = story.prepared(tmp_path, **manifest(0, 2))
    assert pieces(found, "ts", "index", "pages", "page", "how") == [
        (1.0, 0, 1, 0, "seen"),
        (2.0, 1, 1, 0, "seen"),
    ]
