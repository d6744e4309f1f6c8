"""Inserted requests by disk: as many as were written, and as ftrace sees, on each disk alone."""

import pytest

from tests.support.file_systems import FileSystems, numbers_of
from tracer.analysis.report.perf import call_chains as by_device
from tracer.analysis.studies.chains import INSERT, chain_measures
from tracer.analysis.views.call_graphs import WRITE_BACK
from tracer.analysis.views.disks.requests import OPERATION
from tracer.workloads.studies import scheduler

pytestmark = pytest.mark.usefixtures("perfs")

WRITTEN, READ, ELSEWHERE, IN_PARTITION = 101, 13, 29, 11
SYNCED = 23
MEBIBYTE = 1 << 20


@pytest.fixture
def disks(tmp_path):
    """Loop devices with a scheduler: bare, the other one, with a partition, with a file system."""
    with FileSystems(tmp_path) as made:
        images = [tmp_path / f"{name}.img" for name in ("bare", "other")]
        for image in images:
            with image.open("wb") as file:
                file.truncate(16 * MEBIBYTE)
        bare, other = (made.loop(image) for image in images)
        partition, disk = made.partition("parted", 16)
        mount, of_mount = made(name="fs")
        numbers = [numbers_of(bare), numbers_of(other), numbers_of(disk), of_mount]
        try:
            for number in numbers:
                if scheduler.set_inserting(number, tmp_path) not in scheduler.INSERTING:
                    pytest.skip("this kernel has no scheduler that inserts requests")
            yield (bare, other, partition, mount), numbers
        finally:
            scheduler.put_back(numbers, tmp_path)


def test_requests_are_counted_on_their_disk_alone(record, load, disks):
    (bare, other, partition, mount), (own, others, parted, of_mount) = disks
    direct = [
        f"of={bare} if=/dev/zero oflag=direct count={WRITTEN}",
        f"if={bare} of=/dev/null iflag=direct count={READ}",
        f"of={other} if=/dev/zero oflag=direct count={ELSEWHERE}",
        f"of={partition} if=/dev/zero oflag=direct count={IN_PARTITION}",
    ]
    trace = record(
        load(
            f"""
            import os, subprocess
            commands = [
                subprocess.Popen(["dd", "bs=4096", "conv=notrunc", "status=none", *line.split()])
                for line in {direct}
            ]
            for n in range({SYNCED}):
                with open(f"{mount}/{{n}}", "wb") as file:
                    file.write(b"x" * 4096)
                    file.flush()
                    os.fsync(file.fileno())
            with open("{mount}/large", "wb") as file: file.write(b"x" * {MEBIBYTE})
            assert [one.wait() for one in commands] == [0] * {len(direct)}
            os.sync()
            """
        ),
        *("--callgraph", INSERT, "-e", "block,processes"),
    )

    def counts(query):
        return {(dev, operation): n for dev, operation, n in trace.sql(query).values.tolist()}

    ours = counts("SELECT dev, operation, sum(count)::BIGINT FROM call_graphs GROUP BY ALL")
    here = {key: n for key, n in ours.items() if key[0] in (own, others, parted)}
    assert here == {
        (own, "write"): WRITTEN,
        (own, "read"): READ,
        (others, "write"): ELSEWHERE,
        (parted, "write"): IN_PARTITION,
    }
    # Every disk, by ftrace: also the one with the file system, its journal and its write-back.
    theirs = counts(
        f"SELECT dev, {OPERATION}, count(*) FROM block WHERE event = 'insert' GROUP BY ALL"
    )
    loops = {own, others, parted, of_mount}
    assert {k: n for k, n in ours.items() if k[0] in loops} == {
        k: n for k, n in theirs.items() if k[0] in loops
    }
    # All requests of data pass the scheduler; the flushes of the disk's cache do not.
    issued = counts(
        f"SELECT dev, {OPERATION}, count(*) FROM block WHERE event = 'issue' GROUP BY ALL"
    )
    data = {k: n for k, n in issued.items() if k[0] in loops and k[1] != "flush"}
    assert data == {k: n for k, n in ours.items() if k[0] in loops}

    chains = by_device(trace).set_index(["dev", "chain"])
    assert chains.loc[(own, "direct I/O"), "count"] == WRITTEN + READ
    assert chains.loc[(own, "direct I/O"), "writes"] == WRITTEN
    flusher = chains.loc[(of_mount, WRITE_BACK)]
    assert flusher["path"].startswith("wb_workfn > ")
    assert chains.loc[(of_mount, "fsync"), "writes"] >= SYNCED
    found = chain_measures(trace, numbers_of(partition))
    assert (found["insert_reads"], found["insert_by_wb_workfn"]) == (0.0, 0.0)
    found = chain_measures(trace, of_mount)
    written = sum(
        n for (dev, operation), n in theirs.items() if (dev, operation) == (of_mount, "write")
    )
    assert found["insert_writes_by_wb_workfn"] == pytest.approx(flusher["writes"] / written)
    everything = sum(ours.values())
    there = sum(n for (dev, _), n in ours.items() if dev != of_mount)
    assert found["insert_other_disks"] == pytest.approx(there / everything)
