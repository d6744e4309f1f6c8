"""Drawn images: one seed gives the same images everywhere, and they are learnable."""

from __future__ import annotations

import hashlib

import numpy as np

from tracer.workloads.data import digits


def drawn(seed: int, split: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*digits.draw(seed, split, count), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def digest(seed: int, split: int, count: int) -> str:
    images, labels = drawn(seed, split, count)
    return hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()


def test_one_seed_draws_the_same_bytes_on_every_machine():
    whole = "98eba349ab42cb3e69a0ef8eb6f795ca36c7e54db508e0943384ef6a70717bb0"
    assert digest(0, 0, 300) == whole


def test_another_seed_or_another_split_draws_other_images():
    assert len({digest(seed, split, 20) for seed in (0, 1) for split in (0, 1)}) == 4


def test_an_image_does_not_depend_on_the_number_drawn():
    few_images, few_labels = drawn(5, 0, 10)
    many_images, many_labels = drawn(5, 0, digits.BLOCK + 44)
    assert len(many_images) == digits.BLOCK + 44
    assert np.array_equal(few_images, many_images[:10])
    assert np.array_equal(few_labels, many_labels[:10])


def test_class_means_tell_images_apart():
    images, labels = drawn(0, 0, 1024)
    means = np.stack([images[labels == digit].mean(axis=0) for digit in range(digits.CLASSES)])
    others, truth = drawn(0, 1, 256)
    distances = ((others[:, None].astype(float) - means) ** 2).sum(axis=(2, 3))
    share = (distances.argmin(axis=1) == truth).mean()
    # Chance gives 0.1; class means, without a network, do not give 1.
    assert 0.5 < share < 1
