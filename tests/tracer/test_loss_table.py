"""What the kernel counted as lost is in the table once, placed where a stream tells the place."""

from probes.loss import Gap
from tracer.store.loss import uncounted

STREAMS = {"perf-faults-cpu0": (0, 900), "ftrace-target-cpu1": (1, 800)}


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
