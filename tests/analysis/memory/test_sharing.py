"""Two targets with one memory limit, against plain Python over their accesses."""

import random
import tracemalloc
from collections import Counter, OrderedDict

import pytest

from tests.support.page_events import JOB, PAGE, PEER, TWO, PageEvents, looped, sample
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.sharing import recorded_limits, sharing
from tracer.analysis.memory.words import basis

pytestmark = pytest.mark.slow

NAMES = {JOB: "job", PEER: "peer"}
MODELS = ("two-lists", "lru", "min", "resident")


def open_trace(made, folder, samples=(), targets=TWO, cgroups=(None, None), **manifest):
    """Writes events as a trace, the processes of the two targets in these cgroups."""
    of = dict(zip(("job", "peer"), cgroups, strict=True))
    processes = [{**one, "cgroup": of.get(one.get("target"))} for one in made.tables["processes"]]
    tables = {**made.tables, "processes": processes, "samples": list(samples)}
    manifest = {"clock": made.clock, "targets": targets, **manifest}
    return make_trace(folder / f"{random.random()}.trace", tables, **manifest)


@pytest.fixture
def answered(tmp_path):
    """Returns the answer for memories in pages."""

    def answer(made, pages, shared=None, own=None, **more):
        with open_trace(made, tmp_path, **more) as trace:
            return answer_memory(trace, [count * PAGE for count in pages], own, 0, shared)

    return answer


def read(found, model, pages):
    """Returns the pages that each target reads by a model with a memory of so many pages."""
    rows = found.reads[found.reads["memory_bytes"] == pages * PAGE]
    sums = rows.groupby("target")[f"{model}_pages"].sum()
    return {name: int(count) for name, count in sums.items()}


def lru(accesses, room):
    """Returns the pages that each target misses in one cache for all of them."""
    cache, missed = OrderedDict(), Counter(dict.fromkeys(NAMES.values(), 0))
    for tid, page in accesses:
        missed[NAMES[tid]] += page not in cache
        cache[page] = True
        cache.move_to_end(page)
        if len(cache) > room:
            cache.popitem(last=False)
    return missed


def kept(accesses, room):
    """Returns the same for a cache that never evicts."""
    cache, missed = set(), Counter(dict.fromkeys(NAMES.values(), 0))
    for tid, page in accesses:
        missed[NAMES[tid]] += page not in cache
        if len(cache) < room:
            cache.add(page)
    return missed


def interleaved(seed, count=300):
    """Draws reads of two targets: of a file of each, and of a file that both read."""
    draw, made, accesses = random.Random(seed), PageEvents(), []
    for _ in range(count):
        tid = draw.choice([JOB, JOB, PEER])
        ino = draw.choice([tid, tid, 99])
        page = draw.randrange(20)
        made.read(page, 1, ino, tid)
        accesses.append((tid, (ino, page)))
    return made, accesses


@pytest.mark.parametrize(("shared", "who"), [(False, "job"), (True, "job and peer")])
def test_an_answer_says_if_a_memory_has_no_room_beside_the_own_memory(answered, shared, who):
    made, _ = interleaved(1)
    samples = [sample("job", "cgroup_memory", 40 * PAGE), sample("job", "cgroup_page_cache", 0)]
    found = answered(made, [30, 40, 41], shared, samples=samples)
    assert [one for one in basis(found) if "no room" in one] == [
        f"{who}: 160.0 KiB or less have no room for page cache beside the own memory, so the kernel"
        " may kill a process. The rows have what is read if it goes on."
    ]
    assert not any("no room" in one for one in basis(answered(made, [41], shared, samples=samples)))
    assert not any("no room" in one for one in basis(answered(made, [1], shared)))


