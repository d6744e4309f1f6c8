"""Raw data of tracepoints tell device and operation, by the event's own format alone."""

import pytest

from tests.support import request_format
from tests.support.perf_stream import DUMMY, KERNEL, PerfStream
from tests.support.request_format import NUMBER, raw
from tracer.probes.backends.perf_tools.stacks import CallGraphs
from tracer.probes.backends.perf_tools.told import told_by_number
from tracer.probes.errors import BadTrace

INSERT = "block:block_rq_insert"
CHAIN = [KERNEL, 0xFFFFFFFF81000110]


def stream(number=NUMBER, **options):
    return PerfStream().event(INSERT, 7, config=number, **options)


def told(made, tmp_path, text=request_format.TEXT):
    """{(dev, operation): count}, every batch added up."""
    made.write(tmp_path / "perf.data")
    places = told_by_number([{INSERT: text}])
    found = {}
    for batch in CallGraphs(tmp_path / "perf.data", None, told=places).read([]):
        for row in batch.to_pylist():
            key = row["dev"], row["operation"]
            found[key] = found.get(key, 0) + row["count"]
    return found


def test_requests_are_counted_by_device_and_operation(tmp_path):
    made = stream()
    wanted = {
        (7, 0, b"WS"): 23,
        (7, 1, b"WS"): 11,
        (7, 0, b"FWFSM"): 7,  # a flush before the write and FUA: a write
        (7, 0, b"RA"): 5,
        (7, 0, b"FF"): 3,
        (7, 0, b"DS"): 2,
        (259, 1048575, b"N"): 1,
    }
    for request, count in wanted.items():
        for _ in range(count):
            made.sample(1, CHAIN, raw=raw(*request))
    assert told(made, tmp_path) == {
        ("7:0", "write"): 30,
        ("7:1", "write"): 11,
        ("7:0", "read"): 5,
        ("7:0", "flush"): 3,
        ("7:0", "discard"): 2,
        ("259:1048575", "other"): 1,
    }


def test_the_format_says_where_the_fields_lie(tmp_path):
    moved = request_format.TEXT.replace("dev;\toffset:8;", "dev;\toffset:40;").replace(
        "rwbs[10];\toffset:34;", "rwbs[10];\toffset:4;"
    )
    data = bytearray(64)
    data[40:44] = (8 << 20 | 16).to_bytes(4, "little")
    data[4:6] = b"RM"
    made = stream().sample(1, CHAIN, raw=bytes(data))
    assert told(made, tmp_path, moved) == {("8:16", "read"): 1}


def test_a_text_behind_an_offset(tmp_path):
    text = request_format.TEXT.replace("char rwbs[10];\toffset:34;\tsize:10", "__data_loc char[] "
                                       "rwbs;\toffset:60;\tsize:4")  # fmt: skip
    place = (64 | 4 << 16).to_bytes(4, "little")
    made = stream()
    for after in (b"W\0\0\0", b"W\0"):  # the second has not the four bytes that it claims
        made.sample(1, CHAIN, raw=raw(7, 0, b"R")[:60] + place + after)
    assert told(made, tmp_path, text) == {("7:0", "write"): 1, ("7:0", None): 1}


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("dev_t dev;", "unsigned int dev;"),  # a number that happens to be called dev
        ("dev_t dev;\toffset:8;\tsize:4;", "dev_t dev;\toffset:8;\tsize:8;"),
        ("dev_t dev;", "dev_t other;"),
    ],
)
def test_a_field_that_is_no_device(tmp_path, field, other):
    assert field in request_format.TEXT
    made = stream().sample(1, CHAIN, raw=raw(7, 0, b"W"))
    assert told(made, tmp_path, request_format.TEXT.replace(field, other)) == {(None, "write"): 1}


def test_the_device_of_a_read_fault_has_another_name(tmp_path):
    text = request_format.TEXT.replace("dev_t dev;", "dev_t s_dev;")
    made = stream().sample(1, CHAIN, raw=raw(8, 1, b"R"))
    assert told(made, tmp_path, text) == {("8:1", "read"): 1}


@pytest.mark.parametrize(
    "made",
    [
        stream(number=NUMBER + 1),  # an event whose format the trace lacks
        PerfStream().event(INSERT, 7, config=NUMBER, sample_type=DUMMY | 1 << 8),  # without raw
    ],
)
def test_an_event_without_format_or_raw_data_tells_nothing(tmp_path, made):
    made.sample(1, CHAIN, raw=raw(7, 0, b"W"))
    assert told(made, tmp_path) == {(None, None): 1}


def test_raw_data_that_end_early_or_lie_about_their_size(tmp_path):
    whole = raw(7, 3, b"WS")
    made = stream()
    for size in (0, 8, 11):
        made.sample(1, CHAIN, raw=whole[:size])
    for size in (12, 43):
        made.sample(2, CHAIN, raw=whole[:size])
    made.sample(3, CHAIN, raw=whole[:44])
    found = told(made, tmp_path)
    assert found == {(None, None): 3, ("7:3", None): 2, ("7:3", "write"): 1}

    # A chain that claims more entries than there are bytes leaves no raw data; a size that is
    # larger than the record ends with the record.
    sample = stream().sample(1, CHAIN, raw=whole).data[len(stream().data) :]
    chain = len(sample) - len(whole) - 4 - 16 - 8
    lying = [
        (chain, (1 << 64) - 1, 8, (None, None)),
        (chain + 24, (1 << 32) - 1, 4, ("7:3", "write")),
    ]
    for place, value, size, expected in lying:
        data = sample[:place] + value.to_bytes(size, "little") + sample[place + size :]
        made = stream()
        made.data += data
        assert told(made, tmp_path) == {expected: 1}, place


def test_an_rwbs_without_end_and_one_that_is_no_text(tmp_path):
    made = stream()
    for rwbs in (b"W" * 10, b"\xff" * 10, b"", b"\x1b[31m"):
        made.sample(1, CHAIN, raw=raw(7, 0, rwbs))
    assert told(made, tmp_path) == {
        ("7:0", "write"): 1,
        ("7:0", "other"): 2,
        ("7:0", None): 1,
    }


@pytest.mark.parametrize("text", ["", "ID: 99999\n", "x" * (1 << 19)])
def test_a_format_that_is_none(text):
    with pytest.raises(BadTrace, match="format of event"):
        told_by_number([{INSERT: text}])
