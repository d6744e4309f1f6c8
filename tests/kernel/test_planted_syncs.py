"""Waits for an fsync on ext4: its pages, others' data, the journal, the device's cache.

The disk serves one request at a time, and its log says when it was at which block. So the truth is
where the blocks lie: in the file that is synced, in other files, or in the journal.
"""

from __future__ import annotations

import pytest

from tests.support.planted import CHARGED, MISTAKEN, MS, during, load, windows
from tests.support.slow_disk import slow_disk, spent
from tests.support.slow_ext4 import BLOCK, QUIET, REQUEST_MS, blocks_of, mounted
from tracer.analysis.views.waiting.critical_path import critical_path

pytestmark = pytest.mark.kernel

JOURNAL = "<8>"
"""The journal's inode, as debugfs takes it."""
# Every second block, so that no two of them make one request.
OWN = range(0, 18, 2)
OTHERS = 9
OPTIONS = f"{QUIET},nodelalloc,commit=600"

SYNCS = load(f"""
own = os.open(sys.argv[1] + "/own", os.O_RDWR)
others = [os.open(f"{{sys.argv[1]}}/other{{n}}", os.O_RDWR) for n in range({OTHERS})]

def overwrite():
    for block in {OWN!r}: os.pwrite(own, os.urandom({BLOCK}), block * {BLOCK})

def grow():
    os.truncate(own, os.fstat(own).st_size + 1)

blocks = iter((2, 4))

def others_grow():
    block = next(blocks)
    pid = os.fork()
    if pid == 0:
        for other in others: os.pwrite(other, os.urandom({BLOCK}), block * {BLOCK})
        os._exit(0)
    os.waitpid(pid, 0)
    grow()

def all_of_it():
    others_grow()
    overwrite()

prepares = iter([overwrite, grow, others_grow, all_of_it, lambda: None])
calls = [os.fdatasync, os.fsync, os.fsync, os.fsync]
steps([*(lambda call=call: call(own) for call in calls), nothing], lambda: next(prepares)())
""")


@pytest.fixture(scope="module")
def synced(record_loads, tmp_path_factory):
    """The recording, the requests of the disk, and the blocks of each file."""
    folder = tmp_path_factory.mktemp("syncs")
    mount = folder / "mount"
    (folder / "syncs.py").write_text(SYNCS)
    files = {"own": bytes(BLOCK * 18)} | {f"other{n}": b"x" for n in range(OTHERS)}
    with slow_disk(folder, "d", REQUEST_MS) as disk:
        with mounted(disk, mount, files, OPTIONS, "-b", BLOCK):
            found = record_loads(
                {"syncs": ["/usr/bin/python3", "-S", "-E", folder / "syncs.py", mount]},
                "-e", "default,sched",
            )  # fmt: skip
        others = set().union(*(blocks_of(disk, f"/other{n}") for n in range(OTHERS)))
        places = {"pages": blocks_of(disk, "/own"), "data": others}
        places["journal"] = blocks_of(disk, JOURNAL)
        critical_path(found.trace)
        yield found, disk.requests(), places


def truth(requests, places, window) -> dict[str, tuple[int, int]]:
    """The least and the most time (ns) within a window that each part of a sync took.

    A write to the journal after a flush is the commit record, which asks for the flush.
    """
    flushed = False

    def part_of(offset, kind):
        nonlocal flushed
        if kind == "f":
            flushed = True
            return "flush"
        at = (name for name, blocks in places.items() if offset // BLOCK in blocks)
        part = next(at, "elsewhere")
        return "flush" if part == "journal" and flushed else part

    none = dict.fromkeys(("pages", "data", "journal", "flush", "elsewhere"), (0, 0))
    return none | spent(requests, window, part_of)


@pytest.mark.parametrize(
    ("number", "parts"),
    [
        (0, {"pages", "flush"}),
        (1, {"journal", "flush"}),
        (2, {"data", "journal", "flush"}),
        (3, {"pages", "data", "journal", "flush"}),
    ],
)
def test_an_fsync_waits_for(synced, number, parts):
    recorded, requests, places = synced
    window = windows(recorded, "syncs")[number]
    length = window[1] - window[0]
    assert during(recorded, "syncs", window, "true") == length
    others = during(recorded, "syncs", window, "kind = 'cpu'")
    assert during(recorded, "syncs", window, "kind = 'sync'") >= CHARGED * (length - others)
    expected = truth(requests, places, window)
    half = 0.5 * REQUEST_MS * MS
    assert {part for part, (least, _) in expected.items() if least >= half} == parts
    near = (1 - CHARGED) * length
    for part, (least, most) in expected.items():
        told = during(recorded, "syncs", window, f"kind = 'sync' AND detail = '{part}'")
        assert least - near <= told <= most + near, (part, expected)


def test_others_wrote_and_the_thread_that_was_waited_for_is_the_journal_s(synced):
    recorded, _, _ = synced
    window = windows(recorded, "syncs")[2]
    by = "detail IN ('data', 'journal') AND by_comm LIKE 'jbd2/%'"
    told = during(recorded, "syncs", window, "detail IN ('data', 'journal')")
    assert told == during(recorded, "syncs", window, by) > 0


def test_a_step_without_a_sync_waits_for_none(synced):
    recorded, _, _ = synced
    control = windows(recorded, "syncs")[-1]
    told = during(recorded, "syncs", control, "kind = 'sync'")
    assert told <= MISTAKEN * (control[1] - control[0])
