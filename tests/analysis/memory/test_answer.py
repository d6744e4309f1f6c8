"""Predictions from small recordings, their numbers known from plain Python."""

import random
import resource
from collections import OrderedDict

import pytest

from tests.support.budget import run_within, within_budget
from tests.support.page_events import (
    DEV,
    INO,
    JOB,
    ONE,
    OTHER,
    PAGE,
    PEER,
    TWO,
    PageEvents,
    looped,
    sample,
)
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.words import basis
from tracer.probes.errors import UsageError

pytestmark = pytest.mark.slow

MODELS = ("two-lists", "lru", "min", "resident")


@pytest.fixture
def answered(tmp_path):
    """Returns the answer for events, with samples and what a manifest says."""

    def answer(
        made, pages, samples=(), own=None, read_ahead=0, targets=ONE, without=(), **manifest
    ):
        tables = {**made.tables, "samples": list(samples)}
        tables = {name: rows for name, rows in tables.items() if name not in without}
        manifest = {"clock": made.clock, "targets": targets, **manifest}
        with make_trace(tmp_path / f"{random.random()}.trace", tables, **manifest) as trace:
            return answer_memory(trace, [count * PAGE for count in pages], own, read_ahead)

    return answer


def read(found, model, pages, target="job"):
    """Returns the pages read in each epoch by a model with a memory of so many pages."""
    rows = found.reads
    mine = rows[(rows["memory_bytes"] == pages * PAGE) & (rows["target"] == target)]
    return mine.sort_values("epoch")[f"{model}_pages"].tolist()


def lru(accesses, room):
    """Returns the pages missed in each epoch by a cache that evicts the least recently used."""
    cache, missed = OrderedDict(), {}
    for epoch, page in accesses:
        missed.setdefault(epoch, 0)
        if page not in cache:
            missed[epoch] += 1
        cache[page] = True
        cache.move_to_end(page)
        if len(cache) > room:
            cache.popitem(last=False)
    return list(missed.values())


def kept(accesses, room):
    """Returns the pages missed in each epoch by a cache that never evicts."""
    cache, missed = set(), {}
    for epoch, page in accesses:
        missed.setdefault(epoch, 0)
        missed[epoch] += page not in cache
        if len(cache) < room:
            cache.add(page)
    return list(missed.values())


def best(accesses, room):
    """Returns the pages missed in all by a cache that evicts the farthest next use."""
    cache, missed = set(), 0
    pages = [page for _, page in accesses]
    for at, page in enumerate(pages):
        if page in cache:
            continue
        missed += 1
        cache.add(page)
        if len(cache) > room:  # the page itself may be the one
            ahead = pages[at + 1 :]
            cache.remove(max(cache, key=lambda p: ahead.index(p) if p in ahead else len(pages)))
    return missed


def test_a_loop_over_a_data_set_reads_all_of_it_until_it_fits(answered):
    found = answered(looped(pages=100, epochs=4), pages=[1, 50, 99, 100])
    for room in (1, 50, 99):
        assert read(found, "lru", room) == [100] * 4
        assert read(found, "two-lists", room) == [100] * 4
        assert read(found, "resident", room) == [100, *[100 - room] * 3]
        assert sum(read(found, "min", room)) <= 100 + 3 * (100 - room)
    assert [read(found, model, 100) for model in MODELS] == [[100, 0, 0, 0]] * 4
    assert found.reads["used_pages"].tolist() == [100] * 16
    assert found.reads["recorded_pages"].tolist() == [100, 0, 0, 0] * 4
    assert found.enough_bytes == {"job": 100 * PAGE}
    assert (found.error, found.warm_pages, found.limit_bytes) == ({"job": 0}, 0, {})


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_epochs_agree_with_plain_python(answered, seed):
    draw, made, accesses = random.Random(seed), PageEvents(), []
    for epoch in range(3):
        for page in draw.sample(range(40), 40) + draw.choices(range(60), k=5):
            made.read(page)
            accesses.append((epoch, page))
        made.end_epoch(epoch)
    found = answered(made, pages=[0, 7, 23, 39, 60])
    for room in (0, 7, 23, 39, 60):
        assert read(found, "lru", room) == lru(accesses, room)
        assert read(found, "resident", room) == kept(accesses, room)
        assert sum(read(found, "min", room)) == best(accesses, room)
        for model in MODELS:
            assert best(accesses, room) <= sum(read(found, model, room))
    distinct = len({page for _, page in accesses})
    enough = found.enough_bytes["job"] // PAGE
    assert sum(lru(accesses, enough)) == distinct < sum(lru(accesses, enough - 1))


