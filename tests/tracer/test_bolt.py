"""The reader of bbolt's databases: pages, branches and buckets, and damage."""

import os
import random

import pytest

from tests.support.bolt import SIZE, branch, leaf, meta
from tracer.targets.engines import bolt

LONG = b"x" * 3 * SIZE


def pages():
    """Returns a database: a branch, two leaves, an inline bucket, and a value over four pages."""
    inline = (0, leaf([(b"image", b"bare"), (b"spec", b"{}")]))
    return [
        meta(0, 3, 6),
        meta(1, 2, 7),
        branch([(b"a", 4), (b"m", 5)], 2),
        leaf([(b"old", b"")], 3),
        leaf([(b"a", b"1"), (b"b", (6, b""))], 4),
        leaf([(b"m", inline)], 5),
        leaf([(b"long", LONG)], 6),
    ]


@pytest.fixture
def reader(tmp_path):
    """Returns a function that reads all of a database into dictionaries."""

    def read(data):
        (tmp_path / "meta.db").write_bytes(data)
        fd = os.open(tmp_path / "meta.db", os.O_RDONLY)
        try:
            return bolt.read(fd, lambda db: everything(db, db.root))
        finally:
            os.close(fd)

    return read


def everything(database, bucket, depth=0):
    """Returns a bucket's contents; a bucket in it as a dictionary, down to ten."""
    return {
        key: everything(database, value, depth + 1)
        if isinstance(value, bolt.Bucket) and depth < 10
        else value
        for key, value in database.items(bucket)
    }


def test_the_newest_transaction_is_read(reader):
    expected = {b"a": b"1", b"b": {b"long": LONG}, b"m": {b"image": b"bare", b"spec": b"{}"}}
    assert reader(b"".join(pages())) == expected
    broken = pages()
    broken[1] = broken[1][:60] + b"\xff" + broken[1][61:]  # its checksum is wrong
    assert reader(b"".join(broken)) == {b"old": b""}


@pytest.mark.parametrize("data", [b"", b"\0" * 10_000, b"x" * 10_000], ids=["empty", "zero", "x"])
def test_a_file_that_is_no_database_is_refused(reader, data):
    with pytest.raises(bolt.Damaged, match="no database"):
        reader(data)


def test_damage_is_refused_or_read_past(reader):
    chance = random.Random(5)
    whole = b"".join(pages())
    refused = 0
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            # Beyond the checksums; and where the structure is, rather than the long value.
            data[chance.randrange(2 * SIZE, 6 * SIZE + 40)] = chance.randrange(256)
        try:
            reader(bytes(data[: chance.choice([len(data), chance.randrange(len(data))])]))
        except bolt.Damaged:
            refused += 1
    assert 50 < refused < 500


def test_a_page_that_contains_itself_is_refused(reader):
    looped = pages()
    looped[2] = branch([(b"a", 2), (b"b", 2)], 2)
    with pytest.raises(bolt.Damaged):
        reader(b"".join(looped))


def test_a_database_that_changes_meanwhile_is_read_again(tmp_path):
    path = tmp_path / "meta.db"
    path.write_bytes(b"".join(pages()))
    fd = os.open(path, os.O_RDONLY)
    seen = []

    def reading(database):
        seen.append(everything(database, database.root))
        if len(seen) == 1:  # the writer's next transaction
            with path.open("r+b") as file:
                file.write(meta(0, 3, 8))
        return seen[-1]

    assert bolt.read(fd, reading) == {b"old": b""}
    assert len(seen) == 2
    os.close(fd)
