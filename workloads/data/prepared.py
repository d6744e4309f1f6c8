"""Articles prepared for training: once per run, written to a folder of the job's own.

    vocabulary.txt  one morpheme per line, most frequent first; the morpheme in line n has number n
    SPLIT.tokens    IDX, integers: a row of LENGTH numbers per article, padded with zeros
    SPLIT.labels    IDX, integers: the number of the article's topic, in alphabetical order
    prepared.json   written last: the sources of the other files, and the size of each

The vocabulary always covers the whole training split, and the topics both splits, regardless of the
number of samples used. A job that only infers thus gets the numbers that its model was trained on.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tracer.workloads.data import jsonl, vocabulary
from tracer.workloads.data.folder import alone, check_space, open_regular
from tracer.workloads.data.idx import INT, header_bytes, pack_header
from tracer.workloads.data.vocabulary import Vocabulary
from tracer.workloads.errors import MEND_WRITE, JobError, explained
from tracer.workloads.files import open_anew, write_anew

LENGTH = 128
TOPICS = 1000
"""Maximum number of different topics; with more, the topic is not a usable class."""

_SPLITS = ("train", "test")
_VOCABULARY = "vocabulary.txt"
_DONE = "prepared.json"
_DONE_BYTES = 1 << 16
_ROW = struct.Struct(f">{LENGTH}i")
_LABEL = struct.Struct(">i")


@dataclass(frozen=True)
class Prepared:
    """The folder of the prepared files. Labels are below `classes`, tokens below `vocabulary`."""

    folder: Path
    classes: int
    vocabulary: int

    def tokens(self, split: str) -> Path:
        return self.folder / f"{split}.tokens"

    def labels(self, split: str) -> Path:
        return self.folder / f"{split}.labels"


def prepare(sources: dict[str, Path], folder: Path, samples: int | None) -> Prepared:
    """Prepares the JSON lines of `sources`, by split, in `folder`, or reuses prepared files there.

    `samples` is the number of training samples to use; None: all. Raises JobError.
    """
    with explained(f"cannot prepare the texts in {folder}", MEND_WRITE):
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            asked = _asked(sources, samples)
            return _reuse(folder, asked) or _make(sources, folder, samples, asked)


def _asked(sources: dict[str, Path], samples: int | None) -> dict[str, Any]:
    """Returns the facts that identify a preparation, as values that survive a JSON round trip."""
    states = {split: path.stat() for split, path in sources.items()}
    return {
        "sources": {
            split: [str(sources[split]), state.st_size, state.st_mtime_ns]
            for split, state in states.items()
        },
        "samples": samples,
        "length": LENGTH,
        "known": vocabulary.KNOWN,
    }


def _reuse(folder: Path, asked: dict[str, Any]) -> Prepared | None:
    try:
        with os.fdopen(open_regular(folder / _DONE), "rb") as file:
            done = json.loads(file.read(_DONE_BYTES).decode())
        sizes = _sizes(folder)
    except (OSError, ValueError, RecursionError):
        return None
    match done:
        case {
            "asked": dict(of),
            "sizes": dict(all_),
            "classes": int(classes),
            "vocabulary": int(n),
        }:
            whole = of == asked and all_ == sizes
            if whole and 0 < classes <= TOPICS and 0 < n <= vocabulary.KNOWN + 2:
                return Prepared(folder, classes, n)
    return None


def _make(
    sources: dict[str, Path], folder: Path, samples: int | None, asked: dict[str, Any]
) -> Prepared:
    (folder / _DONE).unlink(missing_ok=True)
    topics: Counter[str] = Counter()
    words = vocabulary.build(_texts(sources["train"], topics))
    there = topics.total()
    if samples is not None and samples > there:
        raise JobError(
            f"{sources['train'].parent} holds {there} training samples, "
            f"fewer than --samples {samples}",
            "leave --samples out to use them all, or name an empty --data folder",
        )
    for _ in _texts(sources["test"], topics):
        pass
    made = Prepared(folder, len(topics), words.size)
    rows = topics.total() - there + (samples or there)
    check_space(folder, rows * (_ROW.size + _LABEL.size))
    write_anew(folder / _VOCABULARY, "".join(f"{one}\n" for one in words.morphemes).encode())
    labels = {topic: number for number, topic in enumerate(sorted(topics))}
    for split in _SPLITS:
        taken = samples if split == "train" else None
        _write_split(sources[split], taken, made, split, words, labels)
    done = {
        "asked": asked,
        "sizes": _sizes(folder),
        "classes": made.classes,
        "vocabulary": made.vocabulary,
    }
    write_anew(folder / _DONE, json.dumps(done).encode())
    return made


def _texts(path: Path, topics: Counter[str]) -> Iterator[str]:
    """Yields the texts of a file. Adds the number of articles per topic to `topics`."""
    for article in jsonl.read(path, "vocabulary"):
        topics[article.topic] += 1
        if len(topics) > TOPICS:
            raise JobError(
                f"{path.parent} has more than {TOPICS} different topics", "use classes as topics"
            )
        yield _text(article)


def _write_split(
    source: Path,
    samples: int | None,
    made: Prepared,
    split: str,
    words: Vocabulary,
    numbers: dict[str, int],
) -> None:
    with open_anew(made.tokens(split)) as tokens, open_anew(made.labels(split)) as labels:
        # The headers are written last, when the number of rows is known.
        tokens.seek(header_bytes(2))
        labels.seek(header_bytes(1))
        count = 0
        for article in islice(jsonl.read(source, f"prepare {split}"), samples):
            count += 1
            if article.topic not in numbers:
                raise JobError(f"{source} changed while the job read it", "start the job again")
            row = words.encode(_text(article), LENGTH)
            padding = (vocabulary.PADDING,) * (LENGTH - len(row))
            tokens.write(_ROW.pack(*row, *padding))
            labels.write(_LABEL.pack(numbers[article.topic]))
        tokens.seek(0)
        tokens.write(pack_header((count, LENGTH), INT))
        labels.seek(0)
        labels.write(pack_header((count,), INT))


def _text(article: jsonl.Article) -> str:
    return f"{article.title}\n{article.text}"


def _sizes(folder: Path) -> dict[str, int]:
    rows = [f"{split}.{kind}" for split in _SPLITS for kind in ("tokens", "labels")]
    return {name: (folder / name).stat().st_size for name in (_VOCABULARY, *rows)}
