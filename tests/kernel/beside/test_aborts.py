"""A second Ctrl-C, and more of them, at any moment of a recording: nothing stays in the kernel."""

import signal
import time

import pytest

from tests.support.recorder import CALLS, ours
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.probes.kernel import find_tracefs

BACKENDS = pytest.mark.parametrize("backend", ["auto", "ftrace"])


def press(process, times):
    """Presses Ctrl-C several times."""
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)


def aborted(process):
    """Waits for the end of an aborted recorder, which says so in one line and nothing else."""
    _, err = process.communicate(timeout=120)
    said = [line for line in err.splitlines() if not line.startswith("Tracing ")]
    assert (process.returncode, said) == (130, ["tracer: interrupted before it was done"])


@BACKENDS
@pytest.mark.parametrize("times", [1, 3])
def test_an_abort_while_instances_are_made_leaves_none(tmp_path, instances, backend, times):
    """The first Ctrl-C comes before there is one, the next ones as the kernel makes it."""
    command = ("record", "--backend", backend, *CALLS, "-o", "x.trace", "--", "sleep", "60")
    with Tracer(*command, cwd=tmp_path) as process:
        wait_for((tmp_path / "x.trace").exists, "the folder of the trace")
        process.send_signal(signal.SIGINT)
        while not ours(instances, process):
            assert process.poll() is None
        press(process, times)
        aborted(process)
        assert ours(instances, process) == set()
    wait_for(lambda: not list(tmp_path.iterdir()), "the guardian to remove the folder")


@BACKENDS
def test_aborts_while_a_recording_ends_leave_no_instance(
    recorder, loop, instances, tracer, tmp_path, backend
):
    process = recorder("--backend", backend, *CALLS, "-p", loop.pid)
    folder = find_tracefs() / "instances"
    mine = [folder / name / "tracing_on" for name in ours(instances, process)]

    def stopped():
        try:
            return all(on.read_text() == "0\n" for on in mine)
        except OSError:  # it is being removed
            return True

    process.send_signal(signal.SIGINT)
    wait_for(stopped, "the end of the capture")
    press(process, 3)
    aborted(process)
    assert ours(instances, process) == set()
    assert tracer("info", "x.trace", "--json").json["tables"]["syscalls"]["rows"] > 0
