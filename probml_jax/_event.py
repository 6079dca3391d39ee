"""What families of independent coordinates share: one event shape, missing entries, pooled tallies."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._validate import as_float, check_finite, check_shape


class Tally(NamedTuple):
    """Weighted statistics of observed coordinates: how much weight was seen, and the weighted sum of t(x)."""

    count: Array
    total: Any


def common_event(**params: Any) -> tuple[Any, ...]:
    """Parameters as floating arrays of one event shape and one dtype; scalars spread over the event.

    Raises `ValueError` naming the argument whose shape differs. `None` stays `None`.
    """
    arrays = {name: as_float(value, name) for name, value in params.items()}
    given = {name: a for name, a in arrays.items() if isinstance(a, jax.Array)}
    shape = max((a.shape for a in given.values()), key=len, default=())
    for name, a in given.items():
        if a.shape not in ((), shape):
            raise ValueError(f"{name} has shape {a.shape}; wanted {shape} like the other parameters, or a scalar.")
    dtype = jnp.result_type(*given.values()) if given else None
    return tuple(jnp.broadcast_to(a, shape).astype(dtype) if name in given else a for name, a in arrays.items())


def as_event(x: Any, like: Array) -> Array:
    """An event as a floating array with the shape of `like` (whose dtype booleans and integers take)."""
    x = jnp.asarray(x)
    check_shape("x", x, like.shape)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(like.dtype)


def as_events(xs: Any, like: Array) -> Array:
    """Like `as_event`, for n events."""
    xs = jnp.asarray(xs)
    check_shape("data", xs, (*xs.shape[:1], *like.shape))
    return xs if jnp.issubdtype(xs.dtype, jnp.floating) else xs.astype(like.dtype)


def check_events(xs: Any, like: Array) -> None:
    """Raise `ValueError` unless `xs` is n events of the right shape, finite or NaN."""
    shape = jnp.shape(xs)
    if shape[1:] != like.shape or not shape:
        wanted = "(" + ", ".join(["n", *map(str, like.shape)]) + ("," if not like.shape else "") + ")"
        raise ValueError(f"data has shape {shape}; wanted {wanted}.")
    check_finite("data", xs)


def pool(weights: Float[Array, "n"], values: Float[Array, "n *event"]) -> Float[Array, "*event"]:
    """`sum_i w_i v_i` at full precision: a matrix product under `vmap` over weights."""
    return jnp.tensordot(weights, values, 1, precision=jax.lax.Precision.HIGHEST)


def dot(a: Float[Array, "*event"], b: Float[Array, "*event"]) -> Float[Array, ""]:
    """Sum of products over an event of any shape: a matrix product under `vmap` over events and parameters."""
    return jnp.dot(a.ravel(), b.ravel(), precision=jax.lax.Precision.HIGHEST)


def total_log(values: Float[Array, "*event"]) -> Float[Array, ""]:
    """Sum of log-densities of coordinates, where one impossible coordinate makes the event impossible."""
    impossible = values == -jnp.inf
    return jnp.where(jnp.any(impossible), -jnp.inf, jnp.sum(jnp.where(impossible, 0, values)))


def power_log(exponent: Array, x: Array) -> Array:
    """`a log x` for `x >= 0`, with the limit at zero: `inf`, 0 or `-inf` by the sign of `a`; finite gradients."""
    interior = x > 0
    edge = jnp.where(exponent == 0, 0.0, jnp.where(exponent > 0, -jnp.inf, jnp.inf))
    return jnp.where(interior, exponent * jnp.log(jnp.where(interior, x, 1)), edge)


def safe_ratio(total: Array, count: Array, otherwise: Array) -> Array:
    """`total / count`, and `otherwise` where nothing was counted."""
    empty = count == 0
    return jnp.where(empty, otherwise, total / jnp.where(empty, 1, count))
