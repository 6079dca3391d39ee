"""Units of unequal size in a few arrays of equal size each, so that a long one does not slow down all."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ._typing import Data


class Buckets(eqx.Module):
    """Data in several parts, each with its own number of units and its own shape.

    Accepted by `fit` wherever arrays are: scores and statistics add, so the answer is that of one padded array.
    `positions` say where the units of each part stood; weights and results keep that order. `pooled` is whatever was
    prepared for all parts together by who made them, for a model that knows it.
    """

    parts: tuple[Data, ...]
    positions: tuple[Int[Array, "_"], ...]
    pooled: Any = None

    def __check_init__(self):
        if not self.parts or len(self.parts) != len(self.positions):
            raise ValueError(f"{len(self.parts)} parts with {len(self.positions)} positions; one each is wanted.")

    @property
    def num_units(self) -> int:
        """The units of all parts."""
        return sum(p.shape[0] for p in self.positions)

    def map(self, function: Callable[[Data], PyTree]) -> list[PyTree]:
        """`function(part)` of every part, as one NumPy tree per unit in the first order."""
        results: list[Any] = [None] * self.num_units
        for part, positions in zip(self.parts, self.positions, strict=True):
            found = jax.tree_util.tree_map(np.asarray, function(part))
            for i, position in enumerate(np.asarray(positions)):
                results[position] = jax.tree_util.tree_map(lambda a, i=i: a[i], found)
        return results


def parts_of(data: Data, weights: Float[Array, "n"]) -> list[tuple[Data, Float[Array, "_"]]]:
    """The parts of data with their own weights; plain data are one part."""
    if not isinstance(data, Buckets):
        return [(data, weights)]
    return [(part, weights[positions]) for part, positions in zip(data.parts, data.positions, strict=True)]


def total(function: Callable[[Data, Array], PyTree], data: Data, weights: Float[Array, "n"]) -> PyTree:
    """`function(data, weights)` of all parts, for a function that is additive over units."""
    results = [function(part, share) for part, share in parts_of(data, weights)]
    return results[0] if len(results) == 1 else jax.tree_util.tree_map(lambda *a: sum(a[1:], a[0]), *results)


def bucketed(lengths: Any, max_buckets: int) -> list[np.ndarray]:
    """Units in at most `max_buckets` groups of similar length, by the cuts that pad least (each group to its longest).

    Dynamic programming over distinct lengths.
    """
    lengths = np.asarray(lengths)
    values, counts = np.unique(lengths, return_counts=True)
    m = len(values)
    groups = min(max_buckets, m)
    below = np.concatenate([[0], np.cumsum(counts)])
    cost = np.full((groups + 1, m + 1), np.inf)
    cost[0, 0] = 0
    cut = np.zeros((groups + 1, m + 1), int)
    for g in range(1, groups + 1):
        for end in range(1, m + 1):
            trials = cost[g - 1, :end] + values[end - 1] * (below[end] - below[:end])
            cut[g, end] = np.argmin(trials)
            cost[g, end] = trials[cut[g, end]]
    edges = [m]
    for g in range(groups, 0, -1):
        edges.append(cut[g, edges[-1]])
    edges = edges[::-1]
    bounds = [(values[a], values[b - 1]) for a, b in itertools.pairwise(edges) if b > a]
    return [np.flatnonzero((lengths >= low) & (lengths <= high)) for low, high in bounds]
