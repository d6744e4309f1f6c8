"""Declarations of studies: the runs that their factors make, and refused declarations."""

import json
import math
from collections import Counter

import pytest

from tracer.workloads.errors import JobError
from tracer.workloads.modes.machine import Machine
from tracer.workloads.modes.mode import PowerMode
from tracer.workloads.options import CheckpointWay
from tracer.workloads.studies import media, study
from tracer.workloads.studies.one_run import record_options

TWO = """
name = "mine"
repeats = 3
scale = 0.5
[[runs]]
model = ["lenet"]
where = ["host", "4"]
workers = [0, 4]
[[runs]]
model = "lenet"
where = "1"
seccomp = [true, false]
"""


@pytest.fixture
def declared(tmp_path):
    """Returns a function that loads a user's own study from its text."""

    def load(text, **given):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return study.load(str(path), **given)

    return load


def test_every_combination_is_a_run_in_every_repeat(declared):
    runs = declared(TWO).runs
    assert len(runs) == 3 * (2 * 2 + 2)
    assert set(Counter(run.factors for run in runs).values()) == {3}
    assert len({run.id for run in runs}) == len(runs)
    assert [run.repeat for run in runs] == sorted(run.repeat for run in runs)
    host = [run.factors for run in runs if run.factors.where == "host"]
    assert {factors.workers for factors in host} == {0, 4}
    assert {factors.containers for factors in host} == {0}


def test_the_order_depends_only_on_the_seed(declared):
    orders = [[run.id for run in declared(TWO, seed=seed).runs] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_given_values_replace_declared_ones(declared):
    loaded = declared(TWO, scale=0.01, repeats=1)
    assert (loaded.scale, loaded.repeats, len(loaded.runs)) == (0.01, 1, 6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scale": math.nan}, "--scale nan is not a number above 0, up to 100; give e.g. 0.01"),
        ({"scale": 0.0}, "--scale 0.0 is not a number above 0, up to 100; give e.g. 0.01"),
        (
            {"time_scale": -1.0},
            "--time-scale -1.0 is not a number above 0, up to 100; give e.g. 0.1",
        ),
        ({"repeats": 1001}, "--repeats 1001 is not a whole number from 1 to 1000; give e.g. 5"),
    ],
)
def test_an_impossible_option_is_named_and_not_the_file(given, said):
    with pytest.raises(JobError) as refused:
        study.load("quick", **given)
    assert str(refused.value) == said


def test_factors_are_options_of_the_job(declared):
    text = 'name="x"\n[[runs]]\nmodel="lenet"\nmode="infer"\nepochs=3\nworkers=0\nbatch_size=8\n'
    (factors,) = {run.factors for run in declared(text).runs}
    assert factors.options() == ["--workers", "0", "--batch-size", "8"]


def test_a_load_and_a_medium_are_factors(declared):
    text = (
        'name="x"\n[[runs]]\nmodel="lenet"\nmode="serve"\nworkers=4\nthreads=1\n'
        'rate=[1, 2.5]\nrequests=7\nmedium=["disk", "hdd", "/mnt/card"]\n'
    )
    found = {run.factors for run in declared(text, repeats=1).runs}
    assert {factors.medium for factors in found} == {"disk", "hdd", "/mnt/card"}
    assert {tuple(factors.options()) for factors in found} == {
        ("--threads", "1", "--rate", rate, "--requests", "7") for rate in ("1", "2.5")
    }


def test_threads_can_be_a_fair_share_of_the_cpus(declared, monkeypatch):
    text = 'name="x"\n[[runs]]\nmodel="lenet"\nwhere=["host", "4"]\nthreads=["share", 7]\n'
    shares = {}
    for cpus in (2, 19):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cpus=cpus: set(range(cpus)))
        factors = {run.factors for run in declared(text, repeats=1).runs}
        # The host and four containers get equal numbers, so the job is the same in both places.
        assert len(factors) == 4
        shares[cpus] = sorted({f.threads for f in factors})
    assert shares == {2: [1, 7], 19: [4, 7]}


def test_every_limited_medium_names_its_source():
    limited = [media.find_medium(name) for name in ("sd-card", "hdd", "nvme-ssd")]
    assert all(medium.speed and medium.about and medium.source for medium in limited)
    assert media.find_medium("sd-card").speed.shared(4).read_iops == 419


def test_a_power_mode_is_a_factor_and_an_empty_one_is_the_default(declared):
    text = 'name="x"\n[[runs]]\nmodel="lenet"\npower_mode = [{}, {cores = 1}, {cores = 1.0}]\n'
    loaded = declared(text, repeats=1)
    assert {str(run.factors.power_mode) for run in loaded.runs} == {"None", "cores 1"}
    assert len({run.id for run in loaded.runs}) == 2


