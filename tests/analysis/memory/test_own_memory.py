"""Memory that is not page cache, over time: samples near and far, targets that end, nested ones."""

import random

import numpy as np
import pytest

from tests.support.page_events import ONE, PAGE, TWO, PageEvents, sample
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.own_memory import ALWAYS, given_memory, sampled_memory
from tracer.analysis.memory.page_runs import OwnPages, PageRuns
from tracer.analysis.memory.two_lists import two_lists
from tracer.analysis.memory.words import basis
from tracer.probes.errors import UsageError

pytestmark = pytest.mark.slow

S = 1_000_000_000


def of(target, pages, second):
    """The samples of a target with so many own pages, beside 1000 pages of files."""
    sizes = {"cgroup_memory": pages + 1000, "cgroup_page_cache": 1000, "cgroup_shmem": 0}
    return [sample(target, name, count * PAGE, second * S) for name, count in sizes.items()]


@pytest.fixture
def sampled(tmp_path):
    """Returns the own memory of the targets `job` and `peer` by samples (target, pages, second)."""

    def made(*samples, targets=TWO):
        rows = [row for each in samples for row in of(*each)]
        folder = tmp_path / f"{random.random()}.trace"
        with make_trace(folder, {"samples": rows}, targets=targets) as trace:
            return sampled_memory(trace, ["job", "peer"])

    return made


def below(memory, *limits):
    """The changes of each limit, in pages: (second, limit, pages)."""
    found = memory.below(limits, PAGE)
    seconds = [None if ts == ALWAYS else ts / S for ts in found.ts.tolist()]
    return list(zip(seconds, found.limit.tolist(), found.pages.tolist(), strict=True))


def test_a_sample_has_the_largest_size_of_half_a_minute_around_it(sampled):
    sizes = {0: 5, 10: 9, 30: 2, 41: 3, 60: 4, 72: 1}
    memory = sampled(*(("job", pages, second) for second, pages in sizes.items()))
    expected = [(None, 0, 9), (10, 0, 9), (30, 0, 9), (41, 0, 4), (60, 0, 4), (72, 0, 4)]
    assert below(memory, ["job"]) == expected
    assert memory.most("job") == 9 * PAGE and memory.median("job") == 3.5 * PAGE
    assert memory.most("peer") is None and memory.median("peer") is None


def test_targets_of_a_limit_add_up_and_one_that_ends_has_none(sampled):
    jobs = [("job", 5, second) for second in (0, 10, 20)]
    peers = [("peer", pages, second) for second, pages in ((0, 1), (10, 1), (50, 2), (100, 7))]
    memory = sampled(*jobs, *peers)
    # The last sample of the job counts for 10 s, the longest time between two of its samples.
    both = [(None, 0, 6), (10, 0, 6), (20, 0, 6), (30, 0, 1), (50, 0, 2), (100, 0, 7)]
    assert below(memory, ["job", "peer"]) == both
    apart = below(memory, ["job"], ["peer"])
    assert [row for row in apart if row[1] == 0] == [
        (None, 0, 5), (10, 0, 5), (20, 0, 5), (30, 0, 0),
    ]  # fmt: skip
    assert [row for row in apart if row[1] == 1][-1] == (100, 1, 7)
    # Others go on for 20 s at most: it may still be there.
    assert (30, 0, 0) not in below(sampled(*jobs, ("peer", 1, 40)), ["job"])


