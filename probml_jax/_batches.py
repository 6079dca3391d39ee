"""Data that do not fit into memory: batches that come one after the other, pass after pass."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from ._typing import Data
from ._validate import as_data, as_weights, check_units

# a batch of arrays is about so large: long enough for the device, short for the memory
_BATCH_BYTES = 1 << 26


class Batches:
    """Batches of units from anywhere, for `fit`: `pml.fit(model, pml.Batches(...), pml.EM())`.

    `source` is one of

    - arrays with a leading axis of units, or a tuple of such: NumPy arrays, memory maps, anything that can be sliced
      and has `shape` and `dtype`. They are read `batch_size` units at a time (by default some 64 MB);
    - a function without arguments that returns an iterator over batches: one call is one pass;
    - an iterable over batches that begins anew each time it is asked (a list, a data loader);
    - an iterator or generator: one pass and no more, enough for an online method with `max_steps=1`.

    `weights` are those of the units of arrays; with `weighted=True` each batch of the other sources is a pair of data
    and weights. `num_units` is the total weight of a pass: known for arrays, wanted for other sources by methods that
    move after every batch; those also want batches that are much alike (shuffled units), as every one of them is taken
    for a sample of the whole. With a `mesh` every batch is spread over its devices.

    Batches smaller than the largest so far are padded with units of no weight, so that one program serves all.

    >>> import jax.numpy as jnp, probml_jax as pml
    >>> coins = np.array([1.0, 0.0, 1.0, 1.0, 1.0], np.float32)[:, None]
    >>> model = pml.mixtures.Mixture(
    ...     pml.ML(pml.distributions.Categorical(jnp.array([0.5, 0.5], jnp.float32))),
    ...     pml.Stacked(pml.ML(jax.vmap(pml.distributions.Bernoulli)(jnp.array([[0.2], [0.9]], jnp.float32)))),
    ... )
    >>> whole, parts = pml.fit(model, coins, max_steps=3), pml.fit(model, pml.Batches(coins, 2), max_steps=3)
    >>> bool(jnp.allclose(whole.final_objective, parts.final_objective))
    True
    """

    def __init__(
        self,
        source: Any,
        batch_size: int | None = None,
        *,
        weights: Any = None,
        weighted: bool = False,
        num_units: float | int | None = None,
        mesh: Mesh | None = None,
    ):
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
        self._mesh, self._largest = mesh, batch_size or 0
        self.once = isinstance(source, Iterator)
        self._begun = False
        if _are_arrays(source):
            if weighted:
                raise ValueError("weighted=True is for sources of batches; of arrays, give weights=.")
            count = check_units(source)
            weights = np.asarray(as_weights(weights, count, None))
            size = batch_size or _default_size(source, count)
            self._batches: Callable[[], Iterator] = lambda: _slices(source, weights, size)
            self._weighted, self.total = True, float(np.sum(weights))
        else:
            if weights is not None:
                raise ValueError("weights= is for arrays; sources of batches give them with weighted=True.")
            if not (callable(source) or isinstance(source, Iterable)):
                raise TypeError(f"source must be arrays, a function or an iterable; got {type(source).__name__}.")
            self._batches = source if callable(source) else lambda: iter(source)
            self._weighted, self.total = weighted, None if num_units is None else float(num_units)

    def one_pass(self, dtype: Any) -> Iterator[tuple[Data, Any]]:
        """Batches on the device with their weights, each padded."""
        if self.once and self._begun:
            raise ValueError(
                "the iterator of batches has been used up: a second pass needs a function that returns a new one, "
                "Batches(lambda: ...), or an online method with max_steps=1."
            )
        self._begun = True
        empty = True
        for item in self._batches():
            empty = False
            yield self._ready(item, dtype)
        if empty:
            raise ValueError("source gave no batch.")

    def first(self, dtype: Any) -> tuple[Data, Any]:
        """The first batch, which the next pass gives again."""
        source = self._batches()
        item = next(iter(source), None)
        if item is None:
            raise ValueError("source gave no batch.")
        if self.once:
            self._batches = lambda: itertools.chain([item], source)
        return self._ready(item, dtype)

    def _ready(self, item: Any, dtype: Any) -> tuple[Data, Any]:
        data, weights = item if self._weighted else (item, None)
        count = check_units(data)
        weights = np.asarray(as_weights(weights, count, dtype, some=False))
        self._largest = max(self._largest, count)
        short = self._largest - count
        if short:
            fill = lambda a: np.concatenate([np.asarray(a), np.repeat(np.asarray(a[:1]), short, axis=0)])
            data = jax.tree_util.tree_map(fill, data)
            weights = np.concatenate([weights, np.zeros(short, weights.dtype)])
        if self._mesh is None:
            return as_data(data), jax.numpy.asarray(weights)
        from .sharding import place

        placed = place(data, self._mesh, weights=weights)
        return placed, placed.weights


def _are_arrays(source: Any) -> bool:
    leaves = source if isinstance(source, tuple) else (source,)
    return all(isinstance(leaf, (np.ndarray, jax.Array)) or _sliceable(leaf) for leaf in leaves)


def _sliceable(leaf: Any) -> bool:
    """Something like an array (HDF5, Zarr): it has a shape, a dtype and slices."""
    return all(getattr(type(leaf), name, None) is not None for name in ("shape", "dtype", "__getitem__"))


def _default_size(source: Any, count: int) -> int:
    leaves = jax.tree_util.tree_leaves(source)
    per_unit = sum(np.dtype(a.dtype).itemsize * int(np.prod(a.shape[1:])) for a in leaves)
    return max(1, min(count, _BATCH_BYTES // max(per_unit, 1)))


def _slices(source: Any, weights: np.ndarray, size: int) -> Iterator[tuple[Data, np.ndarray]]:
    for begin in range(0, weights.shape[0], size):
        cut = lambda a, begin=begin: np.asarray(a[begin : begin + size])
        yield jax.tree_util.tree_map(cut, source), weights[begin : begin + size]
