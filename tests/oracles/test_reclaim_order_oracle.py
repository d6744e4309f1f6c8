"""`tracer predict` takes the cgroups below a shared limit in turn as a naive kernel does."""

import itertools
import random

import pytest

from tests.oracles.drawing import SEED, seeds
from tests.oracles.nested_cgroups import (
    DISKS,
    PAGE,
    Cgroup,
    Readers,
    Tree,
    limit_row,
    number_row,
    pages_read,
    samples_of,
    with_cgroup,
)
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 10**10}
ROOMS = (40, 70)
"""Pages; each target has 60, and all have 30 more."""
KINDS = ("container",), ("pid",)
NAMES = ("a", "b", "c")
POD = ("/pod", 500)


@pytest.fixture
def made(tmp_path):
    """Makes the trace of readers; returns its folder."""
    count = 0

    def make(jobs, samples, kinds=("container",), lies_in=None, targets=None):
        nonlocal count
        count += 1
        rows = sorted(samples, key=lambda row: row["ts"])
        tables = jobs.tables(lies_in or {}, samples=rows)
        given = {"targets": targets or jobs.targets(*kinds), "disks": DISKS, "clock": CLOCK}
        make_trace(tmp_path / f"{count}.trace", tables, **given).close()
        return tmp_path / f"{count}.trace"

    return make


def answered(folder, shared=None, rooms=ROOMS):
    with Trace(folder) as trace:
        return answer_memory(trace, [room * PAGE for room in rooms], None, 0, shared)


def expected(jobs, turns, found, rooms=ROOMS):
    """The same of a naive kernel; `turns`: the targets of each cgroup in the order of reclaim."""
    reads = {room: [jobs.reads(turns, room, clock) for clock in found.clocks_ns] for room in rooms}
    return {
        (room, name): [by_name[name] for by_name in by_clock]
        for room, by_clock in reads.items()
        for name in jobs.names
    }


def agrees(jobs, turns, found, others=()):
    """Tells if an answer is that of a naive kernel; `others` are its other cgroups."""
    told = {name: list(others) for name in jobs.names} if others else {}
    assert found.other_cgroups == told
    return pages_read(found) == expected(jobs, turns, found)


@pytest.mark.parametrize("kinds", KINDS)
def test_the_cgroups_of_a_tree_take_turns_each_before_those_below_it(made, kinds):
    """`idle` is a target that uses no file."""
    told_apart = nested = 0
    for number, seed in enumerate(range(SEED, SEED + 1000)):
        if number >= len(seeds(8)) and min(told_apart, nested) >= 3:
            break
        draw = random.Random(seed)
        tree = Tree(draw, draw.randrange(4, 10))
        *own, idle = draw.sample(tree.cgroups, draw.choice([3, 4]))
        lies_in = dict(zip(NAMES, own, strict=False))
        jobs = Readers(seed, list(lies_in))
        samples = samples_of(tree, lies_in | {"idle": idle})
        paths = {name: one.path for name, one in lies_in.items()}
        found = answered(made(jobs, samples, kinds, paths))
        turns = tree.turns(lies_in)
        others = [path for targets, path in turns if not targets]
        assert agrees(jobs, [targets for targets, _ in turns], found, others), seed
        assert found.shared == [list(lies_in)]
        told_apart += pages_read(found) != expected(jobs, [[name] for name in lies_in], found)
        nested += any(path.count("/") > 2 for _, path in turns)
    assert told_apart >= 3 and nested >= 3


def test_two_cgroups_that_change_places_change_the_answer_as_in_the_oracle(made):
    jobs = Readers(3, "ab")
    read = []
    for numbers in ((20, 30), (30, 20)):
        below = [Cgroup(f"/pod/{name}", n) for name, n in zip("ab", numbers, strict=True)]
        samples = _samples(dict(zip("ab", below, strict=True)))
        found = answered(made(jobs, samples))
        turns = [["a"], ["b"]] if numbers == (20, 30) else [["b"], ["a"]]
        assert agrees(jobs, turns, found)
        read.append(pages_read(found))
    assert read[0] != read[1]


def _samples(lies_in, others=(), names=None):
    """Samples of targets in cgroups below /pod: each target's own number, and that of all paths."""
    below = {one.path: one.number for one in lies_in.values()}
    rows = []
    for name, own in lies_in.items():
        rows += [limit_row(name, *POD), number_row(name, None, own.number)]
        if names is None or name in names:
            rows += [number_row(name, *each) for each in [*below.items(), *others]]
    return rows


