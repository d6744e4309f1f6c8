"""The kernel's counts of lost events, each once in the table, with its time if a stream has it."""

from types import SimpleNamespace

import pytest

from tracer.cli.recorded import loss_said, refuse_loss
from tracer.probes.errors import EventsLost
from tracer.probes.loss import Gap
from tracer.store.loss import NEW_CPUS, of_new_cpus, summary, uncounted

WHOLE = {"damaged": 0, "torn_bytes": 0, "full": []}
PERF = SimpleNamespace(name="perf-faults-cpu0", cpu=0, last_seen=900, events=5, **WHOLE)
FTRACE = SimpleNamespace(name="ftrace-target-cpu1", cpu=1, last_seen=800, events=1000, **WHOLE)
STREAMS = [PERF, FTRACE]


def test_losses_that_a_stream_has_placed_are_not_counted_again():
    gaps = [
        Gap("perf-faults-cpu0", 0, 100, 200, 1475, "buffer full"),
        Gap("ftrace-target-cpu1", 1, 100, 200, 23, "buffer overrun"),
    ]
    stats = {
        "perf-faults-cpu0": {"dropped events": 1475},
        "ftrace-target-cpu1": {"overrun": 23, "entries": 0},
    }
    assert uncounted(gaps, stats, STREAMS) == []


def test_the_rest_is_a_gap_without_a_place():
    gaps = [Gap("perf-faults-cpu0", 0, 100, 200, 1000, "buffer full")]
    stats = {
        "perf-faults-cpu0": {"dropped events": 1475},
        "ftrace-target-cpu1": {"overrun": 23, "entries": 7},
    }
    assert uncounted(gaps, stats, STREAMS) == [
        Gap("perf-faults-cpu0", 0, None, None, 475, "buffer full"),
        Gap("ftrace-target-cpu1", 1, None, None, 23, "buffer overrun"),
        Gap("ftrace-target-cpu1", 1, 800, None, 7, "never read"),
    ]


def test_a_gap_of_another_cause_does_not_stand_for_it():
    gaps = [Gap("ftrace-target-cpu1", 1, 100, 200, 23, "damaged page")]
    stats = {"ftrace-target-cpu1": {"overrun": 23}}
    assert len(uncounted(gaps, stats, STREAMS)) == 1


def test_bytes_that_were_read_but_are_not_in_the_file_are_counted():
    stats = {"ftrace-target-cpu1": {"read events": 1031}}
    expected = Gap("ftrace-target-cpu1", 1, 800, None, 31, "missing from file")
    assert uncounted([], stats, STREAMS) == [expected]
    # The number of events in a damaged page is unknown.
    damaged = SimpleNamespace(**{**vars(FTRACE), "damaged": 1})
    assert uncounted([], stats, [damaged]) == []


def test_the_rest_lies_where_the_buffer_was_seen_full():
    stats = {"perf-faults-cpu0": {"dropped events": 1475}}
    full = SimpleNamespace(**{**vars(PERF), "full": [(100, 200), (300, 400)]})
    assert uncounted([], stats, [full]) == [
        Gap("perf-faults-cpu0", 0, 100, 400, 1475, "buffer full")
    ]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([], "0 events lost"),
        ([5], "5 events lost in 1 gap (tracer info)"),
        ([5, 2], "7 events lost in 2 gaps (tracer info)"),
        ([5, None], "at least 5 events lost in 2 gaps (tracer info)"),
        ([None, None], "an unknown number of events lost in 2 gaps (tracer info)"),
    ],
)
def test_the_end_of_a_recording_says_how_much_of_the_loss_is_known(counts, said):
    gaps = [Gap("ftrace-cpu0", 0, 100, 200, count, "buffer overrun") for count in counts]
    assert loss_said(summary(gaps)) == said


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([5, 2], "7 events were lost in 2 gaps"),
        ([5, None], "at least 5 events were lost in 2 gaps"),
        ([None], "an unknown number of events were lost in 1 gap"),
    ],
)
def test_a_refused_loss_says_how_much_of_it_is_known(counts, said):
    gaps = [Gap("ftrace-cpu0", 0, 100, 200, count, "buffer overrun") for count in counts]
    with pytest.raises(EventsLost) as error:
        refuse_loss(summary(gaps))
    assert error.value.what == said


def test_a_recording_without_loss_is_not_refused():
    refuse_loss(summary([]))


def test_a_new_cpu_has_a_gap_in_each_kind_of_stream_but_in_those_of_all_cpus(tmp_path):
    (tmp_path / NEW_CPUS).write_text("[2,50]\n[3,700]\n")
    everywhere = SimpleNamespace(name="ebpf-target", cpu=-1)
    others = SimpleNamespace(name="perf-faults-cpu1", cpu=1)
    cause = "CPU came online during the recording"
    assert of_new_cpus(tmp_path, [*STREAMS, others, everywhere], True, 100) == [
        Gap("perf-faults-cpu2", 2, 100, None, None, cause),
        Gap("ftrace-target-cpu2", 2, 100, None, None, cause),
        Gap("callgraph", 2, 100, None, None, cause),
        Gap("perf-faults-cpu3", 3, 700, None, None, cause),
        Gap("ftrace-target-cpu3", 3, 700, None, None, cause),
        Gap("callgraph", 3, 700, None, None, cause),
    ]


def test_a_foreign_list_of_new_cpus_makes_no_more_gaps_than_there_can_be(tmp_path):
    (tmp_path / NEW_CPUS).write_text("[2,50]\n" * 10_000)
    streams = [SimpleNamespace(name=f"kind-{n}-cpu0", cpu=0) for n in range(10_000)]
    assert len(of_new_cpus(tmp_path, streams, False, 100)) == 16
