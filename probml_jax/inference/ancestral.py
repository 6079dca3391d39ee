"""Ancestral sampling: every variable drawn given its parents, in an order that puts parents first."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._typing import PRNGKey
from .contraction import Scope


def sample(
    key: PRNGKey, tables: Sequence[Float[Array, "..."]], parents: Sequence[Scope], order: Sequence[int], num: int
) -> Int[Array, "num v"]:
    """`num` independent draws of all variables; `tables[v]` are log-probabilities, the variable's own axis last.

    Cost: one categorical draw per variable and sample.
    """
    states: dict[int, Array] = {}
    for v, one in zip(order, jr.split(key, len(order)), strict=True):
        logits = tables[v][tuple(states[p] for p in parents[v])]
        shape = (num, tables[v].shape[-1])
        states[v] = jr.categorical(one, jnp.broadcast_to(logits, shape)).astype(jnp.int32)
    return jnp.stack([states[v] for v in range(len(tables))], axis=1)


def counts(
    rows: Int[Array, "n v"], weights: Float[Array, "n"], scope: Scope, shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """Weighted counts of the joint states of a few variables; rows with an unknown state count nowhere."""
    position = jnp.zeros(rows.shape[0], rows.dtype)
    valid = jnp.ones(rows.shape[0], bool)
    for v, size in zip(scope, shape, strict=True):
        position = position * size + rows[:, v]
        valid = valid & (rows[:, v] >= 0) & (rows[:, v] < size)
    total = 1
    for size in shape:
        total = total * size
    return jax.ops.segment_sum(jnp.where(valid, weights, 0), jnp.where(valid, position, 0), total).reshape(shape)
