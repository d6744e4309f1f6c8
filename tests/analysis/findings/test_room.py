"""The advice on waiting for data, by the CPUs and the quotas that are free."""

import pytest

from tests.support.findings import FETCHED, JOB, PROCESSES, WORKER, sample

pytestmark = pytest.mark.slow


def said(found, **tables):
    """The sentence about data."""
    tables = {"processes": PROCESSES, "phases": FETCHED, **tables}
    return found(tables, host={"cpus": 8})["data loading"].sentence


@pytest.mark.parametrize(
    ("phases", "short"),
    [
        (FETCHED, "the one process that loads data does not keep up"),
        (FETCHED[:-1], "the training process loads its data itself"),
    ],
)
def test_no_workers_are_advised_if_the_cpus_have_no_time_for_them(found, phases, short):
    """One of 8 CPUs is left, or less than one, in the training; all are idle after it."""

    def used(seconds):
        used = [sample(t, "cpu_time", n) for t, n in ((0, 0), (100, seconds), (200, seconds))]
        return said(found, phases=phases, samples=used)

    assert f"{short} (" in used(700) and "workers" in used(700).split(short)[1]
    assert used(704).endswith(
        f": {short}, and 88 % of the time of the machine's 8 CPUs is used (do less work for each"
        " sample, or give the job more CPUs)"
    )


@pytest.mark.parametrize(("stolen", "says"), [(100, False), (104, True)])
def test_time_that_the_host_takes_is_not_free_for_more_workers(found, stolen, says):
    samples = [sample(t, "cpu_time", 6 * t) for t in (0, 100)]
    samples += [sample(t, "steal_time", stolen * t / 100) for t in (0, 100)]
    sentence = said(found, samples=samples)
    assert says == sentence.endswith(
        "88 % of the time of the machine's 8 CPUs is used or taken by the host (do less work for"
        " each sample, or give the job more CPUs)"
    )
    assert says != sentence.endswith(" (use more workers)")


def quota(target, throttled, periods=10, cgroup=None):
    """Samples of a quota with so many periods in a second; `throttled` of 100 are used up."""
    return [
        sample(t, name, t * periods * share / 100, target, cgroup)
        for t in (0, 100)
        for name, share in (("cgroup_nr_periods", 100), ("cgroup_nr_throttled", throttled))
    ]


_AT_ITS_QUOTA = ", and the job's CPU quota is used up in 85 % of its periods (do less work"


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (quota("job", 85), True),
        (quota("job", 79), False),
        (quota("db", 100), False),
        (quota("job", 85) + quota("db", 0), True),
        (quota("job", 85, cgroup="/above") + quota("job", 0, 90), True),
        (quota("job", 79, cgroup="/above") + quota("job", 78, 900), False),
        (quota("job", 85, periods=0.05), False),
        ([sample(t, "cgroup_throttled", 85, "job") for t in (0, 100)], False),
    ],
    ids=[
        "full",
        "not full",
        "another's",
        "beside another",
        "above",
        "full nowhere",
        "few periods",
        "no counters",
    ],
)
def test_a_job_at_its_cpu_quota_is_not_given_more_workers(found, samples, says):
    sentence = said(found, samples=samples)
    assert says == (_AT_ITS_QUOTA in sentence)
    assert says == sentence.endswith(" for each sample, or raise the quota)")
    assert says != sentence.endswith(" (use more workers)")


def test_nobody_knows_whose_quota_is_that_of_a_job_without_a_target(found):
    processes = [{**one, "target": None} for one in PROCESSES]
    sentence = said(found, processes=processes, samples=quota("db", 100))
    assert "quota" not in sentence and sentence.endswith(" (use more workers)")


@pytest.mark.parametrize(("of_twin", "says"), [([], False), (quota("twin", 90), True)])
def test_the_quota_of_each_target_that_trains_must_be_used_up(found, of_twin, says):
    """A target without samples has a quota that nobody knows."""
    numbers = {JOB: 60, WORKER: 61}

    def twins(rows):
        mine = [row for row in rows if row["pid"] in numbers]
        return [{**one, "pid": numbers[one["pid"]], "tid": numbers[one["tid"]]} for one in mine]

    processes = PROCESSES + [{**one, "target": "twin"} for one in twins(PROCESSES)]
    phases, samples = FETCHED + twins(FETCHED), quota("job", 85) + of_twin
    sentence = said(found, processes=processes, phases=phases, samples=samples)
    assert says == (_AT_ITS_QUOTA in sentence)
    assert says != ("(use more workers" in sentence)