A, B, C = (Cgroup(f"/pod/{name}", number) for name, number in zip(NAMES, (30, 20, 10), strict=True))
LIES_IN = {"a": A, "b": B, "c": C}
IN_ORDER = [["c"], ["b"], ["a"]]
AS_NAMED = [["a"], ["b"], ["c"]]


def is_number(row, target):
    return row["name"] == "cgroup_number" and row["target"] == target


@pytest.fixture(scope="module")
def three():
    """Three targets whose reads differ with the order of their cgroups."""
    jobs = Readers(3, NAMES)
    orders = itertools.permutations([[name] for name in NAMES])
    reads = [[jobs.reads(turns, room, None) for room in ROOMS] for turns in orders]
    assert all(one != other for one, other in itertools.combinations(reads, 2))
    return jobs


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("value", [None, 0.0, -1.0, float("nan"), float("inf"), 2.0**63 - 1])
def test_a_number_that_is_not_known_leaves_the_order_of_the_targets(made, three, kinds, value):
    """None: no row."""
    rows = []
    for row in _samples(LIES_IN, [("/pod/x", 40)]):
        if is_number(row, "b") and row["instance"] is None:
            row = row | {"value": value}
        if row["value"] is not None:
            rows.append(row)
    found = answered(made(three, rows, kinds))
    assert agrees(three, AS_NAMED, found)


def test_samples_without_numbers_leave_the_order_of_the_targets(made, three):
    rows = [row for row in _samples(LIES_IN) if row["name"] != "cgroup_number"]
    assert agrees(three, AS_NAMED, answered(made(three, rows)))


@pytest.mark.parametrize("shared", [None, True])
def test_one_target_tells_the_cgroups_below_the_limit_for_all(made, three, shared):
    found = answered(made(three, _samples(LIES_IN, [("/pod/x", 15)], "b")), shared)
    assert agrees(three, [["c"], [], ["b"], ["a"]], found, ["/pod/x"])


def test_each_target_with_a_limit_for_itself_has_no_other_cgroup(made, three):
    found = answered(made(three, _samples(LIES_IN, [("/pod/x", 15)])), shared=False)
    assert (found.other_cgroups, found.shared) == ({}, [])


def test_targets_without_a_limit_come_in_the_order_in_which_their_cgroups_were_made(made, three):
    own = [number_row(name, None, one.number) for name, one in LIES_IN.items()]
    assert agrees(three, IN_ORDER, answered(made(three, own), shared=True))


def test_cgroups_that_are_not_below_the_shared_limit_have_no_turn(made, three):
    rows = _samples(LIES_IN, [("/podium/x", 11), ("/x", 12), ("/pod", 5), ("/other", 13)])
    rows.append(limit_row("a", "/", 900))
    assert agrees(three, IN_ORDER, answered(made(three, rows)))


def test_targets_with_another_limit_are_other_cgroups(made):
    """Target a has a tighter limit below that of the others."""
    jobs = Readers(3, NAMES)
    inner = [("/pod/p", 10), ("/pod/p/a", 40), ("/pod/p/x", 50)]
    rows = _samples({"b": B, "c": Cgroup("/pod/c", 30)}, inner)
    rows += [limit_row("a", *POD), limit_row("a", "/pod/p", 100), number_row("a", None, 40)]
    rows += [number_row("a", *each) for each in inner]
    found = answered(made(jobs, rows))
    assert found.shared == [["b", "c"]]
    below = [path for path, _ in inner]
    assert found.other_cgroups == {"a": ["/pod/p/x"], "b": below, "c": below}


@pytest.mark.parametrize("kinds", KINDS)
def test_cgroups_below_that_of_a_target_belong_to_it(made, three, kinds):
    rows = _samples(LIES_IN, [("/pod/c/x", 40), ("/pod/c/x/y", 50), ("/pod/c.d", 60)])
    found = answered(made(three, rows, kinds))
    assert agrees(three, [*IN_ORDER, []], found, ["/pod/c.d"])