@pytest.mark.parametrize("nested", [False, True])
def test_the_memory_of_the_machine_is_without_that_of_containers_beside_it(tmp_path, nested):
    """The memory of a container's cgroup has that of the cgroups below it."""
    machine = {"name": "machine", "role": "target", "kind": "machine", "pid": 0}
    paths = ("/pod", "/pod/inner") if nested else ("/a", "/b")
    targets = [
        one | {"cgroups": [{"hierarchy": 0, "controllers": "", "path": path}]}
        for one, path in zip(TWO, paths, strict=True)
    ]
    rows = [*of("job", 30, 1), *of("peer", 12, 1)]
    rows.append({"ts": S, "target": None, "name": "memory_used", "value": 100.0 * PAGE})
    given = {"samples": rows, "processes": []}
    with make_trace(tmp_path / "t.trace", given, targets=[*targets, machine]) as trace:
        memory = sampled_memory(trace, ["job", "peer", "machine"])
    found = {name: memory.most(name) // PAGE for name in ("machine", "job", "peer")}
    assert found == (
        {"machine": 70, "job": 18, "peer": 12} if nested else {"machine": 58, "job": 30, "peer": 12}
    )


def test_given_memory_never_changes():
    memory = given_memory(["job"], 3 * PAGE + 1)
    assert below(memory, ["job"], ["peer"]) == [(None, 0, 4)]
    assert memory.most("job") == memory.median("job") == 3 * PAGE + 1


def test_the_memory_of_a_cgroup_inside_is_not_that_of_the_one_around(tmp_path):
    cgroups = {"job": "/a", "peer": "/a/b"}
    targets = [
        {"name": name, "role": "target", "kind": "cgroup", "pid": 7,
         "cgroups": [{"path": path, "hierarchy": 0, "controllers": "memory"}]}
        for name, path in cgroups.items()
    ]  # fmt: skip
    # The one inside is read a little later, and grows by 50 pages between two of its samples.
    inside = [row for at, n in ((0, 10), (60, 60)) for row in of("peer", n, at)]
    for row in inside:
        row["ts"] += 1000
    rows = [*of("job", 30, 0), *of("job", 85, 60), *inside]
    with make_trace(tmp_path / "t.trace", {"samples": rows}, targets=targets) as trace:
        memory = sampled_memory(trace, ["job", "peer"])
    assert memory.sizes["job"].bytes.tolist() == [20 * PAGE, 25 * PAGE]
    assert memory.most("peer") == 60 * PAGE


def looping(epochs, pages, second=20):
    """A job that reads the pages of a file in each epoch, page by page, `second` s an epoch."""
    made = PageEvents()
    for epoch in range(epochs):
        made.now = epoch * second * S
        for page in range(pages):
            made.read(page)
        made.end_epoch(epoch)
    return made


def reads(tmp_path, made, samples, memory, **options):
    """The pages read in each epoch, and the answer."""
    tables = {**made.tables, "samples": samples}
    folder = tmp_path / f"{random.random()}.trace"
    with make_trace(folder, tables, clock=made.clock, targets=ONE) as trace:
        found = answer_memory(trace, [memory * PAGE], read_ahead=0, **options)
    return found.reads.set_index("epoch")["two-lists_pages"].to_dict(), found


def test_pages_that_own_memory_pushes_out_are_read_again(tmp_path):
    """The job needs 900 of 1000 pages from 70 s to 140 s; its file has 300."""
    made = looping(10, 300)
    samples = [row for second in range(0, 200, 10)
               for row in of("job", 900 if second == 100 else 100, second)]  # fmt: skip
    read, found = reads(tmp_path, made, samples, 1000)
    # Epochs 4 to 6 begin in that time, with room for 100 pages; the seventh begins with these.
    assert [read[epoch] for epoch in (0, 1, 2, 3)] == [300, 0, 0, 0]
    assert all(200 <= read[epoch] <= 300 for epoch in (4, 5, 6, 7))
    assert (read[8], read[9]) == (0, 0)
    assert found.own_bytes == {"job": 900 * PAGE} and found.own_median_bytes == {"job": 100 * PAGE}
    said = "job: up to 3.5 MiB of the memory (median of the samples: 400.0 KiB) are its own"
    assert any(sentence.startswith(said) for sentence in basis(found))
    constant, _ = reads(tmp_path, made, samples, 1000, own=900 * PAGE)
    assert all(count >= 200 for count in constant.values())


def runs(ts):
    count = len(ts)
    zero = np.zeros(count, np.int32)
    return PageRuns(
        first=np.zeros(count, np.int64), pages=zero + 1, file=zero, reader=zero, tenant=zero,
        kind=zero.astype(np.int8), group=zero, base=np.zeros(1, np.int64),
        size_pages=np.ones(1, np.int64), ts=np.array(ts, np.int64) if count else np.zeros(0, "i8"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (([2, 1], [0, 0], [1, 1]), "order"),
        (([1], [1], [1]), "limits"),
        (([1], [0], [-1]), "limits"),
    ],
)
def test_own_memory_that_cannot_be_is_refused(own, said):
    with pytest.raises(UsageError, match=said):
        two_lists(runs([1, 2]), 10, own=OwnPages(*map(np.array, own)))


def test_a_page_has_no_room_while_own_memory_takes_all():
    own = OwnPages(np.array([ALWAYS, 20, 40]), np.zeros(3, np.int32), np.array([0, 12, 3]))
    found = two_lists(runs([1, 10, 20, 30, 40, 50]), 10, ra_pages=0, own=own)
    assert found.read.tolist() == [1, 0, 1, 1, 1, 0]
    assert found.evicted.tolist() == [1]
