"""An awaited container that ran PyTorch without marks: the end of the recording tells."""

import pytest

from tests.support.traces import make_trace
from tracer.cli.recorded import say_without_phases
from tracer.session.options import Outcome

TORCH = "/usr/lib/python3/site-packages/torch/lib/libtorch_cpu.so"
TOLD = (
    "tracer: no phases of container job are known, and it ran PyTorch: it began after uprobes were"
    " set; start it with the variables of docs/phases.md, or record it without --wait once it"
    " trains\n"
)


@pytest.fixture
def said(tmp_path, capsys):
    """Returns the words at the end of a recording of the container `job`, of process 7."""

    def say(ip_file=TORCH, phases=(), arrived=True, faults=True):
        tables = {
            "processes": [{"pid": 7, "tid": 7, "role": "target", "target": "job"},
                          {"pid": 8, "tid": 8, "role": "other"}],
            "phases": [{"name": "step", "start": 1, "end": 2, **row} for row in phases],
        }  # fmt: skip
        if faults:
            tables["page_faults"] = [
                {"pid": pid, "tid": pid, "ip_file": file, "user": True}
                for pid, file in ((7, ip_file), (8, TORCH))
            ]
        target = {"kind": "container", "name": "job", "role": "target", "pid": 7, "container": "c"}
        container = {"id": "c", "name": "job", "image": "", "pid": 7}
        containers = [container | ({"arrived": True} if arrived else {})]
        made = make_trace(tmp_path / "t", tables, targets=[target], containers=containers)
        made.close()
        say_without_phases(Outcome(tmp_path / "t", made.manifest, 0))
        return capsys.readouterr().err

    return say


def test_a_container_that_ran_pytorch_without_phases_is_named_with_the_mend(said):
    assert said(phases=[{"pid": 8, "tid": 8}]) == TOLD


@pytest.mark.parametrize(
    "recording",
    [
        {"phases": [{"pid": 7, "tid": 7}]},
        {"phases": [{"pid": None, "tid": None}]},  # of a container's process that had ended
        {"ip_file": "/usr/lib/libc.so.6"},
        {"arrived": False},
        {"faults": False},
    ],
    ids=["it has phases", "somebody has", "it ran no PyTorch", "it was not awaited", "not known"],
)
def test_nothing_is_said_if_it_has_phases_or_may_have_run_no_pytorch(said, recording):
    assert said(**recording) == ""