@pytest.mark.parametrize("kinds", KINDS)
def test_a_target_in_the_cgroup_of_another_comes_after_it(made, three, kinds):
    inner = Cgroup("/pod/b/a", 30)
    late = Cgroup("/pod/c", 25)
    rows = _samples({"a": inner, "b": B, "c": late}, [("/pod/b/x", 27), ("/pod/y", 26)])
    found = answered(made(three, rows, kinds))
    assert agrees(three, [["b"], ["a"], ["c"], []], found, ["/pod/y"])


def test_cgroups_that_are_made_and_removed_meanwhile_have_their_turns(made, three):
    rows = _samples(LIES_IN)
    rows += [number_row(name, "/pod/early", 1, ts=5) for name in "ac"]
    rows.append(number_row("b", "/pod/late", 90, ts=3000))
    found = answered(made(three, rows))
    assert agrees(three, [[], *IN_ORDER, []], found, ["/pod/early", "/pod/late"])


@pytest.mark.parametrize("first", NAMES)
def test_a_cgroup_made_anew_has_its_last_place_whoever_tells_of_it(made, three, first):
    """Only one target is still there when it is made anew."""
    rows = _samples(LIES_IN)
    for name in NAMES:
        rows += [number_row(name, "/pod/x", 15), number_row(name, "/pod/y", 17)]
    rows.append(number_row(first, "/pod/x", 60, ts=2000))
    found = answered(made(three, rows))
    assert agrees(three, [["c"], [], ["b"], ["a"], []], found, ["/pod/y", "/pod/x"])


def test_a_target_whose_cgroup_is_made_anew_by_others_keeps_its_place(made, three):
    """Target b has ended, and somebody makes a cgroup of the same path."""
    rows = _samples(LIES_IN, [("/pod/x", 15)])
    rows += [number_row(name, B.path, 70, ts=2000) for name in "ac"]
    found = answered(made(three, rows))
    assert agrees(three, [["c"], [], ["b"], ["a"]], found, ["/pod/x"])


def test_a_target_in_the_cgroup_with_the_limit_comes_before_those_below_it(made, three):
    """Cgroups of version 1 may have processes and cgroups below them."""
    inner = Cgroup("/pod/p/b", 40)
    rows = _samples({"b": inner, "c": Cgroup("/pod/c", 30)}, [("/pod/p", 10), ("/pod/x", 50)])
    rows += [limit_row("a", *POD), number_row("a", None, 5)]
    paths = {"a": "/pod", "b": inner.path, "c": "/pod/c"}
    found = answered(made(three, rows, ["pid"], paths))
    assert agrees(three, [["a"], [], ["b"], ["c"], []], found, ["/pod/p", "/pod/x"])


@pytest.mark.parametrize("kinds", [*KINDS, ("container", "pid", "pid")])
@pytest.mark.parametrize("told", [NAMES, ()])
def test_targets_whose_cgroups_have_one_number_have_the_same_lists(made, three, kinds, told):
    """`told`: the targets that tell the path of the cgroup."""
    rows = _samples({"a": B, "b": B, "c": C}, names=told)
    found = answered(made(three, rows, kinds))
    assert agrees(three, [["c"], ["a", "b"]], found)
    assert expected(three, [["c"], ["a", "b"]], found) != expected(three, IN_ORDER, found)


@pytest.mark.parametrize("version", [1, 2])
def test_a_target_shares_the_limit_of_its_own_cgroup_with_those_below_it(made, three, version):
    """Samples of a limit of the target's own cgroup have no path: the manifest has it.

    /pod/x belongs to the target with the limit.
    """
    pod, *below = three.targets("cgroup", "pid", "container")
    paths = {"b": "/pod/b", "c": "/pod/c"}
    rows = _samples({"b": B, "c": C}, [("/pod/x", 40)])
    rows += [limit_row("a", None, 500), number_row("a", None, 5)]
    found = answered(
        made(three, rows, lies_in=paths, targets=[with_cgroup(pod, "/pod", version), *below])
    )
    assert found.shared == found.recorded_shared == [[*NAMES]]
    assert agrees(three, [["a"], ["c"], ["b"]], found)


@pytest.mark.parametrize("version", [1, 2])
def test_a_process_shares_the_limit_and_the_lists_of_a_container_that_it_lies_in(made, version):
    jobs = Readers(3, "ab")
    job, process = jobs.targets("container", "pid")
    rows = [limit_row("a", None, 500), limit_row("b", B.path, 500)]
    rows += [number_row(name, None, B.number) for name in "ab"]
    targets = [with_cgroup(job, B.path, version), process]
    found = answered(made(jobs, rows, lies_in={"b": B.path}, targets=targets))
    assert found.shared == [["a", "b"]]
    assert agrees(jobs, [["a", "b"]], found)


