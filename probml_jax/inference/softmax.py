"""Sums of log-softmax scores over many rows, with their slope from the same pass."""

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Int

from .._linalg import matmul
from .._typing import Scalar
from .blocks import block_size, pooled

_LEAST_ROWS = 512


def scores(weights: Float[Array, "c d"], intercept: Float[Array, "c"], xs: Float[Array, "n d"]) -> Float[Array, "c n"]:
    """Linear scores, with classes along the first axis: sums over few classes then run over long rows."""
    return matmul(weights, xs.T) + intercept[:, None]


def chosen(scores: Float[Array, "c n"], labels: Int[Array, "n"]) -> Bool[Array, "c n"]:
    """Which score is that of the row's label; none where it is -1."""
    return labels[None, :] == jnp.arange(scores.shape[0], dtype=labels.dtype)[:, None]


def log_softmax_of(scores: Float[Array, "c n"], labels: Int[Array, "n"]) -> Float[Array, "n"]:
    """Each row's log-probability of its label; 0 where the label is -1. A mask, not a gather: its gradient is no
    scatter."""
    own = jnp.sum(jnp.where(chosen(scores, labels), scores, 0), axis=0)
    return jnp.where(labels < 0, 0, own - jax.nn.logsumexp(scores, axis=0))


def _plain(weights, intercept, xs, labels, shares) -> Scalar:
    return jnp.sum(shares * log_softmax_of(scores(weights, intercept, xs), labels))


@jax.custom_jvp
def log_likelihood(
    weights: Float[Array, "c d"],
    intercept: Float[Array, "c"],
    xs: Float[Array, "n d"],
    labels: Int[Array, "n"],
    shares: Float[Array, "n"],
) -> Scalar:
    r"""$\sum_i s_i \log\mathrm{softmax}(Wx_i + b)_{y_i}$, in blocks that stay in cache.

    The slope $\sum_i s_i (e_{y_i} - p_i)x_i^\top$ comes from the same pass over the data, so value and gradient cost
    little more than the value; derivatives of all orders and in every argument.
    """
    part = lambda rows, shares: _plain(weights, intercept, rows[0], rows[1], shares)
    return pooled(part, (xs, labels), shares, _block(xs))


def _value_and_slope(weights, intercept, xs, labels, shares):
    def part(rows, shares):
        xs, labels = rows
        found = scores(weights, intercept, xs)
        found = found - jax.lax.stop_gradient(jnp.max(found, axis=0, keepdims=True))
        # one exponential serves the value and the slope
        odds = jnp.exp(found)
        total = jnp.sum(odds, axis=0)
        counts = jnp.where(labels < 0, 0, shares)
        own = chosen(found, labels)
        value = jnp.sum(counts * (jnp.sum(jnp.where(own, found, 0), axis=0) - jnp.log(total)))
        missed = (own - odds * (1 / total)[None, :]) * counts[None, :]
        return value, matmul(missed, xs), jnp.sum(missed, axis=1)

    return pooled(part, (xs, labels), shares, _block(xs))


def _block(xs: Array) -> int:
    """Scores and probabilities of a block pass through the cache several times: measured, a quarter of the usual."""
    return max(_LEAST_ROWS, block_size(xs, xs.shape[0]) // 4)


def _tangent(primals, tangents):
    if not all(isinstance(t, SymbolicZero) for t in (tangents[2], tangents[4])):
        moving = [jnp.zeros(t.shape, t.dtype) if isinstance(t, SymbolicZero) else t for t in tangents]
        w, b, x, labels, s = primals
        rest = lambda w, b, x, s: _plain(w, b, x, labels, s)
        return jax.jvp(rest, (w, b, x, s), (moving[0], moving[1], moving[2], moving[4]))
    value, *slopes = _value_and_slope(*primals)
    pairs = zip(slopes, tangents[:2], strict=True)
    return value, sum(jnp.sum(s * t) for s, t in pairs if not isinstance(t, SymbolicZero))


log_likelihood.defjvp(_tangent, symbolic_zeros=True)
