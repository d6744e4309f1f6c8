"""A verb that is told to end removes its temporary files first."""

import os
import signal
import time

import pytest

from tests.support.traces import make_trace
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.cli.main import terminable
from tracer.store.packing import pack

ENDLESS = "SELECT count(*) FROM range(1000000000000) WHERE range % 7 = 3"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_verb_that_a_signal_ends_leaves_no_folder(tmp_path, number):
    make_trace(tmp_path / "x.trace", {"syscalls": []}).close()
    pack(tmp_path / "x.trace", tmp_path / "x.tar.zst")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary)}
    with Tracer("query", "x.tar.zst", ENDLESS, cwd=tmp_path, env=env) as process:
        # One folder has the unpacked trace, the other one what DuckDB spills.
        wait_for(lambda: len(list(temporary.iterdir())) == 2, "the query to begin")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_disturb_the_clean_up(number):
    before = signal.getsignal(number)
    cleaned = []
    with pytest.raises(KeyboardInterrupt), terminable():
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)
    assert cleaned and signal.getsignal(number) is before


def test_an_ignored_hangup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
