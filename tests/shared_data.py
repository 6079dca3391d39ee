"""Data that cannot be shipped: tests on them skip where they are absent."""

import os
import pathlib

import pytest

_FOLDER = pathlib.Path(os.environ.get("PROBML_JAX_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data"))


def shared_file(name: str) -> pathlib.Path:
    """The path of a file, or a skip."""
    path = _FOLDER / name
    if not path.exists():
        pytest.skip(f"{name} is not here; set PROBML_JAX_DATA to the folder that has it")
    return path
