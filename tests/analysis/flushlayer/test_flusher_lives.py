"""Inode numbers of removed files that new files get: the flusher's model tells the files apart."""

import random

import pytest

from tests.support.dirtied import DEFAULTS
from tests.support.flushed import DEV, EXT4, JOB, Story, pieces
from tracer.analysis.flushlayer.answers import sweep
from tracer.analysis.flushlayer.flusher.regenerate import regenerate
from tracer.analysis.flushlayer.flusher.regenerated_accesses import regenerated_accesses

pytestmark = pytest.mark.slow

VM = {"dirty_ratio": 20, "dirty_background_ratio": 10, "dirty_bytes": 0,
      "dirty_background_bytes": 0, "dirty_expire_centisecs": 3000,
      "dirty_writeback_centisecs": 500}  # fmt: skip
OTHER, THEIRS = 8, 99
FIRST, SECOND = "254:1", "254:2"
PARTITIONS = [
    {"dev": DEV, "bytes": 1 << 40},
    {"dev": FIRST, "bytes": 512 * 80_000, "partition_of": DEV, "start": 0},
    {"dev": SECOND, "bytes": 512 * 80_000, "partition_of": DEV, "start": 80_000},
]


def checkpoints(count, again):
    """Checkpoints of four pages, each renamed over the one before, which is removed.

    With `again`, a checkpoint gets the number of the last one but one. Another job writes two pages
    of a file in place each time.
    """
    story = Story().lies(0, 5000, 2, ino=THEIRS)
    for k in range(count):
        at, ino = 100 * k, 11 + (k % 2 if again else k)
        story.dirtied(at + 1, 0, 1, 2, 3, ino=ino).lies(at + 40, 1000 + 10 * k, 4, ino=ino)
        story.flushed(at + 40, (1000 + 10 * k, 4), ino=ino, age=39)
        story.dirtied(at + 1, 0, 1, ino=THEIRS, pid=OTHER)
        story.flushed(at + 41, (5000, 2), ino=THEIRS, age=40)
        if k:
            story.freed(at + 50, 11 + ((k - 1) % 2 if again else k - 1))
    return story


def drawn(seed, again):
    """Draws files that are dirtied, written and removed, three at a time.

    With `again`, a new file has the number of a removed one; without, a number of its own.
    """
    draw = random.Random(seed)
    story, lives, dirty, block = Story(), [0, 0, 0], [set[int](), set[int](), set[int]()], 1000
    for step in range(1, 70):
        slot, at = draw.randrange(3), 3 * step + draw.random()
        ino = 11 + slot + (0 if again else 10 * lives[slot])
        match draw.choice(["dirty", "dirty", "write", "write directly", "remove"]):
            case "dirty":
                pages = draw.sample(range(12), draw.randint(1, 5))
                story.dirtied(at, *pages, ino=ino)
                dirty[slot].update(pages)
            case "write" if dirty[slot]:
                for page in sorted(dirty[slot]):
                    story.lies(at, block + page, 1, ino=ino, first=page)
                story.flushed(at, *((block + page, 1) for page in sorted(dirty[slot])), ino=ino)
                dirty[slot].clear()
            case "write directly":
                page = draw.randrange(12)
                story.lies(at, block + page, 1, ino=ino, first=page)
                story.wrote(at, (block + page, 1), ino=ino)
            case "remove":
                story.freed(at, ino=ino)
                lives[slot] += 1
                dirty[slot].clear()
        block += 20
    return story, sum(lives)


def files(found):
    return list(found.inodes[["ino", "life"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("knobs", ["", "[knobs]\ndirty_expire_centisecs = [3000]\n"])
def test_a_checkpoint_with_the_number_of_a_removed_one_is_a_new_file(tmp_path, again, knobs):
    (tmp_path / "s.toml").write_text(f'capacity = [1.0]\nidentity = ["file"]\n{knobs}')
    plan = sweep.load(tmp_path / "s.toml")
    story = checkpoints(6, again)
    with story.made(tmp_path / "t", 700, vm=VM, file_systems=[EXT4]) as trace:
        frame = sweep.run(trace, plan)
    assert set(frame["requests"]) == {6 * (4 + 2)}
    assert set(frame["unique_pages"]) == {6 * 4 + 2}


def test_a_page_that_is_dirtied_as_the_number_is_freed_is_the_new_file_s(tmp_path):
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).freed(50).dirtied(50, 0)
    found, recorded = story.flushed(90, (600, 1)).prepared(tmp_path, file_systems=[EXT4])
    assert files(found) == [(11, 0), (11, 1)]
    assert pieces(found, "ts", "inode", "until", "how") == [
        (1.0, 0, 40, "seen"),
        (50.0, 1, 90, "seen"),
    ]
    assert recorded.freed["inode"].to_list() == [0]


def test_two_files_that_end_at_one_time_are_two(tmp_path):
    """An inode may be freed twice at the same time of a coarse clock."""
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).freed(50).freed(50).dirtied(60, 0)
    found, _ = story.flushed(95, (600, 1)).prepared(tmp_path, file_systems=[EXT4])
    assert files(found) == [(11, 0), (11, 1), (11, 2)]
    assert pieces(found, "inode", "how") == [(0, "seen"), (2, "seen")]


@pytest.mark.parametrize(("dev", "lives"), [(FIRST, 2), (SECOND, 1)])
def test_a_file_of_another_partition_with_the_number_ends_none(tmp_path, dev, lives):
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).freed(50, dev=dev).dirtied(60, 0)
    story.freed(70, dev=SECOND).flushed(95, (500, 1))
    mounts = [{"dev": d, "path": f"/{d}", "type": "ext4", "source": "x"} for d in (FIRST, SECOND)]
    found, _ = story.prepared(tmp_path, disks=PARTITIONS, mounts=mounts)
    assert files(found) == [(11, life) for life in range(lives)]
    assert pieces(found, "ts", "how") == [(1.0, "seen"), (60.0, "seen")]


