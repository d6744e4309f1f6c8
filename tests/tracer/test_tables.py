"""A table's file: every row in order, and a disk that has no more room is said."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.budget import run_within
from tracer.probes.schema import Column, Table, Type
from tracer.store.tables import TableWriter, batch_of

NAMED = Table(
    "named",
    "Numbers and names.",
    (Column("number", Type.INT64, "One."), Column("name", Type.TEXT, "Its name.")),
    "SELECT 1",
)
NUMBERS = Table("numbers", "Numbers.", (Column("number", Type.INT64, "One."),), "SELECT 1")


def batches(count: int, rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(23)
    for _ in range(count):
        numbers = rng.integers(-(1 << 62), 1 << 62, rows)
        yield pa.RecordBatch.from_arrays([pa.array(numbers)], schema=NUMBERS.arrow_schema())


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Limits the length of files, as a full disk does; Python ignores SIGXFSZ, and the write fails
    with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_rows_lie_in_the_order_in_which_they_came(tmp_path):
    writer = TableWriter(NUMBERS, tmp_path, row_group=1000)
    for batch in batches(23, 700):
        writer.add(batch)
    writer.close()
    assert writer.rows == 23 * 700
    file = pq.ParquetFile(writer.path)
    assert file.num_row_groups == 12
    assert file.read() == pa.Table.from_batches(batches(23, 700))


def test_batches_of_a_row_are_held_back_together(tmp_path):
    """Each for itself, a batch of a row takes some 10 KB."""
    assert run_within(64 << 20, write_one_by_one, tmp_path) == 23_000
    numbers = pq.read_table(tmp_path / "named.parquet").to_pydict()
    assert numbers["number"] == list(range(23_000))
    assert numbers["name"] == [f"name {number % 7}" for number in range(23_000)]


def write_one_by_one(folder):
    writer = TableWriter(NAMED, folder)
    for number in range(23_000):
        writer.add(batch_of(NAMED, [(number, f"name {number % 7}")]))
    writer.close()
    return writer.rows


def test_a_row_group_that_could_not_be_written_is_told_later_at_the_latest_at_the_end(tmp_path):
    writer = TableWriter(NUMBERS, tmp_path, row_group=1000)
    with no_file_longer_than(1 << 18), pytest.raises(OSError, match="too large"):
        for batch in batches(60, 1000):
            writer.add(batch)
        writer.close()
    writer.discard()


def test_a_file_is_given_up_while_a_row_group_is_on_its_way(tmp_path):
    threads = set(threading.enumerate())
    writer = TableWriter(NUMBERS, tmp_path, row_group=1000)
    for batch in batches(3, 100_000):
        writer.add(batch)
    assert set(threading.enumerate()) > threads
    writer.discard()
    writer.discard()
    assert set(threading.enumerate()) == threads