def test_a_study_can_ask_for_all_modes_of_the_machine(declared):
    text = 'name="x"\n[[runs]]\nmodel="lenet"\npower_mode = ["machine", {cpu_quota = 0.77}]\n'
    modes = {run.factors.power_mode for run in declared(text, repeats=1).runs}
    assert modes == {*Machine().modes(), PowerMode(cpu_quota=0.77)}


def test_the_shipped_studies_are_complete():
    for name in study.shipped():
        loaded = study.load(name)
        assert loaded.name == name
        assert loaded.about and loaded.runs


def test_the_study_of_park_and_bahn_has_each_checkpoint_habit_of_one_model():
    factors = [run.factors for run in study.load("park2023", repeats=1).runs]
    habits = [
        (one.where, one.checkpoint_every, one.checkpoint_way)
        for one in factors
        if one.model == "squeezenet" and one.mode == "train"
    ]
    expected = [(None, None), ("end", None), ("10", None)]
    expected += [(None, way) for way in CheckpointWay if way != "truncate"]
    for where in ("host", "1"):
        assert {told[1:] for told in habits if told[0] == where} == {*expected}
    assert len(habits) == 2 * len(expected) + 1  # and four containers in the usual habit


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name = 3", "has a `name`"),
        ('name = "x/../y"\nruns = []', "has a `name`"),
        ('name = "x"\n[[runs]]\nwhere = "host"', "names models"),
        ('name = "x"\nengine = "moon"\n[[runs]]\nmodel = "lenet"', "one of docker, podman"),
        ('name = "x"\nengine = []\n[[runs]]\nmodel = "lenet"', "one of docker, podman"),
        ('name = "x"\n[[runs]]\nmodel = "nonsense"', "there is no model 'nonsense'"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\ncolour = 3', "no factor 'colour'"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nwhere = "moon"', "`where` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nwhere = 4', "`where` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nmode = "fly"', "`mode` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nworkers = -1', "`workers` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nbatch_size = 0', "`batch_size` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\ncpus = 1', "apply only to containers"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\npower_mode = 3', "`power_mode` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\npower_mode = {cpu_quota = 2}', "`cpu_quota` is"),
        (
            'name = "x"\n[[runs]]\nmodel = "lenet"\nwhere = "1"\ncpus = 1\n'
            "power_mode = {cpu_quota = 0.5}",
            "limit the same time",
        ),
        ('name = "x"\nscale = 0\n[[runs]]\nmodel = "lenet"', "`scale` is"),
        ('name = "x"\nrepeats = 2.5\n[[runs]]\nmodel = "lenet"', "`repeats` is"),
        ('name = "x"\nrecord = "-a"\n[[runs]]\nmodel = "lenet"', "`record` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nmode = "serve"\nrate = 3', "given with `mode"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nrate = 3', "given with `mode"),
        (
            'name = "x"\n[[runs]]\nmodel = "lenet"\nmode = "serve"\nrate = "3"\nrequests = 1',
            "`rate` is a number",
        ),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nmedium = "moon"', "no medium 'moon'"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\ncheckpoint_every = "day"', "not 'day'"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\ncheckpoint_every = 0', "not '0'"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\ncheckpoint_every = true', "not True"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\ncheckpoint_way = "fax"', "truncate, overwrite"),
        (f'name = "x"\n[[runs]]\nmodel = "lenet"\nworkers = {list(range(3000))}', "more than"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nworkers = [1' + ", 1" * 12_000 + "]", "more than"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nwhere = "4\\n"', "`where` is"),
        ('name = "x\\n"\n[[runs]]\nmodel = "lenet"', "has a `name`"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\ndataset = {a = 1}', "`dataset` is"),
        ('name = "x"\n[[runs]]\nmodel = {a = 1}', "`model` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nmode = {a = 1}', "`mode` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nwhere = "1"\ncpus = "x"', "`cpus` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nwhere = "1"\nmemory = 4', "`memory` is"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nmemory = "5m"', "`memory`: 5m is not a valid"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nmemory = "1e40"', "`memory`: 1e40 is not"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nmemory = ""', "`memory`:  is not a valid"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nswap = "1g"', "given with `memory`"),
        (
            'name = "x"\n[[runs]]\nmodel = "lenet"\nmemory = "1g"\nswap = "-8m"',
            "`swap`: -8m is not",
        ),
        (
            'name = "x"\n[[runs]]\nmodel = "lenet"\nmemory = "1g"\nswap = "1g"\nmedium = "hdd"',
            "in memory or limited",
        ),
        (
            'name = "x"\n[[runs]]\nmodel = "lenet"\nmemory = "1g"\nswap = "1g"\nmedium = "ram"',
            "in memory or limited",
        ),
        (
            'name = "x"\n[[runs]]\nmodel = "lenet"\ndirty_background_bytes = "nan"',
            "`dirty_background_bytes`: nan is not",
        ),
        (
            'name = "x"\n[[runs]]\nmodel = "lenet"\ndirty_background_bytes = 9999999',
            "`dirty_background_bytes` is a size",
        ),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nat_least = nan', "`at_least` is a number"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nat_most = true', "`at_most` is a number"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nat_most = "1"', "`at_most` is a number"),
        ('name = "x"\n[[runs]]\nmodel = "lenet"\nbatches = 0', "`batches` is"),
        ("x = " + "[" * 100_000, "too deep"),
        ("name = ", "cannot read the study"),
    ],
)
def test_an_impossible_study_is_refused_in_one_line(declared, text, complaint):
    with pytest.raises(JobError, match=complaint) as refused:
        declared(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "line",
    [
        "scale = true\n[[runs]]", "time_scale = true\n[[runs]]", "repeats = true\n[[runs]]",
        "longest_s = true\n[[runs]]", "[[runs]]\nworkers = [4, true]", "[[runs]]\nepochs = true",
        '[[runs]]\nwhere = "1"\ncpus = true',
        '[[runs]]\nmode = "serve"\nrequests = 9\nrate = true',
        '[[runs]]\nmode = "serve"\nrate = 1\nrequests = true',
    ],
)  # fmt: skip
def test_true_is_no_number(declared, line):
    with pytest.raises(JobError, match="is a "):
        declared(f'name = "x"\n{line}\nmodel = "lenet"')


def test_the_engine_belongs_to_the_study(declared, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from tracer.workloads.studies.runner import run_study

    empty = 'name = "x"\nruns = []'
    assert declared(f'engine = "podman"\n{empty}').engine == "podman"
    assert declared(empty, engine="podman").engine == "podman"
    folder = tmp_path / "s"
    run_study(declared(empty), folder, 1 << 20, print)
    file = folder / "study.json"
    told = json.loads(file.read_text())
    assert told.pop("engine") == "docker"
    file.write_text(json.dumps(told))  # as before there was a choice
    run_study(declared(empty), folder, 1 << 20, print)
    with pytest.raises(JobError, match="belongs to another study"):
        run_study(declared(empty, engine="podman"), folder, 1 << 20, print)


def test_the_error_for_an_unknown_study_lists_the_known():
    with pytest.raises(JobError, match="quick"):
        study.load("nowhere")


def test_checkpoints_are_factors_of_training_alone(declared):
    text = """
name = "x"
[[runs]]
model = "lenet"
mode = ["train", "infer"]
checkpoint_every = ["end", 50]
checkpoint_way = "rename"
"""
    found = {tuple(run.factors.options()) for run in declared(text, repeats=1).runs}
    way = ("--checkpoint-way", "rename")
    assert found == {(), ("--checkpoint-every", "end", *way), ("--checkpoint-every", "50", *way)}


LIMITED = """
name = "x"
scale = 0.02
[[runs]]
model = "lenet"
mode = ["train", "infer"]
where = ["host", "4"]
memory = "400m"
swap = "1g"
dirty_background_bytes = "240m"
at_least = 600
batches = 131250
"""


def test_limits_are_factors_on_the_host_as_in_containers(declared):
    found = {run.factors for run in declared(LIMITED, repeats=1).runs}
    assert {(factors.where, factors.memory, factors.swap) for factors in found} == {
        ("host", "400m", "1g"), ("4", "400m", "1g"),
    }  # fmt: skip
    assert all(factors.sets_machine for factors in found)


def test_only_a_host_s_memory_needs_a_setting_of_the_machine(declared):
    text = 'name="x"\n[[runs]]\nmodel="lenet"\nwhere=["host", "1"]\nmemory="400m"\n'
    found = {run.factors for run in declared(text, repeats=1).runs}
    assert {factors.where: factors.sets_machine for factors in found} == {"host": True, "1": False}


def test_times_and_batches_have_the_study_s_share_of_the_papers(declared):
    loaded = declared(LIMITED, repeats=1)
    found = {run.factors.mode: run.factors.options(loaded.scale) for run in loaded.runs}
    assert found == {"train": ["--at-least", "12.0"], "infer": ["--batches", "2625"]}
    least = {run.factors.mode: run.factors.options(1e-9) for run in loaded.runs}
    assert least["infer"] == ["--batches", "1"]


@pytest.mark.parametrize(
    ("given", "probes"),
    [
        (["--perf-stat", "--callgraph", "block:block_rq_insert"], ["-e", "default"]),
        ([], ["-e", "default"]),
        (["--quiet", "-e", "block"], []),
        (["-eblock"], []),
        (["--probes", "block"], []),
        (["--probes=block", "--linger", "2"], []),
    ],
)
def test_a_run_has_the_probes_that_its_study_names_or_else_the_default_ones(given, probes):
    assert record_options(given) == [*probes, *given]
