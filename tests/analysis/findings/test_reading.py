"""Findings about reads: data read again, read-ahead in vain, pages that others evict."""

import json

import pytest

from tests.support.findings import GAP
from tests.support.page_events import (
    DEV,
    JOB,
    ONE,
    OTHER,
    PEER,
    PROCESSES,
    TWO,
    PageEvents,
    looped,
)
from tracer.analysis.cli.query import query as query_verb

TOPICS = {"reads again", "read-ahead", "evictions"}
EVIL = "<script>\x1b[2J\n\u202e'; DROP TABLE x--" + "x" * 300


def of(found, made, targets=ONE, **tables):
    """Returns the findings about reads of these events, by topic."""
    by_topic = found({**made.tables, **tables}, clock=made.clock, targets=targets)
    return {topic: one for topic, one in by_topic.items() if topic in TOPICS}


def first_cell(found, one, capsys):
    """Returns the first cell that `tracer query` prints for the query of a finding."""
    capsys.readouterr()
    query_verb(str(found.folders[-1]), one.query, json=True, csv=False)
    return next(iter(json.loads(capsys.readouterr().out)[0].values()))


def thrashing(pages, epochs, by=JOB, first=0, tid=JOB, ino=12):
    """Reads a file in epochs, of which nothing is left in the cache for the next."""
    made = PageEvents()
    for epoch in range(first, first + epochs):
        for at in range(0, pages, 8):
            made.read(at, 8, ino, tid)
        made.evict(range(pages), ino, by)
        made.end_epoch(epoch, tid)
    return made


def test_a_job_whose_data_does_not_fit_reads_it_again(found, capsys):
    by_topic = of(found, thrashing(pages=512, epochs=3))
    assert by_topic.keys() == {"reads again"}
    one = by_topic["reads again"]
    assert one.value == 100 == first_cell(found, one, capsys)
    assert one.sentence == (
        "each epoch of job after the first reads 2.0 MiB from disk again, 100 % of what it uses,"
        " because these pages were evicted before their next use; 2.0 MiB of page cache would keep"
        " them (see tracer predict)"
    )
    assert (one.certainty, one.weight) == ("exact", 0.25)


def test_a_part_that_is_read_again_is_a_share_of_each_epoch(found, capsys):
    made = PageEvents()
    for epoch in range(3):
        for at in range(0, 1024, 8):
            made.read(at, 8)
        made.evict(range(256), by=JOB)
        made.end_epoch(epoch)
    one = of(found, made)["reads again"]
    assert one.value == 25 == first_cell(found, one, capsys)
    assert "reads 1.0 MiB from disk again, 25 % of what it uses" in one.sentence
    assert "; 4.0 MiB of page cache would keep them" in one.sentence


@pytest.mark.parametrize(
    "made",
    [
        looped(pages=512, epochs=3),  # fits
        thrashing(pages=512, epochs=1),  # nothing is used again
        thrashing(pages=64, epochs=3),  # too little to matter
    ],
    ids=["fits", "one epoch", "few pages"],
)
def test_a_healthy_job_has_none_of_them(found, made):
    assert of(found, made) == {}


def test_the_first_epoch_is_that_of_the_target_not_of_another(found):
    # `peer` goes on with epoch 5, and reads in it twice what had been evicted.
    made = looped(pages=8, epochs=1)
    for _ in range(2):
        made.read(0, 512, 99, PEER)
        made.evict(range(512), 99, PEER)
    made.end_epoch(5, PEER)
    assert "reads again" not in of(found, made, TWO)


def test_epochs_of_all_folds_but_the_first_one_read_again(found, capsys):
    """Two folds of two epochs use 2 MiB, of which nothing is left for the next epoch."""
    made = PageEvents()
    for epoch in (0, 1, 0, 1):
        for at in range(0, 512, 8):
            made.read(at, 8)
        made.evict(range(512), by=JOB)
        made.end_epoch(epoch)
    one = of(found, made)["reads again"]
    assert one.value == 100 == first_cell(found, one, capsys)
    assert "each epoch of job after the first reads 2.0 MiB from disk again" in one.sentence


@pytest.mark.parametrize(
    ("used", "said", "certainty"),
    [
        (8, "reads 2.0 MiB from disk again, 100 % of what it uses, because", "exact"),
        (6, "reads 2.0 MiB from disk again, at least 83 % of what it uses, because", "at least"),
        (1, "reads 2.0 MiB from disk again, and uses 256.0 KiB; nobody knows how much", "at least"),
    ],
)
def test_pages_that_are_read_again_in_vain_are_not_among_those_that_it_uses(
    found, used, said, certainty
):
    """Each window of eight pages is read again, and some of its pages are used."""
    made = PageEvents()
    for epoch in range(3):
        for at in range(0, 512, 8):
            made.bring_in(at, 8)
            made.read(at, used)
        made.evict(range(512), by=JOB)
        made.end_epoch(epoch)
    one = of(found, made)["reads again"]
    assert said in one.sentence
    assert one.certainty == certainty and one.value <= 100
    assert ("evicted before" in one.sentence) is (used > 1)


