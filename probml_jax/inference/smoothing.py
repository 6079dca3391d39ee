"""The backward pass over a linear-Gaussian system: gains of all steps at once, then an affine recursion."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._lapack import solve_triangular
from . import affine, riccati
from .small import apply, congruence, identity, over_time, root, solve, times, turned
from .system import Transitions


class Backward(NamedTuple):
    r"""$p(z_s \mid z_{s+1}, y_{1:s}) = N(J_sz_{s+1} + c_s, M_s)$ for the steps before the last."""

    gain: Float[Array, "steps p p"]
    offset: Float[Array, "steps p"]
    spread: Float[Array, "steps p p"]


def backward(moves: Transitions, forward: riccati.Forward) -> Backward:
    """The gains of all steps at once: they need the forward pass only."""

    def one(matrix, offset, noise, mean, covariance):
        half = times(matrix, covariance)
        gain = turned(solve(times(half, turned(matrix)) + noise, half))
        keep = identity(mean.shape[0], covariance) - times(gain, matrix)
        # a sum of squares, not a difference: it stays positive when the future says much more than the past
        spread = congruence(keep, covariance) + congruence(gain, noise)
        return Backward(gain, mean - apply(gain, apply(matrix, mean) + offset), spread)

    found = moves.map(one, forward.mean, forward.covariance)
    return jax.tree_util.tree_map(lambda a: a[:-1], found)


def smoothed(moves: Transitions, forward: riccati.Forward, parallel: bool) -> tuple[Array, Array, Array]:
    """Smoothed means, covariances and lag-one covariances; by factors where the forward pass has them."""
    if forward.factor is not None:
        return _by_factors(moves, forward)
    back = backward(moves, forward)
    last = forward.mean[-1], forward.covariance[-1]
    mean, covariance = affine.recursion(*back, last, reverse=True, parallel=parallel)
    mean, covariance = jnp.concatenate([mean, last[0][None]]), jnp.concatenate([covariance, last[1][None]])
    return mean, covariance, _lag_one(covariance, back.gain)


def _by_factors(moves: Transitions, forward: riccati.Forward) -> tuple[Array, Array, Array]:
    def one(matrix, offset, noise, mean, factor):
        # triangularizing the factor of the pair (next state, this one) leaves that of their conditional: no differences
        p = mean.shape[0]
        above = jnp.concatenate([times(matrix, factor), root(noise)], axis=1)
        below = jnp.concatenate([factor, jnp.zeros_like(factor)], axis=1)
        whole = riccati.triangular(jnp.concatenate([above, below]))
        ahead, cross = whole[:p, :p], whole[p:, :p]
        size = jnp.abs(jnp.diagonal(ahead))
        there = size > p * jnp.finfo(size.dtype).eps * jnp.linalg.norm(ahead, axis=1)
        ahead = jnp.where(jnp.diag(~there), 1, ahead)
        gain = solve_triangular(ahead, jnp.where(there[:, None], cross.T, 0), lower=True, trans=1).T
        return gain, mean - apply(gain, apply(matrix, mean) + offset), whole[p:, p:]

    gain, offset, columns = jax.tree_util.tree_map(lambda a: a[:-1], moves.each(one, forward.mean, forward.factor))

    def step(carry, inputs):
        mean, factor = carry
        j, c, own = inputs
        new = apply(j, mean) + c, riccati.triangular(jnp.concatenate([own, times(j, factor)], axis=1))
        return new, new

    assert forward.factor is not None, "the square-root filter leaves factors"
    last = forward.mean[-1], forward.factor[-1]
    mean, factor = jax.lax.scan(step, last, (gain, offset, columns), reverse=True)[1]
    mean, factor = jnp.concatenate([mean, last[0][None]]), jnp.concatenate([factor, last[1][None]])
    covariance = factor @ jnp.swapaxes(factor, 1, 2)
    return mean, covariance, _lag_one(covariance, gain)


def _lag_one(covariance: Array, gain: Array) -> Array:
    r"""$\mathrm{Cov}(z_{s+1}, z_s) = P_{s+1}J_s^\top$."""
    return over_time(lambda _, p, j: times(p, turned(j)), gain.shape[1], None, covariance[1:], gain)
