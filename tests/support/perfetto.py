"""Perfetto files as a reader sees them: decoded by the project's own protos."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Slice:
    """A slice, and how deep it lies on its track."""

    track: int
    name: str
    start: int
    end: int
    depth: int
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Drawn:
    """The content of a Perfetto file."""

    tracks: dict[int, Any] = field(default_factory=dict)
    """Descriptors by uuid."""
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    counters: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)

    def named(self, name: str) -> list[int]:
        """Tracks of this name."""
        return [uuid for uuid, track in self.tracks.items() if track.name == name]

    def on(self, *tracks: int) -> list[Slice]:
        """Slices on these tracks, by their begin."""
        return sorted(
            (s for s in self.slices if s.track in tracks), key=lambda s: (s.start, s.depth)
        )


def packets(path: Path) -> list[Any]:
    """The packets of a file."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    return list(trace.packet)


def read(path: Path) -> Drawn:
    """Decode a file as Perfetto's trace processor does: in order of time, with interned names."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    drawn = Drawn()
    names: dict[str, dict[int, str]] = {}
    events = []
    clock = 0
    for packet in packets(path):
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("clock_snapshot"):
            assert packet.clock_snapshot.primary_trace_clock == 3
            for one in packet.clock_snapshot.clocks:
                drawn.clocks[one.clock_id] = one.timestamp
        if packet.sequence_flags & 1:
            names = {"event_names": {}, "event_categories": {}}
            names |= {"debug_annotation_names": {}, "debug_annotation_string_values": {}}
        if packet.HasField("trace_packet_defaults"):
            clock = packet.trace_packet_defaults.timestamp_clock_id
        for kind, known in names.items():
            for entry in getattr(packet.interned_data, kind):
                text = entry.name if hasattr(entry, "name") else entry.str.decode()
                known[entry.iid] = text
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in drawn.tracks
            assert not descriptor.parent_uuid or descriptor.parent_uuid in drawn.tracks
            drawn.tracks[descriptor.uuid] = descriptor
        if packet.HasField("track_event"):
            assert clock == 3 and packet.sequence_flags & 2
            event = packet.track_event
            assert event.track_uuid in drawn.tracks
            name = names["event_names"][event.name_iid] if event.name_iid else ""
            assert all(iid in names["event_categories"] for iid in event.category_iids)
            notes = {}
            for note in event.debug_annotations:
                unsigned = note.HasField("uint_value")
                value: Any = note.uint_value if unsigned else note.int_value
                if note.HasField("string_value_iid"):
                    value = names["debug_annotation_string_values"][note.string_value_iid]
                notes[names["debug_annotation_names"][note.name_iid]] = value
            events.append((packet.timestamp, event, name, notes))
    stacks: dict[int, list[Slice]] = {}
    for ts, event, name, notes in sorted(events, key=lambda e: e[0]):
        stack = stacks.setdefault(event.track_uuid, [])
        one = Slice(event.track_uuid, name, ts, -1, len(stack), notes)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(one)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            done = stack.pop()
            done.end = ts
            drawn.slices.append(done)
        elif event.type == TrackEvent.TYPE_INSTANT:
            drawn.instants.append(one)
        else:
            values = drawn.counters.setdefault(event.track_uuid, [])
            values.append((ts, event.double_counter_value))
    assert not any(stacks.values()), "slices that never end"
    return drawn
