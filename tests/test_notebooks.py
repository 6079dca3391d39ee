"""Every notebook runs from top to bottom, cell by cell, in float32 as its reader would run it."""

import pathlib
import subprocess
import sys

import nbformat
import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(path, tmp_path):
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    script = tmp_path / f"{path.stem}.py"
    script.write_text("import matplotlib\nmatplotlib.use('Agg')\n" + "\n\n".join(cells))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
