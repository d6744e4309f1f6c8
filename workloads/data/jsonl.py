"""Articles as JSON lines, one object per line, as extractors of Wikipedia dumps write them.

    {"title": "Physics", "text": "Physics is ...", "topic": "science"}

Other keys are ignored. Files may come from anyone, so the length and number of lines are bounded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tracer.workloads.data.folder import open_regular
from tracer.workloads.errors import JobError, explained
from tracer.workloads.progress import Progress

LINE = 8 << 20
"""Maximum bytes per line; Wikipedia's longest article has about 1 MB."""
LINES = 10_000_000
TOPIC = 200
"""Maximum length of a topic's name, in characters."""

MEND = "correct the file, or name an empty --data folder to have a set made there"
_MB = 1_000_000


class Article(NamedTuple):
    """One sample before preparation. `topic` is its class."""

    title: str
    text: str
    topic: str


def pack(article: Article) -> bytes:
    """Returns the article as a line of JSON."""
    return json.dumps(article._asdict(), ensure_ascii=False).encode() + b"\n"


def read(path: Path, stage: str) -> Iterator[Article]:
    """Yields the articles of a file, at least one. Shows the progress under the name `stage`.

    Raises JobError, with the line number, for a malformed or too long line, and for too many lines.
    """
    with explained(f"cannot read {path}", "make the file readable for this user"):
        file = os.fdopen(open_regular(path), "rb")
        size = os.fstat(file.fileno()).st_size
    done = number = 0
    with file, Progress(stage, size // _MB) as progress:
        while line := file.readline(LINE + 1):
            number += 1
            if number > LINES:
                raise JobError(f"{path} holds more than {LINES} articles", "use a part of them")
            yield _parse(line, f"line {number} of {path}")
            done += len(line)
            progress.show(done // _MB, "MB")
    if number == 0:
        raise JobError(f"{path} holds no articles", MEND)


def _parse(line: bytes, where: str) -> Article:
    if len(line) > LINE:
        raise JobError(f"{where} is longer than {LINE} bytes", MEND)
    try:
        found = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise JobError(f"{where} is not UTF-8", MEND) from error
    except (ValueError, RecursionError) as error:
        raise JobError(f"{where} is not a complete JSON object", MEND) from error
    match found:
        case {"title": str(title), "text": str(text), "topic": str(topic)}:
            if len(topic) > TOPIC:
                raise JobError(f"{where} has a topic of more than {TOPIC} letters", MEND)
            return Article(title, text, topic)
        case dict():
            lacking = [key for key in Article._fields if not isinstance(found.get(key), str)]
            raise JobError(f"{where} has no text as its {' and its '.join(lacking)}", MEND)
        case _:
            raise JobError(f"{where} is not a JSON object", MEND)
