"""Gibbs sampling of discrete graphs: whole colors at once, several chains at once, and whether they have mixed.

Variables of one color share no table, so given the others they are independent and are drawn together.
Reference: Geman and Geman (1984); Gonzalez et al. (2011) for colors.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .._typing import PRNGKey, Scalar
from .belief_propagation import Potentials
from .contraction import Structure
from .diagnostics import effective_sample_size, rhat_of_means
from .groups import Group, color_masks, gather_to_variables, group, map_axes


class Chains(NamedTuple):
    """Frequencies of states after burn-in, the last states, the trace of log scores, and how well chains mixed."""

    single: Float[Array, "*shape k"]
    states: Int[Array, "chains *shape"]
    log_scores: Float[Array, "chains sweeps"]
    rhat: Float[Array, "*shape k"]
    """Split R-hat of each state's frequency."""
    effective_sample_size: Scalar
    """Of the log score, over all chains."""


def run(
    key: PRNGKey,
    start: Int[Array, "chains *shape"],
    sweep: Callable[[Array, Array], Array],
    log_score: Callable[[Array], Array],
    num_states: int,
    burn_in: int,
    num_sweeps: int,
) -> Chains:
    """Run chains by `sweep(key, states)`; frequencies are kept for both halves of each chain, not the samples."""
    half = num_sweeps // 2
    labels = jnp.arange(num_states)

    def one_chain(key, states):
        advance = lambda states, key: (sweep(key, states), None)
        warm, kept = jr.split(key)
        states, _ = jax.lax.scan(advance, states, jr.split(warm, burn_in))

        def record(carry, key):
            states, count = carry
            states = sweep(key, states)
            count = count + (states[..., None] == labels.reshape(*[1] * states.ndim, -1))
            return (states, count), log_score(states)

        def one_half(states, keys):
            empty = jnp.zeros((*states.shape, num_states), jnp.int32)
            (states, count), scores = jax.lax.scan(record, (states, empty), keys)
            return states, (count, scores)

        states, (counts, scores) = jax.lax.scan(one_half, states, jr.split(kept, (2, half)))
        return states, counts / half, scores.reshape(-1)

    states, means, scores = jax.vmap(one_chain)(jr.split(key, start.shape[0]), start)
    means = means.astype(scores.dtype).reshape(-1, *means.shape[2:])
    ess = effective_sample_size(scores)
    return Chains(jnp.mean(means, axis=0), states, scores, rhat_of_means(means, half), ess)


# ------------------------------------------------------------------ one color of a general graph


def conditional_logits(given: Potentials, states: Int[Array, "v"], structure: Structure) -> Float[Array, "v k"]:
    """For every variable the log potential of each of its states, given the states of all others."""
    groups = group(structure)

    def message(i: int, g: Group, j: int) -> Array:
        table = jnp.moveaxis(given.tables[i], j + 1, -1)
        others = tuple(states[g.variables[:, a]] for a in g.others(j))
        return table[(np.arange(len(g.members)), *others)]

    return given.unary + gather_to_variables(groups, map_axes(groups, message), given.unary.shape)


def color_sweep(key: PRNGKey, states: Int[Array, "v"], given: Potentials, structure: Structure) -> Int[Array, "v"]:
    """Every variable drawn once given the others, color by color."""
    masks = jnp.asarray(color_masks(structure))

    def one_color(states, inputs):
        key, mask = inputs
        drawn = jr.categorical(key, conditional_logits(given, states, structure)).astype(states.dtype)
        return jnp.where(mask, drawn, states), None

    return jax.lax.scan(one_color, states, (jr.split(key, masks.shape[0]), masks))[0]


def log_score(states: Int[Array, "v"], given: Potentials, structure: Structure) -> Scalar:
    """The log of the product of all tables at one assignment."""
    total = jnp.sum(jnp.take_along_axis(given.unary, states[:, None], axis=1))
    for g, table in zip(group(structure), given.tables, strict=True):
        at = tuple(states[g.variables[:, j]] for j in range(g.arity))
        total = total + jnp.sum(table[(np.arange(len(g.members)), *at)])
    return total


def gibbs(
    key: PRNGKey, given: Potentials, structure: Structure, num_chains: int, burn_in: int, num_sweeps: int
) -> Chains:
    """Chains on a general graph, started from the unary potentials alone."""
    begin, go = jr.split(key)
    start = jax.vmap(lambda k: jr.categorical(k, given.unary).astype(jnp.int32))(jr.split(begin, num_chains))
    sweep = functools.partial(color_sweep, given=given, structure=structure)
    scored = functools.partial(log_score, given=given, structure=structure)
    return run(go, start, sweep, scored, given.unary.shape[1], burn_in, num_sweeps)
