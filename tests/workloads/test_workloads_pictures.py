"""Drawn pictures: the same everywhere for one seed, similar to photographs, and learnable."""

from __future__ import annotations

import hashlib

import numpy as np

from tracer.workloads.data.pictures import Painter


def painted(seed: int, split: int, number: int, label: int = 0, size: tuple[int, int] = (30, 40)):
    painter = Painter(seed, classes=5)
    return painter.paint(painter.random(split, number), np.array([label]), *size, grain=24)[0]


def test_one_seed_paints_the_same_pixels_on_every_machine():
    whole = "48a5abe8a7d72fda7a0bcb5b072cbc5cf5362ac715ab5686af1e30ac6e3ca6df"
    assert hashlib.sha256(painted(0, 0, 0).tobytes()).hexdigest() == whole


def test_seed_split_number_and_label_each_change_the_picture():
    pictures = [painted(0, 0, 0), painted(1, 0, 0), painted(0, 1, 0), painted(0, 0, 1)]
    pictures.append(painted(0, 0, 0, label=1))
    assert len({picture.tobytes() for picture in pictures}) == 5


def test_neighbouring_pixels_are_alike_and_nothing_wraps_around():
    pixels = painted(7, 0, 0, size=(200, 300)).astype(int)
    steps = np.abs(np.diff(pixels, axis=1))
    # Grain is below 24, and gradients of colour and texture add a little.
    assert steps.max() < 24 + 16
    assert pixels.std() > 10


def test_class_means_tell_pictures_apart():
    painter = Painter(0, classes=10)
    labels = np.arange(400) % 10
    pictures = painter.paint(painter.random(0, 0), labels, 32, 32, 24)
    others = painter.paint(painter.random(1, 0), labels, 32, 32, 24)
    means = np.stack([pictures[labels == label].mean(axis=0) for label in range(10)])
    distances = ((others[:, None].astype(float) - means) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == labels).mean() > 0.5
