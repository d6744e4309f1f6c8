"""Event formats are read as the kernel writes them, and refused when they make no sense."""

import pytest

from tests.support.budget import within_budget
from tests.support.pages import HEADER_PAGE, SYS_ENTER, format_text
from tests.support.scheduling import LINUX_4_9, LINUX_6_18, SWITCH
from tracer.probes.backends.event_format import parse, parse_page
from tracer.probes.errors import BadTrace

WRITEBACK = format_text(
    "writeback_start",
    995,
    "char name[32] 8 32 0\nlong nr_pages 40 8 1\ndev_t sb_dev 48 4 0\nint reason 68 4 1",
    '"reason=%s", __print_symbolic(REC->reason, { 0, "background" }, { 0x2, "sync" }, '
    '{ 3, "periodic" }), (jiffies - REC->dirtied_when) / 250',
)


def test_fields_have_place_size_and_sign():
    event = parse("writeback:writeback_start", WRITEBACK)
    assert event.id == 995
    assert (event.fields["nr_pages"].offset, event.fields["nr_pages"].size) == (40, 8)
    assert event.fields["nr_pages"].signed
    assert not event.fields["sb_dev"].signed
    assert event.fields["name"].text
    assert not event.fields["reason"].text


def test_values_have_the_names_of_this_kernel():
    event = parse("writeback:writeback_start", WRITEBACK)
    assert event.symbols == {"reason": {0: "background", 2: "sync", 3: "periodic"}}


@pytest.mark.parametrize("kernel", [LINUX_6_18, LINUX_4_9], ids=["6.18", "4.9"])
def test_bits_have_the_names_of_this_kernel(kernel):
    event = parse(SWITCH, kernel.formats[SWITCH])
    assert event.flags == {"prev_state": {bit: name for name, bit in kernel.states.items()}}
    assert event.symbols == {}


@pytest.mark.parametrize(
    ("call", "flags"),
    [
        ('__print_flags(REC->x, "|", { 1, "a" }, { 0x20, "b" })', {"x": {1: "a", 32: "b"}}),
        ('__print_flags( REC->x & 0xff , "" ,{1,"a"},)', {"x": {1: "a"}}),
        ('__print_flags(REC->x, " | ", { 1UL << 3, "a" }, { 2, "b" })', {"x": {2: "b"}}),
        ('__print_flags(REC->x, "|", { 1, "a" }), __print_flags(REC->y, "|", { 2, "b" })',
         {"x": {1: "a"}, "y": {2: "b"}}),
        ('__print_symbolic(REC->x, { 1, "a" }), __print_flags(REC->y, "|", { 2, "b" })',
         {"y": {2: "b"}}),
        ('__print_flags((unsigned long)REC->x, "|", { 1, "a" })', {}),
        ('__print_flags(REC->x, "a long delimiter", { 1, "a" })', {}),
        ('__print_flags(REC->x, "|", { 1, "a" }', {}),
        ('__print_flags(REC->x, "|")', {}),
        ('__print_flags(REC->x ' + "(" * 2000 + ', "|", { 1, "a" })', {}),
        ('__print_flags(REC->x, "|", { 99999999999999999999, "a" }, { 0x11111111111111111, "b" })',
         {"x": {}}),
    ],
)  # fmt: skip
def test_flags_are_those_of_a_call_that_the_kernel_prints(call, flags):
    assert parse("x:y", format_text("x", 1, "int x 8 4 1", f'"%s", {call}')).flags == flags


def test_ticks_a_second_come_from_the_print_format():
    assert parse("writeback:writeback_start", WRITEBACK).jiffies_hz == 250
    assert parse("raw_syscalls:sys_enter", SYS_ENTER).jiffies_hz is None


def test_a_data_loc_field_is_one():
    text = format_text("sched_process_exec", 365, "__data_loc char[] filename 8 4 0")
    field = parse("sched:sched_process_exec", text).fields["filename"]
    assert field.data_loc
    assert field.text


