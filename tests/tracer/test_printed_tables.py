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
