"""Where builders start from: a crude description of the data, by clusters or by labels that are known."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._linalg import matmul
from .._typing import PRNGKey
from .._validate import as_float, check_shape
from ..inference import seeding
from ..inference.blocks import block_size, pooled

_LLOYD_STEPS = 5
_SAMPLE = 8192


class Start(NamedTuple):
    """A crude description of the data, from which every builder makes its components."""

    centers: Float[Array, "k d"]
    shares: Float[Array, "n k"]  # weighted
    counts: Float[Array, "k"]
    loc: Float[Array, "d"]
    variance: Float[Array, "d"]
    covariance: Float[Array, "d d"]
    within: Float[Array, "d d"]


class Columns(NamedTuple):
    """Columns one by one: where they lie, how far they spread, and the data about that with nothing missing."""

    loc: Float[Array, "d"]
    variance: Float[Array, "d"]
    centred: Float[Array, "n d"]

    @property
    def unit(self) -> Float[Array, "1 d"]:
        """Standard deviations; one for a constant column."""
        return jnp.sqrt(jnp.where(self.variance > 0, self.variance, 1))[None, :]


def _columns(xs: Float[Array, "n d"], weights: Float[Array, "n"]) -> Columns:
    """A missing entry stands at its column's mean here, and only here."""
    seen = ~jnp.isnan(xs)
    mass = weights @ seen.astype(xs.dtype)
    mass = jnp.where(mass > 0, mass, 1)
    some = jnp.where(seen, xs, 0)[jnp.argmax(seen, axis=0), jnp.arange(xs.shape[1])]  # a point to centre on
    loc = some + weights @ jnp.where(seen, xs - some[None, :], 0) / mass
    centred = jnp.where(seen, xs - loc[None, :], 0)
    return Columns(loc, weights @ centred**2 / mass, centred)


def describe(
    key: PRNGKey, xs: Float[Array, "n d"], weights: Float[Array, "n"], num_components: int, init: Any
) -> Start:
    """Seeds, hard shares and moments of the data."""
    columns = _columns(xs, weights)
    loc, unit, centred = columns.loc, columns.unit, columns.centred
    if isinstance(init, str):
        # distances in units of each column's spread: a column in milliseconds must not drown one in meters
        seed = seeding.plus_plus if init == "kmeans++" else seeding.random_points
        centers = seed(key, centred / unit, weights, num_components)
        if init == "kmeans++":
            centers = seeding.lloyd(centred / unit, weights, centers, _LLOYD_STEPS)
        centers = centers * unit + loc[None, :]
    else:
        centers = jnp.asarray(as_float(init, "init"), xs.dtype)
        check_shape("init", centers, (num_components, xs.shape[1]))
    relative = centers - loc[None, :]
    labels = seeding.assign(centred / unit, relative / unit)
    shares = jax.nn.one_hot(labels, num_components, dtype=xs.dtype)
    residual = centred - shares @ relative
    within = (weights[:, None] * residual).T @ residual / jnp.sum(weights)
    covariance = (weights[:, None] * centred).T @ centred / jnp.sum(weights)
    shares = shares * weights[:, None]
    return Start(centers, shares, jnp.sum(shares, axis=0), loc, columns.variance, covariance, within)


def describe_labelled(
    xs: Float[Array, "n d"], labels: Int[Array, "n"], weights: Float[Array, "n"], num_classes: int, *, sample: bool
) -> Start:
    """The same when it is known whose each row is (-1: nobody's). Within classes only variances are looked at: what is
    learned from labels does not depend on where it starts. With `sample` some ten thousand rows have to do: enough to
    centre on, and to know the scale of a column."""
    known = labels[None, :] == jnp.arange(num_classes, dtype=labels.dtype)[:, None]
    shares = known * weights[None, :]
    counts = jnp.sum(shares, axis=1)
    some = jnp.where(jnp.isnan(xs[0]), 0, xs[0])[None, :]  # a point to centre on

    def sums(rows, weights):
        """For everybody and for each class: weight seen, first and second moments of every column, in one product."""
        xs, known = rows
        seen = ~jnp.isnan(xs)
        delta = jnp.where(seen, xs - some, 0)
        whose = jnp.concatenate([weights[None, :], known.T * weights[None, :]])
        return matmul(whose, jnp.concatenate([seen.astype(xs.dtype), delta, delta**2], axis=1))

    some_rows = slice(None, None, max(1, xs.shape[0] // _SAMPLE) if sample else 1)
    looked_at = (xs[some_rows], known.T[some_rows])
    block = block_size(looked_at[0], looked_at[0].shape[0])
    mass, first, second = jnp.split(pooled(sums, looked_at, weights[some_rows], block), 3, axis=1)
    means = first / jnp.where(mass > 0, mass, 1)
    loc, centers = means[0], jnp.where(mass[1:] > 0, means[1:], means[:1])
    variance = jnp.maximum(second[0] / jnp.where(mass[0] > 0, mass[0], 1) - loc**2, 0)
    between = matmul(counts, (centers - loc[None, :]) ** 2) / jnp.maximum(jnp.sum(counts), 1)
    spread = jnp.diag(jnp.maximum(variance - between, 0))
    centred = jnp.where(jnp.isnan(xs), 0, xs - some - loc[None, :])
    covariance = matmul((weights[:, None] * centred).T, centred) / jnp.sum(weights)
    return Start(centers + some, shares.T, counts, loc + some[0], variance, covariance, spread)
