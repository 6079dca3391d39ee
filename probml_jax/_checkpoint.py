"""A fit on disk: what its loop carries, and what it is a fit of."""

import os
import pathlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from . import _archive
from ._buckets import parts_of
from ._loop import RUNNING, Progress
from ._outcome import Status
from ._placed import across
from ._structure import describe, difference
from ._typing import Data


class Checkpoint:
    """Where a fit is kept, how often (in steps), and whether it goes on from what is there.

    What is being fitted (the structure of model and method, the data) is written beside the state of the loop, and
    must be the same when it goes on.
    """

    def __init__(self, path: str | os.PathLike, every: int, goes_on: bool, fitted: dict[str, Any]):
        self.path, self.every, self.goes_on, self.fitted = pathlib.Path(path), every, goes_on, fitted
        self.written = -1
        if not self.path.parent.is_dir():
            raise ValueError(f"checkpoint: there is no folder {self.path.parent}.")

    def due(self, progress: Progress) -> bool:
        """Whether `every` steps have passed, or the fit has ended."""
        evaluated = int(progress.evaluations)
        ended = int(progress.status) != RUNNING
        return evaluated != self.written and (ended or evaluated - max(self.written, 0) >= self.every)

    def write(self, progress: Progress) -> None:
        """Of several hosts, the first writes."""
        self.written = int(progress.evaluations)
        if jax.process_index() == 0:
            shelf = _archive.Shelf()
            leaves = [shelf.put(leaf) for leaf in jax.tree_util.tree_leaves(progress)]
            _archive.write(self.path, {"kind": "checkpoint", "fitted": self.fitted, "leaves": leaves}, shelf)

    def resume(self, fresh: Progress, rtol: float) -> Progress:
        """The loop as it was written, or `fresh` if nothing was; a fit of something else raises `ValueError`."""
        if not self.goes_on or not self.path.exists():
            return fresh
        header, shelf = _archive.read(self.path, "checkpoint")
        then, now = dict(header["fitted"]), dict(self.fitted)
        before = then.pop("rtol")
        now.pop("rtol")
        different = difference(then, now)
        if different:
            raise ValueError(
                f"{self.path} is the checkpoint of another fit. {different}. "
                "Give another path, or resume=False to start anew and overwrite it."
            )
        leaves = [shelf.take(words) for words in header["leaves"]]
        stored = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(fresh), leaves)
        self.written = int(stored.evaluations)
        if int(stored.status) == Status.converged and rtol < before:
            stored = stored._replace(status=jnp.full_like(stored.status, RUNNING), calm=jnp.zeros_like(stored.calm))
        return stored._replace(trace=_of_length(stored.trace, fresh.trace.shape[0], self.path))


def _of_length(trace: Array, size: int, path: pathlib.Path) -> Array:
    """A trace for another `max_steps`: a finished fit may be continued."""
    seen = int(np.sum(~np.isnan(np.asarray(trace))))
    if seen > size:
        raise ValueError(f"{path} has gone {seen - 1} steps; max_steps={size - 1} is less.")
    return jnp.concatenate([trace[:size], jnp.full(max(size - trace.shape[0], 0), jnp.nan, trace.dtype)])


def identity(method: Any, rtol: Any, model: Any, data: Any, weights: Any) -> dict[str, Any]:
    """What a fit is a fit of, in words that can be compared."""
    shape = lambda a: {"array": f"{a.dtype}{list(np.shape(a))}"}
    words = {name: describe(tree, shape, strict=False) for name, tree in (("model", model), ("method", method))}
    seen = None if weights is None else [int(v) for v in np.asarray(_fingerprint(data, weights))]
    return {**words, "data": seen, "rtol": float(rtol)}


@eqx.filter_jit
def _fingerprint(data: Data, weights: Array) -> Array:
    """A number for the units that have weight, whatever their order, their padding, and the devices they lie on."""
    return across(lambda _, data, weights: _of_units(data, weights), None, data, weights)


def _of_units(data: Data, weights: Array) -> Array:
    rows = [_row_numbers(part, share) for part, share in parts_of(data, weights)]
    # two sums, of numbers and of their squares: uint32 arithmetic is exact and forgets the order
    return jnp.stack([sum(jnp.sum(r) for r in rows), sum(jnp.sum(r * r) for r in rows)])


def _row_numbers(data: Data, weights: Array) -> Array:
    n = weights.shape[0]
    columns = [_bits(leaf).reshape(n, -1) for leaf in jax.tree_util.tree_leaves((data, weights))]
    columns = jnp.concatenate(columns, axis=1)
    places = 2 * jnp.arange(columns.shape[1], dtype=jnp.uint32) + 1
    number = jnp.sum(_mixed(columns * places[None, :] + places[None, :]), axis=1, dtype=jnp.uint32)
    return jnp.where(weights > 0, _mixed(number) | 1, 0)


def _mixed(x: Array) -> Array:
    """A scramble of 32 bits (the finalizer of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _bits(a: Array) -> Array:
    """An array as whole numbers of 32 bits, two of them for an entry of 64."""
    if a.dtype.itemsize < 4:
        a = a.astype(jnp.float32 if jnp.issubdtype(a.dtype, jnp.floating) else jnp.int32)
    return jax.lax.bitcast_convert_type(a, jnp.uint32)
