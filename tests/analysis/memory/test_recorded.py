"""Accesses of recordings: pages mapped around faults, epochs without reads, numbers used again."""

import pandas as pd
import pytest

from tests.support.page_events import (
    DEV,
    JOB,
    ONE,
    OTHER,
    PAGE,
    PEER,
    PROCESSES,
    TWO,
    PageEvents,
)
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.words import basis
from tracer.analysis.memory.words import rows as rows_in_words
from tracer.analysis.views.reading.reads import reads

BOUNDS = ("lru", "min", "resident")
MODELS = ("two-lists", *BOUNDS)
MAPPED, OTHERS, MORE = 20, 21, 22
"""Inode numbers."""
ROOM = 1000
"""Pages, more than all files have."""


def answered(made, folder, pages=(ROOM,), read_ahead=0, targets=TWO, **tables):
    """Returns the answer; checks that the pages used are those of the view `reads`."""
    given = {"targets": targets, "clock": made.clock}
    with make_trace(folder / "t", {**made.tables, **tables}, **given) as trace:
        sizes = [count * PAGE for count in pages]
        found = answer_memory(trace, sizes, None, read_ahead * PAGE)
        reads(trace)
        accessed = "SELECT target, sum(accessed)::BIGINT FROM reads WHERE accessed != 0 GROUP BY 1"
        told = {name: count for name, count in trace.rows(accessed) if name is not None}
    assert totals(found, "used", pages[0]) == told
    return found


def totals(found, column, pages=ROOM):
    """Returns the pages of each target in all epochs."""
    rows = found.reads[found.reads["memory_bytes"] == pages * PAGE]
    sums = rows.groupby("target")[f"{column}_pages"].sum()
    return {name: int(count) for name, count in sums.items()}


def epochs(found, target, column="used"):
    """Returns the pages of each epoch of a target; None: in none."""
    rows = found.reads[found.reads["target"] == target]
    counts = rows[f"{column}_pages"].tolist()
    names = [None if pd.isna(epoch) else int(epoch) for epoch in rows["epoch"]]
    return dict(zip(names, counts, strict=True))


def test_no_memory_saves_reads_of_pages_that_a_program_takes_out(tmp_path):
    made = PageEvents()
    for _ in range(3):
        made.read(0, 4)
        for page in range(4):
            made.add_event(OTHER, "delete", page)
        made.cached.clear()
    found = answered(made, tmp_path, (1, ROOM), targets=ONE)
    for pages in (1, ROOM):
        assert totals(found, "lru", pages) == {"job": 12}
    assert found.enough_bytes == {"job": 0}
    assert any(said.startswith("job: LRU reads the same with any memory") for said in basis(found))


# Pages mapped around faults


def test_only_the_cached_pages_of_a_window_are_used(tmp_path):
    """The first and the last of 16 pages are cached; two targets map them, one after the other."""
    made = PageEvents()
    for window in range(64):
        made.read(16 * window, ino=MAPPED)
        made.read(16 * window + 15, ino=MAPPED)
    for window in range(64):
        made.add_event(JOB, "map", 16 * window, 16, MAPPED)
    made.read(5, ino=OTHERS)
    made.add_event(PEER, "map", 0, 16, MAPPED)
    made.read(5, ino=MORE, tid=PEER)
    found = answered(made, tmp_path, (ROOM, 1))
    assert totals(found, "used") == {"job": 128 + 128 + 1, "peer": 2 + 1}
    assert totals(found, "recorded") == {"job": 129, "peer": 1}
    for model in BOUNDS:
        assert totals(found, model) == {"job": 129, "peer": 3}, model
    # The kernel's peer finds the pages that the job has brought in.
    assert totals(found, "two-lists") == {"job": 129, "peer": 1}
    assert totals(found, "lru", 1) == {"job": 257, "peer": 3}
    assert found.enough_bytes == {"job": 128 * PAGE, "peer": 0}
    assert found.error == {"job": 0, "peer": 0}


