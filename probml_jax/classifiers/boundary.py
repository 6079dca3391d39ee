"""Log densities of Gaussians as quadratic functions of the event."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._exponential_family import AbstractExponentialFamily
from .._special import LOG_2PI
from .._typing import Scalar
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
