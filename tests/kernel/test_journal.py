"""Commits of a real journal, against the kernel's own count (/proc/fs/jbd2)."""

import os
import re
from pathlib import Path

import pytest

from tests.support import loads
from tests.support.backends import every_backend
from tests.support.file_systems import FileSystems

STEPS = ["commit_start", "commit_flushing", "commit_logging", "commit_end"]
SYNCS = 7
LOAD = """
import os, sys
for number in range({syncs}):
    fd = os.open(f"{mount}/{{number}}", os.O_CREAT | os.O_WRONLY)
    os.fsync(fd)
"""


def counted(info):
    """The transactions that a journal has committed, by the kernel's account."""
    return int(re.match(r"(\d+) transactions", info.read_text())[1])


@pytest.fixture(scope="module")
def synced(backend, tmp_path_factory):
    """A recording of some calls of fsync, the file system's device, and the kernel's count."""
    folder = tmp_path_factory.mktemp("journal")
    with FileSystems(folder) as make:
        mount, dev = make(kind="ext4", options="commit=600,no_prefetch_block_bitmaps")
        node = Path(os.path.realpath(f"/sys/dev/block/{dev}")).name
        info = Path(f"/proc/fs/jbd2/{node}-8/info")
        before = counted(info)
        source = LOAD.format(mount=mount, syncs=SYNCS)
        found = loads.record(folder, {"syncs": source}, "-e", "journal", backend=backend)
        yield found, dev, counted(info) - before
    found.trace.close()


@every_backend
def test_commits_are_those_that_the_kernel_counts(synced):
    recorded, dev, commits = synced
    assert commits == SYNCS
    ended = "SELECT count(*) FROM journal WHERE dev = ? AND event = 'commit_end'"
    assert recorded.one(ended, dev) == commits


@every_backend
def test_a_commit_is_four_steps_of_the_journal_s_thread(synced):
    recorded, dev, commits = synced
    found = recorded.rows(
        "SELECT transaction_id, list(event ORDER BY ts), list(DISTINCT tid) FROM journal"
        " WHERE dev = ? GROUP BY 1 ORDER BY 1",
        dev,
    )
    numbers = [number for number, _, _ in found]
    assert numbers == list(range(numbers[0], numbers[0] + commits))
    assert [steps for _, steps, _ in found] == [STEPS] * commits
    (tids,) = {tuple(tids) for _, _, tids in found}
    query = "SELECT DISTINCT role FROM processes WHERE tid = ?"
    assert recorded.rows(query, *tids) == [("journal",)]