def test_targets_have_memories_of_their_own_and_others_enough(answered):
    made = PageEvents()
    for epoch in range(2):
        made.read(0, 30)
        made.read(100, 10, tid=PEER)
        made.read(200, 50, tid=OTHER)
        made.end_epoch(epoch)
        made.end_epoch(epoch, PEER)
    found = answered(made, pages=[20], targets=TWO)
    assert set(found.reads["target"]) == {"job", "peer"}
    assert read(found, "lru", 20) == [30, 30]
    assert read(found, "lru", 20, "peer") == [10, 0]
    assert found.enough_bytes == {"job": 30 * PAGE, "peer": 10 * PAGE}
    assert {type(size) for size in found.reads["cache_bytes"].tolist()} == {int}


def test_pages_of_another_process_are_no_misses_if_its_memory_holds_them(answered):
    made = PageEvents()
    made.read(0, 30, tid=OTHER)
    made.read(0, 30)
    found = answered(made, pages=[0])
    assert found.reads["recorded_pages"].tolist() == [0]
    assert found.reads["two-lists_pages"].tolist() == [0]
    # Without a common cache, the job itself has to read them.
    assert found.reads["lru_pages"].tolist() == [30]


@pytest.mark.parametrize("tid", [JOB, PEER, OTHER])
def test_a_process_that_uses_no_page_takes_no_part(answered, tid):
    made = looped(pages=20, epochs=2)
    made.bring_in(0, 10, ino=99, tid=tid)
    made.add_event(tid, "delete", 0, 10, ino=98)
    found = answered(made, pages=[10], targets=TWO)
    assert read(found, "lru", 10)[:2] == [20, 20]
    assert set(found.enough_bytes) == {"job"}


@pytest.mark.parametrize("by", [JOB, OTHER])
def test_pages_that_a_program_takes_out_are_read_again(answered, by):
    made = looped(pages=20, epochs=1)
    for page in range(8):
        made.add_event(by, "delete", page)
        made.cached.discard((INO, page))
    made.read(0, 20)
    made.end_epoch(1)
    found = answered(made, pages=[20])
    assert found.reads["recorded_pages"].tolist() == [20, 8]
    for model in ("two-lists", "lru", "min", "resident"):
        assert read(found, model, 20) == [20, 8], model
    assert found.error == {"job": 0} and found.enough_bytes == {"job": 20 * PAGE}


def test_removals_are_taken_for_evictions_if_reclaim_was_not_recorded(answered):
    made = looped(pages=20, epochs=1)
    made.add_event(JOB, "delete", 0, 8)
    made.read(0, 20)
    made.end_epoch(1)
    found = answered(made, pages=[20], without=("reclaim",))
    assert read(found, "lru", 20) == [20, 0]


def test_a_job_that_only_reads_ahead_is_told_apart(answered):
    made = PageEvents()
    made.bring_in(0, 10)
    with pytest.raises(UsageError, match="used a file"):
        answered(made, pages=[10])


def of_cgroup(memory, cached, ts=1000):
    return [
        sample("job", "cgroup_memory", memory, ts),
        sample("job", "cgroup_page_cache", cached, ts),
    ]


def test_own_memory_is_the_most_that_was_sampled(answered):
    samples = [
        *of_cgroup(50 * PAGE, 20 * PAGE, 1),
        *of_cgroup(90 * PAGE, 50 * PAGE, 2),
        *of_cgroup(90 * PAGE, 60 * PAGE, 3),
        *of_cgroup(10 * PAGE, 60 * PAGE, 4),  # a sample between two readings
        sample("job", "cgroup_memory", 1000 * PAGE, 5),
        sample(None, "cgroup_memory", 1000 * PAGE, 6),
    ]
    found = answered(looped(pages=20, epochs=2), pages=[30, 59, 60], samples=samples)
    assert found.own_bytes == {"job": 40 * PAGE}
    assert found.reads["cache_bytes"].tolist() == [0, 0, 19 * PAGE, 19 * PAGE, 20 * PAGE, 20 * PAGE]
    assert [read(found, "lru", pages)[1] for pages in (30, 59, 60)] == [20, 20, 0]
    assert found.enough_bytes == {"job": 60 * PAGE}


