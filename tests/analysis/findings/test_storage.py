"""Write-backs, tenants, devices: each finding of a small trace, its answer known."""

import pytest

from tests.support.findings import (
    CONTAINERS,
    DEV,
    FLUSHER,
    JBD2,
    JOB,
    LIMITED,
    OF_CONTAINERS,
    PLACED,
    PROCESSES,
    TRAIN,
    A,
    B,
    S,
    bio,
    cached,
    call,
    chain,
    file_at,
    merged,
    phase,
    request,
    small,
    start,
)

pytestmark = pytest.mark.slow

DB = {"pid": 61, "tid": 61, "role": "other", "comm": "postgres", "ppid": 1}


def wake(ts, *reasons):
    """A wake of the flusher at `ts` (s), with two passes for each reason."""
    passes = [
        start(ts + 0.1 * n, reason) for n, reason in enumerate(r for r in reasons for _ in "12")
    ]
    end = {**passes[-1], "event": "pages_written", "reason": None, "bdi": None}
    return [*passes, {**end, "ts": end["ts"] + 1}]


VM = {"dirty_writeback_centisecs": 500}


def test_reasons_and_intervals_of_write_backs(found):
    rows = [row for n in range(40) for row in wake(2 * n, "periodic" if n % 4 else "background")]
    by_topic = found({"writeback": rows}, vm=VM)
    assert by_topic["write-back reasons"].value == 75
    assert "75 % of write-backs are periodic (60 of 80)" in by_topic["write-back reasons"].sentence
    assert by_topic["write-back interval"].value == 2
    assert by_topic["write-back interval"].sentence == (
        "the flusher wakes for a device every 2 s on average, more often than the timer's 5 s"
        " (vm.dirty_writeback_centisecs): 10 of 40 wakes have another reason than the timer"
    )


SYNCS = {
    "sync": ([call("sync", 10, 3)], "a process called sync"),
    "syncfs": ([call("syncfs", 10, 3), call("getpid", 20, 1)], "a process called syncfs"),
    "unmounting": ([call("umount2", 10, 0.5)], "a process unmounted a file system"),
    "several": (
        [call("sync", 10, 2.5), call("umount2", 12.6, 0.1)],
        "a process called sync or unmounted a file system",
    ),
    "a call that had returned": (
        [call("sync", 10, 0.5)],
        "a process called sync or syncfs, or unmounted a file system",
    ),
    "nobody known": ([], "a process called sync or syncfs, or unmounted a file system"),
}
"""Calls of the job, which asks for two write-backs, at 12 s and 13 s, and the cause named."""


SYNCED = [
    *({"ts": n * S, "tid": JOB, "event": "queue", "reason": "sync"} for n in (12, 13)),
    *(start(14 + n, "sync") for n in range(20)),
]


@pytest.mark.parametrize(("calls", "named"), SYNCS.values(), ids=SYNCS)
def test_the_call_that_asked_for_a_sync_is_that_of_the_thread_that_queued_it(found, calls, named):
    tables = {"processes": PROCESSES, "writeback": SYNCED, "syscalls": calls}
    sentence = found(tables)["write-back reasons"].sentence
    assert sentence == f"100 % of write-backs are sync (20 of 20): {named}"


def test_nobody_knows_who_asked_for_a_sync_without_system_calls(found):
    sentence = found({"writeback": SYNCED})["write-back reasons"].sentence
    assert sentence.endswith(": a process called sync or syncfs, or unmounted a file system")


def test_a_flusher_that_only_its_timer_wakes_has_no_other_reason(found):
    """The passes of a wake are close together, but the wakes are as far apart as the timer says."""
    rows = [row for n in range(40) for row in wake(2 * n, "periodic")]
    found_at_5_s = found({"writeback": rows}, vm=VM)["write-back interval"]
    assert found_at_5_s.value == 2
    assert "all are periodic, so several workers" in found_at_5_s.sentence
    assert "another reason" not in found_at_5_s.sentence
    assert "write-back interval" not in found(
        {"writeback": rows}, vm={"dirty_writeback_centisecs": 200}
    )


def test_the_interval_is_not_known_without_the_ends_of_wakes(found):
    rows = [start(2 * n, "periodic") for n in range(40)]
    assert "write-back interval" not in found({"writeback": rows}, vm=VM)


