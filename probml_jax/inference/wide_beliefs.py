"""Beliefs by numbers with exponents of their own, one stretch of time after the other: only forward messages are kept.

What is kept for this way, which is seldom taken, would otherwise be most of what a chain needs.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._typing import Scalar
from .messages import Chain, pairwise_sum, wide_messages
from .stretches import even_length, in_stretches, joined
from .wide import Wide, along, from_log, power_of_two, times, total, wide_sweep

# steps whose messages backward are held at once
_STRETCH = 1024


class _Later(NamedTuple):
    """What a stretch is told of what comes after it: the message from there, that of the next step with its evidence,
    and whether there is one."""

    message: Wide
    following: Wide
    exists: Array


def wide_expectations(chain: Chain, parallel: bool) -> tuple[Scalar, Float[Array, "t k"], Float[Array, "*steps k k"]]:
    """Log-partition, single marginals and transitions, these summed over steps if there is one matrix for all."""
    t = chain.log_likelihood.shape[0]
    length = even_length(t, _STRETCH)
    cut = lambda tree: in_stretches(tree, length)
    into, moves = along(chain.log_transition, backward=True), along(chain.log_transition)
    if parallel:
        _, values, log_partition = wide_messages(chain, True)
        forward, behind = cut(values), cut(wide_messages(chain, True, backward=True)[:2])
    else:
        forward, log_partition = _forward(chain, cut)
        behind = cut((chain.log_likelihood, into if chain.varies else None))

    def back(message, behind, here):
        """The message that goes on from a stretch, those that come to its steps, and these with the steps' evidence."""
        if parallel:
            return message, *behind
        scores, own = behind
        return wide_sweep(message, into if own is None else own, scores, here, backward=True)[:3]

    def stretch(carry, given):
        later, pairs = carry
        forward, behind, here, own_moves = given
        message, after, own = back(later.message, behind, here)
        nexts = _append(jax.tree_util.tree_map(lambda a: a[1:], own), later.following)
        followed = jnp.append(here[1:], later.exists)
        between = from_log(moves if own_moves is None else own_moves)
        single, moved = _shares(forward, after, nexts, between, here, followed)
        now = _Later(message, jax.tree_util.tree_map(lambda a: a[0], own), here[0])
        return (now, None if chain.varies else pairs + moved), (single, moved if chain.varies else None)

    nothing = from_log(jnp.zeros_like(chain.log_initial))
    none = None if chain.varies else jnp.zeros_like(chain.log_transition)
    start = _Later(nothing, nothing, jnp.array(False)), none
    parts = forward, behind, cut(chain.exists), cut(moves if chain.varies else None)
    (_, pairs), (single, each) = jax.lax.scan(stretch, start, parts, reverse=True)
    return log_partition, joined(single, t), joined(each, t - 1) if chain.varies else pairs


def _forward(chain: Chain, cut: Callable) -> tuple[Wide, Scalar]:
    """Forward messages, in stretches, and the log-partition."""
    moves = along(chain.log_transition)

    def stretch(message, given):
        scores, here, own_moves = given
        message, _, values, log_totals = wide_sweep(message, moves if own_moves is None else own_moves, scores, here)
        return message, (values, jnp.where(here, log_totals, 0))

    parts = cut((chain.log_likelihood, chain.exists, moves if chain.varies else None))
    _, (values, log_totals) = jax.lax.scan(stretch, from_log(chain.log_initial), parts)
    return values, pairwise_sum(log_totals.ravel())


def _append(rows: Wide, last: Wide) -> Wide:
    return jax.tree_util.tree_map(lambda a, b: jnp.concatenate([a, b[None]]), rows, last)


def _shares(
    forward: Wide, after: Wide, nexts: Wide, moves: Wide, here: Bool[Array, "b"], followed: Bool[Array, "b"]
) -> tuple[Float[Array, "b k"], Float[Array, "*b k k"]]:
    """Single marginals of the steps of a stretch and of their transitions, these summed if there is one matrix."""
    product = times(forward, after)
    mass = total(product, axis=1)
    possible = (mass.mantissa > 0) & here
    mass = Wide(jnp.where(possible, mass.mantissa, 1), mass.exponent)
    share = lambda x, mass: x.mantissa * power_of_two(x.exponent - mass.exponent) / mass.mantissa
    single = jnp.where(possible[:, None], share(product, jax.tree_util.tree_map(lambda a: a[:, None], mass)), 0)

    def joint(before, after, mass, move, here):
        column = Wide(before.mantissa[:, None], before.exponent[:, None])
        row = Wide(after.mantissa[None, :], after.exponent[None, :])
        return jnp.where(here, share(times(column, move, row), mass), 0)

    varying = moves.mantissa.ndim == 3
    each = jax.vmap(joint, (0, 0, 0, 0 if varying else None, 0))(forward, nexts, mass, moves, possible & followed)
    return single, each if varying else jnp.sum(each, axis=0)
