"""Two containers of one name, one after the other: what each does is its own."""

import pytest

from tests.docker.conftest import WORDS, init_of, wait_for
from tracer.analysis.findings.tenants import tenants
from tracer.analysis.report.waits import waits_table
from tracer.analysis.views.writing.flushes import flushes

pytestmark = pytest.mark.quiet

FIRST, SECOND, HOST = 31, 43, 7

WRITES = """
fd = os.open("/shared/" + sys.argv[3] + ".dat", os.O_CREAT | os.O_WRONLY, 0o600)
os.pwrite(fd, os.urandom(4096 * int(sys.argv[2])), 0)
os.fsync(fd)
say(sys.argv[3] + "-wrote")
wait_for(sys.argv[3] + "-goes")
"""
WAITING = f"""{WORDS}
name = sys.argv[1]
say(sys.argv[3] + "-is-up")
wait_for(sys.argv[3])
"""


@pytest.mark.parametrize("awaited", [False, True])
def test_each_of_two_containers_of_one_name_has_its_own_writes(
    dockerd, file_system, record, awaited
):
    """Only the first one is a target: its removal ends it, and another target goes on."""
    mount, dev = file_system()

    def run(name, pages, file):
        source = WAITING + WRITES
        made = dockerd.run(name, source, name, pages, file, shared=mount)
        wait_for((mount / f"{file}-is-up").exists, file)
        return made

    other = run("other", HOST, "third")
    assert init_of(other)
    if awaited:
        recording = record("--container", "job,other", "--wait", "-e", "default,sched")
        first = run("job", FIRST, "first")
    else:
        first = run("job", FIRST, "first")
        recording = record("--container", "job,other", "-e", "default,sched")
    (mount / "first").touch()
    wait_for((mount / "first-wrote").exists, "the first writes")
    first.remove(force=True)
    second = run("job", SECOND, "second")
    for file in ("second", "third"):
        (mount / file).touch()
        wait_for((mount / f"{file}-wrote").exists, file)
    with recording.stop() as trace:
        flushes(trace)
        found = trace.rows(
            "SELECT parse_filename(path), target, container, whose, sum(pages)::INT FROM flushes"
            f" WHERE dev = '{dev}' AND path LIKE '%.dat' AND NOT contains(rwbs, 'M')"
            " GROUP BY ALL ORDER BY 1"
        )
        assert found == [
            ("first.dat", "job", first.id, "target", FIRST),
            ("second.dat", None, second.id, "other", SECOND),
            ("third.dat", "other", other.id, "target", HOST),
        ]
        names = trace.rows(
            "SELECT DISTINCT container_id, container_name, target FROM processes"
            " WHERE role IN ('target', 'child', 'other') AND container_id IS NOT NULL ORDER BY ALL"
        )
        expected = [
            (first.id, "job", "job"),
            (second.id, "job", None),
            (other.id, "other", "other"),
        ]
        assert names == sorted(expected)
        (share,) = (one for one in tenants(trace) if one.topic == "writers")
        assert share.sentence.startswith("container job dirtied at least ")
        blamed = waits_table(trace)
        blamed = set(blamed[blamed["whose"] == "container"]["blamed"])
        assert blamed <= {second.id[:12]}
