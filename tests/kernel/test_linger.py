"""A recording that lingers sees what the kernel does after its targets have ended."""

import signal
import subprocess
import time

import pytest

from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace

pytestmark = pytest.mark.settings

LEFT_DIRTY = """
import sys
with open(sys.argv[1] + "/left", "wb") as file:
    file.write(bytes(4096 * 37))
"""


def pages_of(folder, dev):
    """Returns the data pages written to a device by reason."""
    with Trace(folder) as trace:
        return dict(
            trace.connection.execute(
                f"SELECT reason, sum(pages)::INT FROM {flushes(trace)}"
                " WHERE dev = ? AND path LIKE '%/left' GROUP BY reason",
                [dev],
            ).fetchall()
        )


def test_writes_of_the_flusher_after_the_commands_end_are_recorded(
    file_system, tracer, load, sysctls, tmp_path
):
    sysctls(dirty_expire_centisecs=100_000, dirty_writeback_centisecs=20)
    mount, dev = file_system(kind="ext4")
    ran = ("--", *load(LEFT_DIRTY), mount)
    tracer("record", "-o", "without.trace", *ran)
    (mount / "left").unlink()
    sysctls(dirty_expire_centisecs=100)
    tracer("record", "-o", "with.trace", "--linger", "2", *ran)
    assert pages_of(tmp_path / "without.trace", dev) == {}
    assert pages_of(tmp_path / "with.trace", dev) == {"periodic": 37}
    with Trace(tmp_path / "with.trace") as trace:
        assert trace.manifest["ended_by"] == "command"
        assert trace.manifest["linger_s"] == 2
        assert trace.manifest["duration_s"] >= 2


@pytest.mark.parametrize("target", ["command", "target"])
def test_a_signal_ends_the_lingering_and_keeps_the_status(target, tmp_path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
        what = ("--", "sh", "-c", "exit 7") if target == "command" else ("-p", cat.pid)
        process = Tracer(
            "record", "-e", "syscalls", "-o", "x.trace", "--linger", "3600", *what, cwd=tmp_path
        )
        wait_for(lambda: (tmp_path / "x.trace/raw/threads.json").exists(), "the recording")
        cat.stdin.close()
        cat.wait(timeout=60)
        time.sleep(1)  # the recorder looks four times a second
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=120)
    assert process.returncode == (7 if target == "command" else 0), err
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == target
        assert trace.manifest["complete"] is True


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--linger", "-1", "--", "true"), "--linger -1.0 is out of range"),
        (("--linger", "nan", "--", "true"), "--linger nan is out of range"),
        (("--linger", "3", "-a"), "--linger waits for targets to end"),
    ],
)
def test_an_impossible_time_is_refused(tracer, arguments, complaint):
    assert complaint in tracer("record", *arguments, status=2).err
