"""Executes the notebooks of examples/notebooks, and writes them out anew with what they give.

python docs/make_notebooks.py            # all of them, in some minutes
python docs/make_notebooks.py 1 3        # some of them, by the beginnings of their names

Each runs in an empty folder of its own, from top to bottom. What would differ each time without saying anything is left
out: when a cell ran, the kernel's version, random names of cells.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbclient
import nbformat

from polyrhythm.runs import environment

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"
TRIES, CUT = 3, "\ufffd"  # what is left of half a letter
MOST_SECONDS = 300  # for a cell
KIND = "made_on"  # the key of a notebook's metadata that says on what kind of machine its numbers were made
_RUN_ID = re.compile(r"\b\d{8}-\d{6}-[a-z0-9]{4}\b")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SPACES = re.compile(r"[\s─]+")
_CLOCKS = re.compile(r"started|wall ")  # lines that say what the clock on the wall said


def main(beginnings: Sequence[str] = ()) -> None:
    """Makes the notebooks whose names begin so, or all."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not beginnings or path.name.startswith(tuple(beginnings)):
            notebook = nbformat.read(path, as_version=4)
            with tempfile.TemporaryDirectory() as folder:
                execute(notebook, Path(folder))
            nbformat.write(settled(notebook), path)
            print(path.name)


def execute(notebook: Any, folder: Path) -> None:
    """Runs all cells, in a folder of their own; again, if a command printed half a letter.

    IPython reads what commands print piece by piece, and decodes each piece alone.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell has failed.
    """
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": programs, "COLUMNS": "88"}  # for `!polyrhythm …`
    for _ in range(TRIES):
        client = nbclient.NotebookClient(
            notebook, timeout=MOST_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        )
        client.execute(env=env)
        if not any(CUT in line for lines in said(notebook) for line in lines):
            break
        shutil.rmtree(folder)
        folder.mkdir()


def settled(notebook: Any) -> Any:
    """The same without what would differ each time, and without colours of a terminal."""
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number:02}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = list(_joined(cell.outputs))
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3", "file_extension": ".py"},
        KIND: kind(),
    }
    return notebook


def _joined(outputs: Sequence[Any]) -> Iterator[Any]:
    """Outputs with neighbouring pieces of one stream in one: where it was cut is chance."""
    for (kind_of, stream), group in itertools.groupby(outputs, key=lambda o: (o.output_type, o.get("name"))):
        if kind_of != "stream":
            yield from group
            continue
        text = _COLOURS.sub("", "".join(output.text for output in group))
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        yield nbformat.v4.new_output("stream", name=stream, text=f"{lines.rstrip()}\n")


def kind() -> str:
    """What numbers follow on this machine: the library, and the processor."""
    machine, torch = environment.machine(), environment.library_versions()["torch"]
    return f"torch {torch}, {str(machine['cpu']).partition(' ')[0]} {machine['instructions']}"


def said(notebook: Any) -> Iterator[list[str]]:
    """The lines of text that each code cell gives, without ids of runs and the widths of columns."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = (o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)
            lines = "\n".join(texts).splitlines()
            lines = [line for line in lines if line.strip() and not _CLOCKS.search(line)]
            yield [_SPACES.sub(" ", _RUN_ID.sub("RUN", line)).strip() for line in lines]


if __name__ == "__main__":
    main(sys.argv[1:])