def test_own_memory_of_a_target_below_another_one_counts_once(made, three):
    """The kernel counts it for all cgroups above it, too."""
    below = zip(three.targets("cgroup"), ("/pod", "/pod/b", "/pod/b/c"), strict=True)
    targets = [with_cgroup(target, path, 2) for target, path in below]
    samples = [
        {"ts": ts, "target": target, "name": name, "value": float(pages * PAGE)}
        for target, own in (("a", 50), ("b", 20), ("c", 8))
        for ts, cached in ((1000, 30), (2000, 40))
        for name, pages in (("cgroup_memory", own + cached), ("cgroup_page_cache", cached))
    ]
    found = answered(made(three, samples, targets=targets), shared=True, rooms=(120,))
    assert found.own_bytes == {"a": 30 * PAGE, "b": 12 * PAGE, "c": 8 * PAGE}
    assert set(found.reads["cache_bytes"]) == {70 * PAGE}
    apart = answered(made(three, samples, targets=targets), shared=False, rooms=(120,))
    assert apart.reads["cache_bytes"].tolist() == [90 * PAGE, 108 * PAGE, 112 * PAGE]


def test_processes_whose_cgroups_have_other_numbers_have_lists_of_their_own(made, three):
    """They may have one cgroup of another controller (version 1), which the table has."""
    session = dict.fromkeys(NAMES, "/user.slice/session-1.scope")
    found = answered(made(three, _samples(LIES_IN), ["pid"], session))
    assert agrees(three, IN_ORDER, found)


@pytest.mark.parametrize(("count", "named"), [(300, 300), (1024, 1024), (1025, 0)])
def test_more_other_cgroups_than_any_recording_has_have_no_turns(made, three, count, named):
    below = [(f"/pod/{number}", 100 + number) for number in range(count)]
    found = answered(made(three, _samples(LIES_IN, below, names="a")), rooms=(70,))
    assert found.other_cgroups == ({n: [p for p, _ in below] for n in NAMES} if named else {})
    assert pages_read(found) == expected(three, IN_ORDER, found, (70,))


def test_an_empty_cgroup_after_the_others_changes_the_answer_as_in_the_oracle(made):
    """Lists of less than 4,096 pages begin each reclaim anew: priority 12 scans none of them."""
    jobs = Readers(1, "ab", reads=0)
    pages, rooms = 9000, (16200,)
    for name in "ab":
        jobs.sizes[jobs.pid(name)] = pages
    for first in [*range(0, pages, 60)] * 3:
        for name in "ab":
            jobs.read(name, jobs.pid(name), first, 60)
    read = []
    for others in ([], [("/pod/x", 40)], [("/pod/x", 4)]):
        found = answered(made(jobs, _samples({"a": B, "b": A}, others)), rooms=rooms)
        turns = [["a"], ["b"]]
        turns[2 if others == [("/pod/x", 40)] else 0 : 0] = [[] for _ in others]
        read.append(pages_read(found))
        assert read[-1] == expected(jobs, turns, found, rooms)
    assert read[0] == read[2] != read[1]


def test_json_names_the_other_cgroups_in_the_order_of_reclaim(made, three, tracer):
    rows = _samples(LIES_IN, [("/pod/y", 40), ("/pod/y/a", 90), ("/pod/x", 50)])
    memory = ",".join(str(room * PAGE) for room in ROOMS)
    asked = "--memory", memory, "--read-ahead", "0", "--json"
    found = tracer("predict", made(three, rows), *asked).json
    others = ["/pod/y", "/pod/y/a", "/pod/x"]
    assert found["other_cgroups"] == dict.fromkeys(NAMES, others)
    assert found["shared"] == [[*NAMES]]
    turns = [*IN_ORDER, [], [], []]
    reads = {room: three.reads(turns, room, 0) for room in ROOMS}
    assert found["clocks_s"][0] == 0
    assert [row["two-lists_pages"] for row in found["reads"]] == [
        reads[row["memory_bytes"] // PAGE][row["target"]] for row in found["reads"]
    ]
