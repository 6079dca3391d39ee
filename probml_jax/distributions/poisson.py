"""The Poisson distribution of independent counts."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import param, positive
from .._counts import log_factorial, log_poisson, window
from .._event import Tally, as_event, as_events, check_events, common_event, dot, pool, safe_ratio
from .._exponential_family import AbstractExponentialFamily
from .._special import safe_log, xlogy
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check, check_counts


class Poisson(AbstractExponentialFamily):
    r"""Independent counts with $p(x) = \prod_j e^{-\lambda_j}\lambda_j^{x_j}/x_j!$.

    The event has the shape of `rate`; a NaN coordinate is missing and scores 0. Negative and fractional values score
    `-inf`, and so does a positive count of rate 0. A negative rate raises `ValueError`. Samples are floats.

    Cost: O(1) per coordinate; over n events and k members two matrix products, accurate to rounding of
    $x\log x$. Reference: Murphy (2022), section 3.4; Bishop (2006), section 2.4.

    >>> round(float(Poisson(rate=2.0).log_prob(1)), 4)
    -1.3069
    """

    rate: Float[Array, "*event"] = param(positive)

    def __init__(self, rate: Any):
        (self.rate,) = common_event(rate=rate)

    def __check_init__(self):
        check(self.rate >= 0, "rate must not be negative or NaN.")

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.rate)
        seen = ~jnp.isnan(x)
        count = (x >= 0) & (x == jnp.floor(x)) & (x < jnp.inf)
        y = jnp.where(count, x, 0)
        possible = self.rate > 0
        log_rate = jnp.where(possible, jnp.log(jnp.where(possible, self.rate, 1)), 0)
        value = dot(y, log_rate) - dot(seen.astype(x.dtype), self.rate) - jnp.sum(log_factorial(y))
        clash = dot(y, (~possible).astype(x.dtype)) > 0
        return jnp.where(clash | jnp.any(seen & ~count), -jnp.inf, value)

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return jr.poisson(key, self.rate, self.rate.shape).astype(self.rate.dtype)

    def mean(self) -> Float[Array, "*event"]:
        r"""$\lambda_j$."""
        return self.rate

    def mode(self) -> Float[Array, "*event"]:
        """The largest one: at a whole rate, `rate - 1` is as probable."""
        return jnp.floor(self.rate)

    def variance(self) -> Float[Array, "*event"]:
        r"""$\lambda_j$, as the mean."""
        return self.rate

    def entropy(self) -> Scalar:
        """By summation over the support near the mean; absolute error below 1e-10 in float64 for any rate."""
        x, spacing = window(self.rate, jnp.sqrt(self.rate))
        log_p = log_poisson(x, self.rate[None])
        terms = jnp.where(log_p > -jnp.inf, -jnp.exp(log_p) * log_p, 0)
        return jnp.sum(spacing * jnp.sum(terms, axis=0))

    def kl(self, other: Self) -> Scalar:
        return jnp.sum(xlogy(self.rate, self.rate) - xlogy(self.rate, other.rate) - (self.rate - other.rate))

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> Float[Array, "*event"]:
        return as_event(x, self.rate)

    def natural(self) -> Float[Array, "*event"]:
        return safe_log(self.rate)

    def log_normalizer(self) -> Scalar:
        return jnp.sum(self.rate)

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.rate)
        return -jnp.sum(log_factorial(jnp.where(x >= 0, x, 0)))

    @classmethod
    def from_natural(cls, eta: Float[Array, "*event"]) -> Self:
        return cls(jnp.exp(eta))

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "*event"]) -> Self:
        return cls(m)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.rate)
        check_counts("data", xs)

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Tally:
        """Weight seen and weighted sum of counts, per coordinate."""
        xs = as_events(xs, self.rate)
        seen = ~jnp.isnan(xs)
        return Tally(pool(weights, seen.astype(weights.dtype)), pool(weights, jnp.where(seen, xs, 0)))

    def refit(self, stats: Tally) -> Self:
        return eqx.tree_at(lambda d: d.rate, self, safe_ratio(stats.total, stats.count, self.rate))

    def degenerate(self) -> Flag:
        """Never: a rate of zero is a fair estimate."""
        return jnp.array(False)
