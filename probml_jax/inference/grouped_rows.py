"""Sums by group: rows of one label together, so that each is looked at by its own group only."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

_BLOCK = 2048


class Groups(NamedTuple):
    """Blocks of row numbers, all rows of a block of one group; the last blocks of a group are filled up."""

    rows: Int[Array, "b m"]
    real: Bool[Array, "b m"]
    label: Int[Array, "b"]


def grouped(labels: Int[Array, "n"], num_groups: int) -> Groups:
    """Rows 0..n-1 by their label; rows with a label outside 0..num_groups-1 are left out.

    The shapes depend on n and the number of groups alone, so one compiled program serves any labels. Concrete labels
    are sorted on the host, where small whole numbers sort in linear time.
    """
    n = labels.shape[0]
    block = max(1, min(_BLOCK, -(-n // num_groups)))
    blocks = n // block + num_groups + 1
    concrete = not isinstance(labels, jax.core.Tracer)
    xp = np if concrete else jnp
    given: Any = np.asarray(labels) if concrete else labels
    inside: Any = xp.where((given < 0) | (given >= num_groups), num_groups, given)
    small = inside.astype(np.uint16) if concrete and num_groups < 65_535 else inside
    order = np.argsort(small, kind="stable") if concrete else jnp.argsort(inside, stable=True)
    edges = xp.searchsorted(inside[order], xp.arange(num_groups + 1))
    counts = edges[1:] - edges[:-1]
    each = -(-counts // block)
    ends = xp.cumsum(each)
    index = xp.arange(blocks)
    label = xp.minimum(xp.searchsorted(ends, index, side="right"), num_groups - 1)
    within = (index - (ends - each)[label])[:, None] * block + xp.arange(block)[None, :]
    real = (within < counts[label][:, None]) & (index < ends[-1])[:, None]
    rows = order[xp.where(real, edges[:-1][label][:, None] + within, 0)]
    return Groups(jnp.asarray(rows), jnp.asarray(real), jnp.asarray(label))


def pooled_by_group(
    function: Callable[[Array, PyTree, Array], PyTree],
    data: PyTree,
    weights: Float[Array, "n"],
    groups: Groups,
    num_groups: int,
) -> PyTree:
    """`function(label, rows, weights)` of each group, for a function that is additive over rows; stacked by group."""

    def add(total, block):
        rows, real, label = block
        part = jax.tree_util.tree_map(lambda a: a[rows], data)
        found = function(label, part, jnp.where(real, weights[rows], 0))
        return jax.tree_util.tree_map(lambda t, f: t.at[label].add(f), total, found), None

    first = lambda a: a[groups.rows[0]]
    one = lambda: function(groups.label[0], jax.tree_util.tree_map(first, data), first(weights))
    shapes = jax.eval_shape(one)
    empty = jax.tree_util.tree_map(lambda s: jnp.zeros((num_groups, *s.shape), s.dtype), shapes)
    return jax.lax.scan(add, empty, groups)[0]
