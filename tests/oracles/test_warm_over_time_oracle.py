"""`tracer predict --warm` leaves pages in memory beside own memory that changes over time."""

import random

import pytest

from tests.oracles.drawing import seeds
from tests.oracles.nested_cgroups import PAGE, limit_row, with_cgroup
from tests.oracles.own_memory import drawn_rows, drawn_times, memory_rows, samples_of, without
from tests.oracles.removing_caches import MODELS
from tests.oracles.warm_answers import (
    CLOCKS,
    KERNEL,
    agree,
    columns,
    containers,
    errors,
    expected_rows,
    predicted,
    recording,
    rows_of,
)
from tests.oracles.warm_caches import APART, SHARED, OwnMemory
from tests.oracles.warm_pages import PIDS, SECOND, WarmJobs, warm_pages

pytestmark = pytest.mark.slow

SHARING = {"--shared": SHARED, "--apart": APART}
ONE_SEED = pytest.mark.parametrize("seed", seeds(1))
ROOMS = (40, 75, 110)
"""Pages; the targets have up to 60 and 25 of own memory."""
LONG, SHORT = 40 * SECOND, 700_000_000
"""Pauses: of some, samples are more than half a minute apart."""


def drawn(seed, pause_ns=LONG, **options):
    """Jobs with samples of their own memory at random times."""
    jobs, draw = WarmJobs(seed, pause_ns=pause_ns, **options), random.Random(seed)
    rows = []
    for name, most in (("a", 60), ("b", 25)):
        rows += drawn_rows(draw, name, drawn_times(draw, jobs.times), most)
    return jobs, rows


def own_of(rows, names="ab"):
    samples = {name: samples_of(rows, name) for name in names}
    return OwnMemory(samples, max(row["ts"] for row in rows))


def answered(folder, jobs, rows, *options, targets=None, **manifest):
    """The answer for the recording of jobs with these samples."""
    tables = jobs.tables | {"samples": sorted(rows, key=lambda row: row["ts"])}
    recording(folder, tables, targets or containers("ab"), **manifest)
    return predicted(folder, *options, pages=ROOMS)


@ONE_SEED
@pytest.mark.parametrize(("sharing", "pause_ns"), [("--shared", LONG), ("--apart", SHORT)])
def test_targets_read_as_much_as_in_the_oracle(tmp_path, sharing, seed, pause_ns):
    jobs, rows = drawn(seed, pause_ns=pause_ns, library="some")
    warm, own, below = warm_pages(jobs.calls, jobs.came), own_of(rows), SHARING[sharing]
    answer = answered(tmp_path / "t", jobs, rows, sharing, "--warm")
    assert answer["staying_pages"] == len(warm) > 0
    agree(answer, jobs, below, warm, ROOMS, own=own)


@ONE_SEED
@pytest.mark.parametrize("sharing", SHARING)
def test_cgroups_in_those_of_others_read_as_much_as_in_the_oracle(tmp_path, sharing, seed):
    """The first target's samples have the memory of the second one, too."""
    jobs, rows = drawn(3 + seed)
    outer, inner = (samples_of(rows, name) for name in "ab")
    last = max(row["ts"] for row in rows)
    own = OwnMemory({"a": without(outer, last, inner), "b": inner}, last)
    targets = [
        with_cgroup({"name": name, "role": "target", "kind": "cgroup", "pid": PIDS[name]}, path, 2)
        for name, path in (("a", "/pod"), ("b", "/pod/b"))
    ]
    answer = answered(tmp_path / "t", jobs, rows, sharing, "--warm", targets=targets)
    warm = warm_pages(jobs.calls, jobs.came)
    agree(answer, jobs, SHARING[sharing], warm, ROOMS, own=own)


@ONE_SEED
def test_a_page_whose_arrival_was_lost_stays_beside_own_memory(tmp_path, seed):
    jobs, rows = drawn(seed, takes=0.3, loses=0.3)
    gap = {"stream": "ftrace-machine", "cpu": 0, "from": SECOND, "to": SECOND + 1, "count": 5}
    lost = {"events": 5, "windows": 1, "unknown": 0, "others": 0}
    jobs.tables["loss"] = [gap]
    answer = answered(tmp_path / "t", jobs, rows, "--apart", "--warm", loss=lost)
    warm = warm_pages(jobs.calls, jobs.came)
    assert answer["staying_pages"] == len(warm)
    expected = expected_rows(jobs, APART, warm, ROOMS, own=own_of(rows))
    wanted = "used", *KERNEL, *MODELS
    assert columns(rows_of(answer), *wanted) == columns(expected, *wanted)


def test_the_error_on_the_recording_is_that_of_the_memory_over_time(tmp_path):
    jobs, limit = WarmJobs(6, takes=0.2, pause_ns=LONG), 60
    warm = warm_pages(jobs.calls, jobs.came)
    rows = [
        row
        for second, pages in ((20, 5), (60, 40), (100, 10), (140, 50))
        for row in memory_rows("a", second * SECOND, pages * PAGE, shared=0)
    ]
    own, limits = own_of(rows, "a"), [limit_row(name, f"/{name}", limit) for name in "ab"]
    answer = answered(tmp_path / "t", jobs, rows + limits, "--warm")
    agree(answer, jobs, APART, warm, ROOMS, own=own, unlimited=False)
    told = [errors(jobs, jobs.calls, APART, warm, 0, limit, clock, own) for clock in CLOCKS]
    assert answer["error"] == pytest.approx(told[0])
    for key, choose in (("error_low", min), ("error_high", max)):
        ends = {name: choose(one[name] for one in told) for name in "ab"}
        assert answer[key] == pytest.approx(ends)
    assert answer["error_low"] != answer["error_high"]
