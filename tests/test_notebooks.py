"""The example notebooks run from top to bottom, and hold what they give."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
WRITE = os.environ.get("POLYRHYTHM_WRITE_NOTEBOOKS")  # to write them out anew, with their outputs


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    given = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in given if output.output_type == "error"]
    assert any("text/html" in output.get("data", {}) for output in given)
    if WRITE:
        nbformat.write(_settled(notebook), path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_holds_what_it_gives(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    assert path.stat().st_size < 500_000


def _settled(notebook: Any) -> Any:
    """The same without when each cell ran, and without what a progress bar leaves behind."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.output_type != "display_data"]
    return notebook
