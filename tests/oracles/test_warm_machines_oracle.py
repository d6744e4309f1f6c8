"""`tracer predict --warm` reads as much as naive caches for recordings of the whole machine."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.oracles.drawing import first_with, seeds
from tests.oracles.lost_pages import LostJobs
from tests.oracles.nested_cgroups import PAGE
from tests.oracles.own_memory import drawn_rows, drawn_times, samples_of, without
from tests.oracles.warm_answers import ROOMY, TIGHT, agree, containers, predicted, recording
from tests.oracles.warm_caches import Limits, OwnMemory
from tests.oracles.warm_pages import PIDS, SECOND, WarmJobs, warm_pages

pytestmark = pytest.mark.slow

ONE_SEED = pytest.mark.parametrize("seed", seeds(1))
HOST = {"name": "machine", "role": "target", "kind": "machine", "pid": 0}
MACHINE = Limits({"machine": 0, None: 1}, (0, 1))
BESIDE = Limits({"a": 0, "machine": 1, None: 2}, (0, 1, 2))
TOGETHER = Limits({"machine": 0, "a": 1, None: 2}, (0, 0, 1))
IN_ONE_CGROUP = Limits({"machine": 0, "a": 1, "b": 1, None: 2}, (0, 0, 1))


class Machine(WarmJobs):
    """The whole machine: all processes are its own, but for those of named targets."""

    def __init__(self, seed: int, named: str, **options):
        super().__init__(seed, **options)
        for row in self.tables["processes"]:
            row["cgroup"] = "/jobs"
            if row["target"] not in [*named]:
                row |= {"target": None, "role": "other"}

        def owner(target):
            return target if target and target in named else "machine"

        self.calls = [replace(call, target=owner(call.target)) for call in self.calls]
        recorded = Counter()
        for (target, epoch), pages in self.recorded.items():
            recorded[owner(target), epoch] += pages
        self.recorded = recorded
        self.warm = warm_pages(self.calls, self.came)


class LostMachine(Machine, LostJobs):
    """The whole machine, some of whose events are lost."""


NAMED = pytest.mark.parametrize(
    ("named", "options", "below"),
    [
        ("", [], MACHINE),
        ("a", [], BESIDE),
        ("a", ["--shared"], TOGETHER),
    ],
)


@ONE_SEED
@NAMED
def test_epochs_of_all_processes_read_as_much_as_in_the_oracle(
    tmp_path, named, options, below, seed
):
    """Two processes mark epochs of the same numbers. One of them may be a container."""
    jobs = Machine(seed, named)
    folder = recording(tmp_path / "t", jobs.tables, [*containers(named), HOST])
    answer = predicted(folder, "--warm", *options, pages=ROOMY, ahead=8)
    assert answer["staying_pages"] == len(jobs.warm)
    assert answer["marked_together"] == ({} if named else {"machine": 2})
    agree(answer, jobs, below, jobs.warm, ROOMY, 8)
    agree(predicted(folder, *options, pages=TIGHT), jobs, below, (), TIGHT)


@ONE_SEED
@NAMED
def test_a_machine_some_of_whose_events_were_lost(tmp_path, named, options, below, seed):
    """A lost begin or end of a reclaim tells whether a page was evicted or taken out."""
    jobs = first_with(
        lambda jobs: jobs.otherwise > 0, lambda n: LostMachine(n, named, takes=0.2), seed
    )
    tables = jobs.tables | {"loss": jobs.gaps}
    folder = recording(tmp_path / "t", tables, [*containers(named), HOST], loss=jobs.loss)
    answer = predicted(folder, "--warm", *options, pages=ROOMY, ahead=8)
    assert answer["lossy"]
    assert answer["staying_pages"] == len(jobs.warm)
    agree(answer, jobs, below, jobs.warm, ROOMY, 8)


@ONE_SEED
def test_processes_of_one_cgroup_have_its_lists_beside_those_of_the_machine(tmp_path, seed):
    jobs = Machine(seed, "ab", library="some")
    processes = [
        {"name": name, "role": "target", "kind": "pid", "pid": PIDS[name]} for name in "ab"
    ]
    folder = recording(tmp_path / "t", jobs.tables, [*processes, HOST])
    answer = predicted(folder, "--warm", "--shared", pages=TIGHT)
    assert answer["staying_pages"] == len(jobs.warm)
    agree(answer, jobs, IN_ONE_CGROUP, jobs.warm, TIGHT)


@ONE_SEED
def test_a_machine_without_marks_reads_as_much_as_in_the_oracle(tmp_path, seed):
    jobs = Machine(seed, "", takes=0.2)
    jobs.tables["phases"].clear()
    jobs.calls = [replace(call, epoch=None) for call in jobs.calls]
    jobs.recorded = Counter({("machine", None): jobs.recorded.total()})
    folder = recording(tmp_path / "t", jobs.tables, [HOST])
    answer = predicted(folder, "--warm", pages=ROOMY, ahead=8)
    assert answer["staying_pages"] == len(jobs.warm)
    agree(answer, jobs, MACHINE, jobs.warm, ROOMY, 8)


def machine_rows(samples):
    row = {"target": None, "name": "memory_used", "unit": "bytes"}
    return [row | {"ts": ts, "value": float(own)} for ts, own in samples.items()]


@ONE_SEED
def test_the_memory_of_all_processes_leaves_warm_pages_where_they_are(tmp_path, seed):
    jobs = Machine(seed, "", pause_ns=40 * SECOND)
    rows = drawn_rows(jobs.draw, "a", drawn_times(jobs.draw, jobs.times), 40)
    own = samples_of(rows, "a")
    tables = jobs.tables | {"samples": machine_rows(own)}
    folder = recording(tmp_path / "t", tables, [HOST])
    answer = predicted(folder, "--warm", pages=TIGHT)
    agree(answer, jobs, MACHINE, jobs.warm, TIGHT, own=OwnMemory({"machine": own}, max(own)))


@ONE_SEED
@pytest.mark.parametrize(("options", "below"), [([], BESIDE), (["--shared"], TOGETHER)])
def test_the_memory_of_the_machine_has_that_of_a_container_beside_it(
    tmp_path, options, below, seed
):
    """The samples of both are at the same times."""
    jobs = Machine(seed, "a", pause_ns=40 * SECOND)
    rows = drawn_rows(jobs.draw, "a", drawn_times(jobs.draw, jobs.times), 30)
    used = {ts: jobs.draw.randrange(30, 90) * PAGE for ts in sorted({row["ts"] for row in rows})}
    last, of_a = max(used), samples_of(rows, "a")
    own = OwnMemory({"machine": without(used, last, of_a), "a": of_a}, last)
    samples = sorted([*rows, *machine_rows(used)], key=lambda row: row["ts"])
    folder = recording(tmp_path / "t", jobs.tables | {"samples": samples}, [*containers("a"), HOST])
    answer = predicted(folder, "--warm", *options, pages=ROOMY)
    agree(answer, jobs, below, jobs.warm, ROOMY, own=own)