def test_an_answer_tells_the_share_of_uses_that_go_through_mappings(tmp_path):
    made = PageEvents()
    made.read(0, 12, ino=MAPPED)
    made.add_event(JOB, "map", 0, 12, MAPPED)
    made.read(0, 40, ino=OTHERS, tid=PEER)
    made.add_event(PEER, "map", 0, 1, OTHERS)
    made.read(1, ino=OTHERS, tid=PEER)
    found = answered(made, tmp_path, read_ahead=15)
    assert found.mapped_share == {"job": 0.5, "peer": 1 / 42}
    said = [one for one in basis(found) if "mappings" in one or "touched" in one]
    assert [one[:40] for one in said] == [
        "job: 50 % of its uses of files go throug",
        "job: with less read-ahead than 64.0 KiB,",
    ]


@pytest.mark.parametrize(("pages", "many"), [(119, True), (121, False), (320, False)])
def test_an_answer_says_that_mapped_files_take_much_of_a_cache(tmp_path, pages, many):
    """12 of 313 pages are mapped, evicted, and mapped again: 24 of 950 uses, but 12 pages."""
    made = PageEvents()
    for _ in range(3):
        made.read(0, 300, ino=OTHERS)
    for _ in range(2):
        made.read(0, 12, ino=MAPPED)
        made.add_event(JOB, "map", 0, 12, MAPPED)
        made.read(0, ino=MORE)
        made.evict(range(12), ino=MAPPED)
    found = answered(made, tmp_path, (pages, ROOM), read_ahead=16, targets=ONE)
    said = (
        "job: it maps 48.0 KiB of files. A page that is mapped makes no event when it is used"
        " again, so all models may read too little with less memory than the recording had."
    )
    assert [one for one in basis(found) if "mapped" in one] == [said] * many
    assert found.mapped_share == {"job": 24 / 950}
    assert found.mapped_bytes == {"job": 12 * PAGE}


def test_pages_of_a_window_that_are_mapped_already_are_used_once(tmp_path):
    """A fault in the middle of a window maps its page before the others are mapped."""
    made = PageEvents()
    made.read(0, 48, ino=MAPPED)
    made.evict([3, 9], ino=MAPPED)
    for window in range(3):
        made.add_event(JOB, "fault", 16 * window + 5, 1, MAPPED)
        made.add_event(JOB, "map", 16 * window, 16, MAPPED)
    made.read(0, ino=OTHERS)
    found = answered(made, tmp_path)
    assert totals(found, "used") == {"job": 48 + 3 * 16 - 2 + 1}
    for model in MODELS:
        assert totals(found, model) == {"job": 49}, model
    assert found.enough_bytes == {"job": 48 * PAGE}


def test_nothing_is_read_around_faults_that_read_their_pages_alone_in_the_recording(tmp_path):
    """One file has advice of random access; pages of the other are read around the first fault."""
    made = PageEvents()
    for page in range(0, 700, 70):
        made.add_event(JOB, "fault", page, 1, MAPPED)
        made.add_event(JOB, "add", page, 1, MAPPED)
        made.add_event(JOB, "map", page - page % 16, 16, MAPPED)
    made.read(699, ino=MAPPED)
    for name in ("untold", "told"):
        (tmp_path / name).mkdir()
    found = answered(made, tmp_path / "untold", read_ahead=32)
    assert totals(found, "two-lists")["job"] > 100  # no event tells of read-ahead
    made.add_event(JOB, "fault", 0, 1, OTHERS)
    made.add_event(JOB, "read_ahead", 0, 4, OTHERS)
    for page in range(4):
        made.add_event(JOB, "add", page, 1, OTHERS)
    made.add_event(JOB, "map", 0, 4, OTHERS)
    found = answered(made, tmp_path / "told", read_ahead=32)
    assert totals(found, "two-lists") == {"job": 10 + 1 + 4}
    disks = [{"name": "sda", "dev": DEV, "read_ahead_kb": 0}]
    with make_trace(tmp_path / "off", made.tables, targets=TWO, disks=disks) as trace:
        assert (
            answer_memory(trace, [ROOM * PAGE], None, 32 * PAGE).reads["two-lists_pages"].sum()
            > 100
        )


def test_a_fault_whose_events_have_one_time_reads_around_its_page(tmp_path):
    """Traces of other tools have times in whole microseconds. The order of the rows tells."""
    made = PageEvents()
    for ino in range(MORE, MORE + 9):
        made.add_event(JOB, "fault", 64, 1, ino)
        made.add_event(JOB, "read_ahead", 60, 8, ino)
        for page in range(60, 68):
            made.add_event(JOB, "add", page, 1, ino)
        for event in made.events[-9:]:
            event["ts"] = made.now
    found = answered(made, tmp_path, read_ahead=8)
    assert totals(found, "two-lists") == {"job": 9 * 8}