def test_shared_memory_is_no_room_for_pages(answered):
    """The kernel counts 400 pages as page cache; 300 of them are shared memory."""
    made = looped(pages=100, epochs=3)
    samples = of_cgroup(900 * PAGE, 400 * PAGE)
    shared = sample("job", "cgroup_shmem", 300 * PAGE)
    found = answered(made, [850, 900], [*samples, shared])
    assert (found.own_bytes, found.without_shared) == ({"job": 800 * PAGE}, [])
    assert found.enough_bytes == {"job": 900 * PAGE}
    for model in ("two-lists", "lru"):
        assert (read(found, model, 850), read(found, model, 900)) == ([100] * 3, [100, 0, 0])
    assert not any("shared memory" in sentence for sentence in basis(found))
    # A sample of the cache from just before the shared memory grew.
    more = sample("job", "cgroup_shmem", 500 * PAGE)
    assert answered(made, [850], [*samples, more]).own_bytes == {"job": 900 * PAGE}


def test_an_answer_says_that_older_samples_do_not_tell_shared_memory(answered):
    made = looped(pages=100, epochs=3)
    found = answered(made, [850], of_cgroup(900 * PAGE, 400 * PAGE))
    assert (found.own_bytes, found.without_shared) == ({"job": 500 * PAGE}, ["job"])
    (said,) = (sentence for sentence in basis(found) if "shared memory" in sentence)
    assert said.startswith("job: its samples do not tell its shared memory")
    given = answered(made, [850], of_cgroup(900 * PAGE, 400 * PAGE), own=800 * PAGE)
    assert given.without_shared == []
    assert answered(made, [850]).without_shared == []


def test_own_memory_can_be_given_or_be_unknown(answered):
    made = looped(pages=20, epochs=2)
    given = answered(made, [25], of_cgroup(90 * PAGE, 0), own=5 * PAGE)
    assert given.own_bytes == {"job": 5 * PAGE} and read(given, "lru", 25) == [20, 0]
    assert answered(made, [25], of_cgroup(90 * PAGE, 0), own=0).own_bytes == {"job": 0}
    unknown = answered(made, [25], [sample("job", "cgroup_memory", 90 * PAGE)])
    assert unknown.own_bytes == {"job": None}
    assert unknown.reads["cache_bytes"].tolist() == [25 * PAGE] * 2


def test_the_error_is_that_at_the_limit_of_the_recording(answered):
    made = looped(pages=100, epochs=3)  # reads 100 pages, as if it had no limit
    limits = [
        sample("job", "cgroup_memory_max", 300 * PAGE, 1),
        sample("job", "cgroup_memory_max", 50 * PAGE, 2),
        sample(None, "cgroup_memory_max", PAGE, 3),
    ]
    found = answered(made, [100], limits)
    assert found.limit_bytes == {"job": 50 * PAGE}
    assert found.error == {"job": pytest.approx(300 / 100 - 1)}
    assert found.warm_pages == 0
    assert answered(made, [100], [*limits, *of_cgroup(60 * PAGE, 50 * PAGE)]).error == found.error
    assert answered(made, [100], limits[:1]).error == {"job": 0}


def test_pages_cached_before_the_recording_are_warm(answered):
    made = PageEvents()
    made.cached |= {(INO, page) for page in range(30)}
    made.read(0, 40)
    found = answered(made, pages=[40])
    assert found.reads["recorded_pages"].tolist() == [10]
    assert found.reads["lru_pages"].tolist() == [40]
    assert found.warm_pages == 30
    assert found.error == {"job": pytest.approx(3)}


@pytest.mark.parametrize(("last_s", "rough"), [(9, True), (11, False)])
def test_an_answer_says_that_short_runs_are_predicted_roughly(answered, last_s, rough):
    made = PageEvents()
    made.read(0, 8)
    begun, made.now = made.now, last_s * 10**9
    made.read(4, 8)
    found = answered(made, pages=[40])
    assert found.reading_ns == pytest.approx(made.now - begun, abs=10**6)
    assert any("statistics" in one for one in basis(found)) == rough