def test_the_share_of_one_containers_pages_in_anothers_fsync_is_found(found):
    tables = merged(
        {"processes": [*OF_CONTAINERS, *PROCESSES[2:]]},
        {"syscalls": [call("fsync", 10, 10, A)]},
        chain(A, A, 100, 12, 0, 37),
        chain(JBD2, B, 200, 14, 1000, 63),  # the commit takes the other's pages along
        chain(JBD2, B, 201, 40, 2000, 500),  # nobody waits any more
    )
    by_topic = found(tables, targets=CONTAINERS)
    tenants = by_topic["tenants"]
    assert tenants.value == 63
    assert tenants.sentence.startswith(
        "container B dirtied 63 % of the data written for container A's fsync (252.0 KiB of"
        " 400.0 KiB)"
    )
    assert tenants.certainty == "inferred"
    assert by_topic["writers"].value == pytest.approx(100 * 563 / 600)
    assert "container B dirtied at least 94 %" in by_topic["writers"].sentence


SECOND = {**OF_CONTAINERS[0], "pid": A + 1, "tid": A + 1}
"""Another process of A."""
SHORT = {
    "before the pages": [call("fsync", 11, 1, B)],
    "its own": [call("fsync", 13, 0.5, A + 1)],
    "at its begin": [call("fsync", 10, 1, A + 1)],
    "over its end": [call("fsync", 13.5, 9, A + 1)],
    "while the pages are written": [call("fsync", 13, 3, B)],
}
"""Calls beside a longer one of A, which lasts from 10 s to 20 s."""


@pytest.mark.parametrize("short", SHORT.values(), ids=SHORT)
def test_a_short_sync_hides_no_pages_of_a_longer_one(found, query_again, short):
    tables = merged(
        {"processes": [*OF_CONTAINERS, SECOND, *PROCESSES[2:]]},
        {"syscalls": [call("fsync", 10, 10, A), *short]},
        chain(A, A, 100, 12, 0, 37),
        chain(JBD2, B, 200, 14, 1000, 63),
    )
    tenants = found(tables, targets=CONTAINERS)["tenants"]
    assert "container B dirtied 63 % of the data written for container A" in tenants.sentence
    query_again(tenants)


def test_pages_count_for_each_target_that_waits_for_them(found):
    tables = merged(
        {"processes": [*OF_CONTAINERS, *PROCESSES[2:]]},
        {"syscalls": [call("fsync", 10, 10, A), call("fsync", 13, 10, B)]},
        chain(JBD2, B, 200, 12, 1000, 10),  # A waits alone
        chain(JBD2, B, 201, 14, 2000, 200),  # both wait
        chain(JBD2, A, 202, 16, 3000, 30),
        chain(JBD2, A, 203, 22, 4000, 90),  # B waits alone
    )
    tenants = found(tables, targets=CONTAINERS)["tenants"]
    assert tenants.value == 100 * 210 / 240
    assert "written for container A's fsync (840.0 KiB of 960.0 KiB)" in tenants.sentence


def test_nobody_waits_between_two_syncs(found):
    """Two of three calls are alike."""
    late = [call("fsync", 16, 4, pid) for pid in (A, A + 1)]
    tables = merged(
        {"processes": [*OF_CONTAINERS, SECOND, *PROCESSES[2:]]},
        {"syscalls": [call("fsync", 10, 2, A), *late]},
        chain(A, A, 100, 11, 0, 37),
        chain(JBD2, B, 200, 14, 1000, 63),
    )
    assert "tenants" not in found(tables, targets=CONTAINERS)


def test_pages_with_several_possible_dirtiers_make_the_share_a_lower_bound(found):
    nobodys = {k: v for k, v in chain(JBD2, B, 202, 15, 3000, 100).items() if k != "dirty"}
    tables = merged(
        {"processes": [*OF_CONTAINERS, *PROCESSES[2:]]},
        {"syscalls": [call("fsync", 10, 10, A)]},
        chain(JBD2, B, 200, 14, 1000, 100),
        nobodys,
    )
    tenants = found(tables, targets=CONTAINERS)["tenants"]
    assert (tenants.value, tenants.certainty) == (50, "at least")
    assert "dirtied at least 50 %" in tenants.sentence


def test_data_smaller_than_a_page_count_by_their_length(found, query_again):
    """A file system with blocks of 1 KiB: four writes touch the same page."""
    tables = merged(
        {"processes": [*OF_CONTAINERS, *PROCESSES[2:]]},
        {"syscalls": [call("fsync", 10, 10, A)]},
        small(chain(A, A, 100, 12, 0, 40), 2),
        chain(JBD2, B, 200, 14, 1000, 30),
        {"writeback": [start(39, "vmscan"), {**start(42, "vmscan"), "event": "written"}]},
        chain(FLUSHER, A, 300, 40, 5000, 40),
    )
    by_topic = found(tables, targets=CONTAINERS)
    for topic, value in (("tenants", 75), ("waited for", 50), ("writers", 62.5), ("reclaim", 50)):
        assert by_topic[topic].value == value, topic
        query_again(by_topic[topic])
    assert "(120.0 KiB of 160.0 KiB)" in by_topic["tenants"].sentence
    assert "dirtied at least 62 % of the data written to disks (200.0 KiB of 320.0 KiB)" in (
        by_topic["writers"].sentence
    )
    assert "50 % of the 320.0 KiB written to disks" in by_topic["waited for"].sentence
    assert "of the targets' 320.0 KiB, up to 50 %" in by_topic["waited for"].sentence


