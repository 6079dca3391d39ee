"""The Lomax (Pareto type II) distribution: an exponential whose rate is gamma distributed."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import param, positive
from .._distribution import AbstractDistribution
from .._event import as_event, common_event, total_log
from .._typing import PRNGKey, Scalar
from .._validate import check_positive


class Lomax(AbstractDistribution):
    r"""Independent waiting times with density $\frac{a}{b}(1 + x/b)^{-(a+1)}$ on $x \ge 0$: `shape` $a$, `scale` $b$.

    It is $\int \lambda e^{-\lambda x}\,\mathrm{Gamma}(\lambda \mid a, b)\,d\lambda$. The event has the shape of the
    parameters; a NaN coordinate is missing and scores 0; a negative value scores `-inf`. Parameters must be positive.

    Cost: O(1) per coordinate. Reference: Johnson, Kotz and Balakrishnan (1994), chapter 20.

    >>> round(float(Lomax(shape=1.0, scale=1.0).log_prob(1.0)), 4)
    -1.3863
    """

    shape: Float[Array, "*event"] = param(positive)
    scale: Float[Array, "*event"] = param(positive)

    def __init__(self, shape: Any, scale: Any):
        self.shape, self.scale = common_event(shape=shape, scale=scale)

    def __check_init__(self):
        check_positive("shape", self.shape)
        check_positive("scale", self.scale)

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.shape)
        inside = (x >= 0) & (x < jnp.inf)
        value = jnp.log(self.shape / self.scale) - (self.shape + 1) * jnp.log1p(jnp.where(inside, x, 0) / self.scale)
        return total_log(jnp.where(inside, value, jnp.where(jnp.isnan(x), 0, -jnp.inf)))

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return self.scale * jnp.expm1(jr.exponential(key, self.shape.shape, self.shape.dtype) / self.shape)

    def mean(self) -> Float[Array, "*event"]:
        """Infinite for shapes up to one."""
        proper = self.shape > 1
        return jnp.where(proper, self.scale / jnp.where(proper, self.shape - 1, 1), jnp.inf)

    def mode(self) -> Float[Array, "*event"]:
        """0, the densest point."""
        return jnp.zeros_like(self.shape)

    def variance(self) -> Float[Array, "*event"]:
        """Infinite for shapes up to two."""
        proper = self.shape > 2
        a = jnp.where(proper, self.shape, 3)
        return jnp.where(proper, self.scale**2 * a / ((a - 1) ** 2 * (a - 2)), jnp.inf)

    def entropy(self) -> Scalar:
        r"""$\sum_j \log(b_j/a_j) + 1 + 1/a_j$ of shape $a$ and scale $b$."""
        return jnp.sum(jnp.log(self.scale / self.shape) + 1 + 1 / self.shape)
