"""Wikipedia articles with their topics, or a similar set: two files of JSON lines.

A folder with train.jsonl and test.jsonl (`tracer.workloads.data.jsonl`) is used unchanged. In an
absent or empty folder a set is drawn from the seed (`tracer.workloads.data.articles`). The job
converts the articles to rows of numbers of equal length in its own folder
(`tracer.workloads.data.prepared`), and reads them row by row. The papers give no number of
articles; the catalogue's 50,000 is our choice.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracer.workloads.data import articles, idx, jsonl
from tracer.workloads.data.folder import UNFINISHED, alone, check_space, choose, finish
from tracer.workloads.data.prepared import LENGTH, Prepared, prepare
from tracer.workloads.data.sets import DataRequest, DataSets, Sample, SampleSet
from tracer.workloads.errors import JobError, explained
from tracer.workloads.files import open_anew
from tracer.workloads.progress import Progress

SAMPLES = 4096
"""Default number of training samples of a drawn set; the test split has a quarter as many."""

_FILES = {"train": "train.jsonl", "test": "test.jsonl"}
_NAMES = tuple(_FILES.values())


class WikipediaSplit(SampleSet):
    """Rows [LENGTH] of tokens as int64, padded with zeros, with their labels."""

    def __init__(self, tokens: idx.IdxFile, labels: idx.Ints, vocabulary: int) -> None:
        self.tokens = tokens
        self.labels = labels
        self.vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        import torch

        row = self.tokens.read(index)[0].astype(np.int64)
        if row.min() < 0 or row.max() >= self.vocabulary:
            # An embedding would fail on this token, on a GPU without a useful message.
            raise JobError(
                f"{self.tokens.path} gives sample {index} a token that is not in the vocabulary",
                self.tokens.mend,
            )
        return torch.from_numpy(row), int(self.labels[index])


def open_sets(request: DataRequest) -> DataSets:
    """Opens the set of `request`. Draws it first if its folder holds none.

    Raises JobError if a file is damaged, missing or too short for `request.samples`.
    """
    folder = choose(request, "articles", request.samples or SAMPLES)
    with explained(f"cannot use the data folder {folder}", "name another folder with --data"):
        folder.mkdir(parents=True, exist_ok=True)
        finish(folder, _NAMES)
        if not _holds_set(folder):
            _make(folder, request.seed, request.samples or SAMPLES)
    sources = {split: folder / name for split, name in _FILES.items()}
    prepared = prepare(sources, request.output.absolute() / "data", request.samples)
    return DataSets(
        folder,
        train=_open_split(prepared, "train"),
        test=_open_split(prepared, "test"),
        classes=prepared.classes,
        vocabulary=prepared.vocabulary,
    )


def _holds_set(folder: Path) -> bool:
    """Returns True if the folder holds the set, False if a set can be drawn there.

    Raises JobError for any other content.
    """
    found = {path.name for path in folder.iterdir()}
    missing = [name for name in _NAMES if name not in found]
    if not missing:
        return True
    if len(missing) < len(_NAMES):
        raise JobError(f"{folder} lacks {', '.join(missing)}", jsonl.MEND)
    # A fresh ext4 has lost+found; a job that was killed while drawing leaves unfinished files.
    foreign = found - {"lost+found", *(name + UNFINISHED for name in _NAMES)}
    if foreign:
        raise JobError(
            f"{folder} holds other files (such as {min(foreign)}), but not {_NAMES[0]}",
            f"name a folder with {' and '.join(_NAMES)}, or an empty one to have a set made there",
        )
    return False


def _make(folder: Path, seed: int, samples: int) -> None:
    counts = {"train": samples, "test": max(1, samples // 4)}
    check_space(folder, sum(counts.values()) * articles.MEAN_BYTES)
    with alone(folder):
        # Another job may have drawn it while this one waited.
        if _holds_set(folder):
            return
        with Progress("draw", sum(counts.values())) as progress:
            drawn = 0
            for number, (split, count) in enumerate(counts.items()):
                with open_anew(folder / (_FILES[split] + UNFINISHED)) as file:
                    for article in articles.draw(seed, number, count):
                        file.write(jsonl.pack(article))
                        drawn += 1
                        progress.show(drawn, "articles")
        for name in _NAMES:
            (folder / (name + UNFINISHED)).rename(folder / name)


def _open_split(prepared: Prepared, split: str) -> WikipediaSplit:
    mend = f"remove {prepared.folder} to have the texts prepared again"
    tokens = idx.open_idx(prepared.tokens(split), dimensions=2, of=idx.INT)
    file = idx.open_idx(prepared.labels(split), dimensions=1, of=idx.INT)
    tokens.mend = file.mend = mend
    if tokens.shape != (len(file), LENGTH):
        raise JobError(f"{tokens.path} and {file.path} do not match", mend)
    labels = file.read(0, len(file))
    if not len(labels) or labels.min() < 0 or labels.max() >= prepared.classes:
        raise JobError(f"{file.path} holds no labels, or a label that is no class", mend)
    return WikipediaSplit(tokens, labels, prepared.vocabulary)
