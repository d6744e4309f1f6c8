"""Files of articles: limits of their size, and one line for each error in them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tracer.workloads.data import jsonl
from tracer.workloads.errors import JobError

GOOD = b'{"title": "A", "text": "b c", "topic": "d"}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.jsonl"


def read(path: Path) -> list[jsonl.Article]:
    return list(jsonl.read(path, "read"))


def test_packed_articles_are_read_back(path: Path):
    articles = [jsonl.Article('Åse "1"', "one\ntwo\u2028three", "x"), jsonl.Article("", "", "y")]
    path.write_bytes(b"".join(map(jsonl.pack, articles)))
    assert read(path) == articles
    assert "Åse" in path.read_text("utf-8")


def test_other_keys_and_a_missing_last_newline_are_accepted(path: Path):
    path.write_bytes(GOOD + b'{"id": 7, "topic": "d", "text": "", "title": "", "url": null}')
    assert read(path) == [jsonl.Article("A", "b c", "d"), jsonl.Article("", "", "d")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"\n", "not a complete JSON object"),
        (b"Anarchism is a political philosophy\n", "not a complete JSON object"),
        (GOOD[:-10], "not a complete JSON object"),
        (b"\xef\xbb\xbf" + GOOD, "not a complete JSON object"),
        (b'{"a":' * 100_000, "not a complete JSON object"),
        (b"9" * 100_000, "not a complete JSON object"),
        (b'{"title": "\xe9"}\n', "not UTF-8"),
        (GOOD.decode().encode("utf-16"), "not UTF-8"),
        (b"[]\n", "not a JSON object;"),
        (b"NaN\n", "not a JSON object;"),
        (b"{}\n", "no text as its title and its text and its topic"),
        (b'{"title": "A", "text": "b"}\n', "no text as its topic"),
        (b'{"title": "A", "text": ["b"], "topic": 3}\n', "no text as its text and its topic"),
        (b'{"title": "", "text": "", "topic": "%s"}\n' % (b"x" * 201), "more than 200 letters"),
    ],
)
def test_a_damaged_line_is_reported_in_one_line(path: Path, line: bytes, complaint: str):
    path.write_bytes(GOOD * 2 + line)
    with pytest.raises(JobError, match=complaint) as caught:
        read(path)
    assert str(caught.value).startswith(f"line 3 of {path} ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_line_is_read_up_to_its_limit(path: Path):
    with path.open("wb") as file:
        file.write(GOOD)
        # A hole larger than any memory.
        file.truncate(1 << 40)
    with pytest.raises(JobError, match=r"line 2 of .* is longer than 8388608 bytes"):
        read(path)


def test_lines_are_counted(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jsonl, "LINES", 3)
    path.write_bytes(GOOD * 3)
    assert len(read(path)) == 3
    path.write_bytes(GOOD * 4)
    with pytest.raises(JobError, match="holds more than 3 articles"):
        read(path)


def test_an_empty_file_is_refused(path: Path):
    path.write_bytes(b"")
    with pytest.raises(JobError, match="holds no articles"):
        read(path)


def test_absent_and_special_files_are_refused(path: Path):
    with pytest.raises(JobError, match=f"cannot read {path}: No such file"):
        read(path)
    os.mkfifo(path)
    with pytest.raises(JobError, match="is not a regular file"):
        read(path)


def test_flipped_bytes_never_crash_the_reader(path: Path):
    source = random.Random(23)
    refused = 0
    for _ in range(300):
        damaged = bytearray(GOOD * 3)
        damaged[source.randrange(len(damaged))] = source.randrange(256)
        path.write_bytes(damaged)
        try:
            read(path)
        except JobError:
            refused += 1
    assert 100 < refused < 300