def test_the_model_s_sizes_in_bytes_are_those_of_the_kernel_s_pages(answered):
    """One request of 100 pages: a device reads 320 pages of 4 KiB at once, but 20 of 64 KiB."""
    made = PageEvents()
    made.read(0, 100)
    made.read(999)
    reads = [
        answered(made, [10**6], read_ahead=32 * size, host={"page_size": size}).reads
        for size in (4096, 65536)
    ]
    assert [rows["used_pages"].tolist() for rows in reads] == [[101]] * 2
    assert [rows["lru_pages"].tolist() for rows in reads] == [[101]] * 2
    assert [rows["two-lists_pages"].tolist() for rows in reads] == [[201], [161]]


def test_reads_outside_of_epochs_have_no_epoch(answered):
    made = looped(pages=10, epochs=2)
    made.read(50, 5)
    rows = answered(made, pages=[100]).reads
    assert rows["epoch"].isna().tolist() == [True, False, False]
    assert rows["lru_pages"].tolist() == [5, 10, 0]


def test_read_ahead_is_that_of_the_device(answered):
    made = looped(pages=8, epochs=1, chunk=1)
    disks = [{"name": "vda", "dev": DEV, "read_ahead_kb": 4}]
    assert answered(made, [9], read_ahead=None).read_ahead_bytes == 128 << 10
    assert answered(made, [9], read_ahead=None, disks=disks).read_ahead_bytes == 4 << 10
    assert answered(made, [9], read_ahead=0, disks=disks).read_ahead_bytes == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300, 0.5])
def test_samples_that_cannot_be_are_left_out(answered, value):
    samples = [
        *of_cgroup(value, 0),
        *of_cgroup(0, value),
        sample("job", "cgroup_memory_max", value),
    ]
    found = answered(looped(pages=20, epochs=2), pages=[20], samples=samples)
    assert found.limit_bytes == {}
    assert (found.own_bytes["job"] or 0) < 1 and read(found, "lru", 20) == [20, 0]


def hostile(folder):
    """Answers for impossible and sparse pages; returns pages used, enough, and memory in MiB."""
    made = looped(pages=20, epochs=2)
    rows = [
        ("access", 1 << 51, 1), ("add", 1 << 51, 1), ("access", 0, 1 << 40), ("add", 0, 1 << 40),
        ("map", 0, 1 << 40), ("add", (1 << 64) - 1, 1), ("access", 5, -7), ("delete", 0, -1 << 40),
        ("access", 0, (1 << 63) - 1), ("read_ahead", 0, (1 << 63) - 1), ("add", (1 << 27) - 1, 1),
        ("access", (1 << 27) - 1, 1),
    ]  # fmt: skip
    for tid in (JOB, -5, (1 << 31) - 1):
        for number, (event, index, pages) in enumerate(rows):
            made.add_event(tid, event, index, pages, ino=(1 << 64) - 1 - number)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with make_trace(folder, made.tables, targets=ONE, clock=made.clock) as trace:
        found = answer_memory(trace, [20 * PAGE, 1 << 80])
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    return found.reads["used_pages"].max(), found.enough_bytes["job"] // PAGE, more


@pytest.mark.slow
def test_impossible_pages_take_little_memory(tmp_path):
    hostile(tmp_path / "compiled.trace")
    # Addresses are taken for all pages of the files, and memory only for those in use.
    used, enough, more = run_within(64 << 30, hostile, tmp_path / "a.trace")
    assert (used, enough) == (20, 20) and more < 256
    error = within_budget(hostile, tmp_path / "b.trace")
    assert error is not None and "ulimit" in str(error)


def test_pages_that_were_there_before_make_the_model_read_many_times_as_much(answered):
    made = PageEvents()
    made.read(50, 1)
    for page in range(10):
        made.add_event(JOB, "access", 2 * page)
    found = answered(made, [64])
    assert read(found, "two-lists", 64) == [11] and found.error == {"job": 10}
    assert any(
        "the kernel's model reads 11.0 times what was read." in said for said in basis(found)
    )


def test_reads_of_others_do_not_make_a_short_run_of_the_target_long(answered):
    made = PageEvents()
    made.read(0, 8, ino=99, tid=OTHER)
    made.now += 60 * 10**9
    begun = made.now
    for _ in range(3):
        made.read(0, 8)
    ended = made.now
    made.now += 60 * 10**9
    made.read(0, 8, ino=99, tid=OTHER)
    made.add_event(OTHER, "delete", 0)
    made.end_epoch(0)
    found = answered(made, [4])
    assert found.reading_ns == pytest.approx(ended - begun, abs=10**6)
    assert any("of reading" in said and "rough" in said for said in basis(found))
