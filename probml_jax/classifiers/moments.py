"""Moments of labelled rows about the centres of their own classes, in one pass over the rows as they come."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._estimate import ML
from .._linalg import matmul
from .._special import missing_in_batch
from .._stack import AbstractStack, Stacked, Tied
from .._typing import Data, Statistics
from ..distributions import MultivariateNormal, Normal
from ..distributions.coordinates import Moments
from ..inference.blocks import block_size, pooled
from ..inference.grouped_rows import Groups, pooled_by_group


def statistics_by_class(
    stack: AbstractStack, xs: Data, ys: Int[Array, "n"], weights: Float[Array, "n"], groups: Groups
) -> Statistics:
    """Statistics of each class's own rows; labels out of range count for nothing.

    Where leaves need no more than products that all rows share, rows stay where they are. Otherwise they are brought
    together, class by class, each for its own leaf.
    """

    def together(xs, weights):
        own = lambda label, rows, share: stack.member(label).statistics(rows, share)
        return pooled_by_group(own, xs, weights, groups, stack.size)

    member = stack.each.distribution if isinstance(stack.each, ML) else None
    if isinstance(stack, Stacked) and isinstance(member, Normal) and member.loc.ndim == 2:
        in_place = _diagonal(member.loc, xs, ys, weights)
    elif isinstance(stack, Tied) and isinstance(member, MultivariateNormal):
        in_place = _tied(member.loc, xs, ys, weights)
    else:
        return together(xs, weights)
    # a missing entry shows in the sums: to look for it beforehand would be another pass
    return jax.lax.cond(missing_in_batch(in_place.second), together, lambda *_: in_place, xs, weights)


def _shares(ys: Int[Array, "n"], weights: Float[Array, "n"], num_classes: int) -> Float[Array, "c n"]:
    return jnp.where(ys[None, :] == jnp.arange(num_classes, dtype=ys.dtype)[:, None], weights[None, :], 0)


def _centers(locs: Float[Array, "c d"], ys: Int[Array, "n"]) -> Float[Array, "n d"]:
    return jnp.take(locs, ys, axis=0, mode="clip")


def _diagonal(locs: Float[Array, "c d"], xs: Float[Array, "n d"], ys: Array, weights: Array) -> Moments:
    """Per coordinate, of rows without missing entries."""

    def sums(rows, weights):
        xs, ys = rows
        shares, delta = _shares(ys, weights, locs.shape[0]), xs - _centers(locs, ys)
        return jnp.sum(shares, axis=1), matmul(shares, delta), matmul(shares, delta * delta)

    count, first, second = pooled(sums, (xs, ys), weights, block_size(xs, xs.shape[0]))
    return Moments(jnp.broadcast_to(count[:, None], first.shape), first, second)


def _tied(locs: Float[Array, "c d"], xs: Float[Array, "n d"], ys: Array, weights: Array) -> Moments:
    """The same for classes that share their covariance. They use the sum of second moments alone: all of it stands
    with the first."""

    def sums(rows, weights):
        xs, ys = rows
        shares = _shares(ys, weights, locs.shape[0])
        delta, known = xs - _centers(locs, ys), jnp.sum(shares, axis=0)
        return jnp.sum(shares, axis=1), matmul(shares, delta), matmul((known[:, None] * delta).T, delta)

    count, first, second = pooled(sums, (xs, ys), weights, block_size(xs, xs.shape[0]))
    return Moments(count, first, jnp.zeros((locs.shape[0], *second.shape), second.dtype).at[0].set(second))