@pytest.mark.parametrize("seed", range(3))
def test_one_cache_takes_the_accesses_of_both_in_the_order_of_recording(answered, seed):
    made, accesses = interleaved(seed)
    rooms = (0, 1, 7, 23, 40, 60)
    found = answered(made, rooms, shared=True)
    for room in rooms:
        assert read(found, "lru", room) == lru(accesses, room)
        assert read(found, "resident", room) == kept(accesses, room)
        for model in MODELS:
            assert sum(read(found, "min", room).values()) <= sum(read(found, model, room).values())
    assert read(found, "lru", 23) != read(answered(made, rooms, shared=False), "lru", 23)
    together = {name: found.enough_bytes[name] // PAGE for name in NAMES.values()}
    enough = together["job"]
    distinct = len({page for _, page in accesses})
    assert together["peer"] == enough
    assert lru(accesses, enough).total() == distinct < lru(accesses, enough - 1).total()


@pytest.mark.parametrize("model", MODELS)
def test_the_sum_is_that_of_the_targets(answered, model):
    made, _ = interleaved(5)
    found = answered(made, [7, 23], shared=True)
    assert found.shared == [["job", "peer"]] and found.sums["targets"].tolist() == found.shared * 2
    for room, count in zip((7, 23), found.sums[f"{model}_pages"], strict=True):
        assert count == sum(read(found, model, room).values())
    assert found.sums["used_pages"].tolist() == [300, 300]
    assert answered(made, [7], shared=False).sums.empty


def test_events_of_one_time_keep_their_order(answered):
    made, accesses = interleaved(11)
    apart = answered(made, [17], shared=True)
    for event in made.events:
        event["ts"] -= event["ts"] % 50_000
    found = answered(made, [17], shared=True)
    assert len({event["ts"] for event in made.events}) < len(accesses) / 5
    assert read(found, "lru", 17) == lru(accesses, 17)
    assert read(found, "two-lists", 17) == read(apart, "two-lists", 17)


def test_a_target_that_uses_no_page_leaves_the_other_all_memory(answered):
    made = looped(pages=30, epochs=2)
    found = answered(made, [20, 30], shared=True)
    assert found.shared == [] and found.sums.empty
    assert [read(found, "lru", room) for room in (20, 30)] == [{"job": 60}, {"job": 30}]


def test_the_first_to_read_a_page_reads_it_for_both(answered):
    made = PageEvents()
    made.read(0, 30)
    for _ in range(2):
        made.read(0, 30, tid=PEER)
    for shared in (True, False):
        found = answered(made, [30], shared=shared)
        assert read(found, "two-lists", 30) == {"job": 30, "peer": 0}
    together, apart = (answered(made, [30], shared=shared) for shared in (True, False))
    for model in ("lru", "min", "resident"):
        assert read(together, model, 30) == {"job": 30, "peer": 0}
        assert read(apart, model, 30) == {"job": 30, "peer": 30}
    assert together.enough_bytes == {"job": 30 * PAGE, "peer": 30 * PAGE}


def test_a_lost_access_is_missing_and_said(answered):
    made, accesses = interleaved(3)
    found = [number for number, event in enumerate(made.events) if event["event"] == "access"]
    del made.events[found[150]], accesses[150]
    lost = answered(made, [9], shared=True, loss={"events": 1, "windows": 1, "unknown": 0})
    assert lost.lossy and not answered(made, [9], shared=True).lossy
    assert read(lost, "lru", 9) == lru(accesses, 9)


def limited(target, pages, cgroup=None):
    return {**sample(target, "cgroup_memory_max", pages * PAGE), "instance": cgroup}


def both_loop(pages, epochs):
    """Makes two targets read a file of so many pages each, in turns, with room for both."""
    made = PageEvents()
    for _ in range(epochs):
        for at in range(pages):
            made.read(at, 1, JOB, JOB)
            made.read(at, 1, PEER, PEER)
    return made


def test_targets_that_shared_a_limit_share_each_amount(answered):
    made = both_loop(40, 3)
    pod = [limited("job", 500, "/pod"), limited("peer", 500, "/pod"), limited("peer", 900)]
    found = answered(made, [60], samples=pod)
    assert found.shared == found.recorded_shared == [["job", "peer"]]
    assert read(found, "lru", 60) == {"job": 120, "peer": 120}
    apart = answered(made, [60], shared=False, samples=pod)
    assert (apart.shared, apart.recorded_shared) == ([], [["job", "peer"]])
    assert read(apart, "lru", 60) == {"job": 40, "peer": 40}


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [limited("job", 500, "/pod")],
        [limited("job", 500, "/pod"), limited("peer", 500, "/another")],
        [limited("job", 500, "/pod"), limited("peer", 500, "/pod"), limited("peer", 400)],
        [limited("job", 500, "/pod"), limited("job", 500), limited("peer", 500, "/pod")],
        [limited("job", 500), limited("peer", 500)],
    ],
)
def test_targets_whose_tightest_limits_are_not_one_share_nothing(answered, samples):
    found = answered(both_loop(40, 3), [60], samples=samples)
    assert found.shared == found.recorded_shared == []
    assert read(found, "lru", 60) == {"job": 40, "peer": 40}
    assert answered(both_loop(40, 3), [60], shared=True, samples=samples).recorded_shared == []


