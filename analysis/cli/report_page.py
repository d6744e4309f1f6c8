"""`tracer report --html`: the page of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.cli.page_output import check_output, shown_progress, write_page

if TYPE_CHECKING:
    import pandas as pd

    from analysis.findings.finding import Finding
    from tracer.store.trace import Trace

__all__ = ["check_output", "write_report_page"]


def write_report_page(
    trace: Trace,
    tables: dict[str, pd.DataFrame],
    notes: list[str],
    findings: Sequence[Finding],
    output: Path,
) -> None:
    """Make the page of a trace and write it, mode 0600. Says on stderr what was written."""
    from analysis.page.trace import trace_page
    from analysis.studies.papers.of_traces import sections

    with shown_progress() as progress:
        progress("papers")
        text = trace_page(trace, tables, notes, findings, sections(trace), progress)
    write_page(text, output)