def test_read_ahead_that_is_evicted_before_its_use_need_not_be_of_small_reads(found):
    made = PageEvents()
    for at in range(0, 1024, 32):
        made.bring_in(at, 32)
        made.read(at, 2)
        made.evict(range(at + 2, at + 32), by=JOB)
    sentence = of(found, made)["read-ahead"].sentence
    assert "it reads small parts of files, or they were evicted before their use (use" in sentence


def test_read_ahead_that_nobody_uses_is_found(found, capsys):
    made = PageEvents()
    for at in range(0, 1024, 32):
        made.bring_in(at, 32)
        made.read(at, 2)
    made.bring_in(2000, 8)
    made.read(2000, 2)
    made.read(2002, 6)
    one = of(found, made)["read-ahead"]
    assert one.value == pytest.approx(100 * 32 * 30 / (32 * 30 + 6))
    assert one.value == pytest.approx(first_cell(found, one, capsys))
    assert one.sentence == (
        "99 % of the pages read ahead for the job, 3.8 MiB, were never used: it reads small parts"
        " of files (use a smaller read-ahead, or POSIX_FADV_RANDOM)"
    )


@pytest.mark.parametrize(("used", "windows"), [(18, 32), (0, 8)], ids=["used", "few pages"])
def test_read_ahead_that_is_used_or_small_is_no_finding(found, used, windows):
    made = PageEvents()
    for at in range(0, windows * 32, 32):
        made.bring_in(at, 32)
        made.read(at, 2)  # missed, so not read ahead
        made.read(at + 2, used)
    assert "read-ahead" not in of(found, made)


def test_read_ahead_of_others_is_not_the_job_s(found):
    # Both read ahead in vain; the pages of `cp` count as the job's once it uses their file.
    made = PageEvents()
    made.bring_in(0, 1024, tid=OTHER)
    made.read(0, 2)
    made.bring_in(2000, 32)
    made.read(2000, 2)
    assert "read-ahead" not in of(found, made)


def test_another_target_that_evicts_pages_is_found(found, capsys):
    made = looped(pages=512, epochs=1)
    made.evict(range(384), by=PEER)
    made.evict(range(384, 512))
    by_topic = of(found, made, TWO)
    assert by_topic.keys() == {"evictions"}
    one = by_topic["evictions"]
    assert one.value == 75 == first_cell(found, one, capsys)
    assert one.sentence == (
        "peer evicted 75 % of the pages that job lost from the cache (1.5 MiB): they share too"
        " little memory (give each a limit of its own)"
    )


def test_workers_of_a_target_evict_together(found, capsys):
    workers = [
        {"pid": pid, "tid": pid, "role": "child", "target": "peer", "comm": f"w{pid}", "ppid": PEER}
        for pid in (31, 32)
    ]
    made = looped(pages=512, epochs=1)
    made.evict(range(200), by=31)
    made.evict(range(200, 400), by=32)
    one = of(found, made, TWO, processes=[*PROCESSES, *workers])["evictions"]
    assert one.value == 100 == first_cell(found, one, capsys)
    assert one.sentence.startswith("peer evicted 100 % of the pages that job lost")


@pytest.mark.parametrize("by", [JOB, 50], ids=["itself", "kswapd"])
def test_a_job_or_a_kernel_thread_is_nobody_else(found, by):
    made = looped(pages=512, epochs=1)
    made.evict(range(512), by=by)
    assert "evictions" not in of(found, made)


def test_few_evicted_pages_are_no_finding(found):
    made = looped(pages=512, epochs=1)
    made.evict(range(200), by=OTHER)
    assert "evictions" not in of(found, made)


def test_names_of_an_enemy_are_short_and_printable(found, capsys):
    processes = [
        {**PROCESSES[0], "target": EVIL}, {**PROCESSES[2], "comm": EVIL}, PROCESSES[3],
    ]  # fmt: skip
    made = thrashing(pages=512, epochs=3, by=OTHER)
    for at in range(0, 1024, 32):
        made.bring_in(at, 32, ino=99)
        made.read(at, 2, ino=99)
    by_topic = of(found, made, processes=processes)
    assert by_topic.keys() == TOPICS
    for one in by_topic.values():
        assert one.sentence.isprintable() and len(one.sentence) < 600
        assert EVIL not in one.query
        assert first_cell(found, one, capsys) == pytest.approx(one.value)


def test_lost_events_are_said(found):
    made = thrashing(pages=512, epochs=3)
    gap = {**GAP, "from": made.now // 2, "to": made.now}
    one = of(found, made, loss=[gap])["reads again"]
    assert one.lossy and "events were lost in this time" in one.sentence
    after = {**GAP, "from": 2 * made.now, "to": 3 * made.now}
    assert not of(found, made, loss=[after])["reads again"].lossy


def test_impossible_events_have_no_findings(found):
    made = PageEvents()
    for tid in (JOB, -5):
        for event in ("access", "add", "delete", "fault", "map", "sync_read_ahead"):
            made.add_event(tid, event, 1 << 51, 1 << 40)
            made.add_event(tid, event, (1 << 64) - 1, -(1 << 40), ino=(1 << 64) - 1)
    made.events.append({"ts": made.now, "tid": JOB, "event": "add", "dev": DEV, "index": 1})
    assert of(found, made) == {}