def test_data_of_an_unknown_reason_count_by_their_length(found):
    tables = merged(
        {"processes": PROCESSES, "syscalls": [call("fsync", 10, 10)]},
        small(chain(JOB, JOB, 100, 12, 1000, 30), 2),
        chain(FLUSHER, JOB, 200, 40, 5000, 30),
    )
    assert found(tables)["unknown"].value == 80


def test_one_target_has_no_tenants(found):
    tables = merged(
        {"processes": PROCESSES, "syscalls": [call("fsync", 10, 10)]},
        chain(JOB, JOB, 100, 12, 0, 30),
    )
    by_topic = found(tables, targets=[{"name": "job", "role": "target", "kind": "pid", "pid": JOB}])
    assert not {"tenants", "writers"} & by_topic.keys()
    assert (by_topic["waited for"].value, by_topic["waited for"].certainty) == (100, "exact")
    assert "120.0 KiB" in by_topic["waited for"].sentence


def test_time_in_the_queue_against_time_in_the_device(found):
    rows = [row for n in range(50) for row in request(n, 0.75, 0.25, n)]
    by_topic = found(
        {"processes": PROCESSES, "phases": TRAIN, "block": rows},
        disks=[{"name": "vda", "dev": DEV}],
    )
    latency = by_topic["request latency"]
    assert latency.value == 75
    assert "a read on vda (254:0) waits 750 ms in the queue and 250 ms for the device" in (
        latency.sentence
    )
    reads = by_topic["disk reads"]
    assert (reads.value, reads.certainty) == (50, "at most")


def test_reads_in_flight_at_the_same_time_count_once(found):
    # Four reads of 20 s, each 10 s after the one before; the fifth lies within another.
    rows = [row for n in range(2) for row in request(2 * 10 * n, 5, 15, 2 * n)]
    rows += [row for n in range(2) for row in request(2 * 10 * n + 10, 5, 15, 2 * n + 1)]
    rows += request(12, 1, 2, 9)
    tables = {"processes": PROCESSES, "phases": TRAIN, "block": sorted(rows, key=lambda r: r["ts"])}
    assert found(tables)["disk reads"].value == 50


def test_a_read_without_a_completion_lasts_until_the_end_of_the_recording(found, query_again):
    rows = [*request(10, 5, 15, 1), *request(40, 5, 10, 2)[:2]]
    tables = {"processes": PROCESSES, "block": rows}  # the whole recording: 200 s
    reads = found(tables)["disk reads"]
    assert reads.value == 100 * (20 + 160) / 200
    assert "(2 requests, 8.0 KiB)" in reads.sentence
    query_again(reads)
    tables["phases"] = TRAIN
    assert found(tables)["disk reads"].value == 20 + 60


def test_a_read_counts_for_the_part_of_it_that_lies_in_the_training(found):
    rows = [*request(5, 2, 18, 1), *request(95, 2, 18, 2), *request(2, 1, 6, 3)]
    rows += request(120, 1, 6, 4)
    tables = {
        "processes": PROCESSES, "phases": [phase("train", 10, 110)],
        "block": sorted(rows, key=lambda row: row["ts"]),
    }  # fmt: skip
    reads = found(tables)["disk reads"]
    assert reads.value == 15 + 15
    assert "(2 requests, 8.0 KiB)" in reads.sentence


def test_the_rest_of_a_split_read_waits_since_the_scheduler_took_it(found):
    bio, issue, complete = request(10, 0, 10, 1)
    bio["nr_sector"] = 16
    rest = {"sector": 16, "event": "insert", "ts": 10 * S}
    rows = [bio, issue | {"event": "insert"}, issue | rest, issue, complete]
    rows += [row | {"sector": 16, "ts": row["ts"] + 30 * S} for row in (issue, complete)]
    tables = {"processes": PROCESSES, "phases": TRAIN, "block": rows}
    assert found(tables)["disk reads"].value == 40


