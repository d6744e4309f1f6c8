"""A folder whose files this user may not open: the manifest names some, since it has a limit."""

import os

import pytest

from tests.support.attacker import NOBODY, place  # noqa: F401 a fixture
from tracer.probes.sampler.residency import Residency

FILES = 307


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to become another user")
def test_files_that_may_not_be_opened_are_named_up_to_a_number(place):  # noqa: F811
    folder = place / "theirs/many"
    folder.mkdir()
    for number in range(FILES):
        (folder / str(number)).touch(0)
    reads, writes = os.pipe()
    if not (pid := os.fork()):
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            reader = Residency([folder])
            reader.read()
            os.write(writes, str(len(reader.missing)).encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(pid, 0)
    with os.fdopen(reads) as told:
        assert told.read() == "101"
