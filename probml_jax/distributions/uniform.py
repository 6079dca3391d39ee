"""The uniform distribution on a box."""

from typing import Any, Self

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import fixed
from .._distribution import AbstractDistribution
from .._event import as_event, common_event
from .._typing import PRNGKey, Scalar
from .._validate import as_float, check


class Uniform(AbstractDistribution):
    r"""Independent coordinates with constant density $\prod_j 1/(b_j - a_j)$ on $[a_j, b_j]$.

    The event has the shape of the parameters; a NaN coordinate is missing and scores 0; outside the box the score is
    `-inf`. `low` must be less than `high`. The edges are known, not trained: the likelihood has no gradient in them.

    Cost: O(1) per coordinate. Reference: Murphy (2022), section 2.2.2.

    >>> round(float(Uniform(low=0.0, high=2.0).log_prob(0.5)), 4)
    -0.6931
    """

    low: Float[Array, "*event"] = fixed(converter=as_float)
    high: Float[Array, "*event"] = fixed(converter=as_float)

    def __init__(self, low: Any, high: Any):
        self.low, self.high = common_event(low=low, high=high)

    def __check_init__(self):
        check(self.low < self.high, "low must be less than high.")

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.low)
        outside = (x < self.low) | (x > self.high)
        value = jnp.where(jnp.isnan(x), 0, -jnp.log(self.high - self.low))
        return jnp.where(jnp.any(outside), -jnp.inf, jnp.sum(value))

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return jr.uniform(key, self.low.shape, self.low.dtype, self.low, self.high)

    def mean(self) -> Float[Array, "*event"]:
        """$(a+b)/2$."""
        return 0.5 * (self.low + self.high)

    def variance(self) -> Float[Array, "*event"]:
        """$(b-a)^2/12$."""
        return (self.high - self.low) ** 2 / 12

    def entropy(self) -> Scalar:
        r"""$\sum_j\log(b_j-a_j)$."""
        return jnp.sum(jnp.log(self.high - self.low))

    def kl(self, other: Self) -> Scalar:
        """Infinite unless the box lies inside the other's."""
        inside = jnp.all((other.low <= self.low) & (self.high <= other.high))
        return jnp.where(inside, other.entropy() - self.entropy(), jnp.inf)
