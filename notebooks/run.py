"""Run notebooks and store their output in place: `make notebooks`, or `python notebooks/run.py factors` for some."""

import pathlib
import sys

import nbformat
from nbclient import NotebookClient

HERE = pathlib.Path(__file__).parent


def run(path: pathlib.Path) -> None:
    """Execute one notebook and write it back without what differs from run to run."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": path.parent}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where, coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
    nbformat.write(notebook, path)
    print(path.name)


def main(names: list[str]) -> None:
    paths = sorted(HERE.glob("*.ipynb")) if not names else [HERE / f"{pathlib.Path(name).stem}.ipynb" for name in names]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise SystemExit(f"no such notebook: {', '.join(missing)}")
    for path in paths:
        run(path)


if __name__ == "__main__":
    main(sys.argv[1:])
