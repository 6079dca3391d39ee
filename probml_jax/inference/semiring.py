"""Semirings: one recursion over a chain, three meanings.

A chain's messages are sums over prefixes of products of potentials. What "sum" and "product" are decides what comes
out: log-probabilities (`LOG`), the score of the best path (`MAX`) or of the K best (`top(K)`).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._special import logsumexp


class Semiring(NamedTuple):
    """How to add and multiply messages. A message is `(r, k)`: r values per state, r = 1 except in `top(r)`.

    - `times(a, b)`: product of a message and a potential per state.
    - `push(message, matrix)`: $\\bigoplus_i m_i \\otimes M_{ij}$, the message after one transition; `(r, k)`.
    - `compose(a, b)`: product of two matrices `(r, i, j)` and `(r, j, l)`.
    - `total(message)`: what a message is normalized by; and its logarithm `log_total`.
    - `remove(message, total)`: the normalized message.
    - `one`, `zero`: neutral elements of product and sum.
    - `width`: r.
    """

    times: Callable[[Array, Array], Array]
    push: Callable[[Array, Array], Array]
    compose: Callable[[Array, Array], Array]
    total: Callable[[Array], Array]
    log_total: Callable[[Array], Array]
    remove: Callable[[Array, Array], Array]
    one: float
    zero: float
    width: int


def _shift(message: Array, total: Array) -> Array:
    return message - jnp.where(total == -jnp.inf, 0, total)


def _log_space(sum_first: Callable[[Array], Array], total: Callable[[Array], Array], width: int) -> Semiring:
    """A semiring whose product is `+` and whose sum over the leading axis is `sum_first`, `(m, ...) -> (r, ...)`."""

    def push(message: Float[Array, "r k"], matrix: Float[Array, "k k"]) -> Float[Array, "r k"]:
        alternatives = message[:, :, None] + matrix[None]
        return sum_first(alternatives.reshape(-1, matrix.shape[-1]))

    def compose(a: Float[Array, "r k k"], b: Float[Array, "r k k"]) -> Float[Array, "r k k"]:
        k = a.shape[-1]
        alternatives = a.transpose(0, 2, 1)[:, None, :, :, None] + b[None, :, :, None, :]
        return sum_first(alternatives.reshape(-1, k, k))

    return Semiring(jnp.add, push, compose, total, lambda total: total, _shift, 0.0, -jnp.inf, width)


def _largest(count: int) -> Callable[[Array], Array]:
    def sum_first(alternatives: Array) -> Array:
        last = jnp.moveaxis(alternatives, 0, -1)
        short = max(count - last.shape[-1], 0)
        last = jnp.concatenate([last, jnp.full((*last.shape[:-1], short), -jnp.inf, last.dtype)], axis=-1)
        return jnp.moveaxis(jax.lax.top_k(last, count)[0], -1, 0)

    return sum_first


LOG = _log_space(lambda a: logsumexp(a, axis=0)[None], logsumexp, 1)
MAX = _log_space(lambda a: jnp.max(a, axis=0)[None], jnp.max, 1)


def top(count: int) -> Semiring:
    """The `count` largest products, in falling order; `-inf` where there are fewer."""
    return _log_space(_largest(count), jnp.max, count)
