"""The recorder's own cost in words: capture apart from the making of tables."""

from tracer.store.own_cost import cost_said

MIB = 1 << 20


def test_capture_comes_first_and_the_tables_beside_it():
    cost = {
        "cpu_s": 12.0,
        "capture_cpu_s": 1.19,
        "capture_max_rss_bytes": 172 * MIB,
        "tables_cpu_s": 10.5,
        "tables_max_rss_bytes": 546 * MIB,
        "max_rss_bytes": 546 * MIB,
    }
    assert cost_said(cost) == [
        "1.19 s CPU, 172.0 MiB memory to capture",
        "10.50 s CPU, 546.0 MiB memory to make the tables",
    ]


def test_an_old_trace_says_that_it_has_both_together():
    cost = {"cpu_s": 12.0, "capture_cpu_s": 1.19, "max_rss_bytes": 613 * MIB}
    assert cost_said(cost) == [
        "12.00 s CPU, 613.0 MiB memory (capture and tables together: the trace does not separate"
        " them)"
    ]


def test_an_unmeasured_cost_is_not_printed():
    assert cost_said({}) == []
    assert cost_said({"capture_cpu_s": 0.5}) == ["0.50 s CPU to capture"]


def test_info_report_and_page_show_both(tmp_path, tracer):
    from tests.support.traces import make_trace

    cost = {"cpu_s": 12.0, "capture_cpu_s": 1.19, "tables_cpu_s": 10.5}
    make_trace(tmp_path / "t", {"block": []}, own_cost=cost).close()
    for verb in (("info",), ("report",), ("report", "--html", "-")):
        shown = " ".join(tracer(verb[0], tmp_path / "t", *verb[1:]).out.split())
        assert "1.19 s CPU to capture" in shown
        assert "10.50 s CPU to make the tables" in shown
