"""The ends of bios that the block layer splits or merges: the end of the last request."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from tests.support.request_rows import block
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.flushlayer.trace.last_requests import last_requests

pytestmark = pytest.mark.slow


def split(queued, sector, *parts, rwbs="W", queue_rwbs=None, dev="254:0", queue_dev=None):
    """A bio and its requests, each of (sectors, issued, completed); None: it is not recorded."""
    whole = sum(length for length, _, _ in parts)
    rows = [block(queued, "bio_queue", sector, whole, queue_rwbs or rwbs, queue_dev or dev)]
    for length, issued, completed in parts:
        if issued is not None:
            rows.append(block(issued, "issue", sector, length, rwbs, dev))
        if completed is not None:
            rows.append(block(completed, "complete", sector, length, rwbs, dev))
        sector += length
    return rows


@pytest.fixture
def ends(tmp_path):
    """Returns the ends of the bios of some events, in the order in which they were queued."""
    made = []

    def of(*rows, **manifest):
        made.append(rows)
        in_order = sorted(rows, key=lambda row: row["ts"])
        folder = tmp_path / f"{len(made)}.trace"
        with make_trace(folder, {"block": in_order}, **manifest) as trace:
            bios = page_writebacks(trace, reads=True, flushes_too=True).bios
            return last_requests(trace, bios).done.tolist()

    return of


@pytest.mark.parametrize("rwbs", ["W", "R"])
def test_a_split_bio_is_complete_with_the_last_of_its_requests(ends, rwbs):
    for completed in permutations((50, 70, 90)):
        parts = zip((8, 24, 16), (20, 30, 40), completed, strict=True)
        assert ends(*split(10, 64, *parts, rwbs=rwbs)) == [90]


def test_a_part_whose_end_is_not_recorded_leaves_that_of_the_bio_open(ends):
    other = split(11, 640, (8, 21, 60), (8, 31, 80))
    for lost in range(3):
        parts = [(8, 20, 50), (8, 30, 70), (8, 40, 90)]
        parts[lost] = (*parts[lost][:2], None)  # in flight at the recording's end, or lost
        assert ends(*split(10, 64, *parts), *other) == [-1, 80]
        parts[lost] = (8, None, None)
        assert ends(*split(10, 64, *parts), *other) == [-1, 80]


def test_bios_that_are_merged_into_one_request_are_complete_with_it(ends):
    assert ends(
        block(10, "bio_queue", 64), block(11, "bio_queue", 72), block(12, "backmerge", 72),
        block(13, "bio_queue", 56), block(14, "frontmerge", 56),
        block(20, "issue", 56, 24), block(90, "complete", 56, 24),
    ) == [90, 90, 90]  # fmt: skip


@pytest.mark.parametrize(("first", "of_both"), [(30, 90), (95, 90)])
def test_the_rest_of_a_split_bio_may_be_merged_with_another_bio(ends, first, of_both):
    assert ends(
        block(10, "bio_queue", 64, 24), block(20, "issue", 64, 16),
        block(21, "bio_queue", 88), block(22, "backmerge", 88), block(23, "issue", 80, 16),
        block(first, "complete", 64, 16), block(of_both, "complete", 80, 16),
    ) == [max(first, of_both), of_both]  # fmt: skip


def test_bios_of_the_same_sectors_one_after_another_have_their_own_ends(ends):
    assert ends(
        *split(10, 64, (8, 20, 30), (16, 21, 40)),
        *split(50, 64, (16, 60, 80), (8, 61, 70)),
        *split(90, 72, (8, 91, 99)),
    ) == [40, 80, 99]


def test_bios_that_wait_for_one_sector_at_one_time_have_their_own_ends(ends):
    one, two = split(10, 64, (8, 20, 80)), split(11, 64, (8, 21, 90))
    assert ends(*one, *two) == [80, 90]
    # A long one is split. The rest of it is of no other bio.
    assert ends(*one, *split(11, 64, (8, 21, 85), (8, 22, 90))) == [80, 90]
    assert ends(*split(9, 64, (8, 19, 70), (8, 22, 90)), *one) == [90, 80]


def test_a_bio_that_failed_or_whose_issue_is_lost_does_not_end_with_another_one(ends):
    failed = block(10, "bio_queue", 64)
    assert ends(failed, *split(11, 64, (8, 21, 90))) == [-1, 90]
    lost = [failed, block(15, "complete", 64)]
    assert ends(*lost, *split(30, 64, (8, 31, 90))) == [-1, 90]


def test_requests_of_another_disk_or_operation_are_of_other_bios(ends):
    assert ends(
        *split(10, 64, (8, 20, 50), (8, 30, 60)),
        *split(11, 64, (8, 21, 51), (8, 31, 99), dev="254:16"),
        *split(12, 64, (8, 22, 52), (8, 32, 98), rwbs="R"),
        # A part of the first bio alone: of no bio, as it is on another disk.
        block(40, "issue", 72, 8, "W", "254:32"),
        block(97, "complete", 72, 8, "W", "254:32"),
    ) == [60, 99, 98]


def test_a_split_bio_of_a_partition_is_complete_with_the_requests_of_the_disk(ends):
    rows = split(10, 64, (8, 20, 60), (8, 30, 50), queue_dev="254:1")
    disks = [{"dev": "254:0"}, {"dev": "254:1", "partition_of": "254:0"}]
    assert ends(*rows, disks=disks) == [60]


def test_events_of_one_time_are_in_the_order_of_the_file(ends):
    one = split(10, 64, (8, 10, 10), (8, 10, 10))
    assert ends(*one, *split(10, 64, (16, 10, 10)), *split(10, 64, (8, 10, None))) == [10, 10, -1]


def test_parts_that_are_completed_in_pieces_or_sent_back_end_with_their_last_event(ends):
    assert ends(
        block(10, "bio_queue", 64, 32),
        block(20, "issue", 64, 16), block(21, "issue", 80, 16),
        block(22, "requeue", 80, 16), block(30, "issue", 80, 16),
        block(40, "complete", 64, 8), block(50, "complete", 80, 16), block(60, "complete", 72, 8),
    ) == [60]  # fmt: skip


def ending(ts, sector):
    return block(ts, "complete", sector, 0, "WS")


def test_a_split_bio_that_is_written_through_ends_when_the_kernel_ends_the_last_part(ends):
    through = {"rwbs": "WS", "queue_rwbs": "WFS"}
    parts = split(10, 64, (8, 20, 30), (8, 21, 31), **through)
    again = split(60, 64, (8, 61, 62), **through)
    assert ends(*parts, ending(50, 72), ending(40, 64)) == [50]
    assert ends(*parts, ending(40, 64), ending(50, 72), *again, ending(70, 64)) == [50, 70]
    # Without its own endings, it does not get those of a later bio.
    assert ends(*parts, *again, ending(70, 64)) == [31, 70]
    # Nobody waits for the flush after a plain write.
    plain = split(10, 64, (8, 20, 30), (8, 21, 31), rwbs="WS")
    assert ends(*plain, ending(40, 64), ending(50, 72)) == [31]


def test_requests_of_any_length_are_no_trouble(ends):
    last = (1 << 64) - 1
    assert ends(
        *split(10, 64, (8, 20, 50), (8, 30, 60)),
        *split(11, 1 << 40, (8, None, None)),
        block(40, "issue", 0, (1 << 63) - 1), block(70, "complete", 0, (1 << 63) - 1),
        block(41, "issue", last - 1, (1 << 63) - 1), block(71, "complete", last, 8),
    ) == [60, 70]  # fmt: skip


DISKS = ("254:0", "254:16", "8:0")
PLACES, BLOCK = 20, 8


def played(draw, steps):
    """Events of disks that split and merge bios at random, and the end that each bio had.

    A block is in one bio of an operation at a time, as a page is. Only the last piece of a bio is
    merged, and only behind a last piece: the block layer merges no others.
    """
    rows, bios, waiting, driver, busy = [], [], [], [], set()
    now = 10

    def log(event, request):
        first, length = request["first"] * BLOCK, request["blocks"] * BLOCK
        rows.append(block(now, event, first, length, request["rwbs"], request["dev"]))

    for _ in range(steps):
        now += draw.choice((0, 0, 1, 5))
        step = draw.choice(("submit", "issue", "complete"))
        if step == "submit":
            alike = {"dev": draw.choice(DISKS), "rwbs": draw.choice("WR")}
            first, blocks = draw.randrange(PLACES), draw.randrange(1, 7)
            places = {(*alike.values(), place) for place in range(first, first + blocks)}
            if places & busy:
                continue
            busy |= places
            bios.append({"pieces": 0, "ends": [], "places": places})
            log("bio_queue", {**alike, "first": first, "blocks": blocks})
            most = draw.choice((2, 3, 6))
            for at in range(first, first + blocks, most):
                length = min(most, first + blocks - at)
                last = at + length == first + blocks
                piece = {**alike, "first": at, "blocks": length, "last": last, "bios": [bios[-1]]}
                bios[-1]["pieces"] += 1
                before = [
                    one
                    for one in waiting
                    if one["last"] and (one["dev"], one["rwbs"]) == tuple(alike.values())
                    and one["first"] + one["blocks"] == at
                ]  # fmt: skip
                if last and before and draw.random() < 0.7:
                    log("backmerge", piece)
                    before[0]["blocks"] += length
                    before[0]["bios"].append(bios[-1])
                else:
                    waiting.append(piece)
        elif step == "issue" and waiting:
            driver.append(waiting.pop(draw.randrange(len(waiting))))
            log("issue", driver[-1])
        elif step == "complete" and driver:
            request = driver.pop(draw.randrange(len(driver)))
            if draw.random() < 0.01:
                continue  # it is still in flight when the recording ends
            log("complete", request)
            for bio in request["bios"]:
                bio["ends"].append(now)
                if len(bio["ends"]) == bio["pieces"]:
                    busy -= bio["places"]
    return rows, [max(b["ends"]) if len(b["ends"]) == b["pieces"] else -1 for b in bios]


@pytest.mark.parametrize("seed", range(4))
def test_random_bios_end_when_the_disk_has_completed_all_of_them(ends, seed):
    rows, wanted = played(random.Random(seed), 5000)
    assert -1 in wanted and len(wanted) > 500
    assert ends(*rows) == wanted