def test_the_newest_name_of_a_field_is_taken():
    event = parse("writeback:writeback_start", WRITEBACK)
    assert event.first(("bdi", "name")).name == "name"
    assert event.first(("bdi",)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: x\nformat:\n",
        "ID: 70000\n",
        "ID: -1\n",
        format_text("x", 1, "long id 70000 8 1"),
        "ID: 1\n" + "x" * (1 << 20),
        "ID: " + "9" * 5000 + "\n",
        format_text("x", 1, "__data_loc char[] name 8 2 0"),
        "ID: 1\n\tfield: ;\toffset:8;\tsize:8;\tsigned:1;\n",
        "ID: 1\n\tfield:[5];\toffset:8;\tsize:8;\tsigned:1;\n",
    ],
)
def test_a_format_that_makes_no_sense_is_refused(text):
    with pytest.raises(BadTrace):
        parse("x:y", text)


MANY = 200_000


@pytest.mark.parametrize(
    "text",
    [
        'print fmt: "", __print_symbolic(REC->x, ' + "{} " * 60,
        'print fmt: "", __print_symbolic(REC->x, ' + '{ 1, "a" } ,' * (MANY // 12),
        'print fmt: "", __print_flags(REC->x, "|", ' + "{} " * (MANY // 3),
        'print fmt: "", __print_flags(REC->x, "|", ' + '{ 1, "a" } ,' * (MANY // 12),
        'print fmt: "", ' + '__print_flags(REC->x, "|", {},' * (MANY // 30),
        'print fmt: "", ' + "__print_flags(REC->x" * (MANY // 20),
        'print fmt: "", __print_flags(REC->x' + "(" * MANY,
        'print fmt: "", __print_flags(' + " " * MANY,
        'print fmt: "", __print_flags(REC->' + "x" * MANY,
        'print fmt: "", __print_flags(REC->x, "|", {' + '{ 1, "' * (MANY // 6),
        'print fmt: "", __print_flags(REC->x, "|", { 1, "' + "a" * MANY,
        "\n" * MANY,
        "\tfield:" * (MANY // 7),
        "\tfield:" + "[" * MANY + ";\toffset:8;\tsize:8;\tsigned:1;\n",
    ],
    ids=["braces", "pairs", "flags: braces", "flags: pairs", "flags: calls", "flags: starts",
         "flags: mask", "flags: blanks", "flags: name", "flags: unbalanced", "flags: label",
         "blank lines", "fields", "brackets"],
)  # fmt: skip
def test_a_format_that_fits_no_pattern_is_read_within_the_budget(text):
    assert within_budget(parse, "x:y", f"ID: 1\n{text}") is None
    assert within_budget(parse_page, text) is not None


def test_numbers_are_as_the_kernel_prints_them():
    pairs = '{ -1, "none" }, { 010, "ten" }, { 0xffffffffffffffff, "all" }, { 9e9, "float" }'
    text = format_text("x", 1, "int x 8 4 1", f'"%s", __print_symbolic(REC->x, {pairs})')
    long = text.replace("9e9", "9" * 5000).replace("offset:8;", f"offset:{'8' * 5000};")
    assert parse("x:y", text).symbols == {"x": {-1: "none", 10: "ten", (1 << 64) - 1: "all"}}
    assert "x" not in parse("x:y", long).fields


def test_the_page_layout_is_read():
    layout = parse_page(HEADER_PAGE)
    assert (layout.page_bytes, layout.data_offset, layout.commit_offset) == (4096, 16, 8)


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEADER_PAGE.replace("size:4080", "size:9999999"),
        HEADER_PAGE.replace("size:4080", f"size:{'9' * 5000}"),
        HEADER_PAGE.replace("u64 timestamp", " "),
        HEADER_PAGE.replace("offset:16", "offset:0"),
        HEADER_PAGE.replace("size:8;	signed:1", "size:3;	signed:1"),
        HEADER_PAGE.replace("size:4080", "size:4081"),
        HEADER_PAGE.replace("offset:16;	size:4080", "offset:18;	size:4080"),
        HEADER_PAGE.replace("timestamp;	offset:0", "timestamp;	offset:12"),
    ],
)
def test_a_page_layout_that_makes_no_sense_is_refused(text):
    with pytest.raises(BadTrace):
        parse_page(text)
