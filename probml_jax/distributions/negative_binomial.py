"""The negative binomial distribution of independent overdispersed counts."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import fixed, param, unit_interval
from .._counts import log_factorial, log_rising
from .._event import Tally, as_event, as_events, check_events, common_event, dot, pool, safe_ratio
from .._exponential_family import AbstractExponentialFamily
from .._special import safe_log, xlogy
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_counts, check_positive, check_probabilities


class NegativeBinomial(AbstractExponentialFamily):
    r"""Successes, each of probability $p$, before the $r$-th failure: $\frac{\Gamma(x+r)}{x!\,\Gamma(r)}(1-p)^r p^x$.

    `total_count` $r > 0$ is real and known, not estimated; the mean is $rp/(1-p)$. A Poisson count whose rate is
    `Gamma(shape=a, rate=b)` is `NegativeBinomial(a, probs=1/(1+b))`. The event has the shape of the parameters; a NaN
    coordinate is missing and scores 0. Negative and fractional values score `-inf`; so does a positive count when
    $p = 0$. Probabilities outside $[0, 1)$ raise `ValueError`. Samples are floats.

    Cost: O(1) per coordinate; accurate in float32 also where a large $r$ makes it nearly a Poisson.
    Reference: Murphy (2023), section 2.2.1.

    >>> round(float(NegativeBinomial(total_count=1.0, probs=0.5).log_prob(1)), 4)
    -1.3863
    """

    total_count: Float[Array, "*event"] = fixed(converter=as_float)
    probs: Float[Array, "*event"] = param(unit_interval)

    def __init__(self, total_count: Any, probs: Any):
        self.total_count, self.probs = common_event(total_count=total_count, probs=probs)

    def __check_init__(self):
        check_positive("total_count", self.total_count)
        check_probabilities("probs", self.probs)
        check(self.probs < 1, "probs must be less than one.")

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.probs)
        seen = ~jnp.isnan(x)
        count = (x >= 0) & (x == jnp.floor(x)) & (x < jnp.inf)
        y = jnp.where(count, x, 0)
        possible = self.probs > 0
        log_p = jnp.where(possible, jnp.log(jnp.where(possible, self.probs, 1)), 0)
        failures = self.total_count * jnp.log1p(-self.probs)
        ways = log_rising(self.total_count, y) - log_factorial(y)
        value = dot(y, log_p) + dot(seen.astype(x.dtype), failures) + jnp.sum(jnp.where(count, ways, 0))
        clash = dot(y, (~possible).astype(x.dtype)) > 0
        return jnp.where(clash | jnp.any(seen & ~count), -jnp.inf, value)

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        key_rate, key_count = jr.split(key)
        odds = self.probs / (1 - self.probs)
        rate = odds * jr.gamma(key_rate, self.total_count, self.probs.shape, self.probs.dtype)
        return jr.poisson(key_count, rate, self.probs.shape).astype(self.probs.dtype)

    def mean(self) -> Float[Array, "*event"]:
        """$r p/(1-p)$."""
        return self.total_count * self.probs / (1 - self.probs)

    def mode(self) -> Float[Array, "*event"]:
        r"""$\lfloor (r-1)p/(1-p) \rfloor$; 0 for $r \le 1$."""
        return jnp.floor(jnp.maximum(self.total_count - 1, 0) * self.probs / (1 - self.probs))

    def variance(self) -> Float[Array, "*event"]:
        """$r p/(1-p)^2$."""
        return self.total_count * self.probs / (1 - self.probs) ** 2

    def entropy(self) -> Scalar:
        r"""By quadrature of $E\log\frac{\Gamma(x+r)}{\Gamma(r)\,x!} =
        \int_0^\infty \frac{e^{-rt} - e^{-t}}{1 - e^{-t}} (G(e^{-t}) - 1)\frac{dt}{t}$, with the generating function
        $G(z) = E z^x$ (Malmstén's integral for $\log\Gamma$).

        The integrand is smooth in $\log t$, where the trapezoid rule converges geometrically: relative error below
        1e-10 in float64 for $10^{-3} \le r \le 10^6$ and means up to $10^6$.
        """
        r, p = self.total_count, self.probs
        spacing = 0.25
        s = jnp.arange(-45.0, 10.0, spacing, dtype=p.dtype).reshape((-1,) + (1,) * p.ndim)
        t = jnp.exp(s)
        fade = -jnp.expm1(-t)
        small = t < 1
        near = jnp.exp(-t) * jnp.expm1((1 - r)[None] * jnp.where(small, t, 0))
        slope = jnp.where(small, near, jnp.exp(-r[None] * t) - jnp.exp(-t)) / fade
        generating = jnp.expm1(-r[None] * jnp.log1p((p / (1 - p))[None] * fade))
        ways = spacing * jnp.sum(slope * generating, axis=0)
        return -jnp.sum(ways + r * jnp.log1p(-p) + xlogy(self.mean(), p))

    def kl(self, other: Self) -> Scalar:
        """In closed form; both must have the same `total_count`."""
        check(self.total_count == other.total_count, "kl wants two members with the same total_count.")
        failures = self.total_count * (jnp.log1p(-self.probs) - jnp.log1p(-other.probs))
        mean = self.mean()
        return jnp.sum(failures + xlogy(mean, self.probs) - xlogy(mean, other.probs))

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> Float[Array, "*event"]:
        return as_event(x, self.probs)

    def natural(self) -> Float[Array, "*event"]:
        return safe_log(self.probs)

    def log_normalizer(self) -> Scalar:
        return -jnp.sum(self.total_count * jnp.log1p(-self.probs))

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.probs)
        y = jnp.where(x >= 0, x, 0)
        return jnp.sum(log_rising(self.total_count, y) - log_factorial(y))

    @classmethod
    def from_natural(cls, eta: Float[Array, "*event"], total_count: Any) -> Self:
        return cls(total_count, jnp.exp(eta))

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "*event"], total_count: Any) -> Self:
        return cls(total_count, m / (m + total_count))

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.probs)
        check_counts("data", xs)

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Tally:
        """Weight seen and weighted sum of counts, per coordinate."""
        xs = as_events(xs, self.probs)
        seen = ~jnp.isnan(xs)
        return Tally(pool(weights, seen.astype(weights.dtype)), pool(weights, jnp.where(seen, xs, 0)))

    def refit(self, stats: Tally) -> Self:
        probs = safe_ratio(stats.total, stats.total + self.total_count * stats.count, self.probs)
        return eqx.tree_at(lambda d: d.probs, self, probs)

    def degenerate(self) -> Flag:
        """Never: a probability of zero is a fair estimate."""
        return jnp.array(False)