def test_windows_of_any_length_are_followed(tmp_path):
    """Two targets map 200 pages by turns, of which each second one is cached: 100 runs a window."""
    made = PageEvents()
    made.bring_in(0, 200, MAPPED)
    made.evict(range(1, 200, 2), MAPPED)
    for _ in range(20):
        for tid in (JOB, PEER):
            made.add_event(tid, "map", 0, 200, MAPPED)
    found = answered(made, tmp_path)
    assert totals(found, "used") == {"job": 2000, "peer": 2000}
    for model in BOUNDS:
        assert totals(found, model) == {"job": 100, "peer": 100}, model
    assert found.enough_bytes == {"job": 100 * PAGE, "peer": 100 * PAGE}


def test_pages_that_were_taken_to_be_mapped_are_not_used_if_they_come_later(tmp_path):
    """No event has named the pages of a window, so all of them seem to be cached.

    A fault beyond the window then reads pages around it, 12 of the window among them.
    """
    made = PageEvents()
    made.read(0, ino=OTHERS)
    made.add_event(JOB, "map", 0, 16, MAPPED)
    made.add_event(JOB, "fault", 20, 1, MAPPED)
    made.add_event(JOB, "read_ahead", 4, 32, MAPPED)
    for page in range(4, 36):
        made.add_event(JOB, "add", page, 1, MAPPED)
    made.read(0, ino=OTHERS)
    made.end_epoch(0)
    made.add_event(PEER, "map", 0, 8, MORE)
    made.read(0, ino=OTHERS, tid=PEER)
    made.add_event(PEER, "fault", 2, 1, MORE)
    made.add_event(PEER, "add", 2, 1, MORE)  # the page of the fault itself was used
    made.cached.add((MAPPED, 5))
    made.read(5, ino=MAPPED)
    made.end_epoch(1)
    found = answered(made, tmp_path)
    assert epochs(found, "job") == {0: 2 + 4 + 1, 1: 1}
    assert totals(found, "used") == {"job": 8, "peer": 8 + 1}
    assert totals(found, "recorded") == {"job": 1 + 32, "peer": 1}
    for model in BOUNDS:
        assert totals(found, model) == {"job": 7, "peer": 9}, model
    assert found.enough_bytes["job"] == 6 * PAGE


def test_pages_that_a_window_lacked_are_used_in_the_epoch_of_their_fault(tmp_path):
    """The first 8 pages of a window are cached; the next epoch begins with the fault of page 8."""
    made = PageEvents()
    made.add_event(JOB, "map", 0, 16, MAPPED)
    made.read(0, ino=OTHERS)
    made.end_epoch(0)
    made.add_event(JOB, "fault", 8, 1, MAPPED)
    made.add_event(JOB, "read_ahead", 8, 8, MAPPED)
    for page in range(8, 16):
        made.add_event(JOB, "add", page, 1, MAPPED)
    made.end_epoch(1)
    found = answered(made, tmp_path)
    assert epochs(found, "job") == {0: 8 + 1, 1: 1}
    for model in BOUNDS:
        assert epochs(found, "job", model) == {0: 8 + 1, 1: 1}, model


# Epochs in which nothing is read


def test_an_epoch_without_reads_counts_in_the_mean(tmp_path):
    """The targets have epochs in which they use no page; the job's last epoch does not end."""
    made = PageEvents()
    for epoch in range(4):
        if epoch < 2:
            made.read(0, 96)
        made.end_epoch(epoch)
        if epoch == 2:
            made.read(0, 32, OTHERS, PEER)
        made.end_epoch(epoch, PEER)
    open_one = {"name": "epoch", "epoch": 4, "start": made.now, "pid": JOB, "tid": JOB}
    found = answered(made, tmp_path, phases=[*made.phases, open_one | {"end": None}])
    assert epochs(found, "job") == {0: 96, 1: 96, 2: 0, 3: 0}
    assert epochs(found, "peer") == {0: 0, 1: 0, 2: 32, 3: 0}
    assert epochs(found, "job", "lru") == {0: 96, 1: 0, 2: 0, 3: 0}
    assert found.reads["partial"].tolist() == [False] * 8
    mine = found.reads[found.reads["target"] == "job"]
    used = {row[2]: row[3] for row in rows_in_words(mine, PAGE)}
    assert used == {"first": 96 / 256, "later": 96 / 256 / 3}
    assert not any("only a part" in sentence for sentence in basis(found))


