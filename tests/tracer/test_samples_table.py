"""Readings become the table `samples`: rates by true intervals, torn ends, hostile files."""

import json

import pyarrow.parquet as pq
import pytest

from tracer.probes.errors import BadTrace
from tracer.store.samples import FILE, decode

S = 1_000_000_000
MANIFEST = {"samples": {"hz": 1.0}, "targets": [{"name": "job"}]}


@pytest.fixture
def table(tmp_path):
    """The rows of a file of these lines."""

    def make(*lines, end="\n"):
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        (tmp_path / FILE).write_text(text + end)
        decode(tmp_path, MANIFEST, tmp_path)
        rows = pq.read_table(tmp_path / "samples.parquet").to_pylist()
        return [tuple(row.values()) for row in rows]

    return make


def test_a_rate_is_the_growth_over_the_true_time_between_two_readings(table):
    assert table(
        [1 * S, -1, [["pgfault", None, 1000]]],
        [3 * S, -1, [["pgfault", None, 1046]]],
        [3 * S + S // 2, -1, [["pgfault", None, 1048]]],
    ) == [
        (1 * S, None, "pgfault", None, 1000.0, "faults"),
        (3 * S, None, "pgfault", None, 1046.0, "faults"),
        (3 * S, None, "pgfault_rate", None, 23.0, "faults/s"),
        (3 * S + S // 2, None, "pgfault", None, 1048.0, "faults"),
        (3 * S + S // 2, None, "pgfault_rate", None, 4.0, "faults/s"),
    ]


def test_the_last_reading_has_no_rate_if_it_follows_another_at_once(table):
    """The kernel counts in ticks: 10 ms of CPU time within 2 ms say nothing."""
    rows = table(
        [1 * S, -1, [["cpu_time", None, 10.0]]],
        [2 * S, -1, [["cpu_time", None, 11.0]]],
        [2 * S + S // 500, -1, [["cpu_time", None, 11.01]]],
        [3 * S, -1, [["cpu_time", None, 12.0]]],
    )
    assert [(row[0], row[4]) for row in rows if row[2] == "cpu_use"] == [
        (2 * S, 100.0), (3 * S, 100.0),
    ]  # fmt: skip
    assert [row[4] for row in rows if row[2] == "cpu_time"] == [10, 11, 11.01, 12]


@pytest.mark.parametrize(("long_ms", "known"), [(150, False), (200, True)])
def test_a_short_recording_has_no_use_of_cpus_since_it_is_counted_in_ticks(table, long_ms, known):
    """A thread that runs all the time may have a tick more or less in 15: 107 % of a CPU."""
    end = S + long_ms * S // 1000
    rows = table(
        [1 * S, 0, [["cpu_time", None, 0.0], ["minor_faults", None, 4]]],
        [1 * S, -1, [["iowait_time", None, 3.0]]],
        [end, 0, [["cpu_time", None, long_ms / 1000 + 0.01], ["minor_faults", None, 50]]],
        [end, -1, [["iowait_time", None, 3.0]]],
    )
    rates = {row[2] for row in rows} - {"cpu_time", "minor_faults", "iowait_time"}
    assert rates == {"minor_fault_rate"} | ({"cpu_use", "iowait"} if known else set())
    assert [row[4] for row in rows if row[2] == "cpu_time"] == [0.0, long_ms / 1000 + 0.01]


def test_the_use_of_cpus_changes_in_steps_at_a_high_rate_of_sampling(tmp_path):
    lines = [[S + n * S // 100, 0, [["cpu_time", None, n / 100]]] for n in range(3)]
    (tmp_path / FILE).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    decode(tmp_path, {**MANIFEST, "samples": {"hz": 100.0}}, tmp_path)
    rows = pq.read_table(tmp_path / "samples.parquet").to_pylist()
    assert [row["value"] for row in rows if row["name"] == "cpu_use"] == pytest.approx([100, 100])


def test_counters_of_targets_and_instances_are_kept_apart(table):
    rows = table(
        [1 * S, 0, [["cpu_time", None, 1.0]]],
        [1 * S, -1, [["cpu_time", None, 50.0], ["disk_reads", "a", 7], ["disk_reads", "b", 9]]],
        [2 * S, 0, [["cpu_time", None, 1.5]]],
        [2 * S, -1, [["cpu_time", None, 52.0], ["disk_reads", "a", 7], ["disk_reads", "b", 32]]],
    )
    assert [row[1:5] for row in rows if row[2] in ("cpu_use", "read_iops")] == [
        ("job", "cpu_use", None, 50.0),
        (None, "cpu_use", None, 200.0),
        (None, "read_iops", "a", 0.0),
        (None, "read_iops", "b", 23.0),
    ]


def test_a_counter_that_was_set_back_has_no_rate_for_that_time(table):
    rows = table(*([t * S, -1, [["disk_reads", "sdb", n]]] for t, n in ((1, 90), (2, 4), (3, 10))))
    assert [(row[0], row[4]) for row in rows if row[2] == "read_iops"] == [(3 * S, 6.0)]


def test_a_line_that_a_killed_recorder_did_not_end_is_left_out(table):
    assert table([S, -1, [["buffers", None, 5]]], '[2000000000,-1,[["buff', end="") == [
        (S, None, "buffers", None, 5.0, "bytes")
    ]


def test_a_recording_without_samples_has_no_table(tmp_path):
    assert decode(tmp_path, {"samples": {"hz": 0.0}, "targets": []}, tmp_path) == {}
    assert decode(tmp_path, {"targets": []}, tmp_path) == {}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ([S, 1, [["rss", None, 1]]], "target 1, which does not exist"),
        ([S, -1, [["nonsense", None, 1]]], "an unknown series 'nonsense'"),
        ('[1, -1, [["rss", null, NaN]]]', "finite"),
        ([-S, -1, []], "greater than or equal to 0"),
        ([S, -1, [["rss", None, "many"]]], "valid number"),
        ("nothing of the kind", "damaged"),
        ("[" * (17 << 20), "a line without an end"),
    ],
)
def test_a_hostile_file_is_refused_with_what_is_wrong(table, line, what):
    with pytest.raises(BadTrace, match=what):
        table(line)


def test_a_link_in_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "other").write_text("")
    (tmp_path / FILE).symlink_to("other")
    with pytest.raises(BadTrace, match="not a regular file"):
        decode(tmp_path, MANIFEST, tmp_path)
