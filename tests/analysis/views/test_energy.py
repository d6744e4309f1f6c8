"""Energy: sums over true intervals, counters before sums, parts apart, a baseload taken off."""

import json

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report.samples import samples
from tracer.analysis.report.tables import records
from tracer.analysis.views.energy import energy, why_none
from tracer.probes.errors import BadTrace, UsageError

S = 1_000_000_000


def rows(name, unit, values, instance=None, target=None):
    """Samples of one series from (seconds, value)."""
    return [
        {"ts": int(s * S), "target": target, "name": name, "instance": instance, "value": value}
        | {"unit": unit}
        for s, value in values
    ]


@pytest.fixture
def trace(tmp_path):
    """A trace of these samples; None: it took none."""
    made = []

    def make(found, **manifest):
        tables = {} if found is None else {"samples": found}
        made.append(make_trace(tmp_path / f"{len(made)}.trace", tables, **manifest))
        return made[-1]

    yield make
    for one in made:
        one.close()


def columns(frame, *names):
    return [tuple(row[name] for name in names) for row in records(frame)]


def test_sampled_power_is_summed_over_the_true_intervals(trace):
    power = rows("rail_power", "W", [(10, 99.0), (11, 5.0), (13, 7.0), (13.5, 4.0)], "VDD_IN")
    assert columns(
        energy(trace(power)), "source", "instance", "method", "samples", "duration_s", "longest_s",
        "energy_j", "mean_w",
    ) == [("jetson", "VDD_IN", "power x interval", 4, 3.5, 2.0, 5 + 14 + 2, 6.0)]  # fmt: skip


def test_a_counter_of_energy_is_taken_before_sampled_power(trace):
    found = [
        *rows("gpu_power", "W", [(0, 10.0), (2, 10.0)], "0"),
        *rows("gpu_energy", "J", [(0, 1000.0), (2, 1023.0)], "0"),
        *rows("gpu_power", "W", [(0, 10.0), (2, 10.0)], "1"),
    ]
    assert columns(energy(trace(found)), "source", "instance", "method", "energy_j") == [
        ("gpu", "0", "counter", 23.0),
        ("gpu", "1", "power x interval", 20.0),
        ("total", None, "sum", 43.0),
    ]


def test_a_part_is_in_no_total_but_memory_is_no_part_of_its_package(trace):
    found = [
        *rows("rapl_energy", "J", [(0, 0.0), (1, 10.0)], "package-0"),
        *rows("rapl_energy", "J", [(0, 0.0), (1, 6.0)], "package-0/core"),
        *rows("rapl_energy", "J", [(0, 0.0), (1, 3.0)], "package-0/dram"),
    ]
    assert columns(energy(trace(found)), "instance", "part", "energy_j") == [
        ("package-0", False, 10.0),
        ("package-0/core", True, 6.0),
        ("package-0/dram", False, 3.0),
        (None, False, 13.0),
    ]


def test_the_rails_behind_a_jetsons_input_are_parts_of_it(trace):
    found = [
        *rows("rail_power", "W", [(0, 0.0), (1, 3.0)], "POM_5V_IN"),
        *rows("rail_power", "W", [(0, 0.0), (1, 1.0)], "POM_5V_GPU"),
    ]
    assert columns(energy(trace(found)), "instance", "part") == [
        ("POM_5V_GPU", True),
        ("POM_5V_IN", False),
    ]


def test_a_baseload_is_scaled_by_the_runs_time_and_the_rest_is_the_increment(trace):
    """Seed 000, section 5.1.5: idle energy, scaled by the run time of the workload."""
    run = trace(rows("rail_power", "W", [(0, 0.0), (60, 12.0)], "VDD_IN"))
    idle = trace(rows("rail_power", "W", [(0, 0.0), (600, 9.0)], "VDD_IN"))
    assert columns(
        energy(run, idle), "energy_j", "baseload_w", "baseload_j", "increment_j", "baseload_share"
    ) == [(720.0, 9.0, 540.0, 180.0, 0.75)]


def test_a_source_that_the_baseload_lacks_has_no_split(trace):
    run = trace(rows("gpu_power", "W", [(0, 0.0), (1, 12.0)], "0"))
    idle = trace(rows("rail_power", "W", [(0, 0.0), (1, 9.0)], "VDD_IN"))
    assert columns(energy(run, idle), "energy_j", "baseload_j") == [(12.0, None)]


