"""Options without use for what is asked: an error that names the option and the mend."""

import pytest

from tests.conftest import ROOT

FIXTURE = ROOT / "fixtures" / "lenet.trace"
UNUSED = [
    ("paper", ("--wanted", "0.5"), "curve"),
    ("paper", ("--destage", "idle"), "timed"),
    ("paper", ("--destage", "lazy"), "timed"),
    ("paper", ("--partitioned",), "timed"),
    ("curve", ("--capacity", "64K"), "paper or timed"),
    ("curve", ("--capacity-pages", "16"), "paper or timed"),
    ("curve", ("--capacity-share", "0.5"), "paper or timed"),
    ("curve", ("--destage", "idle"), "timed"),
    ("curve", ("--partitioned",), "timed"),
    ("timed", ("--wanted", "0.5"), "curve"),
]


@pytest.mark.parametrize(("model", "option", "others"), UNUSED)
def test_an_option_that_a_model_does_not_use_is_refused(tracer, model, option, others):
    ended = tracer("simulate", FIXTURE, "--model", model, *option, status=2)
    assert ended.out == ""
    assert ended.err == (
        f"tracer: the model {model} has no use for {option[0]}; "
        f"leave it out, or give --model {others}\n"
    )


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("paper", ("--capacity-share", "0.5")),
        ("curve", ("--wanted", "0.4", "--policy", "lru", "--medium", "pcm-paper")),
        ("timed", ("--capacity", "64K", "--destage", "idle", "--partitioned")),
    ],
)
def test_an_option_that_a_model_uses_is_taken(tracer, model, options):
    assert tracer("simulate", FIXTURE, "--model", model, *options, "--json").json["requests"]


def test_a_scheduler_for_one_simulation_needs_a_file(tracer):
    ended = tracer("simulate", FIXTURE, "--scheduler", "local:2", status=2)
    assert ended.err == (
        "tracer: --scheduler needs --config; leave out --scheduler, or give --config\n"
    )


@pytest.mark.parametrize("option", [("--wanted", "0.4"), ("--partitioned",)])
def test_a_sweep_s_file_is_not_said_to_set_what_it_cannot_set(tracer, option):
    ended = tracer("simulate", FIXTURE, "--config", "s.toml", *option, status=2)
    assert ended.err == (f"tracer: a sweep has no {option[0]}; leave out {option[0]} or --config\n")


@pytest.mark.parametrize("options", [("--shared", "--apart"), ("--apart", "--shared")])
def test_targets_cannot_both_share_the_memory_and_have_it_apart(tracer, options):
    ended = tracer("predict", FIXTURE, "--memory", "1M", *options, status=2)
    assert (ended.out, ended.err) == (
        "", "tracer: --shared and --apart cannot be combined; give one of them\n",
    )  # fmt: skip
