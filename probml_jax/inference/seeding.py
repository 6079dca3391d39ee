"""Where to start: k-means++ seeding, nearest-center assignment and a few Lloyd steps. Arrays in, arrays out."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._linalg import matmul
from .._typing import PRNGKey


def squared_distances(xs: Float[Array, "n d"], centers: Float[Array, "k d"]) -> Float[Array, "n k"]:
    r"""$\|x_i - c_k\|^2$ by one matrix product, centred first so that it is safe in float32."""
    shift = jnp.mean(centers, axis=0)
    x, c = xs - shift[None, :], centers - shift[None, :]
    squares = jnp.sum(x * x, axis=1)[:, None] - 2 * matmul(x, c.T) + jnp.sum(c * c, axis=1)[None, :]
    return jnp.maximum(squares, 0)


def plus_plus(
    key: PRNGKey, xs: Float[Array, "n d"], weights: Float[Array, "n"], num_centers: int
) -> Float[Array, "k d"]:
    """k-means++: each next center is a point drawn with probability proportional to its squared distance.

    Cost: O(n k d). When every point coincides with a center already the next one is drawn by weight alone.
    Reference: Arthur and Vassilvitskii (2007).
    """
    keys = jr.split(key, num_centers)
    log_weights = jnp.log(weights)
    first = xs[jr.categorical(keys[0], log_weights)]
    to_center = lambda center: jnp.sum((xs - center[None, :]) ** 2, axis=1)

    def add(carry, key):
        nearest = carry
        logits = jnp.where(jnp.max(nearest * weights) > 0, jnp.log(nearest), 0.0) + log_weights
        center = xs[jr.categorical(key, logits)]
        return jnp.minimum(nearest, to_center(center)), center

    _, others = jax.lax.scan(add, to_center(first), keys[1:])
    return jnp.concatenate([first[None], others])


def random_points(
    key: PRNGKey, xs: Float[Array, "n d"], weights: Float[Array, "n"], num_centers: int
) -> Float[Array, "k d"]:
    """Distinct points drawn by weight."""
    probs = weights / jnp.sum(weights)
    return xs[jr.choice(key, xs.shape[0], (num_centers,), replace=False, p=probs)]


def assign(xs: Float[Array, "n d"], centers: Float[Array, "k d"]) -> Int[Array, "n"]:
    """Index of the nearest center."""
    return jnp.argmin(squared_distances(xs, centers), axis=1)


def lloyd(
    xs: Float[Array, "n d"], weights: Float[Array, "n"], centers: Float[Array, "k d"], num_steps: int
) -> Float[Array, "k d"]:
    """A fixed number of Lloyd steps: assign, average. A center without points stays where it is."""

    def step(centers, _):
        shares = jax.nn.one_hot(assign(xs, centers), centers.shape[0], dtype=xs.dtype) * weights[:, None]
        counts = jnp.sum(shares, axis=0)[:, None]
        means = centers + (shares.T @ xs - counts * centers) / jnp.where(counts > 0, counts, 1)
        return jnp.where(counts > 0, means, centers), None

    return jax.lax.scan(step, centers, None, length=num_steps)[0]
