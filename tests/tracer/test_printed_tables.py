"""Tables and facts in a terminal: text is wrapped, numbers and reasons are whole."""

import io

from rich.console import Console

from tests.support.traces import make_trace
from tracer.cli.output import WIDTH, print_table, show
from tracer.digits import show_digits


def printed(columns, rows, left=()):
    out = Console(file=io.StringIO(), width=WIDTH)
    print_table(out, "", columns, rows, left=left)
    assert out.width == WIDTH
    return out.file.getvalue().splitlines()


def test_no_digit_is_cut_from_a_table_that_is_too_wide():
    numbers = [123_456_789 + n for n in range(9)]
    lines = printed([f"column {n}" for n in range(9)], [numbers])
    assert any(line.split() == [f"{n:,}" for n in numbers] for line in lines)
    assert any(line.split()[-2:] == ["column", "8"] for line in lines)


def test_text_is_wrapped_so_that_numbers_fit():
    lines = printed(["name", "n", "m"], [["x" * 200, 123_456, 7]], left=["name"])
    assert max(len(line) for line in lines) <= WIDTH
    assert "".join(lines).count("x") == 200
    assert any(line.split()[1:] == ["123,456", "7"] for line in lines)


def test_a_small_number_is_not_shown_as_0():
    shown = {0.0: "0.000", 0.0123456: "0.012", 0.00049: "0.00049", -0.0002: "> -0.001"}
    assert {number: show(number).plain for number in shown} == shown
    assert float(show(1.23e-300).plain) == 1.2e-300


def test_a_number_in_a_sentence_has_three_digits_and_no_exponent():
    shown = {
        1234.567: "1,235", 999.6: "1,000", 999.4: "999", -1234567.0: "-1,234,567", 36.841: "36.8",
        0.00001234: "0.0000123", 0.0: "0", 2.5: "2.5", 1.2e20: "1.2e+20", 1.2e-9: "1.2e-09",
        float("inf"): "inf",
    }  # fmt: skip
    assert {number: show_digits(number) for number in shown} == shown
    assert show_digits(12345.0, 4) == "12,345" and show_digits(999.96, 4) == "1,000"


def test_info_gives_the_whole_reason_for_many_series_without_samples(tmp_path, tracer):
    names = ", ".join(f"cgroup_series_{number}" for number in range(12))
    why = f"the controller memory is off in /sys/fs/cgroup/unified/{'job/' * 10}end"
    samples = {"hz": 1.0, "file": "x", "not_available": {names: why}, "facts": {}, "cpu_s": 0.1}
    make_trace(tmp_path / "t", {"block": []}, samples=samples).close()
    shown = "".join(tracer("info", tmp_path / "t").out.split())
    assert f"{names}: {why}".replace(" ", "") in shown


def shown_by_info(tracer, folder):
    """Returns what `tracer info` prints, without the places where it wraps."""
    return "".join(tracer("info", folder).out.split())


def target(number, command=("train.py",)):
    return {
        "name": f"job{number}", "role": "target", "kind": "pid", "pid": number, "command": command,
    }  # fmt: skip


def test_info_gives_the_whole_command_of_a_target_and_all_that_is_missing(tmp_path, tracer):
    command = [f"--option-{number}=value" for number in range(40)]
    missing = [f"event_{number}" for number in range(60)]
    manifest = {"targets": [target(7, command)], "capture": {"missing": {"block": missing}}}
    make_trace(tmp_path / "t", {"block": []}, **manifest).close()
    shown = shown_by_info(tracer, tmp_path / "t")
    assert "".join(command) in shown
    assert f"block:{','.join(missing)}target" in shown


def test_info_says_how_many_more_there_are_of_a_very_long_list(tmp_path, tracer):
    command = ["job", *(f"{number:04}" for number in range(3000))]
    missing = [f"event_{number}" for number in range(1000)]
    targets = [target(1, command), *(target(number) for number in range(2, 301))]
    manifest = {"targets": targets, "capture": {"missing": {"block": missing}}}
    make_trace(tmp_path / "t", {"block": []}, **manifest).close()
    shown = shown_by_info(tracer, tmp_path / "t")
    assert "event_99,and900more" in shown and "event_100" not in shown
    assert "0098and2901morearguments" in shown and "0099" not in shown
    assert "pidjob100(" in shown and "pidjob101(" not in shown
    assert "200moretargets" in shown


def test_info_escapes_a_hostile_name_wherever_it_stands(tmp_path, tracer):
    hostile = "x\x1b[2J\n  lost        0"
    manifest = {
        "targets": [target(1, [hostile * 400])],
        "capture": {"missing": {hostile: [hostile] * 400}},
        "unmarked": [hostile],
    }
    make_trace(tmp_path / "t", {"block": []}, **manifest).close()
    shown = tracer("info", tmp_path / "t").out
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if line.startswith("  lost  ")] == [
        "  lost        0 events in 0 gaps"
    ]


def test_info_wraps_between_words_and_indents_what_follows(tmp_path, tracer):
    command = [f"--option-{number}=value" for number in range(40)]
    make_trace(tmp_path / "t", {"block": []}, targets=[target(7, command)]).close()
    lines = tracer("info", tmp_path / "t").out.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  target"))
    own = [lines[first]]
    for line in lines[first + 1 :]:
        if not line.startswith(" " * 14):
            break
        own.append(line)
    assert " ".join(" ".join(own).split()).endswith(" ".join(command))
    assert max(map(len, own)) <= WIDTH
