"""A checkpoint of a prime number of pages, written five times in each way, by page identity."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.backends import every_backend
from tests.support.file_systems import FileSystems
from tests.support.written import Written
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks

PAGES, TIMES = 23, 5
WHOLE = PAGES * TIMES
_WRITE = f"""
for n in range({TIMES}):
    $write
    os.sync()
"""


def _each(*statements: str) -> str:
    return _WRITE.replace("$write", "\n    ".join(statements))


WAYS = {
    "truncating ext4": _each(f"os.close(put(mount + '/c', {PAGES}, os.O_TRUNC))"),
    "overwriting ext4": _each(f"os.close(put(mount + '/c', {PAGES}))"),
    "renaming ext4": _each(
        f"os.close(put(mount + '/c.tmp', {PAGES}))", "os.replace(mount + '/c.tmp', mount + '/c')"
    ),
    "renaming over an open file of ext4": _each(
        "held = os.open(mount + '/c', os.O_CREAT | os.O_RDONLY)",
        f"os.close(put(mount + '/c.tmp', {PAGES}))",
        "os.replace(mount + '/c.tmp', mount + '/c')",
        "os.close(held)",
    ),
    "making new files of ext4": _each(f"os.close(put(mount + f'/c-{{n}}', {PAGES}))"),
}
"""Programs that write the checkpoint, each on a file system of its own."""


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory, backend):
    with FileSystems(tmp_path_factory.mktemp("disks")) as file_system:
        disks = {name: file_system(64, name=name) for name in WAYS}
        yield Written(record_loads, WAYS, disks, backend=backend)


def counted(recorded, load, identity):
    """N and U of the checkpoint's pages, and the pages of files of unknown paths."""
    found = page_writebacks(recorded.trace, [recorded.dev(load)], Identity(identity))
    assert found.by_mapping.get("not mapped", 0) == 0
    data = found.page[found.bios.data[found.bios.of_pages()]]
    assert len(data) < len(found)  # the journal and metadata are written, too
    return len(data), len(np.unique(data)), found.by_mapping.get("path not known", 0)


@pytest.mark.parametrize(
    ("load", "file", "path", "not_known"),
    [
        ("truncating ext4", PAGES, PAGES, 0),
        ("overwriting ext4", PAGES, PAGES, 0),
        ("renaming ext4", WHOLE, PAGES, 0),
        # The old file goes after the rename: nothing tells that its path went on. The last remains.
        ("renaming over an open file of ext4", WHOLE, WHOLE, WHOLE - PAGES),
        ("making new files of ext4", WHOLE, WHOLE, 0),
    ],
)
@every_backend
def test_distinct_pages_by_file_path_and_index(recorded, load, file, path, not_known):
    assert counted(recorded, load, "file") == (WHOLE, file, 0)
    assert counted(recorded, load, "path") == (WHOLE, path, not_known)
    assert counted(recorded, load, "index") == (WHOLE, PAGES, 0)


@every_backend
def test_distinct_pages_by_block(recorded):
    def unique(load):
        written, distinct, _ = counted(recorded, load, "block")
        assert written == WHOLE
        return distinct

    assert unique("overwriting ext4") == PAGES
    assert unique("making new files of ext4") == WHOLE
    # Freed blocks may be used again once the journal has forgotten them: not by the next write.
    for load in ("truncating ext4", "renaming ext4"):
        assert 2 * PAGES <= unique(load) <= WHOLE