def test_the_baseload_of_the_total_is_that_of_the_run_s_own_sources(trace):
    def watts(**of_gpus):
        found = [rows("gpu_power", "W", [(0, w), (10, w)], gpu[1:]) for gpu, w in of_gpus.items()]
        return trace([row for one in found for row in one])

    run = watts(g0=100.0, g1=50.0)
    more = energy(run, watts(g0=20.0, g1=10.0, g2=30.0))
    assert columns(more, "source", "baseload_j", "increment_j") == [
        ("gpu", 200.0, 800.0), ("gpu", 100.0, 400.0), ("total", 300.0, 1200.0),
    ]  # fmt: skip
    other = energy(run, watts(g0=20.0, g2=30.0))
    assert columns(other, "baseload_j") == [(200.0,), (None,), (None,)]


def test_a_baseload_with_a_target_is_refused(trace):
    target = {"name": "x", "role": "target", "kind": "pid", "pid": 1}
    run = trace(rows("gpu_power", "W", [(0, 0.0), (1, 12.0)], "0"))
    with pytest.raises(UsageError, match="has a target, but a baseload is recorded"):
        energy(run, trace([], targets=[target]))


def test_a_trace_without_samples_says_how_to_take_some(trace):
    with pytest.raises(BadTrace, match="tracer record --sample-hz"):
        energy(trace(None))


def test_no_power_is_no_energy_with_the_reason_and_not_0(trace, tracer):
    why = {"rapl": "a virtual machine", "gpu": "no driver", "rail_power": "no rail"}
    made = trace(rows("rss", "bytes", [(0, 1.0)]), samples={"hz": 1.0, "not_available": why})
    assert energy(made).empty
    said = "energy is not available: gpu: no driver; jetson: no rail; rapl: a virtual machine"
    assert why_none(made) == said
    report = tracer("report", made.folder, "--json").json
    assert said in report["notes"]
    assert "energy" not in report["tables"]


def test_the_report_splits_energy_by_a_baseload(trace, tracer):
    run = trace(rows("rail_power", "W", [(0, 0.0), (60, 12.0)], "VDD_IN"))
    idle = trace(rows("rail_power", "W", [(0, 0.0), (600, 9.0)], "VDD_IN"))
    report = tracer("report", run.folder, "--baseload", idle.folder, "--json").json
    assert report["tables"]["energy"][0]["increment_j"] == 180.0
    shown = tracer("report", run.folder, "--baseload", idle.folder).out
    assert "increment J" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_series_of_the_report_in_order_with_the_mean_of_a_rate_over_the_whole_time(trace):
    found = [
        *rows("pgfault", "faults", [(0, 100.0), (9, 190.0), (10, 290.0)]),
        *rows("pgfault_rate", "faults/s", [(9, 10.0), (10, 100.0)]),
        *rows("cpu_time", "s", [(0, 1.0), (10, 6.0)], target="job"),
        *rows("cpu_use", "%", [(10, 50.0)], target="job"),
        *rows("rss", "bytes", [(0, 4096.0), (10, 8192.0)], target="job"),
    ]
    shown = samples(trace(found))
    assert columns(
        shown, "target", "name", "samples", "min", "mean", "max", "last", "growth"
    ) == [
        ("job", "cpu_use", 1, 50.0, 50.0, 50.0, 50.0, None),
        ("job", "cpu_time", 2, 1.0, 3.5, 6.0, 6.0, 5.0),
        ("job", "rss", 2, 4096.0, 6144.0, 8192.0, 8192.0, None),
        (None, "pgfault_rate", 2, 10.0, 19.0, 100.0, 100.0, None),
        (None, "pgfault", 3, 100.0, pytest.approx(580 / 3), 290.0, 290.0, 190.0),
    ]  # fmt: skip


def test_the_report_shows_rates_in_80_columns_and_hides_what_did_nothing(trace, tracer):
    made = trace(
        [
            *rows("write_throughput", "bytes/s", [(0, 3 * 1048576.0)], "nvme0n1"),
            *rows("write_throughput", "bytes/s", [(0, 0.0)], "loop7"),
            *rows("pressure_memory_some", "%", [(0, 1.5)]),
            *rows("disk_written_bytes", "bytes", [(0, 5.0)], "nvme0n1"),
        ]
    )
    shown = tracer("report", made.folder).out
    assert "write_throughput nvme0n1  3.000  3.000  3.000  3.000  MiB/s" in shown
    assert "loop7" not in shown
    assert "disk_written_bytes" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert json.loads(tracer("report", made.folder, "--json").out)["tables"]["samples"]
