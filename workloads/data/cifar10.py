"""CIFAR-10 in its binary version, or a similar set, read record by record by offset.

A record is a label, then the red, the green and the blue values of 32 x 32 pixels, one byte each. A
folder with the six files of cifar-10-binary.tar.gz is used unchanged. In an absent or empty folder
a set is drawn from the seed (`tracer.workloads.data.pictures`).
Source: https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import bisect
import os
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from tracer.workloads.data.folder import MEND, UNFINISHED, alone, check_space, choose, open_regular
from tracer.workloads.data.idx import Bytes
from tracer.workloads.data.pictures import Painter
from tracer.workloads.data.sets import DataRequest, DataSets, Sample, SampleSet
from tracer.workloads.errors import JobError, explained
from tracer.workloads.files import open_anew, write_anew
from tracer.workloads.progress import Progress

SIDE = 32
SAMPLES = 4096
"""Default number of training samples of a drawn set; the test split has a quarter as many."""

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
RECORD_BYTES = 1 + 3 * SIDE * SIDE

_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = "test_batch.bin"
_NAMES = (*_TRAIN, _TEST)
_META = "batches.meta.txt"
_UNPACKED = "cifar-10-batches-bin"
_PICKLED = {"cifar-10-batches-py", "cifar-10-python.tar.gz", "data_batch_1", "test_batch"}
_PACKED = "cifar-10-binary.tar.gz"
_BLOCK = 256
_GRAIN = 24

# The usual mean and standard deviation of CIFAR-10's training pixels.
_MEAN = np.array([0.4914, 0.4822, 0.4465], dtype=np.float32).reshape(3, 1, 1)
_DEVIATION = np.array([0.2470, 0.2435, 0.2616], dtype=np.float32).reshape(3, 1, 1)


@dataclass
class RecordFile:
    """A file of complete records, read by offset. Each process opens the file itself."""

    path: Path
    records: int
    _fd: int | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "records": self.records, "_fd": None}

    def __del__(self) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def read(self, index: int) -> tuple[Bytes, int]:
        """Reads the pixels [3, 32, 32] and the label of a record by one pread. Raises JobError."""
        with explained(f"cannot read {self.path}", "look at the disk and the folder"):
            if self._fd is None:
                self._fd = open_regular(self.path)
            record = os.pread(self._fd, RECORD_BYTES, index * RECORD_BYTES)
        if len(record) != RECORD_BYTES:
            raise JobError(f"{self.path} was cut short while the job read it", MEND)
        if record[0] >= len(CLASSES):
            raise JobError(
                f"{self.path} gives record {index} the label {record[0]}, above {len(CLASSES) - 1}",
                MEND,
            )
        pixels = np.frombuffer(record, dtype=np.uint8, offset=1).reshape(3, SIDE, SIDE)
        return pixels, record[0]


class Cifar10Split(SampleSet):
    """Images [3, 32, 32] as float32, scaled, with their labels; each read from its file.

    The samples are the first `samples` records of `files`, one file after the other.
    """

    def __init__(self, files: list[RecordFile], samples: int) -> None:
        self._files = files
        self._ends = list(accumulate(file.records for file in files))
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Sample:
        import torch

        number = bisect.bisect_right(self._ends, index)
        file = self._files[number]
        pixels, label = file.read(index - (self._ends[number] - file.records))
        scaled = (pixels.astype(np.float32) / np.float32(255) - _MEAN) / _DEVIATION
        return torch.from_numpy(scaled), label


def open_sets(request: DataRequest) -> DataSets:
    """Opens the set of `request`. Draws it first if its folder holds none.

    Raises JobError if a file is damaged, missing or too short for `request.samples`.
    """
    folder = choose(request, "cifar10", request.samples or SAMPLES)
    with explained(f"cannot use the data folder {folder}", "name another folder with --data"):
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _UNPACKED).is_dir():
            folder /= _UNPACKED
        if not _holds_set(folder):
            _make(folder, request.seed, request.samples or SAMPLES)
    return DataSets(
        folder,
        train=_open_split(folder, _TRAIN, request.samples),
        test=_open_split(folder, (_TEST,), None),
        classes=len(CLASSES),
        side=SIDE,
    )


def _holds_set(folder: Path) -> bool:
    """Returns True if the folder holds the set, False if a set can be drawn there.

    Raises JobError for any other content.
    """
    found = {path.name for path in folder.iterdir()}
    missing = [name for name in _NAMES if name not in found]
    if not missing:
        return True
    unfinished = {name + UNFINISHED for name in (*_NAMES, _META)}
    if found & _PICKLED:
        raise JobError(
            f"{folder} holds the Python version of CIFAR-10, which is pickled and could run code",
            f"get the binary version, {_PACKED}",
        )
    if _PACKED in found:
        raise JobError(f"{folder} holds {_PACKED}", "unpack it there")
    # While a drawn set is renamed, test_batch.bin gets its final name last.
    if len(missing) < len(_NAMES) and _TEST + UNFINISHED not in found:
        raise JobError(f"{folder} lacks {', '.join(missing)}", MEND)
    foreign = found - {"lost+found", *_NAMES, _META, *unfinished}
    if foreign:
        raise JobError(
            f"{folder} holds other files (such as {min(foreign)!a}), but not {_NAMES[0]}",
            "name a folder with CIFAR-10's six .bin files, or an empty one to have a set made "
            "there",
        )
    return False


def _make(folder: Path, seed: int, samples: int) -> None:
    with alone(folder):
        # Another job may have drawn it while this one waited.
        if _holds_set(folder):
            return
        # Once one file has its final name, all are complete, and only renaming is left.
        if not any((folder / name).exists() for name in _NAMES):
            _draw_all(folder, seed, samples)
        for name in (_META, *_NAMES):
            unfinished = folder / (name + UNFINISHED)
            if unfinished.exists():
                unfinished.rename(folder / name)


def _draw_all(folder: Path, seed: int, samples: int) -> None:
    tests = max(1, samples // 4)
    check_space(folder, (samples + tests) * RECORD_BYTES)
    painter = Painter(seed, len(CLASSES))
    train = [
        (folder / (name + UNFINISHED), samples * number // len(_TRAIN))
        for number, name in enumerate(_TRAIN, start=1)
    ]
    test = [(folder / (_TEST + UNFINISHED), tests)]
    with Progress("draw", samples + tests) as progress:
        _draw(painter, 0, train, progress, done=0)
        _draw(painter, 1, test, progress, done=samples)
    write_anew(folder / (_META + UNFINISHED), "\n".join([*CLASSES, ""]).encode())


def _draw(
    painter: Painter, split: int, files: list[tuple[Path, int]], progress: Progress, *, done: int
) -> None:
    """Writes a split. Each file comes with the cumulative number of samples at its end."""
    written = 0
    block = b""
    for path, end in files:
        with open_anew(path) as file:
            while written < end:
                place = written % _BLOCK
                if place == 0:
                    block = _paint_block(painter, split, written // _BLOCK)
                count = min(_BLOCK - place, end - written)
                file.write(block[place * RECORD_BYTES : (place + count) * RECORD_BYTES])
                written += count
                progress.show(done + written)


def _paint_block(painter: Painter, split: int, number: int) -> bytes:
    random = painter.random(split, number)
    labels = random.integers(0, len(CLASSES), _BLOCK, dtype=np.uint8)
    pixels = painter.paint(random, labels, SIDE, SIDE, _GRAIN)
    planes = pixels.transpose(0, 3, 1, 2).reshape(_BLOCK, -1)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def _open_split(folder: Path, names: tuple[str, ...], samples: int | None) -> Cifar10Split:
    files = [_open_records(folder / name) for name in names]
    there = sum(file.records for file in files)
    if there == 0:
        raise JobError(f"{folder / names[0]} holds no records", MEND)
    if samples is not None and samples > there:
        raise JobError(
            f"{folder} holds {there} training samples, fewer than --samples {samples}",
            "leave --samples out to use them all, or name an empty --data folder",
        )
    return Cifar10Split(files, samples or there)


def _open_records(path: Path) -> RecordFile:
    with explained(f"cannot read {path}", "make the file readable for this user"):
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
    records, rest = divmod(size, RECORD_BYTES)
    if rest:
        raise JobError(
            f"{path} has {size} bytes, not a multiple of the record size {RECORD_BYTES}", MEND
        )
    return RecordFile(path, records)
