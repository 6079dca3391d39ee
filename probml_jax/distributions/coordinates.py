"""Independent Gaussian coordinates, some of them missing: what diagonal and spherical normals share.

A stack of k members scores n events, and pools them, through the products `[seen, z, z^2]` of the events about their
common centre: formed once for all members, one matrix product for each purpose, and nothing of size n x k x d.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._event import dot, pool
from .._special import LOG_2PI, any_in_batch, batch_center, is_stacked, middle, separately
from .._typing import Scalar


class Moments(NamedTuple):
    r"""Weighted moments around the member that took them: $\sum w$, $\sum w\delta$, $\sum w\delta\delta^\top$."""

    count: Array
    first: Array
    second: Array


def log_density(loc: Float[Array, "*event"], scale: Float[Array, "*event"], x: Float[Array, "*event"]) -> Scalar:
    r"""$\sum_j \log N(x_j \mid \mu_j, \sigma_j^2)$ over the coordinates that are not NaN."""
    seen = ~jnp.isnan(x)
    center = _or_zero(batch_center(jax.lax.stop_gradient(x)))
    apart = (loc - center) / scale
    one_by_one = separately(loc, jnp.sum(1 + apart**2))
    return jax.lax.cond(one_by_one, _direct_density, _shared_density, loc, scale, center, jnp.where(seen, x, 0), seen)


def _or_zero(center: Array) -> Array:
    """The centre of coordinates that nobody has seen."""
    return jnp.where(jnp.isnan(center), 0, center)


@jax.checkpoint  # a branch stores for its gradient what either branch would store: let that be the inputs alone
def _direct_density(loc, scale, center, x, seen) -> Scalar:
    z = (x - loc) / scale
    return jnp.sum(jnp.where(seen, -0.5 * (z * z + LOG_2PI) - jnp.log(scale), 0))


@jax.checkpoint
def _shared_density(loc, scale, center, x, seen) -> Scalar:
    z = jnp.where(seen, x - center, 0)
    precision, shift = 1 / scale**2, center - loc
    constant = -0.5 * (precision * shift**2 + LOG_2PI) - jnp.log(scale)
    products = jnp.stack([seen.astype(x.dtype), z, z * z])
    return dot(products, jnp.stack([constant, -precision * shift, -0.5 * precision]))


def moments(loc: Array, scale: Array, xs: Float[Array, "n *event"], weights: Float[Array, "n"]) -> Moments:
    """Moments around `loc`, per coordinate; a missing entry counts nowhere."""
    center = _or_zero(middle(xs))
    # leaving the common centre cancels by the squared distance in standard deviations: 3e-5 of a variance at this limit
    limit = 100.0 if jnp.finfo(xs.dtype).bits <= 32 else 5e4
    far = ~jnp.all((loc - center) ** 2 <= limit * scale**2)
    alone = ~is_stacked(jax.lax.stop_gradient(loc))
    return jax.lax.cond(alone | any_in_batch(far), _direct_moments, _shared_moments, loc, center, xs, weights)


def _deviations(center, xs) -> tuple[Array, Array]:
    seen = ~jnp.isnan(xs)
    return seen.astype(xs.dtype), jnp.where(seen, jnp.where(seen, xs, 0) - center[None], 0)


def _direct_moments(loc, center, xs, weights) -> Moments:
    seen, delta = _deviations(loc, xs)
    return Moments(pool(weights, seen), pool(weights, delta), pool(weights, delta * delta))


def _shared_moments(loc, center, xs, weights) -> Moments:
    seen, z = _deviations(center, xs)
    count, first, second = pool(weights, jnp.stack([seen, z, z * z], axis=1))
    shift = loc - center
    return Moments(count, first - count * shift, second - shift * (2 * first - count * shift))
