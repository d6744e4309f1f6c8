"""Speed of the timed model's simulation: bios and pages per second, compiled beforehand."""

from __future__ import annotations

import time

import numpy as np

from tracer.analysis.flushlayer.devices import find_device
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import Destage
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.requests import Requests

_REPEATS = 3


def made_up(bios: int, pages_each: int, distinct: int, seed: int = 1) -> Requests:
    """Makes writes at random times, skewed (Zipf, s = 1.1), at two thirds of a disk's rate."""
    gen = np.random.default_rng(seed)
    start = gen.zipf(1.1, bios) % (distinct // pages_each) * pages_each
    page = np.repeat(start, pages_each) + np.tile(np.arange(pages_each), bios)
    return Requests(
        ts=np.cumsum(gen.exponential(12e6, bios)).astype(np.int64),
        op=np.zeros(bios, np.uint8),
        device=np.zeros(bios, np.int16),
        sector=start.astype(np.int64) * 8,
        pages=np.full(bios, pages_each, np.int32),
        first=np.arange(bios, dtype=np.int64) * pages_each,
        page=page.astype(np.int32),
        unique=distinct,
    )


def timed_speed(bios: int = 1_000_000) -> dict[str, float]:
    """Returns the bios simulated per second, best of three interleaved runs each.

    Keys: timed_flat_bios_per_s (no layer, the paper's disk), timed_disk_bios_per_s (no layer,
    seek and rotation), timed_layer_bios_per_s (a layer of a quarter of the pages, watermark),
    timed_layer_pages_per_s (the same with bios of 16 pages).
    """
    flat, disk = Disk(find_device("hdd-paper", "disk")), Disk(find_device("hdd-7200", "disk"))
    layer = Layer(1 << 16, find_device("pcm-paper", "nvm"), Destage("watermark"))
    small, large = made_up(bios, 1, 1 << 18), made_up(bios // 16, 16, 1 << 18)
    cases = {
        "timed_flat_bios_per_s": (small, flat, None),
        "timed_disk_bios_per_s": (small, disk, None),
        "timed_layer_bios_per_s": (small, disk, layer),
        "timed_layer_pages_per_s": (large, disk, layer),
    }
    simulate(made_up(100, 1, 1 << 10), disk, layer)
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(_REPEATS):
        for name, (requests, behind, before) in cases.items():
            begin = time.perf_counter()
            simulate(requests, behind, before)
            took = time.perf_counter() - begin
            count = len(requests.page) if "pages" in name else len(requests)
            best[name] = min(best[name], took / count)
    return {name: 1 / each for name, each in best.items()}