def test_a_number_on_two_partitions_has_one_life(tmp_path):
    """An event of dirtying does not tell which of the two files it is about."""
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).freed(50, dev=FIRST).dirtied(60, 0)
    story.flushed(95, (10_500, 1))
    mounts = [{"dev": d, "path": f"/{d}", "type": "ext4", "source": "x"} for d in (FIRST, SECOND)]
    found, _ = story.prepared(tmp_path, disks=PARTITIONS, mounts=mounts)
    assert files(found) == [(11, 0)]
    assert any("1 inode numbers belong to files on several" in note for note in found.notes)
    assert any("1 inode numbers were freed and used again" in note for note in found.notes)


XFS = {
    "geometry": {"file_systems": [{**EXT4, "group_blocks": 1000}]},
    "mount": {"mounts": [{"dev": DEV, "path": "/", "type": "xfs", "source": "x"}]},
    "an event": {},
}


@pytest.mark.parametrize("known_by", XFS)
def test_a_file_of_xfs_that_may_live_on_is_one(tmp_path, known_by):
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).freed(50).dirtied(60, 0)
    story.flushed(95, (500, 1))
    if known_by == "an event":
        story.file_writes.append({**story.file_writes[0], "event": "map_blocks"})
    found, _ = story.prepared(tmp_path, **XFS[known_by])
    assert files(found) == [(11, 0)]
    assert any("1 inode numbers were freed and used again" in note for note in found.notes)


def test_a_removed_file_s_number_that_nobody_uses_again_is_not_noted(tmp_path):
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).freed(50)
    found, _ = story.prepared(tmp_path, **XFS["geometry"])
    assert not any("used again" in note for note in found.notes)


def test_a_trace_without_the_ends_of_files_says_so(tmp_path):
    story = Story().dirtied(1, 0).flushed(40, (500, 1))
    assert "record the probe file_writes" not in " ".join(story.prepared(tmp_path)[0].notes)
    (tmp_path / "s.toml").write_text(
        'capacity = [1.0]\nidentity = ["file"]\n[knobs]\ndirty_expire_centisecs = [3000]\n'
    )
    with story.made(tmp_path / "u", without="file_writes") as trace:
        frame = sweep.run(trace, sweep.load(tmp_path / "s.toml"))
    assert "record the probe file_writes" in " ".join(frame.attrs["assumptions"])


@pytest.mark.parametrize("age", [None, 60])
def test_a_page_of_a_new_file_was_not_dirty_before_the_file(tmp_path, age):
    """No event tells that it was dirtied. The old file was dirty 60 s before."""
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).freed(50).flushed(80, (600, 2), age=age)
    found, _ = story.prepared(tmp_path, file_systems=[EXT4])
    assert pieces(found, "ts", "inode", "pages", "how") == [
        (1.0, 0, 1, "seen"),
        (50.0, 1, 2, "earlier"),
    ]


def test_a_sync_of_the_new_file_writes_no_page_of_the_old_one(tmp_path):
    story = Story().dirtied(1, 0).flushed(40, (500, 1)).freed(50).dirtied(60, 0)
    story.flushed(95, (600, 1))
    whole = {"offset": 0, "last": (1 << 63) - 1, "sync_mode": 1}
    by = {"tid": JOB, "pid": JOB, "dev": DEV, "ino": 11, "event": "writepages_start"}
    story.file_writes += [{"ts": at * 10**9, **by, **whole} for at in (20, 70)]
    _, recorded = story.prepared(tmp_path, file_systems=[EXT4])
    assert recorded.synced["inode"].to_list() == [0, 1]


@pytest.mark.parametrize("seed", range(8))
def test_numbers_that_come_again_change_no_write_at_any_setting(tmp_path, seed):
    stories = [drawn(seed, again) for again in (False, True)]
    assert stories[0][1] > 5
    made = []
    for number, (story, _) in enumerate(stories):
        (tmp_path / str(number)).mkdir()
        found, recorded = story.prepared(tmp_path / str(number), 300, file_systems=[EXT4])
        made.append([])
        for expire in (200, 3000, 9000):
            for most in (False, True):
                knobs = DEFAULTS.changed(dirty_expire_centisecs=expire)
                written = regenerate(found, recorded, knobs, at_most=most)
                accesses = regenerated_accesses(found, written)
                made[-1].append((accesses.page.tolist(), accesses.by_reason, accesses.by_mapping))
    assert made[0] == made[1]
    assert len({str(one) for one in made[0]}) > 2
