"""The notebook in docs/ runs, and is committed without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "analysis.ipynb"


def test_it_is_committed_without_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


# The kernel's own process and its sockets warn of what their libraries will change.
@pytest.mark.filterwarnings("default")
def test_every_cell_runs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    ).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    assert not [out for out in outputs if out.output_type == "error"]
    results = [out for out in outputs if out.output_type == "execute_result"]
    answered = [cell for cell in notebook.cells if cell.get("outputs")]
    assert len(results) == len(answered) >= 11
