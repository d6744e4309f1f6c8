"""The output of `perf stat -x` as rows; a counter that did not run is never 0."""

import pytest

from tracer.probes.backends.perf_tools.stat import Value, parse, rows
from tracer.probes.counters import COUNTERS, TABLE

# Output of perf 6.1, with an event of a hybrid CPU that shared its counter.
OUTPUT = """\
# started on Sat Nov 21 03:39:00 2026

<not supported>;;cycles;0;100.00;;
<not counted>;;cache-misses;0;0.00;;
461729070471469;;cpu_core/cycles/;2000000;50.00;1.2;GHz
112.93;msec;task-clock;112933481;100.00;0.121;CPUs utilized
1.00;msec;task-clock:u;1004567;25.00;;
403;;context-switches;112933481;100.00;3.568;K/sec
0;;major-faults;112933481;100.00;0.000;/sec
7.25;Joules;power/energy-pkg/;112933481;100.00;;
9973;;syscalls:sys_enter_getppid;112933481;100.00;;
"""


def test_each_state_is_told():
    found = {value.event: value for value in parse(OUTPUT)}
    assert found["cycles"] == Value("cycles", None, "events", "not supported", None, None)
    assert found["cache-misses"] == Value("cache-misses", None, "events", "not counted", 0, None)
    assert found["major-faults"].value == 0
    assert found["major-faults"].state == "counted"
    assert len(found) == 9


def test_a_counter_that_shared_says_for_how_long():
    (cycles,) = [v for v in parse(OUTPUT) if v.event == "cpu_core/cycles/"]
    assert cycles.value == 461729070471469
    assert (cycles.running_ns, cycles.enabled_ns) == (2_000_000, 4_000_000)


def test_clocks_are_in_ns_and_unrounded_where_they_can_be():
    clocks = {v.event: (v.value, v.unit) for v in parse(OUTPUT) if "clock" in v.event}
    # The second ran a quarter of the time: what it would have counted is all there is.
    assert clocks == {"task-clock": (112933481, "ns"), "task-clock:u": (1_000_000, "ns")}


def test_other_units_are_kept():
    (energy,) = [v for v in parse(OUTPUT) if v.unit == "Joules"]
    assert energy.value == 7


def test_an_event_that_could_not_be_asked_for_is_not_supported():
    assert parse("", ["mem-loads"]) == [
        Value("mem-loads", None, "events", "not supported", None, None)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no line of perf's",
        "1;;;1;100.00;;",
        "nan;;x;1;100.00;;",
        "-1;;x;1;100.00;;",
        "1e99999999;;x;1;100.00;;",
        "9" * 5000 + ";;x;1;100.00;;",
        ";;;;;;",
    ],
)
def test_a_line_without_a_count_gives_no_row(line):
    assert parse(line) == []


def test_numbers_that_do_not_fit():
    (value,) = parse(f"{'9' * 30};;x;{'9' * 30};0.01;;")
    assert value.value == value.running_ns == value.enabled_ns == (1 << 63) - 1


def test_counts_of_a_cgroup_have_its_name_in_the_line():
    line = "102;;page-faults;docker/0a1b;1567693;50.00;;"
    (value,) = parse(line, cgroup="docker/0a1b")
    assert (value.value, value.running_ns, value.enabled_ns) == (102, 1567693, 3135386)
    assert parse(line.replace("docker/0a1b;", ""), cgroup="docker/0a1b") == [value]


def test_rows_are_of_the_table():
    batch = rows([("job", value) for value in parse(OUTPUT)])
    assert batch.schema == TABLE.arrow_schema()
    assert batch.to_pylist()[0] == {
        "target": "job",
        "event": "cycles",
        "value": None,
        "unit": "events",
        "state": "not supported",
        "running_ns": None,
        "enabled_ns": None,
    }


def test_the_events_of_the_papers_table_are_counted():
    listed = {counter.event for counter in COUNTERS}
    # Table 5 names hardware events by the kind of core: cpu_core/cycles/ is cycles there.
    assert listed >= {
        "cycles", "instructions", "cache-misses", "page-faults", "minor-faults", "major-faults",
        "mem-loads", "mem-stores", "block:block_touch_buffer", "block:block_dirty_buffer",
        "block:block_rq_complete", "block:block_rq_insert", "block:block_rq_issue",
        "block:block_bio_backmerge", "block:block_bio_frontmerge", "block:block_bio_queue",
    }  # fmt: skip
