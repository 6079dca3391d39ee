"""Sums over many units, block by block, so that memory follows the block and not the data."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

# Measured: a block whose data fill about this much keeps the (components x block) intermediates of a mixture in
# cache while its matrix products are still large enough to run on all cores.
_BLOCK_BYTES = 1 << 19
# Fewer units than this do not fill the vector units of a scan over time; but long sequences must not fill the memory.
_MIN_BLOCK, _MAX_BYTES = 1024, 1 << 26


def block_size(data: PyTree, num_units: int) -> int:
    """How many units fill a block that stays in cache."""
    bytes_per_unit = max(sum(leaf.nbytes for leaf in jax.tree_util.tree_leaves(data)) / num_units, 1)
    return int(max(1, min(_MIN_BLOCK, _MAX_BYTES / bytes_per_unit), _BLOCK_BYTES / bytes_per_unit))


def pooled(function: Callable[[PyTree, Array], PyTree], data: PyTree, weights: Float[Array, "n"], block: int) -> PyTree:
    """`function(data, weights)` of all units, for a function that is additive over units.

    One traced block serves any number of units: the last one starts early enough to be whole, and units it repeats
    get no weight. Gradients recompute a block instead of storing all of them.
    """
    n = weights.shape[0]
    block = min(block, n)
    if block == n:
        return function(data, weights)

    @jax.checkpoint
    def one_block(i):
        start = jnp.minimum(i * block, n - block)
        take = lambda a: jax.lax.dynamic_slice_in_dim(a, start, block)
        fresh = start + jnp.arange(block) >= i * block
        return function(jax.tree_util.tree_map(take, data), jnp.where(fresh, take(weights), 0))

    def add(total, i):
        return jax.tree_util.tree_map(jnp.add, total, one_block(i)), None

    empty = jax.tree_util.tree_map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(one_block, 0))
    return jax.lax.scan(add, empty, jnp.arange(-(-n // block)))[0]


def repeated(step: Callable[[PyTree], PyTree], start: PyTree, times: int) -> PyTree:
    """`step` applied `times` over to a tree, whose arrays alone change."""
    dynamic, static = eqx.partition(start, eqx.is_array)
    again = lambda _, carry: eqx.filter(step(eqx.combine(carry, static)), eqx.is_array)
    return eqx.combine(jax.lax.fori_loop(0, times, again, dynamic), static) if times else start
