"""Libraries without uprobes: the trace says that their calls are missing."""

import mmap
import os
import re
import shutil
import subprocess
from functools import partial

import pytest

from tests.support.losses import losses
from tracer.probes.events import opens
from tracer.probes.proc import read_maps
from tracer.session import libraries
from tracer.store.trace import Trace

LOAD = f"""
import mmap, os, sys
held = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        held.append(mmap.mmap(file.fileno(), {mmap.PAGESIZE}, prot=mmap.PROT_READ | mmap.PROT_EXEC))
os.write(1, b"r")
os.read(0, 1)
"""


def _few(most):
    libraries._MOST_COPIES = most


@pytest.fixture
def own_library():
    """The C library of this process."""
    paths = (os.fsdecode(mapped.path) for mapped in read_maps() if mapped.executable)
    return next(path for path in paths if re.search(opens.PATH, os.fsencode(path)))


@pytest.fixture
def recorded(tracer, load, tmp_path):
    """Record the names of files that a process opens; it has mapped the files that are given."""

    def run(*paths, most=16):
        with subprocess.Popen(
            [*load(LOAD), *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as job:
            assert job.stdout.read(1) == b"r"
            options = ("-e", "opens", "-o", "x.trace", "-d", "1", "-p", job.pid)
            tracer("record", *options, before=partial(_few, most))
            job.kill()
        return Trace(tmp_path / "x.trace")

    return run


def test_files_beyond_the_limit_are_a_loss(recorded, own_library, tmp_path):
    copy = shutil.copy(own_library, tmp_path)
    with recorded(copy, most=1) as trace:
        assert losses(trace) == ["opens: ? 1 processes with more than 1 files of the library"]
        assert "opens" not in trace.manifest["capture"]["missing"]


def test_a_file_that_is_no_library_does_not_keep_the_others_from_being_probed(
    recorded, own_library, tmp_path
):
    bad = tmp_path / "libc.so.6"
    bad.write_bytes(bytes(mmap.PAGESIZE))
    with recorded(bad) as trace:
        assert losses(trace) == ["opens: ? 1 files of the library left out: no functions found"]
        assert "opens" not in trace.manifest["capture"]["missing"]
        assert "libc:open" in trace.manifest["capture"]["formats"]


def test_a_probe_without_a_library_says_why(recorded, own_library):
    with recorded(most=0) as trace:
        why = "1 processes with more than 0 files of the library"
        assert trace.manifest["capture"]["missing"]["opens"] == [why]
        assert losses(trace) == [f"opens: ? {why}"]


def test_a_library_with_uprobes_lacks_nothing(recorded):
    with recorded() as trace:
        assert losses(trace) == []
