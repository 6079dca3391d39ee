"""The exponential distribution of independent waiting times."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import param, positive
from .._event import Tally, as_event, as_events, check_events, common_event, dot, pool
from .._exponential_family import AbstractExponentialFamily
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check, check_positive, is_concrete


class Exponential(AbstractExponentialFamily):
    r"""Independent waiting times with density $\prod_j \lambda_j e^{-\lambda_j x_j}$ on $x \ge 0$.

    The event has the shape of `rate`; a NaN coordinate is missing and scores 0; a negative value scores `-inf`.
    Rates must be positive.

    Cost: O(1) per coordinate; over n events and k members two matrix products.
    Reference: Murphy (2022), section 2.7.5.

    >>> round(float(Exponential(rate=2.0).log_prob(0.5)), 4)
    -0.3069
    """

    rate: Float[Array, "*event"] = param(positive)

    def __init__(self, rate: Any):
        (self.rate,) = common_event(rate=rate)

    def __check_init__(self):
        check_positive("rate", self.rate)

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.rate)
        seen = ~jnp.isnan(x)
        inside = (x >= 0) & (x < jnp.inf)
        value = dot(seen.astype(x.dtype), jnp.log(self.rate)) - dot(jnp.where(inside, x, 0), self.rate)
        return jnp.where(jnp.any(seen & ~inside), -jnp.inf, value)

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return jr.exponential(key, self.rate.shape, self.rate.dtype) / self.rate

    def mean(self) -> Float[Array, "*event"]:
        r"""$1/\lambda$."""
        return 1 / self.rate

    def mode(self) -> Float[Array, "*event"]:
        """0, the densest point."""
        return jnp.zeros_like(self.rate)

    def variance(self) -> Float[Array, "*event"]:
        r"""$1/\lambda^2$."""
        return 1 / self.rate**2

    def entropy(self) -> Scalar:
        return jnp.sum(1 - jnp.log(self.rate))

    def kl(self, other: Self) -> Scalar:
        excess = (other.rate - self.rate) / self.rate
        return jnp.sum(excess - jnp.log1p(excess))

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> Float[Array, "*event"]:
        return as_event(x, self.rate)

    def natural(self) -> Float[Array, "*event"]:
        return -self.rate

    def log_normalizer(self) -> Scalar:
        return -jnp.sum(jnp.log(self.rate))

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return jnp.zeros((), self.rate.dtype)

    @classmethod
    def from_natural(cls, eta: Float[Array, "*event"]) -> Self:
        return cls(-eta)

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "*event"]) -> Self:
        return cls(1 / m)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.rate)
        if is_concrete(xs):
            check((xs >= 0) | (xs != xs), "data must not be negative.")

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Tally:
        """Weight seen and weighted sum of times, per coordinate."""
        xs = as_events(xs, self.rate)
        seen = ~jnp.isnan(xs)
        return Tally(pool(weights, seen.astype(weights.dtype)), pool(weights, jnp.where(seen, xs, 0)))

    def refit(self, stats: Tally) -> Self:
        """Maximum likelihood; times that are all zero give an infinite rate (see `degenerate`)."""
        rate = jnp.where(stats.count == 0, self.rate, stats.count / jnp.where(stats.count == 0, 1, stats.total))
        return eqx.tree_at(lambda d: d.rate, self, rate)

    def degenerate(self) -> Flag:
        """Some coordinate has an infinite rate: a point mass at zero."""
        return jnp.any(~jnp.isfinite(self.rate))
