"""`tracer predict` reads as much as naive caches do, shared by the targets or for each alone."""

import pytest

from tests.oracles.drawing import seeds
from tests.oracles.shared_cache import MODELS, Jobs, counts, enough
from tests.support.traces import make_trace

pytestmark = pytest.mark.slow

TARGETS = [
    {"name": name, "role": "target", "kind": "pid", "pid": pid}
    for name, pid in (("a", 100), ("b", 200))
]
DISKS = [
    {"dev": "8:0", "name": "sda"},
    *({"dev": f"8:{n}", "name": f"sda{n}", "partition_of": "8:0"} for n in (1, 2)),
]
PAGE = 4096
CAPACITIES = (1, 7, 40, 90, 400)
"""Pages: one, some, and more than all jobs use."""


def made(folder, jobs, **tables):
    return make_trace(folder, jobs.tables | tables, targets=TARGETS, disks=DISKS)


def predicted(tracer, folder, *options):
    """Returns the answer for all capacities."""
    sizes = ",".join(str(pages * PAGE) for pages in CAPACITIES)
    return tracer("predict", folder, "--memory", sizes, *options, "--json").json


def rows_of(answer, target, pages):
    """The rows of a target for a capacity, by epoch."""
    return {
        row["epoch"]: row
        for row in answer["reads"]
        if (row["target"], row["memory_bytes"]) == (target, pages * PAGE)
    }


def pages_read(answer, target, pages):
    """The pages that each model reads in all epochs of a target."""
    rows = rows_of(answer, target, pages).values()
    return {model: sum(row[f"{model}_pages"] for row in rows) for model in MODELS}


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("sharing", ["--shared", "--apart"])
def test_each_epoch_of_each_target_reads_as_much_as_in_the_oracle(
    tmp_path, tracer, common, sharing, seed
):
    jobs = Jobs(seed, common)
    made(tmp_path / "t", jobs).close()
    answer = predicted(tracer, tmp_path / "t", sharing)
    for target in "ab":
        mine = [use for use in jobs.uses if use.target == target]
        uses = jobs.uses if sharing == "--shared" else mine
        assert answer["enough_bytes"][target] == enough(uses) * PAGE
        for pages in CAPACITIES:
            found = rows_of(answer, target, pages)
            assert found.keys() == {use.epoch for use in mine}
            expected = {model: counts(uses, pages, model) for model in MODELS}
            for epoch, row in found.items():
                assert row["used_pages"] == sum(use.epoch == epoch for use in mine)
                assert row["recorded_pages"] == jobs.read[(target, epoch)]
                for model in MODELS:
                    place = pages, epoch, model
                    assert row[f"{model}_pages"] == expected[model][target, epoch], place
    assert answer["shared"] == ([["a", "b"]] if sharing == "--shared" else [])
    sums = {row["memory_bytes"]: row for row in answer["sums"]}
    assert sums.keys() == ({n * PAGE for n in CAPACITIES} if sharing == "--shared" else set())
    for memory_bytes, row in sums.items():
        assert row["used_pages"] == len(jobs.uses)
        for model in MODELS:
            read = counts(jobs.uses, memory_bytes // PAGE, model).total()
            assert row[f"{model}_pages"] == read


def limits(target, **cgroups):
    """Samples of the limits of a target's cgroup and of those above it."""
    return [
        {"ts": ts, "target": target, "instance": f"/{name}", "name": "cgroup_memory_max"}
        | {"value": float(pages * PAGE)}
        for name, pages in cgroups.items()
        for ts in (0, 10_000)
    ]


def test_targets_that_shared_the_tightest_limit_share_the_predicted_one(tmp_path, tracer):
    jobs = Jobs(5)
    samples = limits("a", pod=500, own=900) + limits("b", pod=500)
    made(tmp_path / "t", jobs, samples=samples).close()
    asked, apart = (predicted(tracer, tmp_path / "t", *some) for some in ([], ["--apart"]))
    assert asked["recorded_shared"] == apart["recorded_shared"] == [["a", "b"]]
    assert (asked["shared"], apart["shared"]) == ([["a", "b"]], [])
    for target in "ab":
        mine = [use for use in jobs.uses if use.target == target]
        for answer, uses in ((asked, jobs.uses), (apart, mine)):
            for model, read in pages_read(answer, target, 40).items():
                found = counts(uses, 40, model)
                assert read == sum(n for (who, _), n in found.items() if who == target)


def test_targets_whose_tightest_limits_are_two_cgroups_do_not_share(tmp_path, tracer):
    samples = limits("a", pod=500, own=300) + limits("b", pod=500)
    made(tmp_path / "t", Jobs(5), samples=samples).close()
    answer = predicted(tracer, tmp_path / "t")
    assert (answer["shared"], answer["recorded_shared"]) == ([], [])


def test_no_memory_is_left_if_the_own_memory_takes_it(tmp_path, tracer):
    jobs = Jobs(5)
    made(tmp_path / "t", jobs).close()
    sizes = "--memory", 40 * PAGE, "--own-memory", 40 * PAGE
    answer = tracer("predict", tmp_path / "t", *sizes, "--apart", "--json").json
    for target in "ab":
        used = sum(use.target == target for use in jobs.uses)
        assert pages_read(answer, target, 40) == dict.fromkeys(MODELS, used)


def test_lost_events_are_told_and_an_empty_table_is_refused(tmp_path, tracer):
    gap = {"stream": "ftrace-machine", "cpu": 0, "from": 1000, "to": 2000, "count": 5}
    lost = {"events": 5, "windows": 1, "unknown": 0, "others": 0}
    jobs = Jobs(5)
    make_trace(
        tmp_path / "lost", jobs.tables | {"loss": [gap]}, targets=TARGETS, disks=DISKS, loss=lost
    ).close()
    assert predicted(tracer, tmp_path / "lost", "--shared")["lossy"]
    made(tmp_path / "none", jobs, page_cache=[]).close()
    refused = tracer("predict", tmp_path / "none", "--memory", "1M", "--shared", status=2)
    assert "no target" in refused.err
