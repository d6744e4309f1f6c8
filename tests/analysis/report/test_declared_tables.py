"""Each table of the report is what its declaration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report.by_phase import BY, by_phase
from tracer.analysis.report.tables import DECLARED, TABLES
from tracer.analysis.views.energy import energy
from tracer.probes.catalogue import TABLES as RECORDED
from tracer.store.trace import Trace

FIXTURE = Path(__file__).parents[3] / "fixtures" / "lenet.trace"
DOC = Path(__file__).parents[3] / "docs" / "report.md"


@pytest.fixture(scope="module", params=["recorded", "empty"])
def trace(request, tmp_path_factory):
    if request.param == "recorded":
        opened = Trace(FIXTURE)
    else:
        opened = make_trace(tmp_path_factory.mktemp("t") / "t", {name: [] for name in RECORDED})
    with opened as found:
        yield found


WITHOUT = (
    *("waits", "summaries", "counters", "call_chains", "call_graphs", "samples"),
    *("reads_by_epoch", "reads_by_file", "evictions"),
)
"""Tables that the recorded trace lacks."""


@pytest.mark.parametrize("name", TABLES)
def test_the_frame_has_the_declared_columns_in_their_order(trace, name):
    table = TABLES[name]
    if not table.is_possible(trace):
        assert name in WITHOUT
        return
    assert list(table.of(trace).columns) == names_of(name)


@pytest.mark.parametrize("by", BY)
def test_a_table_by_phase_has_declared_columns(trace, by):
    assert [*BY[by], *names_of("by_phase")[4:]] == list(by_phase(trace, by).columns)
    assert set(BY[by]) <= set(names_of("by_phase")[:4])


def test_a_table_of_energy_has_declared_columns(tmp_path):
    tables = {name: [] for name in RECORDED}
    with make_trace(tmp_path / "t", tables) as run, make_trace(tmp_path / "b", tables) as idle:
        assert list(energy(run, idle).columns) == names_of("energy")


def test_the_terminal_shows_columns_of_every_table_but_one():
    without = [
        name for name, table in DECLARED.items() if not any(c.heading for c in table.columns)
    ]
    # Their own functions show samples and counters; stacks do not fit on a terminal.
    assert without == ["counters", "call_graphs", "samples"]


def test_the_documentation_lists_every_table():
    rows = [
        f"| `{name}` | {table.title} | {', '.join(table.needs)} |"
        for name, table in DECLARED.items()
    ]
    assert "\n".join(rows) in DOC.read_text()


def names_of(table: str) -> list[str]:
    return [column.name for column in DECLARED[table].columns if not column.rare]
