"""Chunks of ring records, made by hand, decode into what was put in; hostile ones do no harm."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.probes.backends import chunks, event_format
from tracer.probes.backends.chunks import ChunkStream
from tracer.probes.backends.ebpf import records as bpf
from tracer.probes.backends.perf_events import records as perf
from tracer.probes.backends.timeline import Timeline
from tracer.probes.errors import BadTrace

MINOR_ID = event_format.parse(perf.MINOR, perf.format_text(perf.MINOR)).id

FAULTS = perf.decoder(perf.MINOR)


def sample(tid, time, address, ip=0x1000, cpu=1, misc=2):
    return struct.pack("<IHHQIIQQII", 9, misc, 48, ip, tid - 1, tid, time, address, cpu, 0)


def mapping(tid, time, start, size, path):
    name = path.encode() + b"\0"
    name += b"\0" * (-len(name) % 8)
    body = struct.pack("<IIQQQIIQQII", tid, tid, start, size, 0, 8, 1, 77, 0, 5, 2) + name
    trailer = struct.pack("<IIQII", tid, tid, time, 0, 0)
    return struct.pack("<IHH", 10, 0, 8 + len(body) + 24) + body + trailer


def lost(time, count):
    return struct.pack("<IHHQQ", 2, 0, 48, 0, count) + struct.pack("<IIQII", 1, 1, time, 0, 0)


def bpf_record(tid, time, kind, payload, flags=0, cpu=0):
    body = struct.pack("<QIIHHI", time, tid, tid, kind, cpu, 0) + payload
    size = len(body)
    return struct.pack("<II", size | flags, 0) + body + b"\0" * (-size % 8)


def chunk(data, start, end, kind=chunks.DATA, cpu=0, count=0):
    return chunks.header(kind, cpu, len(data), start, end, count) + data


@pytest.fixture
def stream(tmp_path):
    opened = []

    def make(data, decoder=FAULTS, name="perf-faults-cpu0"):
        path = tmp_path / f"{len(opened)}.raw"
        path.write_bytes(data)
        opened.append(ChunkStream(name, 0, path, decoder))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def events(*streams):
    timeline = Timeline(list(streams))
    found = []
    for batch in timeline.batches():
        rows = (batch.ts, batch.tid, batch.type, batch.cpu)
        found += list(zip(*(column.tolist() for column in rows), strict=True))
    return found, timeline


def test_samples_of_perf(stream):
    data = sample(7, 100, 0x2000) + sample(8, 150, 0x3000, cpu=3)
    found, timeline = events(stream(chunk(data, 0, 200)))
    assert found == [(100, 7, MINOR_ID, 1), (150, 8, MINOR_ID, 3)]
    assert timeline.gaps == []


def test_mappings_carry_their_path(stream):
    one = stream(chunk(mapping(5, 60, 0x7000, 4096, "/lib/libtorch.so"), 0, 70))
    batch = next(Timeline([one]).batches())
    parsed = event_format.parse(perf.MAPPING, perf.format_text(perf.MAPPING))
    start = int(batch.offset[0])
    payload = batch.payload[start : start + int(batch.length[0])].tobytes()
    assert batch.type[0] == parsed.id
    assert payload[parsed.fields["path"].offset :].rstrip(b"\0") == b"/lib/libtorch.so"
    assert struct.unpack_from("<Q", payload, parsed.fields["address"].offset)[0] == 0x7000


def test_records_of_bpf(stream):
    data = (
        bpf_record(7, 100, 42, b"12345678")
        + bpf_record(9, 105, 43, b"")
        + bpf_record(8, 103, 42, b"x" * 11, flags=bpf.DISCARDED)
        + bpf_record(8, 104, 42, b"x" * 11, cpu=5)
    )
    found, _ = events(stream(chunk(data, 0, 200), bpf.decode))
    # In time order, whatever the order of reservation.
    assert found == [(100, 7, 42, 0), (104, 8, 42, 5), (105, 9, 43, 0)]


def test_a_run_of_finished_records_ends_at_the_first_busy_one():
    ring = bpf_record(1, 1, 1, b"a" * 8) + bpf_record(1, 2, 1, b"") + bpf_record(
        1, 3, 1, b"", flags=bpf.BUSY
    )  # fmt: skip
    words = np.frombuffer(ring.ljust(4096, b"\0") * 2, "<u4")
    one, two, three = 40, 32, 32
    assert bpf.whole_records(words, 0, one + two + three, 4096) == (one + two, 2)
    assert bpf.whole_records(words, 0, one, 4096) == (one, 1)
    # Positions never wrap, places in the ring do.
    far = 4096 * 9
    assert bpf.whole_records(words, far, far + one + two, 4096) == (far + one + two, 2)


def test_discarded_records_do_not_count_as_left_in_the_ring():
    ring = bpf_record(1, 1, 1, b"", flags=bpf.DISCARDED) + bpf_record(1, 2, 1, b"")
    words = np.frombuffer(ring.ljust(4096, b"\0") * 2, "<u4")
    assert bpf.whole_records(words, 0, len(ring), 4096) == (len(ring), 1)


def test_lost_records_are_gaps_with_place_and_count(stream):
    data = sample(7, 100, 0x2000) + lost(180, 23) + sample(7, 181, 0x2000)
    raw = chunk(data, 0, 200) + chunk(b"", 300, 350, chunks.LOST, cpu=3, count=101)
    _, timeline = events(stream(raw))
    found = {(g.cpu, g.start, g.end, g.count) for g in timeline.gaps}
    assert found == {(0, 100, 180, 23), (3, 300, 350, 101)}


def test_streams_of_every_kind_come_in_time_order(stream):
    rng = np.random.default_rng(23)
    times = np.sort(rng.integers(0, 10_000, 900))
    made = []
    for number in range(3):
        data, start = b"", 0
        for part in np.array_split(times[number::3], 7):
            body = b"".join(sample(number + 2, int(t), 0) for t in part)
            data += chunk(body, start, 10_000)
            start = int(part[-1])
        made.append(stream(data))
    found, timeline = events(*made)
    assert [row[0] for row in found] == times.tolist()
    assert timeline.units == 21


def test_no_more_chunks_are_looked_at_ahead_than_are_decoded_next(stream):
    body = sample(7, 100, 0x2000)
    # Ring looks that found nothing have no bytes.
    one = stream(b"".join(chunk(body, n, n) + chunk(b"", n, n) for n in range(2003)))
    starts, sizes = one.ahead(23 * len(body))
    assert int(sizes.sum()) == 24 * len(body)
    assert starts.tolist() == [n // 2 for n in range(47)]
    assert len(one.decode(47)) == 24
    every, _ = one.ahead(1 << 40)
    assert len(every) == 2 * 2003 - 47
    assert len(one.decode(len(every))) == 2003 - 24
    assert len(one.ahead(1)[0]) == 0


def test_a_torn_last_chunk_is_left_out(stream):
    whole = chunk(sample(7, 100, 0), 0, 200)
    one = stream(whole + chunk(sample(7, 300, 0), 200, 400)[:-5])
    assert [row[0] for row in events(one)[0]] == [100]
    assert one.torn_bytes == len(whole) - 5


@given(st.binary(max_size=400), st.integers(0, 2**31), st.booleans())
def test_any_records_decode_without_reading_beyond_them(noise, seed, of_bpf):
    good = bpf_record(3, 5, 9, b"abcdefgh") if of_bpf else sample(3, 5, 0)
    data = bytearray(good * 3 + noise)
    rng = np.random.default_rng(seed)
    for at in rng.integers(0, len(data), 6):
        data[at] = rng.integers(0, 256)
    decode = bpf.decode if of_bpf else perf.decoder(perf.MAJOR)
    batch, _, _ = decode(np.frombuffer(bytes(data), np.uint8))
    assert (batch.offset >= 0).all()
    assert (batch.offset + batch.length <= len(data)).all()


@given(st.binary(max_size=300))
def test_any_file_opens_as_some_chunks_and_a_torn_end(tmp_path_factory, noise):
    path = tmp_path_factory.mktemp("noise") / "x.raw"
    whole = chunk(sample(7, 100, 0), 0, 200)
    path.write_bytes(whole + noise)
    one = ChunkStream("x", 0, path, perf.decoder(perf.MINOR))
    assert one.torn_bytes == len(noise) or noise.startswith(whole[:4])
    for _ in Timeline([one]).batches():
        pass
    one.close()


def test_a_link_is_refused(tmp_path):
    (tmp_path / "x.raw").symlink_to("/etc/passwd")
    with pytest.raises(BadTrace):
        ChunkStream("x", 0, tmp_path / "x.raw", perf.decoder(perf.MINOR))
