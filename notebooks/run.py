"""Run every notebook and store its output in place: `make notebooks`."""

import pathlib

import nbformat
from nbclient import NotebookClient

for path in sorted(pathlib.Path(__file__).parent.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
    nbformat.write(notebook, path)
    print(path.name)
