"""k-means: the hard, spherical, zero-temperature mixture, learned by the same `fit`."""

from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._constraint import param, real
from .._linalg import matmul
from .._model import AbstractLatentModel
from .._special import any_in_batch, pairwise_dot
from .._typing import Flag, PRNGKey, Scalar, Statistics
from .._validate import check_rank
from .build import prepare
from .start import describe


class KMeans(AbstractLatentModel):
    r"""Clusters by nearest center; the objective is $-\sum_i w_i \min_k \|x_i - c_k\|^2$ (minus the inertia).

    `fit(model, xs, EM())` is Lloyd's algorithm. A missing (NaN) entry drops out of its point's distance. A cluster
    without points keeps its center, and the fit ends with status `degenerate`.

    Cost of a step: two $n \times k \times d$ matrix products. Reference: Bishop (2006), section 9.1.

    >>> model = KMeans(jnp.array([[0.0], [4.0]]))
    >>> int(model.predict(jnp.array([3.0]))), float(model.log_prob(jnp.array([3.0])))
    (1, -1.0)
    """

    centers: Float[Array, "k d"] = param(real)

    def __check_init__(self):
        check_rank("centers", self.centers, 2, "(k, d)")

    @property
    def num_components(self) -> int:
        """k."""
        return self.centers.shape[0]

    def distances(self, x: Float[Array, "d"]) -> Float[Array, "k"]:
        """Squared distance of one point to every center."""
        delta = jnp.where(jnp.isnan(x), 0, x)[None, :] - self.centers
        return jnp.sum(jnp.where(jnp.isnan(x)[None, :], 0, delta**2), axis=1)

    def predict(self, x: Float[Array, "d"]) -> Int[Array, ""]:
        """The nearest center."""
        return jnp.argmin(self.distances(x))

    def log_prob(self, datum: Float[Array, "d"]) -> Scalar:
        """Minus the squared distance to the nearest center (a score, not a normalized density)."""
        return -jnp.min(self.distances(datum))

    def e_step(self, data: Float[Array, "n d"], weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        shift = jnp.mean(self.centers, axis=0)  # distances by products are safe once the common offset is gone
        centers = self.centers - shift[None, :]
        xs = data - shift[None, :]
        missing = any_in_batch(jnp.any(jnp.isnan(xs)))
        return jax.lax.cond(missing, _incomplete, _complete, xs, weights, centers)

    def m_step(self, stats: Statistics) -> Self:
        counts, moved = stats
        return KMeans(self.centers + moved / jnp.where(counts == 0, 1, counts))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        counts, moved = stats
        return counts, moved + counts * (self.centers - new.centers)

    def log_prior(self) -> Scalar:
        return jnp.zeros((), self.centers.dtype)

    def surrogate(self, data: Float[Array, "n d"], weights: Float[Array, "n"], reference: Self) -> Scalar:
        chosen = jax.vmap(reference.predict)(data)
        return -pairwise_dot(weights, jax.vmap(lambda x, k: self.distances(x)[k])(data, chosen))

    def validate(self, data) -> None:
        check_rank("data", data, 2, f"(n, {self.centers.shape[1]})")
        if data.shape[1] != self.centers.shape[1]:
            raise ValueError(f"data has {data.shape[1]} features; the centers have {self.centers.shape[1]}.")

    def degenerate(self) -> Flag:
        """Two centers coincide."""
        gaps = jnp.sum((self.centers[:, None, :] - self.centers[None, :, :]) ** 2, axis=-1)
        same = (gaps == 0) & ~jnp.eye(self.num_components, dtype=bool)
        return jnp.any(same)


def _complete(xs: Array, weights: Array, centers: Array) -> tuple[Statistics, Scalar]:
    mass = jnp.sum(centers * centers, axis=1)[:, None]
    shares, inertia = _nearest(2 * matmul(centers, xs.T) - mass, xs, weights)
    counts = jnp.broadcast_to(jnp.sum(shares, axis=1)[:, None], centers.shape)
    return (counts, matmul(shares, xs) - counts * centers), -pairwise_dot(weights, inertia)


def _incomplete(xs: Array, weights: Array, centers: Array) -> tuple[Statistics, Scalar]:
    mask = (~jnp.isnan(xs)).astype(xs.dtype)
    xs = jnp.where(jnp.isnan(xs), 0, xs)
    shares, inertia = _nearest(2 * matmul(centers, xs.T) - matmul(centers**2, mask.T), xs, weights)
    counts = matmul(shares, mask)
    return (counts, matmul(shares, xs) - counts * centers), -pairwise_dot(weights, inertia)


def _nearest(scores: Float[Array, "k n"], xs: Array, weights: Array) -> tuple[Array, Array]:
    """Weighted indicator of each point's nearest center, and its squared distance; `scores` is |x|^2 less distance."""
    nearest = jnp.argmax(scores, axis=0)
    inertia = jnp.maximum(jnp.sum(xs * xs, axis=1) - jnp.max(scores, axis=0), 0)
    index = jnp.arange(scores.shape[0], dtype=nearest.dtype)
    return jnp.where(index[:, None] == nearest[None, :], weights[None, :], 0), inertia


def kmeans(key: PRNGKey, xs: Any, num_components: int, *, init: Any = "kmeans++", weights: Any = None) -> KMeans:
    """A `KMeans` model started by k-means++ ("kmeans++"), random points ("random") or given centers `(k, d)`.

    >>> import jax.random as jr
    >>> model = kmeans(jr.key(0), jr.normal(jr.key(1), (50, 2)), num_components=3)
    >>> model.centers.shape
    (3, 2)
    """
    xs, weights = prepare(xs, num_components, weights, "ml", init)
    return KMeans(describe(key, xs, weights, num_components, init).centers)
