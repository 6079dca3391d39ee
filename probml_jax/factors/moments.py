"""Second moments: all that a Gaussian model with continuous latents needs to know of complete data."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._linalg import matmul
from .._special import middle
from .._validate import as_data, as_weights, check_finite, check_rank


class SecondMoments(eqx.Module):
    r"""Many complete events as *one* unit: their weight $\sum w$, mean, and scatter $\sum w(x-\bar x)(x-\bar x)^\top$.

    Factor analysis takes them in place of events: a step of EM then costs the same for any number of events. As data
    for `fit` they have a leading axis of units (of size one, from `summarize`).
    """

    count: Float[Array, "*n"]
    mean: Float[Array, "*n d"]
    scatter: Float[Array, "*n d d"]


def summarize(xs: Any, weights: Any = None) -> SecondMoments:
    r"""Weighted count, mean and scatter of events `xs (n, d)`, as data of one unit.

    The mean is taken around a point of the data and the scatter around the mean, so that nothing cancels in float32.
    NaN entries raise `ValueError`: incomplete events have no such summary.

    Cost: $nd^2$, once.

    >>> summarize(jnp.array([[1.0], [3.0]])).scatter.tolist()
    [[[2.0]]]
    """
    xs, weights = checked_events(xs, weights)
    check_finite("xs", xs, nan=False)
    return _summarize(xs, weights)


@eqx.filter_jit
def _summarize(xs: Array, weights: Array) -> SecondMoments:
    count, mean, scatter = weighted_moments(xs, weights)
    return SecondMoments(count[None], mean[None], scatter[None])


def weighted_moments(xs: Float[Array, "n d"], weights: Float[Array, "n"] | None) -> tuple[Array, Array, Array]:
    """Total weight, mean and scatter about the mean; equal weights may be `None`.

    One pass around a point near the mean: the distance to the mean itself is a fraction of a standard deviation.
    """
    start = middle(xs)
    near = xs - start[None, :]
    if weights is None:
        count, first, second = jnp.asarray(xs.shape[0], xs.dtype), jnp.sum(near, axis=0), matmul(near.T, near)
    else:
        count, first = jnp.sum(weights), matmul(weights, near)
        second = matmul((weights[:, None] * near).T, near)
    shift = first / jnp.where(count == 0, 1, count)
    return count, start + shift, second - count * jnp.outer(shift, shift)


def checked_events(xs: Any, weights: Any) -> tuple[Array, Array]:
    """Events as a floating array (n, d) and their weights; what is wrong with them raises."""
    xs = as_data(xs)
    check_rank("xs", xs, 2, "(n, d); one feature is xs[:, None]")
    xs = xs if jnp.issubdtype(xs.dtype, jnp.floating) else xs.astype(jnp.result_type(float))
    return xs, as_weights(weights, xs.shape[0], xs.dtype)


def check_size(name: str, size: int, xs: Array) -> None:
    """Raise `ValueError` unless there can be so many components of these events."""
    most = min(xs.shape)
    if not 1 <= size <= most:
        raise ValueError(f"{name} must be between 1 and {most}, the smaller side of xs {tuple(xs.shape)}; got {size}.")
