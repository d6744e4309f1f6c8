"""Landmarks like those of GLD-23k: large JPEGs, each decoded and resized when it is fetched.

A job on this set waits for its fetches, as MobileNet does in Prashanthi et al. 2022,
"Characterizing the performance of accelerated Jetson edge devices for training DNN models".
GLD-23k is the federated subset of Google Landmarks v2: 203 landmarks, 23,080 training samples in
2.82 GB.
"""

from __future__ import annotations

from tracer.workloads.data.image_files import read_square, to_tensor
from tracer.workloads.data.image_folder import Drawn, Listing, open_folder
from tracer.workloads.data.sets import DataRequest, DataSets, Sample, SampleSet

SIDE = 224
_DRAWN = Drawn(
    kind="landmarks",
    samples=1024,
    classes=203,
    block=2280,
    longer=1000,
    grain=14,
    quality=85,
    file_bytes=122_000,
)


class LandmarksSplit(SampleSet):
    """Images [3, 224, 224] as float32, scaled, with their labels; each decoded when fetched."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    def __len__(self) -> int:
        return len(self._listing)

    def __getitem__(self, index: int) -> Sample:
        image = read_square(self._listing.path(index), SIDE)
        return to_tensor(image), self._listing.labels[index]


def open_sets(request: DataRequest) -> DataSets:
    """Opens the set of `request`. Draws it first if its folder holds none. Raises JobError."""
    images = open_folder(request, _DRAWN)
    return DataSets(
        images.folder,
        train=LandmarksSplit(images.train),
        test=LandmarksSplit(images.test),
        classes=len(images.classes),
        side=SIDE,
    )
