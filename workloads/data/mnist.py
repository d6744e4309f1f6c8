"""MNIST, or a similar set: a folder of four IDX files, read image by image by offset.

A folder with MNIST's own files, plain or as .gz, is used unchanged. In an absent or empty folder a
set is drawn from the seed (`tracer.workloads.data.digits`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracer.free_space import room_bytes
from tracer.workloads.data import digits, idx
from tracer.workloads.data.folder import MEND, UNFINISHED, alone, check_space, choose, finish
from tracer.workloads.data.gzipped import unpack_idx
from tracer.workloads.data.sets import DataRequest, DataSets, Sample, SampleSet
from tracer.workloads.errors import JobError, explained
from tracer.workloads.files import open_anew

CLASSES = digits.CLASSES
SAMPLES = 4096
"""Default number of training samples of a drawn set; the test split has a quarter as many."""

# Split: images [n, 28, 28], labels [n].
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_NAMES = tuple(name for names in _FILES.values() for name in names)
_LABELS_AT_ONCE = 1 << 20

# The usual mean and standard deviation of MNIST's training pixels.
_MEAN = np.float32(0.1307)
_DEVIATION = np.float32(0.3081)


class MnistSplit(SampleSet):
    """Images [1, 28, 28] as float32, scaled, with their labels; each read from its file."""

    def __init__(self, images: idx.IdxFile, labels: idx.Bytes) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        import torch

        pixels = self.images.read(index).astype(np.float32) / np.float32(255)
        return torch.from_numpy((pixels - _MEAN) / _DEVIATION), int(self.labels[index])


def open_sets(request: DataRequest) -> DataSets:
    """Opens the set of `request`. Draws it first if its folder holds none.

    Raises JobError if a file is damaged, missing or too short for `request.samples`.
    """
    folder = choose(request, "digits", request.samples or SAMPLES)
    with explained(f"cannot use the data folder {folder}", "name another folder with --data"):
        folder.mkdir(parents=True, exist_ok=True)
        finish(folder, _NAMES)
        if not _holds_set(folder):
            _make(folder, request.seed, request.samples or SAMPLES)
    unpacked = request.output.absolute() / "data"
    return DataSets(
        folder,
        train=_open_split(folder, unpacked, "train", request.samples),
        test=_open_split(folder, unpacked, "test", None),
        classes=CLASSES,
        side=digits.SIDE,
    )


def _holds_set(folder: Path) -> bool:
    """Returns True if the folder holds the set, False if a set can be drawn there.

    Raises JobError for any other content.
    """
    found = {path.name for path in folder.iterdir()}
    missing = [name for name in _NAMES if not {name, f"{name}.gz"} & found]
    if not missing:
        return True
    if len(missing) < len(_NAMES):
        raise JobError(f"{folder} lacks {', '.join(missing)}", MEND)
    # A fresh ext4 has lost+found; a job that was killed while drawing leaves unfinished files.
    foreign = found - {"lost+found", *(name + UNFINISHED for name in _NAMES)}
    if foreign:
        raise JobError(
            f"{folder} holds other files (such as {min(foreign)}), but not {_NAMES[0]}",
            "name a folder with MNIST's four files, or an empty one to have a set made there",
        )
    return False


def _make(folder: Path, seed: int, samples: int) -> None:
    counts = {"train": samples, "test": max(1, samples // 4)}
    check_space(folder, sum(counts.values()) * (digits.SIDE**2 + 1))
    with alone(folder):
        # Another job may have drawn it while this one waited.
        if _holds_set(folder):
            return
        for number, (split, count) in enumerate(counts.items()):
            images_path, labels_path = (folder / (name + UNFINISHED) for name in _FILES[split])
            with open_anew(images_path) as images_file, open_anew(labels_path) as labels_file:
                images_file.write(idx.pack_header((count, digits.SIDE, digits.SIDE)))
                labels_file.write(idx.pack_header((count,)))
                for images, labels in digits.draw(seed, number, count):
                    images_file.write(images.tobytes())
                    labels_file.write(labels.tobytes())
        for name in _NAMES:
            (folder / (name + UNFINISHED)).rename(folder / name)


def _open_split(folder: Path, unpacked: Path, split: str, samples: int | None) -> MnistSplit:
    images_name, labels_name = _FILES[split]
    images_path = _plain(folder, unpacked, images_name, dimensions=3)
    labels_path = _plain(folder, unpacked, labels_name, dimensions=1)
    images = idx.open_idx(images_path, dimensions=3)
    labels = idx.open_idx(labels_path, dimensions=1)
    if images.shape[1:] != (digits.SIDE, digits.SIDE):
        raise JobError(
            f"{images_path} holds images of {images.shape[1]} x {images.shape[2]} pixels, "
            f"not {digits.SIDE} x {digits.SIDE}",
            MEND,
        )
    if len(images) != len(labels):
        raise JobError(
            f"{images_path} holds {len(images)} images, but {labels_path} {len(labels)} labels",
            MEND,
        )
    if len(images) == 0:
        raise JobError(f"{images_path} holds no images", MEND)
    if samples is not None and samples > len(images):
        raise JobError(
            f"{folder} holds {len(images)} training samples, fewer than --samples {samples}",
            "leave --samples out to use them all, or name an empty --data folder",
        )
    return MnistSplit(images, _read_labels(labels)[:samples])


def _read_labels(file: idx.IdxFile) -> idx.Bytes:
    blocks = []
    for first in range(0, len(file), _LABELS_AT_ONCE):
        block = file.read(first, min(_LABELS_AT_ONCE, len(file) - first))
        if block.max() >= CLASSES:
            index = first + int((block >= CLASSES).argmax())
            raise JobError(
                f"{file.path} gives sample {index} the label {block[index - first]}, "
                f"above {CLASSES - 1}",
                MEND,
            )
        blocks.append(block)
    return np.concatenate(blocks)


def _plain(folder: Path, unpacked: Path, name: str, dimensions: int) -> Path:
    """Returns the plain file, or unpacks its .gz into the job's own folder `unpacked`."""
    path = folder / name
    packed = folder / f"{name}.gz"
    if path.exists() or not packed.exists():
        return path
    target = unpacked / name
    with explained(f"cannot unpack {packed} to {target}", "name another --output folder"):
        unpacked.mkdir(parents=True, exist_ok=True)
        unpack_idx(packed, target, dimensions, room=room_bytes(unpacked))
    return target
