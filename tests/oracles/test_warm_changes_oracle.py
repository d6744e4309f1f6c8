"""`tracer predict --warm` with files made anew, cgroups made late, and tables that are missing."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.fuzz.verbs import called
from tests.oracles.drawing import first_with, seeds
from tests.oracles.nested_cgroups import limit_row, number_row
from tests.oracles.remade_files import RemadeJobs, as_told, sizes_told
from tests.oracles.test_warm_inferred_oracle import PAGES, TARGETS, Played
from tests.oracles.test_warm_machines_oracle import HOST, MACHINE, Machine
from tests.oracles.two_lists import REMOVAL
from tests.oracles.warm_answers import (
    CAPACITIES,
    ROOMY,
    TIGHT,
    agree,
    containers,
    predicted,
    recording,
)
from tests.oracles.warm_caches import APART, SHARED, Limits
from tests.oracles.warm_pages import SECOND, WarmJobs, warm_pages
from tracer.probes.errors import TracerError

pytestmark = pytest.mark.slow

SHARING = {"--shared": SHARED, "--apart": APART}
ONE_SEED = pytest.mark.parametrize("seed", seeds(1))
B_FIRST = Limits({"b": 0, "a": 1, None: 2}, (0, 0, 1))
BETWEEN = Limits({"a": 0, "b": 2, None: 3}, (0, 0, 0, 1))
"""Another cgroup has a turn between the two targets, and no page."""


@ONE_SEED
@pytest.mark.parametrize(("sharing", "ahead"), [("--shared", 0), ("--apart", 8)])
def test_files_made_anew_while_others_read_them(tmp_path, sharing, ahead, seed):
    jobs = first_with(lambda jobs: jobs.remade > 0, RemadeJobs, seed)
    warm = warm_pages(jobs.calls, jobs.came)
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"))
    pages = ROOMY if ahead else CAPACITIES
    answer = predicted(folder, "--warm", sharing, pages=pages, ahead=ahead)
    assert answer["staying_pages"] == len(warm)
    agree(answer, jobs, SHARING[sharing], warm, pages, ahead)


LATE = 3 * SECOND // 2
"""A time amid the calls."""
NUMBERS = {
    "b before a": ({"a": [(0, 30)], "b": [(LATE, 20)]}, B_FIRST),
    "a made anew": ({"a": [(0, 10), (LATE, 30)], "b": [(0, 20)]}, B_FIRST),
    "a before b": ({"a": [(LATE, 10)], "b": [(LATE + 9, 20)]}, SHARED),
    "b not known": ({"a": [(0, 30)]}, SHARED),
}
"""Numbers of the targets' cgroups by time, and the order of their turns."""


@ONE_SEED
@pytest.mark.parametrize("which", NUMBERS)
def test_cgroups_made_late_have_turns_by_their_numbers(tmp_path, which, seed):
    numbers, below = NUMBERS[which]
    jobs = WarmJobs(seed)
    rows = [
        number_row(name, None, number, ts)
        for name, known in numbers.items()
        for ts, number in known
    ]
    answered(tmp_path, jobs, rows, below, "--shared")


@ONE_SEED
def test_a_cgroup_made_late_below_the_limit_has_turns_without_pages(tmp_path, seed):
    jobs = WarmJobs(seed)
    rows = [limit_row(name, "/pod", 9999) for name in "ab"]
    for name, number in (("a", 10), ("b", 30)):
        rows += [number_row(name, None, number), number_row(name, f"/pod/{name}", number)]
        rows.append(number_row(name, "/pod/late", 20, LATE))
    targets = [
        one | {"cgroups": [{"hierarchy": 0, "controllers": "", "path": f"/pod/{one['name']}"}]}
        for one in containers("ab")
    ]
    answer = answered(tmp_path, jobs, rows, BETWEEN, targets=targets)
    assert answer["other_cgroups"]["a"] == ["/pod/late"]


def answered(tmp_path, jobs, rows, below, *options, targets=None):
    """Compares the answer for jobs with these samples and the oracle; returns it."""
    tables = jobs.tables | {"samples": sorted(rows, key=lambda row: row["ts"])}
    folder = recording(tmp_path / "t", tables, targets or containers("ab"))
    warm = warm_pages(jobs.calls, jobs.came)
    answer = predicted(folder, "--warm", *options, pages=TIGHT)
    agree(answer, jobs, below, warm, TIGHT, unlimited=bool(options))
    return answer


@ONE_SEED
@pytest.mark.parametrize("machine", [False, True])
@pytest.mark.parametrize("missing", [["reclaim"], ["phases"], ["files"], ["reclaim", "files"]])
def test_tables_that_are_missing(tmp_path, missing, machine, seed):
    """Without `reclaim`, no removal is known; without `files`, no size."""
    jobs = Machine(seed, "", takes=0.2) if machine else WarmJobs(seed, takes=0.2)
    for name in missing:
        del jobs.tables[name]
    jobs.sizes = sizes_told(jobs.tables)
    jobs.calls = list(as_told(jobs.calls, jobs.sizes))
    if "reclaim" in missing:
        jobs.calls = [call for call in jobs.calls if call.kind != REMOVAL]
    if "phases" in missing:
        jobs.calls = [replace(call, epoch=None) for call in jobs.calls]
        pages = [(target, number) for (target, _), number in jobs.recorded.items()]
        jobs.recorded = Counter()
        for target, number in pages:
            jobs.recorded[target, None] += number
    warm = warm_pages(jobs.calls, jobs.came)
    folder = recording(tmp_path / "t", jobs.tables, [HOST] if machine else containers("ab"))
    answer = predicted(folder, "--warm", pages=TIGHT)
    assert answer["staying_pages"] == len(warm)
    agree(answer, jobs, MACHINE if machine else APART, warm, TIGHT)


@pytest.mark.parametrize("targets", [containers("ab"), [HOST]])
def test_a_page_cache_without_events_is_refused(tmp_path, targets):
    jobs = WarmJobs(1)
    folder = recording(tmp_path / "t", jobs.tables | {"page_cache": []}, targets)
    with pytest.raises(TracerError, match="used a file"):
        called("predict", folder, "--memory", "1M", "--warm")


@ONE_SEED
def test_calls_that_find_all_pages_in_memory_read_nothing(tmp_path, seed):
    """Nothing comes into the page cache, and nothing leaves it: its table has no row."""
    jobs = Played(seed, takes=0, cached=1)
    assert not jobs.came and not jobs.recorded.total() and jobs.warm
    tables = jobs.recorded_tables()
    assert not tables["page_cache"]
    folder = recording(tmp_path / "t", tables, TARGETS)
    answer = predicted(folder, "--warm", "--apart", pages=PAGES)
    assert answer["inferred"]
    assert answer["staying_pages"] == len(jobs.warm)
    agree(answer, jobs, APART, jobs.warm, PAGES)
