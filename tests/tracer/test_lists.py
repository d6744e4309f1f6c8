"""Lists beside the raw streams: no longer than what is read again, and what is left out is said."""

import pytest

from tests.support.pages import Page, enter, leave, raw_trace
from tracer.probes.errors import BadTrace
from tracer.session.marks import Marks
from tracer.store import left_out, listed
from tracer.store.lists import DescriptorFacts, MarkFacts, MemberFacts
from tracer.store.trace import Trace

ENTRIES = [(number, number, -1, -1, 0, False) for number in range(1009)]


@pytest.fixture
def small(monkeypatch):
    """Lists have no room for more than some entries."""
    monkeypatch.setattr(listed, "MOST_BYTES", 1 << 14)


def written_whole(raw):
    listed.write(raw, "members.json", ENTRIES)
    return listed.read(raw / "members.json", MemberFacts)


def written_line_by_line(raw):
    lines = listed.Lines(raw, "members.jsonl")
    for entry in ENTRIES:
        lines.add([entry])
    lines.close()
    lines.close()
    return listed.read(raw / "members.jsonl", MemberFacts)


@pytest.mark.parametrize("write", [written_whole, written_line_by_line])
def test_a_list_is_read_as_it_was_written(tmp_path, write):
    assert write(tmp_path) == ENTRIES
    assert left_out.gaps(tmp_path, 1, 2) == []


@pytest.mark.parametrize("write", [written_whole, written_line_by_line])
def test_entries_without_room_in_a_list_are_counted(tmp_path, write, small):
    found = write(tmp_path)
    assert 100 < len(found) < len(ENTRIES)
    assert found == ENTRIES[: len(found)]
    (gap,) = left_out.gaps(tmp_path, 1, 2)
    assert (gap.stream, gap.start, gap.end) == ("members", 1, 2)
    assert gap.cause.startswith(f"{len(ENTRIES) - len(found)} members left out: ")


SEPARATORS = ",[{" * 1009
"""A file may be called so: its name costs a reader no more than another one."""


def test_a_list_is_read_whatever_the_files_in_it_are_called(tmp_path):
    entries = [(1, 1, 7, fd, None, 0, 0, f'/{fd}"\\"{SEPARATORS}\\') for fd in range(1013)]
    listed.write(tmp_path, "descriptors.json", entries)
    assert listed.read(tmp_path / "descriptors.json", DescriptorFacts) == entries
    assert left_out.gaps(tmp_path, 1, 2) == []


def test_a_list_of_more_values_than_are_read_is_cut_when_it_is_written(tmp_path):
    """There may be half a million threads."""
    values = 7  # six numbers, each with a comma or the bracket, and the comma after the entry
    most = (3_000_000 - 1) // values
    listed.write(tmp_path, "members.json", ENTRIES[:1] * (most + 11))
    assert len(listed.read(tmp_path / "members.json", MemberFacts)) == most
    (gap,) = left_out.gaps(tmp_path, 1, 2)
    assert gap.cause.startswith("11 members left out: ")


def test_a_process_of_very_many_threads_does_not_damage_the_list_of_marks(tmp_path):
    (tmp_path / "marks").mkdir()
    marks = Marks(tmp_path / "marks", tmp_path / "live")
    marks._names = listed.Lines(tmp_path, "names.jsonl")
    marks._write_name("7-1", 7, 8, [(number, number) for number in range(1, 70_001)])
    marks._names.close()
    ((*_, threads),) = listed.read(tmp_path / "names.jsonl", MarkFacts)
    assert len(threads) == 1 << 16


def test_a_list_of_a_killed_process_is_continued_without_its_incomplete_line(tmp_path):
    for _ in range(2):  # the first one makes it
        lines = listed.Lines.continued(tmp_path, "members.jsonl")
        lines.add(ENTRIES[:3])
        lines.close()
    with (tmp_path / "members.jsonl").open("ab") as file:
        file.write(b"[1,")
    lines = listed.Lines.continued(tmp_path, "members.jsonl")
    lines.add(ENTRIES[:1])
    lines.close()
    found = listed.read(tmp_path / "members.jsonl", MemberFacts)
    assert found == [*ENTRIES[:3], *ENTRIES[:3], ENTRIES[0]]


def test_a_continued_list_has_no_more_entries_than_are_read(tmp_path, small):
    kept = len(written_whole(tmp_path))
    left_out_before = len(ENTRIES) - kept
    for part in (ENTRIES[: kept - 5], ENTRIES[kept - 5 :]):
        lines = listed.Lines.continued(tmp_path, "members.jsonl")
        lines.add(part)
        lines.close()
    assert listed.read(tmp_path / "members.jsonl", MemberFacts) == ENTRIES[:kept]
    (gap,) = left_out.gaps(tmp_path, 1, 2)
    assert gap.cause.startswith(f"{2 * left_out_before} members left out: ")


def test_a_list_of_another_size_is_refused(tmp_path, small):
    (tmp_path / "members.json").write_text("[" + " " * (1 << 14) + "]")
    with pytest.raises(BadTrace, match="longer than"):
        listed.read(tmp_path / "members.json", MemberFacts)


def test_left_out_entries_add_up_and_are_a_loss(tmp_path):
    page = Page(0).event(100, enter(7, 39)).event(130, leave(7, 39))
    raw_trace(tmp_path / "t", {0: [page]})
    for count in (3, 4):
        left_out.note(tmp_path / "t/raw", "maps", {"mappings left out: too many": count})
    left_out.note(tmp_path / "t/raw", "marks", {"files of marks left out: too long": 1})
    with Trace(tmp_path / "t") as trace:
        causes = set(trace.sql("SELECT stream, cause FROM loss").itertuples(index=False, name=None))
    assert ("maps", "7 mappings left out: too many") in causes
    assert ("marks", "1 files of marks left out: too long") in causes


def test_a_damaged_count_is_a_loss_too(tmp_path):
    (tmp_path / left_out.FILE).write_text('{"maps": {"": -1}}')
    (gap,) = left_out.gaps(tmp_path, 1, None)
    assert "damaged" in gap.cause
