"""The time of loading data is split by cause as the jobs were laid out, two jobs at a time."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.oracles.data_waits import World
from tests.oracles.drawing import answer_of, seeds
from tests.oracles.fetching_jobs import CALLS, OTHERS
from tests.oracles.loading_windows import Loading
from tracer.analysis.findings.loaders import loaders
from tracer.analysis.findings.loading import stalls
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

WORLDS = seeds(4)
SAID = {
    "disk": "reads of a disk",
    "fault": "reads of a disk",
    "cpu": "waiting for a CPU",
    "throttled": "quota",
    "lock": "waiting for a lock",
    "memory": "waiting for memory",
    "unknown": "waiting for others",
    "pipe": "waiting for others",
    "run": "on a CPU",
    "work": "on work for the samples",
}
SPENT = re.compile(r", (?P<share>[^,]+ %) of it spent (?P<rest>.+)")
SAVES = re.compile(r"would save at most (?P<share>.+ %) of their loading time")


def rounded(said: str, share: float) -> bool:
    """Returns whether a percentage is the rounded share (0 to 100)."""
    if said == "more than 99 %":
        return 99.49 <= share < 100
    if said.startswith("less than"):
        return share < float(said.split()[2])
    return abs(float(said.removesuffix(" %")) - share) <= (0.501 if share >= 9.9 else 0.0501)


def as_said(spent: Counter) -> Counter:
    """The times by the words for them: some causes have the same words."""
    found = Counter()
    for cause, length in spent.items():
        found[SAID[cause]] += length
    return found


def is_close(spent: Counter) -> bool:
    """Returns whether two causes are within 1 % of each other."""
    ranked = [length for _, length in spent.most_common(2)] + [0]
    return ranked[0] - ranked[1] <= spent.total() / 100


@pytest.mark.parametrize("seed", WORLDS)
def test_the_workers_read_calls_are_spent_on_what_was_laid_out(seed):
    made = Loading(seed)
    (found,) = answer_of(loaders, made.tables, **made.manifest) or (None,)
    if found is None:
        assert not made.reading_ns
        return
    assert found.value == pytest.approx(100 * made.reading_ns / made.loading_ns)
    said = SPENT.search(found.sentence)
    if 2 * made.reading_ns < made.loading_ns:
        assert said is None and SAVES.search(found.sentence) is None
        return
    spent = as_said(made.spent)
    saves = SAVES.search(found.sentence)
    assert rounded(saves["share"], 100 * made.spent["disk"] / made.loading_ns), (
        made.spent,
        found.sentence,
    )
    if not is_close(spent):
        ((words, longest),) = spent.most_common(1)
        assert words in said["rest"], (made.spent, found.sentence)
        assert rounded(said["share"], 100 * longest / made.reading_ns), found.sentence


@pytest.mark.parametrize("seed", WORLDS)
def test_the_waits_of_two_jobs_for_their_workers_are_spent_on_what_was_laid_out(seed):
    made = Loading(seed, kinds=2)
    found = answer_of(stalls, made.tables, **made.manifest)
    (sentence,) = [one.sentence for one in found if one.topic == "data loading"]
    spent: Counter = Counter()
    for *_, of_fetch in made.fetches:
        spent += of_fetch
    spent = as_said(spent)
    said = SPENT.search(sentence)
    if not is_close(spent):
        ((words, longest),) = spent.most_common(1)
        assert words in said["rest"], (spent, sentence)
        assert rounded(said["share"], 100 * longest / spent.total()), (spent, sentence)


@pytest.mark.parametrize("seed", WORLDS)
def test_the_causes_of_each_fetch_add_up_to_its_time(seed):
    made = Loading(seed)
    path = answer_of(critical_path, made.tables, **made.manifest)
    names = {"ipc": "pipe", "reclaim": "memory", "other": "unknown", "run": "work"}
    for tid, start, end, spent in made.fetches:
        found = Counter()
        for step_tid, ts, length, kind, _ in path:
            inside = min(ts + length, end) - max(ts, start)
            if step_tid == tid and inside > 0:
                found[names.get(kind, kind)] += inside
        assert found.total() == end - start
        assert found == +spent, (tid, start)


@pytest.mark.parametrize("seed", WORLDS)
def test_the_causes_of_each_fetch_of_a_drawn_job_are_those_of_its_pieces(seed):
    """The jobs of the oracle of waits for data, whose sums are compared fetch by fetch."""
    world = World(seed)
    if not world.measured:
        pytest.skip("nothing was measured")
    path = answer_of(critical_path, world.tables, **world.manifest)
    for tid, start, end, spent in drawn_fetches(world):
        found = Counter()
        for step_tid, ts, length, kind, call in path:
            inside = min(ts + length, end) - max(ts, start)
            if step_tid == tid and inside > 0:
                found[cause_of(kind, call)] += inside
        assert found == +spent, (tid, start, end)


def critical_path(trace):
    """The thread of the step, time, length, kind and call of each segment."""
    VIEWS["critical_path"].make(trace)
    return trace.connection.execute(
        "SELECT step_tid, ts, dur_ns, kind, call FROM critical_path"
    ).fetchall()


def cause_of(kind: str, call: str | None) -> str:
    """The cause of a wait for data."""
    if kind == "disk" and call in CALLS["opening"]:
        return "opening"
    known = {"run": "work", "reclaim": "memory"} | {k: k for k in ("disk", "fault", "cpu", "lock")}
    return known.get(kind, OTHERS)


def drawn_fetches(world):
    """Thread, begin, end and causes of the fetches of steps that the recording has as a whole."""
    fetches = [row for row in world.tables["phases"] if row["name"] == "fetch"]
    for job in world.jobs:
        for step in job.counted:
            if step["start"] >= world.start and any(r["start"] == step["start"] for r in fetches):
                yield job.pid, step["start"], step["until"], step["spent"]
