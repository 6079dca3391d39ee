"""Mean functions of Gaussian processes: modules on one input. Any function or Equinox network of one input will do."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import param, real
from .._typing import Scalar
from .._validate import as_float


class Zero(eqx.Module):
    """$m(x) = 0$.

    >>> Zero()(jnp.ones(2)).item()
    0.0
    """

    def __call__(self, x: Array) -> Scalar:
        return jnp.zeros((), x.dtype)


class Constant(eqx.Module):
    """$m(x) = c$.

    >>> Constant(3.0)(jnp.ones(2)).item()
    3.0
    """

    value: Float[Array, ""] = param(real)

    def __call__(self, x: Array) -> Scalar:
        return self.value


class Linear(eqx.Module):
    r"""$m(x) = w^\top x + c$."""

    weights: Float[Array, "d"] = param(real)
    intercept: Float[Array, ""] = param(real, default=0.0)

    def __call__(self, x: Array) -> Scalar:
        return jnp.sum(self.weights * x) + self.intercept


def as_mean(value: Any) -> Callable[[Array], Array]:
    """A mean function: a number is a constant one, `None` is zero.

    >>> as_mean(3.0)(jnp.ones(2)).item()
    3.0
    """
    if value is None:
        return Zero()
    return value if callable(value) else Constant(as_float(value, "mean_function"))
