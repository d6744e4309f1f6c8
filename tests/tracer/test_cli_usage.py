"""Command lines that lack something, or have too much: one line, with an example or the mend."""

import pytest

LACKING = [
    (
        ("predict", "run.trace"),
        "Missing option '--memory'",
        "predict run.trace --memory 512M,1G,2G",
    ),
    (
        ("predict", "--memory", "1G"),
        "Missing argument 'T'",
        "predict run.trace --memory 512M,1G,2G",
    ),
    (("report",), "Missing argument 'T'", "report run.trace"),
    (("info",), "Missing argument 'T'", "info run.trace --json"),
    (("simulate",), "Missing argument 'T'", "simulate run.trace --capacity 64M"),
    (("explain",), "Missing argument 'T'", "explain run.trace"),
    (("export", "x"), "Missing option '-o' / '--output'", "export run.trace -o run.pftrace"),
    (("import", "x"), "Missing option '-o' / '--output'", "import run.txt -o run.trace"),
    (("pack",), "Missing argument 'T'", "pack run.trace -o run.trace.tar.zst"),
    (("unpack",), "Missing argument 'FILE'", "unpack run.trace.tar.zst"),
    (("study", "report"), "Missing argument 'DIR'", "study report quick.study"),
    (("workload", "run"), "Missing argument 'MODEL'", "workload run lenet --scale 0.01"),
]


@pytest.mark.parametrize(("arguments", "missing", "example"), LACKING)
def test_a_verb_that_lacks_an_argument_shows_its_example(tracer, arguments, missing, example):
    ended = tracer(*arguments, status=2)
    assert (ended.out, ended.err) == ("", f"tracer: {missing}; e.g. tracer {example}\n")


@pytest.mark.parametrize(
    ("arguments", "option", "number"),
    [
        (("record", "-d", "1m"), "'-d' / '--duration'", "a number of seconds, without a unit"),
        (("report", "t", "--findings", "ten"), "'--findings'", "a whole number"),
        (("explain", "t", "--slowest", "1.5"), "'--slowest'", "a whole number"),
    ],
)
def test_a_value_that_is_no_number_is_told_which_one_to_give(tracer, arguments, option, number):
    ended = tracer(*arguments, status=2)
    kind = number.partition(" of")[0]
    said = f"tracer: Invalid value for {option}: not {kind}; give {number}\n"
    assert (ended.out, ended.err) == ("", said)


def test_an_example_for_root_is_shown_with_sudo(tracer):
    ended = tracer("study", "run", status=2)
    assert ended.err == "tracer: Missing argument 'STUDY'; e.g. sudo tracer study run quick\n"


@pytest.mark.parametrize(
    ("arguments", "happened"),
    [(("study",), "Missing command"), (("study", "zzz"), "No such command 'zzz'")],
)
def test_a_group_without_a_command_of_its_own_names_them(tracer, arguments, happened):
    ended = tracer(*arguments, status=2)
    assert ended.err == f"tracer: {happened}; give list, run or report\n"


@pytest.mark.parametrize(
    ("arguments", "happened", "helped"),
    [
        (("info", "--bogus"), "No such option: --bogus", "info"),
        (("info", "a", "b"), "Got unexpected extra argument(s) (b)", "info"),
        (("study", "list", "b"), "Got unexpected extra argument(s) (b)", "study list"),
        (("record", "-o"), "Option '-o' requires an argument", "record"),
        (("--bogus",), "No such option: --bogus", ""),
        (("--version=1",), "Option '--version' does not take a value", ""),
    ],
)
def test_other_mistakes_name_the_page_of_help(tracer, arguments, happened, helped):
    ended = tracer(*arguments, status=2)
    page = " ".join(("tracer", *helped.split(), "-h"))
    assert (ended.out, ended.err) == ("", f"tracer: {happened}; see {page}\n")


def test_an_unknown_option_cannot_write_control_characters(tracer):
    said = tracer("info", "--b\x1b[31m\nx", status=2).err
    assert "\x1b" not in said and said.count("\n") == 1
