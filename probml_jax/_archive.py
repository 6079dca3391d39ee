"""A file of arrays with a header that says what they are: an ordinary zip of `.npy` files and one JSON text."""

import io
import json
import os
import pathlib
import zipfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib import format as npy

# of the files, not of the library: raised when an older library could not read them
FORMAT = 1


class Shelf:
    """Arrays on their way into a file, each once; or out of it."""

    def __init__(self, arrays: list[Any] | None = None):
        self.arrays: list[np.ndarray] = [] if arrays is None else arrays
        self._places: dict[int, tuple[int, Any]] = {}

    def put(self, value: Any) -> dict[str, Any]:
        """Words for an array: its place in the file, its dtype, and what kind of array it was."""
        if id(value) not in self._places:
            self._places[id(value)] = len(self.arrays), value  # held, so that the id stays its own
            self.arrays.append(_plain(value))
        place = self._places[id(value)][0]
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return {"array": place, "key": str(jax.random.key_impl(value))}
        kind = "jax" if isinstance(value, jax.Array) else "numpy" if isinstance(value, np.ndarray) else "scalar"
        return {"array": place, "dtype": np.dtype(value.dtype).name, "kind": kind}

    def take(self, words: dict[str, Any]) -> Any:
        """The array of these words."""
        raw = self.arrays[words["array"]]
        if "key" in words:
            return jax.random.wrap_key_data(jnp.asarray(raw), impl=words["key"])
        value = raw.view(jnp.dtype(words["dtype"])) if raw.dtype.name != words["dtype"] else raw
        if words["kind"] != "jax":
            return value if words["kind"] == "numpy" else value[()]
        array = jnp.asarray(value)
        if array.dtype != value.dtype:
            raise TypeError(
                f"the file holds {value.dtype} arrays but 64-bit mode is off, so they would be narrowed to "
                f"{array.dtype}. Call jax.config.update('jax_enable_x64', True) first."
            )
        return array


def _plain(value: Any) -> np.ndarray:
    """An array in a dtype that NumPy itself writes; bfloat16 and its kin as their bits."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    value = np.asarray(value)
    return value.view(f"u{value.dtype.itemsize}") if value.dtype.kind == "V" or not value.dtype.isbuiltin else value


def write(path: str | os.PathLike, header: dict[str, Any], shelf: Shelf) -> None:
    """Write a file as a whole or not at all: to a name beside it, flushed to the disk, then renamed."""
    path = pathlib.Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(beside, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                about = {"format": FORMAT, "version": _version()}
                archive.writestr("header.json", json.dumps(about | header))
                for i, array in enumerate(shelf.arrays):
                    with archive.open(f"{i}.npy", "w", force_zip64=True) as entry:
                        npy.write_array(entry, np.asarray(array), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _version() -> str:
    from . import __version__

    return __version__


def read(path: str | os.PathLike, kind: str) -> tuple[dict[str, Any], Shelf]:
    """The header and the arrays of a file; `ValueError` says what is wrong with one that cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("header.json"))
            _check(path, header, kind)
            count = sum(name.endswith(".npy") for name in archive.namelist())
            load = lambda i: npy.read_array(io.BytesIO(archive.read(f"{i}.npy")), allow_pickle=False)
            return header, Shelf([load(i) for i in range(count)])
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError, EOFError) as error:
        raise ValueError(f"{os.fspath(path)} is not a file of probml_jax, or it is damaged: {error}.") from error


def _check(path: Any, header: Any, kind: str) -> None:
    name = os.fspath(path)
    if not isinstance(header, dict) or "format" not in header:
        raise ValueError(f"{name} is not a file of probml_jax.")
    if header["format"] > FORMAT:
        raise ValueError(
            f"{name} was written by probml_jax {header.get('version')}, in format {header['format']}; "
            f"this version reads up to format {FORMAT}."
        )
    if header.get("kind") != kind:
        raise ValueError(f"{name} holds a {header.get('kind')}; a {kind} is wanted.")
