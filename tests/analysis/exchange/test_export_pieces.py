"""Long tracks in Perfetto's format: written piece by piece."""

import io
import tracemalloc

import numpy as np
import pytest

from tests.support import perfetto
from tests.support.budget import run_within
from tests.support.traces import make_trace
from tracer.analysis.exchange.exporting import export
from tracer.analysis.exchange.marks import Kind, Marks, Texts, Track, What
from tracer.analysis.exchange.perfetto import (
    MOST_DECLARED_BYTES,
    MOST_MARKS,
    MOST_NAMES_BYTES,
    PerfettoWriter,
)
from tracer.analysis.exchange.perfetto_events import most_bytes
from tracer.analysis.exchange.tracks import MOST_LANES, Lanes, crowded
from tracer.store.trace import Trace


class Sink(io.RawIOBase):
    """Counts what it is given and keeps nothing: how many bytes at most at once."""

    most = total = 0

    def writable(self):
        return True

    def write(self, data):
        self.most = max(self.most, len(data))
        self.total += len(data)
        return len(data)


def slices(count, names, notes=("file",)):
    """Makes `count` slices of 10 ns, one after another, with these names in turn."""
    text = Texts(np.arange(count, dtype=np.int32) % len(names), names)
    return Marks(
        What.SLICES, "x", np.ones(count, np.int64), 100 * np.arange(count), text,
        np.full(count, 10), texts=dict.fromkeys(notes, text),
    )  # fmt: skip


def most_held(batches):
    """Write so many batches of marks to Perfetto's format; returns the most bytes held at once."""
    sink = Sink()
    writer = PerfettoWriter(sink, 0, None)
    writer.track(Track(1, Kind.SLICES, "x"))
    writer.marks(slices(2 * MOST_MARKS, ["a"]))  # what is made once
    marks = slices(2 * MOST_MARKS, ["a"])
    tracemalloc.start()
    for _ in range(batches):
        writer.marks(marks)
    held = tracemalloc.get_traced_memory()[1]
    assert sink.most <= most_bytes(MOST_MARKS, 1)
    assert sink.total > 50 * (batches + 1) * MOST_MARKS
    return held


class TestPerfettoInPieces:
    def test_memory_does_not_grow_with_the_marks(self):
        # In processes of their own: other threads of this one hold memory, too.
        few, many = (run_within(1 << 30, most_held, batches) for batches in (1, 20))
        assert many <= few + MOST_MARKS  # a byte a mark of one piece

    @pytest.mark.slow
    def test_long_names_are_forgotten_and_declared_in_packets_of_some_length(self, tmp_path):
        long = 1000
        count = 3 * MOST_MARKS
        names = [f"{n:0{long}}" for n in range(count)]
        with (tmp_path / "out").open("wb") as file:
            writer = PerfettoWriter(file, 0, None)
            writer.track(Track(1, Kind.SLICES, "x"))
            writer.marks(slices(count, names, notes=()))
        known, most = 0, 0
        for packet in perfetto.packets(tmp_path / "out"):
            assert packet.ByteSize() < MOST_DECLARED_BYTES + 2 * long
            if packet.sequence_flags & 1:
                known = 0
            known += sum(len(one.name) for one in packet.interned_data.event_names)
            most = max(most, known)
        assert most <= MOST_NAMES_BYTES + MOST_MARKS * long
        found = perfetto.read(tmp_path / "out")
        assert sorted(s.name for s in found.slices) == names

    def test_pieces_are_what_the_whole_is(self, tmp_path):
        count = 2 * MOST_MARKS + 7
        names = [f"name {n}" for n in range(23)]
        with (tmp_path / "out").open("wb") as file:
            writer = PerfettoWriter(file, 0, None)
            writer.track(Track(1, Kind.SLICES, "x"))
            writer.marks(slices(count, names))
        found = perfetto.read(tmp_path / "out").slices
        assert [(s.name, s.start, s.end, s.notes) for s in found] == [
            (names[n % 23], 100 * n, 100 * n + 10, {"file": names[n % 23]}) for n in range(count)
        ]


def exported_rows(folder, format):
    """Export the trace in a folder; returns the rows, or marks, of its page faults."""
    with Trace(folder) as trace:
        said = export(trace, format, folder.parent / "out")
    return said["marks" if format == "perfetto" else "page_faults"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["csv", "perfetto"])
def test_long_texts_are_exported_a_few_at_a_time(tmp_path, format):
    """A file of some kilobytes has a name of 64 KB in each of 8,000 rows: half a gigabyte."""
    path = "x" * 65_000
    faults = [{"ts": n, "pid": 7, "tid": 7, "user": True, "file": path} for n in range(8000)]
    with make_trace(tmp_path / "t", {"page_faults": faults}) as trace:
        folder = trace.folder
    assert run_within(1 << 30, exported_rows, folder, format) == len(faults)


class TestLanes:
    def test_slices_without_a_lane_are_instants_that_tell_their_duration(self):
        many = slices(MOST_LANES + 3, ["a", "b"])
        many.ts, last = np.arange(len(many)), len(many) - 1
        many.dur = np.full(len(many), 10 * len(many))
        many.dur[5] = last - 5  # ends as the last one begins
        of = Lanes()
        lanes = [of.lane(ts, ts + dur) for ts, dur in zip(many.ts.tolist(), many.dur, strict=True)]
        assert lanes == [*range(MOST_LANES), MOST_LANES, MOST_LANES, 5]
        of_a_lane, instants = crowded(many, np.array(lanes))
        assert of_a_lane.ts.tolist() == [*range(MOST_LANES), last]
        assert (of_a_lane.what, instants.what, instants.dur) == (What.SLICES, What.INSTANTS, None)
        assert instants.ts.tolist() == [MOST_LANES, MOST_LANES + 1]
        values, there = instants.numbers["dur_ns"]
        assert (values.tolist(), there.tolist()) == ([10 * len(many)] * 2, [True] * 2)
        (alone,) = crowded(many, np.zeros(len(many), np.int64))
        assert len(alone) == len(many)