def test_the_error_is_that_at_the_shared_limit_of_the_recording(answered):
    made = both_loop(40, 3)  # reads 80 pages, as if both fitted
    for cgroup, error in (("/pod", 2), (None, 0)):
        samples = [limited(name, 60, cgroup) for name in NAMES.values()]
        for shared in (None, True, False):
            found = answered(made, [500], shared=shared, samples=samples)
            assert found.error == {"job": pytest.approx(error), "peer": pytest.approx(error)}
            assert found.limit_bytes == {"job": 60 * PAGE, "peer": 60 * PAGE}


def test_the_memory_of_all_that_share_is_no_page_cache(answered):
    samples = [
        sample("job", "cgroup_memory", 50 * PAGE),
        sample("job", "cgroup_page_cache", 40 * PAGE),
        sample("peer", "cgroup_memory", 35 * PAGE),
        sample("peer", "cgroup_page_cache", 30 * PAGE),
    ]
    made = both_loop(40, 3)
    found = answered(made, [90, 95], shared=True, samples=samples)
    assert found.own_bytes == {"job": 10 * PAGE, "peer": 5 * PAGE}
    assert set(found.reads["cache_bytes"]) == set(found.sums["cache_bytes"]) == {
        75 * PAGE, 80 * PAGE
    }  # fmt: skip
    assert read(found, "lru", 90) == {"job": 120, "peer": 120}
    assert read(found, "lru", 95) == {"job": 40, "peer": 40}
    assert found.enough_bytes == {"job": 95 * PAGE, "peer": 95 * PAGE}
    given = answered(made, [95], shared=True, own=20 * PAGE, samples=samples)
    assert given.sums["cache_bytes"].tolist() == [55 * PAGE]


def test_processes_of_one_cgroup_have_one_pair_of_lists(tmp_path):
    made = both_loop(5, 1)
    containers = [{**one, "kind": "container"} for one in TWO]
    cases = [
        (TWO, ("/a", "/a"), True, [0, 0]),
        (TWO, ("/a", "/b"), True, [0, 1]),
        (TWO, (None, None), True, [0, 1]),
        (TWO, ("/a", "/a"), None, [0, 1]),  # without a limit, each has its own
        (containers, ("/a", "/a"), True, [0, 1]),
    ]
    for targets, cgroups, shared, expected in cases:
        with open_trace(made, tmp_path, targets=targets, cgroups=cgroups) as trace:
            trace.empty_if_missing("samples")
            names = ["job", "peer", None]
            found = sharing(trace, names, recorded_limits(trace, names), shared)
        assert found.cgroup.tolist() == [*expected, max(expected) + 1]
        assert found.limit.tolist() == ([0, 0, 1] if shared else [0, 1, 2])
        assert found.limit_of_cgroup[found.cgroup].tolist() == found.limit.tolist()


def numbered(target, number, path=None):
    return {**sample(target, "cgroup_number", number), "instance": path}


POD = [limited("job", 500, "/pod"), limited("peer", 500, "/pod")]
OWN = [numbered("job", 130), numbered("peer", 120)]
BELOW = [("/pod/a", 130), ("/pod/b", 120)]


def in_order(trace, shared=None):
    """Returns the targets, and the cgroups without one, in the order of reclaim."""
    names = ["job", "peer", None]
    found = sharing(trace, names, recorded_limits(trace, names), shared)
    without = [path for paths in found.without_tenant.values() for path in paths]
    of = dict(zip(found.cgroup.tolist(), names, strict=True))
    everybody = [of[at] if at in of else without.pop(0) for at in range(len(found.limit_of_cgroup))]
    assert found.limit_of_cgroup[found.cgroup].tolist() == found.limit.tolist()
    return everybody[:-1]  # without other processes


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], ["peer", "job"]),
        ([("/pod/x", 140)], ["peer", "job", "/pod/x"]),
        ([("/pod/x", 110)], ["/pod/x", "peer", "job"]),
        ([("/pod/y", 110), ("/pod/x", 125)], ["/pod/y", "peer", "/pod/x", "job"]),
        ([("/pod/x", 125), ("/pod/x/y", 990)], ["peer", "/pod/x", "/pod/x/y", "job"]),
        ([("/pod/a/x", 990), ("/pod/ab", 135)], ["peer", "job", "/pod/ab"]),
        ([("/podium/x", 110), ("/x", 111)], ["peer", "job"]),
        ([(f"/pod/{at}", 200 + at) for at in range(2000)], ["peer", "job"]),  # no such recording
    ],
)
def test_cgroups_below_a_limit_are_in_the_order_in_which_they_were_made(
    tmp_path, numbers, expected
):
    samples = [
        numbered(name, at, path) for path, at in [*BELOW, *numbers] for name in ("job", "peer")
    ]
    for targets in (TWO, [{**one, "kind": "container"} for one in TWO]):
        given = {"targets": targets, "samples": [*POD, *OWN, *samples], "cgroups": ("/a", "/b")}
        with open_trace(both_loop(5, 1), tmp_path, **given) as trace:
            assert in_order(trace) == in_order(trace, shared=True) == expected
            assert in_order(trace, shared=False) == ["job", "peer"]


