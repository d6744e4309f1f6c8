"""Write docs/analysis.ipynb: the text and code below, without any output.

python scripts/make_notebook.py
"""

from __future__ import annotations

import json
from pathlib import Path

TEXT, CODE = "markdown", "code"

CELLS = (
    (
        TEXT,
        """\
# A trace, asked in Python and SQL

One second of a LeNet-5 that trains on two CPUs (`fixtures/README.md` says how it was recorded):
what is in a trace, the views over it, tables and figures, and questions of one's own.""",
    ),
    (
        CODE,
        """\
from pathlib import Path

from tracer.store.trace import Trace

trace = Trace(Path("../fixtures/lenet.trace"))
{name: facts["rows"] for name, facts in trace.manifest["tables"].items()}""",
    ),
    (
        TEXT,
        """\
## Views

A view is a table made of others when it is first asked for. Each says what its columns mean, in
which unit, and which tables it needs.""",
    ),
    (
        CODE,
        """\
import pandas as pd

from analysis.views.catalogue import VIEWS

pd.DataFrame(
    [(view.name, view.about, ", ".join(view.needs)) for view in VIEWS.values()],
    columns=["view", "a row is", "needs"],
)""",
    ),
    (
        CODE,
        """\
pd.DataFrame(
    [(c.name, c.type.value, c.unit, c.doc) for c in VIEWS["stalls"].columns],
    columns=["column", "type", "unit", "meaning"],
)""",
    ),
    (
        TEXT,
        """\
`frame` gives rows to pandas. Where something is not known it is `<NA>`, never 0; whole numbers
stay whole.""",
    ),
    (
        CODE,
        """\
steps = VIEWS["steps"].frame(trace, where="stage = 'train'")
steps[["step", "total_ns", "fetch_stall_ns", "compute_ns", "overhead_ns"]].describe()""",
    ),
    (
        CODE,
        """\
VIEWS["stalls"].frame(trace).groupby(["kind", "call", "certainty"], dropna=False)["dur_ns"].agg(
    ["count", "sum", "max"]
)""",
    ),
    (
        TEXT,
        """\
## SQL

`trace.sql` asks DuckDB, which reads the Parquet files as it goes: a frame in memory holds the
answer, not the table. `tracer query fixtures/lenet.trace "..."` asks the same in a shell.""",
    ),
    (
        CODE,
        """\
calls = VIEWS["calls"].make(trace)
trace.sql(
    f\"\"\"
    SELECT phase, name, count(*) AS calls, sum(dur_ns) / 1e6 AS ms
    FROM {calls} WHERE phase IS NOT NULL
    GROUP BY ALL ORDER BY ms DESC LIMIT 10
    \"\"\"
)""",
    ),
    (
        TEXT,
        """\
What was written to the disk, why, and for which process, with how certain that is:""",
    ),
    (
        CODE,
        """\
flushes = VIEWS["flushes"].make(trace)
trace.sql(
    f\"\"\"
    SELECT reason, call, certainty, dirtier, count(*) AS bios, sum(pages) AS pages
    FROM {flushes} WHERE NOT own GROUP BY ALL ORDER BY pages DESC
    \"\"\"
)""",
    ),
    (
        TEXT,
        """\
## Tables of the report

Each is a function of a trace that returns a frame; `tracer report` prints them.""",
    ),
    (
        CODE,
        """\
from analysis.report.tables import TABLES, block_latency, phases

list(TABLES)""",
    ),
    (CODE, "phases(trace)"),
    (CODE, "block_latency(trace)"),
    (
        TEXT,
        """\
Most are made in two steps, so that those of many traces can be one: parts, which add up, and
what follows of them. Here of one trace taken twice.""",
    ),
    (
        CODE,
        """\
from analysis.report.tables import MERGEABLE

table = MERGEABLE["syscalls"]
parts = table.parts(trace)
table.finish(table.together([parts, parts])).head()""",
    ),
    (
        TEXT,
        """\
## Figures

A figure takes a frame and knows nothing of traces.""",
    ),
    (
        CODE,
        """\
from analysis.figures.park2023 import page_heat as draw_page_heat
from analysis.report.page_heat import page_heat

boxes = page_heat(trace)
figure = draw_page_heat(boxes.assign(model="lenet"))
len(boxes), type(figure).__name__""",
    ),
    (
        CODE,
        """\
import plotly.express as px

per_step = trace.sql(
    f"SELECT step, count(*) AS calls, sum(dur_ns) / 1e6 AS ms FROM {calls}"
    " WHERE step IS NOT NULL GROUP BY step ORDER BY step"
)
own = px.line(per_step, x="step", y="ms", title="Time in system calls, by step")
len(per_step), own.layout.title.text""",
    ),
    (
        TEXT,
        """\
Both are shown by `.show()`, or kept by `.write_html("figure.html")`. What the trace spilled to
disk goes when it is closed.""",
    ),
    (CODE, "trace.close()"),
)


def notebook() -> str:
    """The notebook as JSON."""
    cells = []
    for number, (kind, text) in enumerate(CELLS):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == CODE:
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell | {"source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).parent.parent.joinpath("docs", "analysis.ipynb").write_text(notebook())
