"""ImageNet, prepared as in Park & Bahn 2023, section 3: the shorter side is fixed to 256, and the
image is adjusted to 256 x 256. The paper is "Performance Analysis of Container Effect in Deep
Learning Workloads and Implications".

The prepared images are written to a folder of the job's own, which dirties pages. The samples are
read from that folder. Models get all 256 x 256 pixels, as in that paper; others crop 224 x 224.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tracer.workloads.data.folder import MEND, UNFINISHED, alone, check_space, open_regular
from tracer.workloads.data.image_files import read_square, to_tensor, write_jpeg
from tracer.workloads.data.image_folder import Drawn, Listing, open_folder
from tracer.workloads.data.sets import DataRequest, DataSets, Sample, SampleSet
from tracer.workloads.errors import MEND_WRITE, JobError, explained
from tracer.workloads.files import write_anew
from tracer.workloads.progress import Progress

SIDE = 256
_QUALITY = 90
_PREPARED_BYTES = 40_000
_SOURCE = "source.sha256"
_DRAWN = Drawn(
    kind="imagenet",
    samples=1024,
    classes=1000,
    block=1000,
    longer=500,
    grain=48,
    quality=95,
    file_bytes=130_000,
)


class ImageNetSplit(SampleSet):
    """Images [3, 256, 256] as float32, scaled, with their labels, read from prepared files."""

    def __init__(self, listing: Listing, prepared: Path) -> None:
        self._listing = listing
        self._prepared = prepared

    def __len__(self) -> int:
        return len(self._listing)

    def __getitem__(self, index: int) -> Sample:
        mend = f"remove {self._prepared} to have it written again"
        image = read_square(self._path(self._prepared, index), SIDE, mend)
        return to_tensor(image), self._listing.labels[index]

    def prepare(self) -> None:
        """Writes the prepared files, unless complete ones of the same images exist."""
        target = self._prepared
        with explained(f"cannot prepare images in {target}", MEND_WRITE):
            target.parent.mkdir(parents=True, exist_ok=True)
            with alone(target.parent):
                source = self._source()
                if self._is_prepared(source):
                    return
                unfinished = target.with_name(target.name + UNFINISHED)
                for path in (target, unfinished):
                    if path.exists():
                        shutil.rmtree(path)
                check_space(target.parent, len(self) * _PREPARED_BYTES)
                self._write(unfinished)
                write_anew(unfinished / _SOURCE, source.encode())
                unfinished.rename(target)

    def _write(self, folder: Path) -> None:
        with Progress("prepare", len(self)) as progress:
            for index in range(len(self)):
                image = read_square(self._listing.path(index), SIDE)
                path = self._path(folder, index)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_jpeg(path, image, _QUALITY)
                progress.show(index + 1)

    def _path(self, folder: Path, index: int) -> Path:
        # Numbers, since a class may hold the same name with two suffixes.
        return folder / str(self._listing.labels[index]) / f"{index:08}.jpg"

    def _source(self) -> str:
        """Returns a digest that identifies these images and changes when they change."""
        digest = hashlib.sha256(str(self._listing.folder).encode(errors="surrogateescape"))
        for index, name in enumerate(self._listing.names):
            path = self._listing.path(index)
            with explained(f"cannot read {path}", MEND):
                status = path.stat()
            digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def _is_prepared(self, source: str) -> bool:
        """Returns whether the prepared folder is complete and made from these images.

        The folder gets its name when it is complete, but a user may have removed files since.
        """
        try:
            fd = open_regular(self._prepared / _SOURCE)
        except (OSError, JobError):
            return False
        try:
            if os.read(fd, len(source) + 1) != source.encode():
                return False
        finally:
            os.close(fd)
        return all(self._path(self._prepared, index).exists() for index in range(len(self)))


def open_sets(request: DataRequest) -> DataSets:
    """Opens the set of `request`. Draws it first if its folder holds none. Raises JobError."""
    images = open_folder(request, _DRAWN)
    prepared = request.output.absolute() / "data" / f"imagenet-{SIDE}"
    return DataSets(
        images.folder,
        train=ImageNetSplit(images.train, prepared / "train"),
        test=ImageNetSplit(images.test, prepared / "val"),
        classes=len(images.classes),
        side=SIDE,
    )
