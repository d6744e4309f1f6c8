"""The kernel's threads that read for an io_uring belong to the job."""

import json
import os

import pytest

from tests.support.backends import every_backend
from tests.support.binaries import compile_c, needs_binutils
from tracer.analysis.views.catalogue import answer
from tracer.store.trace import Trace

PAGES = 211
FAR = 1 << 20
LOAD = (
    """
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *map(int fd, long bytes, long at) {
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_POPULATE;
    return mmap(0, bytes, PROT_READ | PROT_WRITE, flags, fd, at);
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

int main(int count, char **words) {
    struct io_uring_params told = {0};
    int ring = syscall(SYS_io_uring_setup, 8, &told), file = open(words[1], O_RDONLY);
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    if (ring < 0) return 77;
    char *asked = map(ring, told.sq_off.array + 8 * 4, IORING_OFF_SQ_RING);
    char *done = map(ring, told.cq_off.cqes + 16 * 16, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry = (void *)map(ring, 8 * sizeof *entry, IORING_OFF_SQES);
    unsigned *tail = (void *)(asked + told.sq_off.tail);
    unsigned *array = (void *)(asked + told.sq_off.array);
    unsigned mask = *(unsigned *)(asked + told.sq_off.ring_mask);
    char *memory = map(-1, PAGES * 4096L, 0);
    madvise(memory, PAGES * 4096L, MADV_NOHUGEPAGE);
    long before = faults();
    for (long n = 0; n < PAGES; n++) {
        struct io_uring_sqe read = {.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = file};
        read.addr = (unsigned long)(memory + n * 4096);
        read.len = atol(words[2]);
        read.off = n * atol(words[3]);
        entry[*tail & mask] = read;
        array[*tail & mask] = *tail & mask;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        ++*(unsigned *)(done + told.cq_off.head);
    }
    long after = faults();
    printf("[%ld, %ld]", (long)memory, after - before);
    return 0;
}
"""
).replace("PAGES", str(PAGES))


@needs_binutils
@every_backend
def test_faults_of_io_uring_s_threads_are_recorded(tracer, tmp_path, backend):
    load = compile_c(tmp_path, LOAD)
    options = ("-e", "page_faults", "--backend", backend)
    ran = tracer(
        "record", *options, "-o", "x.trace", "--", load, "/dev/zero", "1", "0", status=None
    )
    if ran.status == 77:
        pytest.skip("this machine allows no io_uring")
    begin, faults = json.loads(ran.out)
    assert PAGES <= faults < PAGES + 20
    with Trace(tmp_path / "x.trace") as trace:
        found = trace.rows(
            "SELECT f.kind, f.user, t.comm, count(*) FROM page_faults f JOIN processes t "
            f"USING (tid) WHERE address BETWEEN {begin} AND {begin + PAGES * 4096 - 1} GROUP BY ALL"
        )
    assert [(kind, user, count) for kind, user, _, count in found] == [("minor", False, PAGES)]
    assert found[0][2].startswith("iou-wrk-")


@needs_binutils
@pytest.mark.parametrize("backend", ["ebpf", "perf"])
def test_a_worker_that_reads_a_file_waits_for_the_disk(tracer, tmp_path, backend):
    """The job's own thread waits for the worker, as `waits` tells by its name."""
    load, path = compile_c(tmp_path, LOAD), tmp_path / "data"
    with path.open("wb") as file:
        for page in range(PAGES):
            file.seek(page * FAR)
            file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    options = ("-e", "default,sched,page_cache", "--backend", backend)
    words = (load, path, "4096", str(FAR))
    ran = tracer("record", *options, "-o", "x.trace", "--", *words, status=None)
    if ran.status == 77:
        pytest.skip("this machine allows no io_uring")
    with Trace(tmp_path / "x.trace") as trace:
        reads = answer(trace, f"SELECT missed, wait_ns FROM reads WHERE path = '{path}'")
        waits = answer(
            trace,
            "SELECT kind, certainty, count(DISTINCT detail) AS devices, sum(dur_ns) AS ns"
            " FROM waits WHERE starts_with(comm, 'iou-wrk-') AND contains(state, 'D') GROUP BY ALL",
        )
    assert [tuple(row) for row in waits.iloc[:, :3].to_numpy()] == [("disk", "exact", 1)]
    assert list(reads["missed"]) == [PAGES]
    assert list(reads["wait_ns"]) == list(waits["ns"])
