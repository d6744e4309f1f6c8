"""A CPU on which DuckDB does not run: doctor says so, and a recording keeps its events."""

import json

from tests.support.loads import PYTHON
from tests.support.warm import Tracer
from tracer.probes import cpu
from tracer.store.trace import Trace

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def dying():
    """Makes DuckDB end its process as on a CPU that lacks an instruction."""
    cpu._ENOUGH, cpu._TRY = "no feature of any CPU", DIES


def run(tmp_path, *arguments):
    with Tracer(*arguments, cwd=tmp_path, before=dying) as process:
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


def test_duckdb_runs_here():
    assert cpu.why_no_duckdb() is None


def test_doctor_says_so(tmp_path):
    status, out, _ = run(tmp_path, "doctor", "--json")
    (found,) = [one for one in json.loads(out)["checks"] if one["name"] == "DuckDB"]
    assert status == 0
    assert not found["ok"]
    assert "SIGILL" in found["found"]
    assert "AVX2" in found["mend"]


def test_a_recording_keeps_its_events_for_another_machine(tmp_path):
    calls = "import os\nfor _ in range(1009): os.getppid()"
    command = (*PYTHON, "-c", calls)
    status, _, err = run(tmp_path, "record", "-e", "syscalls", "-o", "x.trace", "--", *command)
    assert status == 5
    assert err.splitlines()[-1].startswith("tracer: the tables cannot be made here: DuckDB")
    assert "x.trace" in err
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "command"
        assert trace.rows("SELECT count(*) FROM syscalls WHERE name = 'getppid'") == [(1009,)]
