"""perf beside a recording, on a machine that lacks what it needs: told, or refused."""

import os
import shutil

import pytest

from tracer.probes.backends.perf_tools import command
from tracer.store.trace import Trace

pytestmark = pytest.mark.usefixtures("perfs")

FILES = 23


@pytest.mark.parametrize(
    ("hiding", "why"),
    [
        ("mount --bind /dev/null /proc/kallsyms", "hides the addresses"),
        ("mount --bind /proc/1/mem /proc/kallsyms", "/proc/kallsyms cannot be read"),
    ],
)
def test_kernel_functions_that_have_no_names_are_told(hidden, load, tmp_path, hiding, why):
    rename = f"for _ in range({FILES}): ctypes.CDLL(None).prctl(15, b'nameless', 0, 0, 0)"
    source = f"import ctypes\n{rename}"
    options = ("-e", "block", "-o", "x.trace", "--callgraph", "task:task_rename")
    ran = hidden([hiding], "record", *options, "--", *load(source))
    assert ran.status == 0, ran.err
    [said] = [line for line in ran.err.splitlines() if "no names" in line]
    assert said.startswith("tracer: the functions of the kernel have no names in the call graphs")
    assert why in said
    told = hidden([], "info", "x.trace").out
    assert "no names    functions of the kernel in call graphs" in told
    with Trace(tmp_path / "x.trace") as trace:
        stacks = trace.rows("SELECT stack, count FROM call_graphs")
    assert sum(count for _, count in stacks) >= FILES  # others get names, too
    frames = {frame for stack, _ in stacks for frame in stack.split(";")}
    assert {frame for frame in frames if frame.endswith("_[k]")} == {"[unknown]_[k]"}


class TestRefusals:
    """Before anything is started, in one line, with the mend."""

    def refused(self, ran, tmp_path):
        assert ran.err.count("\n") == 1, ran.err
        assert not (tmp_path / "x.trace").exists()
        assert not (tmp_path / "ran").exists()
        return ran.err

    @pytest.mark.parametrize("option", [["--perf-stat"], ["--callgraph", "block:block_rq_insert"]])
    def test_no_perf(self, tracer, tmp_path, option):
        (tmp_path / "bin").mkdir()
        environment = {**os.environ, "PATH": str(tmp_path / "bin")}
        touch = shutil.which("touch")
        ran = tracer(
            "record", "-o", "x.trace", *option, "--", touch, "ran", status=5, env=environment
        )
        assert "no perf command; apt-get install linux-perf" in self.refused(ran, tmp_path)

    @pytest.mark.parametrize("event", ["block:no_such_event", "nonsense", "block:*"])
    def test_an_event_that_is_not_there(self, tracer, tmp_path, event):
        ran = tracer(
            "record", "-o", "x.trace", "--callgraph", event, "--", "touch", "ran", status=2
        )
        assert event in self.refused(ran, tmp_path)
        assert "tracer list" in ran.err

    def test_cycles_where_the_machine_has_none(self, tracer, tmp_path):
        if command.find_perf().counts("cycles"):
            pytest.skip("this machine counts cycles")
        ran = tracer("record", "-o", "x.trace", "--callgraph", "cycles", "--", "true", status=5)
        assert "cannot count cycles" in self.refused(ran, tmp_path)