def test_a_cgroup_in_another_comes_after_it_and_before_those_made_later(tmp_path):
    below = [("/pod/b", 120), ("/pod/b/c", 300), ("/pod/a", 130)]
    samples = [numbered("peer", at, path) for path, at in below]
    own = [numbered("job", 130), numbered("peer", 300)]
    with open_trace(both_loop(5, 1), tmp_path, samples=[*POD, *own, *samples]) as trace:
        assert in_order(trace) == ["/pod/b", "peer", "job"]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (POD, ["job", "peer"]),
        ([*POD, OWN[0]], ["job", "peer"]),
        ([*POD, *OWN], ["peer", "job"]),  # nothing below the limit is known
        ([*POD, *OWN, numbered("job", 110, "/pod/x")], ["/pod/x", "peer", "job"]),
        (OWN, ["job", "peer"]),  # without a limit that they share
    ],
)
def test_the_order_is_that_of_the_targets_if_their_numbers_are_not_known(
    tmp_path, samples, expected
):
    with open_trace(both_loop(5, 1), tmp_path, samples=samples) as trace:
        assert in_order(trace) == expected


def test_two_targets_of_one_cgroup_are_one_in_the_order(tmp_path):
    below = [("/pod/x", 140), ("/pod/a", 130), ("/pod/y", 150)]
    samples = [numbered("job", at, path) for path, at in below]
    own = [numbered("job", 130), numbered("peer", 130)]
    given = {"samples": [*POD, *own, *samples], "cgroups": ("/pod/a", "/pod/a")}
    with open_trace(both_loop(5, 1), tmp_path, **given) as trace:
        assert in_order(trace) == ["peer", "/pod/x", "/pod/y"]  # the last target of the cgroup


def test_the_last_number_of_a_cgroup_and_of_a_target_counts(tmp_path):
    below = [("/pod/x", 110, 1), ("/pod/x", 160, 2), ("/pod/a", 130, 1), ("/pod/b", 120, 1)]
    own = [("job", 99, 1), ("job", 130, 2), ("peer", 120, 1)]
    samples = [
        *({**numbered("job", at, path), "ts": ts} for path, at, ts in below),
        *({**numbered(name, at), "ts": ts} for name, at, ts in own),
    ]
    with open_trace(both_loop(5, 1), tmp_path, samples=[*POD, *samples]) as trace:
        assert in_order(trace) == ["peer", "job", "/pod/x"]


def test_a_path_of_very_many_folders_takes_little_memory(tmp_path):
    path = "/pod" + "/x" * 30_000
    samples = [*POD, *OWN, numbered("job", 140, path), *(numbered("job", at, p) for p, at in BELOW)]
    with open_trace(both_loop(5, 1), tmp_path, samples=samples) as trace:
        tracemalloc.start()
        try:
            assert in_order(trace) == ["peer", "job", path]
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 100 * len(path)


def test_a_target_alone_below_a_limit_has_the_other_cgroups_beside_it(answered):
    made = looped(pages=40, epochs=3)
    samples = [limited("job", 500, "/pod"), numbered("job", 130), *(
        numbered("job", at, path) for path, at in [("/pod/x", 140), ("/pod/a", 130)]
    )]  # fmt: skip
    found = answered(made, [30], samples=samples)
    assert found.other_cgroups == {"job": ["/pod/x"]}
    assert answered(made, [30], samples=samples, shared=False).other_cgroups == {}


def test_lists_of_its_own_protect_a_target_from_one_that_reads_much(answered):
    # Each time, the job reads its 40 pages, and the peer 100 new ones. At their limit, reclaim
    # takes pages of both in turn; in one pair of lists, those of the job are always the oldest.
    made = PageEvents()
    for time in range(30):
        made.read(0, 40, ino=JOB)
        for at in range(time * 100, time * 100 + 100, 10):
            made.read(at, 10, ino=PEER, tid=PEER)
    apart = [{**one, "kind": "container"} for one in TWO]
    own, one = (
        answered(made, [110], shared=True, targets=targets, cgroups=("/a", "/a"))
        for targets in (apart, TWO)
    )
    assert read(own, "two-lists", 110)["job"] < read(one, "two-lists", 110)["job"]
    assert read(own, "lru", 110) == read(one, "lru", 110)
