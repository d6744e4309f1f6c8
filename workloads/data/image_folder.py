"""Sets of image files in torchvision's ImageFolder layout: train/CLASS/*.jpg and val/CLASS/*.jpg.

A folder with such a set is used unchanged. In an absent or empty folder a set is drawn from the
seed (`tracer.workloads.data.pictures`). The classes are the folders in train/, sorted by name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tracer.workloads.data.folder import MEND, UNFINISHED, alone, check_space, choose
from tracer.workloads.data.image_files import write_jpeg
from tracer.workloads.data.pictures import Painter
from tracer.workloads.data.sets import DataRequest
from tracer.workloads.errors import JobError, explained
from tracer.workloads.progress import Progress

SPLITS = ("train", "val")
SUFFIXES = (".jpg", ".jpeg", ".png")
MOST_CLASSES = 100_000
_AT_ONCE = 20
"""Classes that are added at a time as more samples are drawn; a small set has only these."""


@dataclass(frozen=True)
class Drawn:
    """The properties of drawn pictures. `samples` is their default number.

    The longer side has `longer` pixels, the shorter one 2/3 to 4/5 of that. With `grain` and
    JPEG `quality` a file has about `file_bytes` bytes. Each further `block` of samples, a multiple
    of 4, has the next 20 classes, until there are `classes`.
    """

    kind: str
    samples: int
    classes: int
    block: int
    longer: int
    grain: int
    quality: int
    file_bytes: int

    def label(self, split: int, index: int) -> int:
        """Returns the class of a sample. The test split, a quarter as large, adds no classes."""
        block = self.block if split == 0 else self.block // 4
        return (index // block * _AT_ONCE + index % block % _AT_ONCE) % self.classes


@dataclass(frozen=True)
class Listing:
    """The image files of one split, as paths inside `folder`, with their labels."""

    folder: Path
    names: list[str]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        return self.folder / self.names[index]


@dataclass(frozen=True)
class ImageFolder:
    """An opened set: its classes, sorted by name, and its two splits."""

    folder: Path
    classes: list[str]
    train: Listing
    test: Listing


def open_folder(request: DataRequest, drawn: Drawn) -> ImageFolder:
    """Lists the set of `request`. Draws it first if its folder holds none.

    The `request.samples` training samples are spread evenly over the set. Raises JobError.
    """
    samples = request.samples or drawn.samples
    folder = choose(request, drawn.kind, samples)
    with explained(f"cannot use the data folder {folder}", "name another folder with --data"):
        folder.mkdir(parents=True, exist_ok=True)
        if not _holds_set(folder):
            _make(folder, request.seed, samples, drawn)
        classes = _classes(folder / "train")
        train = _list(folder / "train", classes)
        test = _list(folder / "val", classes)
    return ImageFolder(folder, classes, _evenly(train, request.samples, folder), test)


def _holds_set(folder: Path) -> bool:
    """Returns True if the folder holds the set, False if a set can be drawn there.

    Raises JobError for any other content.
    """
    found = {path.name for path in folder.iterdir()}
    if found.issuperset(SPLITS):
        return True
    unfinished = {split + UNFINISHED for split in SPLITS}
    # While a drawn set is renamed, val/ appears first and train/ still has its unfinished name.
    if found & set(SPLITS) and "train" + UNFINISHED not in found:
        raise JobError(f"{folder} lacks {', '.join(sorted(set(SPLITS) - found))}/", MEND)
    foreign = found - {"lost+found", "val", *unfinished}
    if foreign:
        raise JobError(
            f"{folder} holds other files (such as {min(foreign)!a}), but no train/ and val/",
            "name a folder with train/CLASS/*.jpg and val/CLASS/*.jpg, "
            "or an empty one to have a set made there",
        )
    return False


def _make(folder: Path, seed: int, samples: int, drawn: Drawn) -> None:
    counts = (samples, max(1, samples // 4))
    with alone(folder):
        # Another job may have drawn it while this one waited.
        if _holds_set(folder):
            return
        train, val = (folder / (split + UNFINISHED) for split in SPLITS)
        # Once val/ has its final name, both splits are complete, and only train/ is left to rename.
        if not (folder / "val").exists():
            check_space(folder, sum(counts) * drawn.file_bytes)
            painter = Painter(seed, drawn.classes)
            with Progress("draw", sum(counts)) as progress:
                done = 0
                for number, path in enumerate((train, val)):
                    if path.exists():
                        shutil.rmtree(path)
                    for _ in _draw(path, number, counts[number], painter, drawn):
                        done += 1
                        progress.show(done)
            val.rename(folder / "val")
        train.rename(folder / "train")


def _draw(folder: Path, split: int, count: int, painter: Painter, drawn: Drawn) -> Iterator[None]:
    """Writes the pictures of a split; yields after each."""
    folder.mkdir()
    for index in range(count):
        random = painter.random(split, index)
        label = drawn.label(split, index)
        shorter = int(random.integers(drawn.longer * 2 // 3, drawn.longer * 4 // 5))
        upright = random.integers(4) == 0
        height, width = (drawn.longer, shorter) if upright else (shorter, drawn.longer)
        pixels = painter.paint(random, np.array([label]), height, width, drawn.grain)[0]
        path = folder / f"class{label:04}" / f"{index:08}.jpg"
        path.parent.mkdir(exist_ok=True)
        write_jpeg(path, Image.fromarray(pixels), drawn.quality)
        yield


def _classes(train: Path) -> list[str]:
    with os.scandir(train) as entries:
        classes = sorted(_name(train, entry) for entry in entries if _is_folder(entry))
    if not classes:
        raise JobError(f"{train} holds no class folder", MEND)
    if len(classes) > MOST_CLASSES:
        raise JobError(f"{train} holds {len(classes)} classes, more than {MOST_CLASSES}", MEND)
    return classes


def _list(folder: Path, classes: list[str]) -> Listing:
    """Lists the images of a split, by class and name. Raises JobError."""
    with os.scandir(folder) as entries:
        there = {_name(folder, entry) for entry in entries if _is_folder(entry)}
    if unknown := there - set(classes):
        raise JobError(f"{folder / min(unknown)} is a class that train/ lacks", MEND)
    names, labels = [], []
    for label, name in enumerate(classes):
        if name not in there:
            continue
        with os.scandir(folder / name) as entries:
            images = sorted(_name(folder / name, entry) for entry in entries if _is_image(entry))
        names += [f"{name}/{image}" for image in images]
        labels += [label] * len(images)
    if not names:
        raise JobError(f"{folder} holds no images ({', '.join(SUFFIXES)})", MEND)
    return Listing(folder, names, labels)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.is_dir()


def _is_image(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.name.lower().endswith(SUFFIXES)


def _name(folder: Path, entry: os.DirEntry[str]) -> str:
    # An unprintable name would break the line of an error message, or control the terminal.
    if not entry.name.isprintable():
        raise JobError(f"{folder} holds the unprintable name {entry.name!a}", "rename it")
    return entry.name


def _evenly(listing: Listing, samples: int | None, folder: Path) -> Listing:
    """Returns `samples` images spread evenly over a listing; the first ones share few classes."""
    if samples is None or samples == len(listing):
        return listing
    if samples > len(listing):
        raise JobError(
            f"{folder} holds {len(listing)} training samples, fewer than --samples {samples}",
            "leave --samples out to use them all, or name an empty --data folder",
        )
    chosen = [number * len(listing) // samples for number in range(samples)]
    return Listing(
        listing.folder,
        [listing.names[index] for index in chosen],
        [listing.labels[index] for index in chosen],
    )