def test_the_rest_of_a_split_read_is_of_the_thread_that_queued_it_since_then(found, query_again):
    """No scheduler takes the rests. Another thread issues each: of the kernel, and of the job."""
    rows = []
    for ts, tid, page, issuer in ((10, JOB, 1, JBD2), (60, DB["tid"], 100, JOB)):
        bio, *first = request(ts, 0, 10, page, tid)
        _, *rest = request(ts + 30, 0, 10, page + 1, issuer)
        rows += [bio | {"nr_sector": 16}, *first, *rest]
    tables = {"processes": [*PROCESSES, DB], "phases": TRAIN, "block": rows}
    reads = found(tables)["disk reads"]
    assert reads.value == 40
    assert reads.sentence.endswith("(2 requests, 8.0 KiB)")
    query_again(reads)


def test_reads_that_a_thread_of_the_kernel_issues_count_for_the_job_that_queued_them(found):
    (bio, issue, complete), other = request(10, 5, 15, 1), request(40, 1, 9, 2, DB["tid"])
    rows = [bio, issue | {"pid": 60, "tid": 60}, complete, *other]
    other[1] |= {"pid": JOB, "tid": JOB}
    tables = {"processes": [*PROCESSES, DB], "phases": TRAIN, "block": rows}
    reads = found(tables)["disk reads"]
    assert reads.value == 20 and "(1 request, 4.0 KiB)" in reads.sentence


def test_reads_that_a_limit_holds_back_count_for_the_job_unless_others_asked(found, query_again):
    """The file's place tells of two of the three requests who asked."""
    kernel = LIMITED["tid"]
    rows = [*request(10, 5, 15, 1, kernel), *request(40, 1, 9, 2, kernel)]
    rows += request(60, 1, 4, 900, kernel)
    tables = {"processes": [*PROCESSES, DB, LIMITED], "phases": TRAIN, "block": rows}
    unknown = found(tables)["disk reads"]
    assert (unknown.value, unknown.certainty) == (35, "at most")
    assert unknown.sentence.endswith(
        "(3 requests, 12.0 KiB; 3 by threads of the kernel, perhaps for others)"
    )

    asked = [*cached(9, 0, 1), *cached(39, 1, 1, DB["tid"])]
    known = found({**tables, "page_cache": asked, **file_at(1, 2)}, **PLACED)["disk reads"]
    assert (known.value, known.certainty) == (25, "at most")
    assert known.sentence.endswith(
        "(2 requests, 8.0 KiB; 1 by threads of the kernel, perhaps for others), without the time"
        " for which a limit on the speed of a disk holds reads back"
    )
    query_again(known)


def test_a_request_to_a_multipath_device_counts_once(found):
    """The paths have requests of their own; devices of LVM hand on bios without a request."""
    queued, issue, complete = request(10, 5, 15, 1)
    paths = [{"dev": dev, "name": dev, "bytes": 1 << 40} for dev in ("8:0", "8:16", "8:32")]
    disks = [*paths, {"dev": DEV, "name": "dm-0", "bytes": 1 << 40, "on": ["8:0", "8:16"]}]
    sent = [row | {"dev": "8:0", "ts": row["ts"] + 1} for row in (queued, issue, complete)]
    beside = [row | {"dev": "8:32"} for row in request(40, 1, 9, 1)]
    for rows in ([queued, issue, sent[1], complete, sent[2], *beside], [queued, *sent, *beside]):
        tables = {"processes": PROCESSES, "phases": TRAIN, "block": rows}
        reads = found(tables, disks=disks)["disk reads"]
        assert "(2 requests, 8.0 KiB)" in reads.sentence


def test_reads_of_two_jobs_count_for_each(found):
    rows = [*request(10, 5, 15, 1, A), *request(10, 5, 15, 2, B)]
    tables = {
        "processes": [*OF_CONTAINERS, *PROCESSES[2:]],
        "phases": [phase("train", 0, 100, A), phase("train", 0, 100, B)],
        "block": sorted(rows, key=lambda row: row["ts"]),
    }
    assert found(tables, targets=CONTAINERS)["disk reads"].value == 20


def test_data_below_a_stacked_device_is_not_counted_again_as_unknown(found):
    below = [{**bio(14.5 + n / 1e6, 5000 + 7 * n, 1, 70), "dev": "8:0"} for n in range(63)]
    crypt = {"pid": 70, "tid": 70, "ppid": 2, "role": "other", "comm": "dmcrypt_write"}
    tables = merged(
        {"processes": [*PROCESSES, crypt], "syscalls": [call("fsync", 10, 10)]},
        chain(JOB, JOB, 100, 14, 1000, 63),
        {"block": below},
    )
    disks = [
        {"dev": "8:0", "name": "sda", "bytes": 1 << 40},
        {"dev": DEV, "name": "dm-0", "bytes": 1 << 30, "on": ["8:0"]},
    ]
    by_topic = found(tables, disks=disks)
    assert by_topic["waited for"].value == 100
    assert "unknown" not in by_topic
