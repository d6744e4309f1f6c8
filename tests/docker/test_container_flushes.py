"""Each page that the flusher writes belongs to the host process or container that dirtied it."""

import time
from pathlib import Path

import pytest

from tests.docker.conftest import WAITING, init_of, wait_for
from tracer.analysis.views.writing.flushes import flushes

pytestmark = [pytest.mark.quiet, pytest.mark.settings]

PAGES = {"host": 41, "a4": 31, "b4": 37}

DIRTY = """
fd = os.open("/shared/" + name + ".dat", os.O_CREAT | os.O_WRONLY, 0o600)
os.pwrite(fd, os.urandom(4096 * int(sys.argv[2])), 0)
say(name + "-is-done")
time.sleep(1000)
"""

SECTORS_WRITTEN = 6


def written(dev):
    return int(Path(f"/sys/dev/block/{dev}/stat").read_text().split()[SECTORS_WRITTEN])


def wait_for_rest(dev):
    """Waits until nothing more has been written to a device for a while."""
    last = None
    while (now := written(dev)) != last:
        last = now
        time.sleep(0.3)


def test_each_page_belongs_to_the_container_that_dirtied_it(dockerd, file_system, record, sysctls):
    """The flusher writes the pages after a second and a half.

    A sync of another process may write them sooner, with another reason; that is no failure.
    """
    sysctls(dirty_expire_centisecs=150, dirty_writeback_centisecs=50)
    import subprocess

    from tests.support.dockerd import python

    mount, dev = file_system()
    containers = {
        name: dockerd.run(name, WAITING + DIRTY, name, PAGES[name], shared=mount)
        for name in ("a4", "b4")
    }
    source = (WAITING + DIRTY).replace("/shared", str(mount))
    with subprocess.Popen(python(source, "host", PAGES["host"])) as host:
        for name in PAGES:
            wait_for((mount / f"{name}-is-up").exists, name)
        recording = record("--container", "a4,b4", "-p", host.pid)
        before = written(dev)
        (mount / "go").touch()
        for name in PAGES:
            wait_for((mount / f"{name}-is-done").exists, name)
        wait_for(lambda: written(dev) - before >= 8 * sum(PAGES.values()), "the flusher", 90)
        wait_for_rest(dev)
        pids = {"host": host.pid} | {name: init_of(c) for name, c in containers.items()}
        with recording.stop() as trace:
            flushes(trace)
            found = trace.connection.execute(
                "SELECT path, dirtier, target, container, reason, certainty, sum(pages)::INT "
                "FROM flushes WHERE dev = ? AND NOT contains(rwbs, 'M') AND path LIKE '%.dat' "
                "GROUP BY ALL ORDER BY ALL",
                [dev],
            ).fetchall()
            queued = trace.sql(
                "SELECT count(*) n FROM writeback WHERE event = 'queue' AND reason = 'sync'"
            )["n"][0]
            targets = {t["pid"]: t["name"] for t in trace.manifest["targets"]}
            everything = trace.connection.execute(
                "SELECT sum(pages)::INT FROM flushes WHERE dev = ? AND NOT contains(rwbs, 'M')",
                [dev],
            ).fetchone()[0]
        host.kill()
    reason = {row[4] for row in found}
    assert reason == {"periodic"} or (queued and reason <= {"periodic", "sync"})
    assert [(*row[:4], *row[5:]) for row in found] == sorted(
        (
            str(mount / f"{name}.dat"),
            pids[name],
            targets[pids[name]],
            containers[name].id if name in containers else None,
            "exact",
            pages,
        )
        for name, pages in PAGES.items()
    )
    # The device has no other pages, because the words that the programs say are empty files.
    assert everything == sum(PAGES.values())