def test_a_target_without_marks_has_no_epochs_of_another_s_job(tmp_path):
    """Peer reads in the job's first and last epochs."""
    made = PageEvents()
    for epoch in range(4):
        made.read(0, 8)
        if epoch in (0, 3):
            made.read(0, 4, OTHERS, PEER)
        made.end_epoch(epoch)
    made.phases[-1]["end"] = None
    found = answered(made, tmp_path)
    assert epochs(found, "job") == {0: 8, 1: 8, 2: 8, 3: 8}
    assert epochs(found, "peer") == {None: 8}
    of_job = found.reads[found.reads["target"] == "job"]
    assert of_job["partial"].tolist() == [False, False, False, True]


def test_a_target_that_reads_in_no_epoch_has_those_that_it_marks_itself(tmp_path):
    made = PageEvents()
    made.end_epoch(0)
    made.read(0, 8)
    made.read(0, 4, OTHERS, PEER)
    found = answered(made, tmp_path)
    assert epochs(found, "job") == {0: 0, None: 8}
    assert epochs(found, "peer") == {None: 4}


def test_epochs_of_a_number_that_two_targets_had_are_told_apart(tmp_path):
    """Peer has the job's number after its end. The job's last epoch ended with its process."""
    made = PageEvents()
    made.read(0, 8)
    made.end_epoch(0)
    made.end_epoch(1)
    ended = made.now + 1
    made.now += 10
    made.phases[-1]["end"] = None
    start = made.now
    made.now += 10
    made.read(0, 4, OTHERS)
    made.phases += [
        {"name": "epoch", "start": start, "end": made.now + 1, "pid": JOB, "tid": JOB, "epoch": 5},
        {"name": "epoch", "start": made.now + 2, "end": made.now + 3, "pid": JOB, "tid": JOB,
         "epoch": 6},
    ]  # fmt: skip
    made.now += 10
    job = PROCESSES[0]
    peer = job | {"target": "peer", "start_ns": ended + 1}
    processes = [job | {"end_ns": ended}, peer, *PROCESSES[2:]]
    found = answered(made, tmp_path, processes=processes)
    assert epochs(found, "job") == {0: 8, 1: 0}
    assert epochs(found, "peer") == {5: 4, 6: 0}
    assert found.reads["partial"].tolist() == [False] * 4


# Open files of thread numbers


def test_a_thread_with_the_number_of_another_one_goes_on_in_none_of_its_files(tmp_path):
    """A thread that goes on in a file reads two pages with a read-ahead of four, others one."""
    made = PageEvents()
    for ino in (MAPPED, OTHERS):
        made.read(5, ino=ino, tid=PEER)
        if ino == OTHERS:
            made.read(6, ino=ino, tid=PEER)  # goes on, and reads page 7, too
    ended = made.now
    made.now += 10
    made.read(6, ino=MAPPED, tid=PEER)  # by a stranger
    made.read(7, ino=MAPPED)
    made.read(7, ino=OTHERS)
    peer, stranger = PROCESSES[1], PROCESSES[2]
    processes = [
        *(PROCESSES[0], peer | {"end_ns": ended}),
        stranger | {"pid": PEER, "tid": PEER, "start_ns": ended + 1},
    ]
    found = answered(made, tmp_path, read_ahead=4, processes=processes)
    assert totals(found, "two-lists") == {"job": 1, "peer": 1 + 1 + 2}
    (tmp_path / "u").mkdir()
    # The number alone decides for threads of which nothing is known.
    alone = PageEvents()
    alone.read(5, tid=OTHER)
    alone.read(6, tid=OTHER)
    alone.read(7)
    found = answered(alone, tmp_path / "u", read_ahead=4, targets=ONE, processes=PROCESSES[:1])
    assert totals(found, "two-lists") == {"job": 0}
    assert totals(found, "lru") == {"job": 1}
