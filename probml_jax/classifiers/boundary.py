"""Log densities of Gaussians as quadratic functions of the event, and as linear ones where they are to be compared."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._exponential_family import AbstractExponentialFamily
from .._linalg import inverse_factor, matmul
from .._special import LOG_2PI, batch_center, missing_in_batch, separately
from .._typing import Scalar
from .._validate import check_shape
from ..distributions import MultivariateNormal, Normal, SphericalNormal


class Quadratic(NamedTuple):
    r"""$x^\top Ax + b^\top x + c$."""

    a: Float[Array, "d d"]
    b: Float[Array, "d"]
    c: Float[Array, ""]

    def __call__(self, x: Float[Array, "d"]) -> Scalar:
        return x @ self.a @ x + self.b @ x + self.c


@functools.singledispatch
def quadratic(distribution: Any) -> Quadratic:
    """The log density of a Gaussian as a quadratic function; `TypeError` for what is none."""
    raise TypeError(f"{type(distribution).__name__} is no Gaussian: its log density is not quadratic.")


def _assembled(dist: AbstractExponentialFamily, matrix: Array, vector: Array) -> Quadratic:
    # natural parameters are the coefficients; the normalizer is the constant
    return Quadratic(matrix, vector, -dist.log_normalizer() - 0.5 * vector.size * LOG_2PI)


@quadratic.register
def _(dist: MultivariateNormal) -> Quadratic:
    vector, matrix = dist.natural()
    return _assembled(dist, matrix, vector)


@quadratic.register
def _(dist: Normal) -> Quadratic:
    vector, squares = dist.natural()
    return _assembled(dist, jnp.diag(squares), vector)


@quadratic.register
def _(dist: SphericalNormal) -> Quadratic:
    vector, square = dist.natural()
    return _assembled(dist, square * jnp.eye(vector.size, dtype=vector.dtype), vector)


@functools.singledispatch
def contrast(distribution: Any, x: Any) -> Scalar:
    """The log density of one event, up to what it has in common with members that differ in their location alone."""
    return distribution.log_prob(x)


@contrast.register
def _(dist: MultivariateNormal, x: Float[Array, "d"]) -> Scalar:
    r"""$(x - c)^\top\Sigma^{-1}(\mu - c) - \tfrac12(\mu - c)^\top\Sigma^{-1}(\mu - c)$ about the events' centre $c$:
    under vmap over events and members one product of events and locations. Where entries are missing, or so far apart
    that it would cancel, the log density."""
    x = jnp.asarray(x)
    check_shape("x", x, dist.loc.shape)
    center = batch_center(jax.lax.stop_gradient(x))
    whiten = inverse_factor(dist.covariance)
    shift = matmul(whiten, dist.loc - center)
    size = jnp.sum(jnp.sum(whiten**2, axis=0) * jnp.diagonal(dist.covariance)) + jnp.sum(shift**2)
    linear = jnp.dot(x - center, matmul(shift, whiten), precision="highest") - 0.5 * jnp.sum(shift**2)
    # a missing entry shows in the product: to look for it beforehand would cost as much
    apart = missing_in_batch(linear) | separately(dist.loc, size)
    return jax.lax.cond(apart, lambda x, _: dist.log_prob(x), lambda _, linear: linear, x, linear)
