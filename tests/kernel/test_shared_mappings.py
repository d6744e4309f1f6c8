"""Two processes write a file through shared mappings: who dirtied how many bytes of it."""

import json

import pytest

from tests.support import loads
from tests.support.backends import every_backend
from tests.support.file_systems import FileSystems
from tracer.analysis.views.writing.flushes import flushes

PAGE = 4096
FIRST, SECOND, AGAIN = 13, 17, 7

SOURCE = f"""
import json, mmap, os
os.chdir("MOUNT")

def dirty(name, pages, flags=mmap.MAP_SHARED, sync=False):
    child = os.fork()
    if child == 0:
        file = os.open(name, os.O_RDWR | os.O_NOATIME)
        with mmap.mmap(file, 64 * {PAGE}, flags) as memory:
            for page in pages:
                memory[page * {PAGE}] = 97
            if sync:
                memory.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return child

told = dict()
for name in ("apart", "in turn", "private", "msync"):
    with open(name, "wb") as file:
        for page in range(64):
            file.write(bytes({PAGE}))
            file.flush()
        os.fsync(file.fileno())
    told[name] = [os.stat(name).st_ino]
told["apart"] += [dirty("apart", range({FIRST})), dirty("apart", range(20, 20 + {SECOND}))]
os.sync()
told["in turn"] += [dirty("in turn", range({FIRST}))]
os.sync()
told["in turn"] += [dirty("in turn", range({FIRST}))]
os.sync()
told["private"] += [dirty("private", range({AGAIN}))]
told["private"] += [dirty("private", range({SECOND}), mmap.MAP_PRIVATE)]
os.sync()
told["msync"] += [dirty("msync", range({AGAIN})), dirty("msync", range(30, 33), sync=True)]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def written(backend, tmp_path_factory):
    """Processes and write-backs of each file: (reason, dirtier, certainty, dirtiers, pages).

    Pages are bytes in units of 4096.
    """
    folder = tmp_path_factory.mktemp("mappings")
    with FileSystems(folder) as make:
        mount, device = make(kind="ext4", mkfs=("-b", str(PAGE)))
        sources = {"job": SOURCE.replace("MOUNT", str(mount))}
        recorded = loads.record(folder, sources, backend=backend)
        flushes(recorded.trace)
        found = {}
        for name, (ino, *pids) in json.loads(recorded.loads["job"].out).items():
            rows = recorded.rows(
                "SELECT reason, dirtier, certainty, dirtiers, sum(nr_sector) / 8 FROM flushes"
                " WHERE dev = ? AND ino = ? AND dirtier != ? GROUP BY ALL ORDER BY min(ts)",
                device, ino, recorded.pid("job"),
            )  # fmt: skip
            found[name] = pids, rows
    recorded.trace.close()
    return found


@every_backend
def test_disjoint_pages_of_two_processes_have_both_as_dirtiers(written):
    (_, second), rows = written["apart"]
    assert rows == [("sync", second, "ambiguous", 2, FIRST + SECOND)]


@every_backend
def test_the_same_pages_belong_to_each_process_in_turn_if_they_were_clean_between(written):
    (first, second), rows = written["in turn"]
    assert rows == [("sync", first, "exact", 1, FIRST), ("sync", second, "exact", 1, FIRST)]


@every_backend
def test_a_private_mapping_beside_a_shared_one_dirties_nothing(written):
    (first, _), rows = written["private"]
    assert rows == [("sync", first, "exact", 1, AGAIN)]


@every_backend
def test_an_msync_writes_pages_of_the_other_process_too(written):
    (_, second), rows = written["msync"]
    assert rows == [("fsync", second, "ambiguous", 2, AGAIN + 3)]
