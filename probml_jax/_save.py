"""Models on disk."""

import os
from collections.abc import Sequence
from typing import Any

from . import _archive
from ._structure import describe, rebuild


def save(path: str | os.PathLike, model: Any) -> None:
    """Write a model, a fit, or any tree of modules and arrays to a file of its own description.

    The file is a zip of `.npy` arrays and a JSON header that names classes and fields. It holds no code and no pickle:
    functions (an activation, a mean function) are stored by the name of their module and raise `TypeError` if
    they have none. Written as a whole or not at all. PRNG keys, NumPy arrays and shared arrays stay what they are.

    >>> import pathlib, tempfile, jax.numpy as jnp, probml_jax as pml
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "coin.pml"
    >>> save(path, pml.distributions.Bernoulli(jnp.array([0.25, 0.5])))
    >>> load(path).probs.tolist()
    [0.25, 0.5]
    """
    shelf = _archive.Shelf()
    _archive.write(path, {"kind": "model", "tree": describe(model, shelf.put)}, shelf)


def load(path: str | os.PathLike, *, trust: Sequence[str] = ()) -> Any:
    """What `save` wrote.

    Classes and functions are looked up by name in this library, Equinox, JAX and Optax; `trust` names other
    packages (your own) whose classes the file may use. A damaged file, a newer format, an unknown class or field raise
    `ValueError`; arrays that would be narrowed raise `TypeError`.
    """
    header, shelf = _archive.read(path, "model")
    return rebuild(header["tree"], shelf.take, trust)
