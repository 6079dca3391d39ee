"""The binomial distribution of independent counts."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import fixed, param, unit_interval
from .._counts import log_binomial, log_factorial, window
from .._event import Tally, as_event, as_events, check_events, common_event, dot, pool, safe_ratio
from .._exponential_family import AbstractExponentialFamily
from .._special import safe_log, xlogy
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_counts, check_probabilities, is_concrete


class Binomial(AbstractExponentialFamily):
    r"""Independent counts of successes in $n_j$ trials, $p(x) = \prod_j \binom{n_j}{x_j} p_j^{x_j}(1-p_j)^{n_j-x_j}$.

    `total_count` $n$ is known, not estimated. The event has the shape of the parameters; a NaN coordinate is missing
    and scores 0. Values other than $0..n$ score `-inf`, and so does what a probability of 0 or 1 rules out.
    Probabilities outside $[0, 1]$ and fractional trials raise `ValueError`. Samples are floats.

    Cost: O(1) per coordinate. Reference: Murphy (2022), section 2.4.

    >>> round(float(Binomial(probs=0.5, total_count=2).log_prob(1)), 4)
    -0.6931
    """

    probs: Float[Array, "*event"] = param(unit_interval)
    total_count: Float[Array, "*event"] = fixed(converter=as_float)

    def __init__(self, probs: Any, total_count: Any):
        self.probs, self.total_count = common_event(probs=probs, total_count=total_count)

    def __check_init__(self):
        check_probabilities("probs", self.probs)
        check_counts("total_count", self.total_count)

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.probs)
        seen = ~jnp.isnan(x)
        count = (x >= 0) & (x <= self.total_count) & (x == jnp.floor(x))
        successes = jnp.where(count, x, 0)
        failures = jnp.where(count, self.total_count - x, 0)
        certain = (self.probs == 0) | (self.probs == 1)
        p = jnp.where(certain, 0.5, self.probs)
        log_p, log_q = (jnp.where(certain, 0, logs) for logs in (jnp.log(p), jnp.log1p(-p)))
        ways = log_factorial(successes + failures) - log_factorial(successes) - log_factorial(failures)
        value = dot(successes, log_p) + dot(failures, log_q) + jnp.sum(ways)
        no, yes = ((self.probs == edge).astype(x.dtype) for edge in (0, 1))
        clash = dot(successes, no) + dot(failures, yes) > 0
        return jnp.where(clash | jnp.any(seen & ~count), -jnp.inf, value)

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return jr.binomial(key, self.total_count, self.probs, self.probs.shape, self.probs.dtype)

    def mean(self) -> Float[Array, "*event"]:
        """$n p$."""
        return self.total_count * self.probs

    def mode(self) -> Float[Array, "*event"]:
        r"""$\lfloor (n+1)p \rfloor$, at most $n$; where $(n+1)p$ is whole, one less is as probable."""
        return jnp.minimum(jnp.floor((self.total_count + 1) * self.probs), self.total_count)

    def variance(self) -> Float[Array, "*event"]:
        """$n p(1-p)$."""
        return self.total_count * self.probs * (1 - self.probs)

    def entropy(self) -> Scalar:
        """By summation over the support near the mean; absolute error below 1e-10 in float64 for any count."""
        x, spacing = window(self.mean(), jnp.sqrt(jax.lax.stop_gradient(self.variance())))
        log_p = log_binomial(x, jnp.broadcast_to(self.total_count, x.shape), jnp.broadcast_to(self.probs, x.shape))
        possible = log_p > -jnp.inf
        log_p = jnp.where(possible, log_p, 0)
        return jnp.sum(spacing * jnp.sum(jnp.where(possible, -jnp.exp(log_p) * log_p, 0), axis=0))

    def kl(self, other: Self) -> Scalar:
        """In closed form; both must count the same number of trials."""
        check(self.total_count == other.total_count, "kl wants two binomials with the same total_count.")
        p, q = self.probs, 1 - self.probs
        yes = xlogy(p, p) - xlogy(p, other.probs)
        return jnp.sum(self.total_count * (yes + xlogy(q, q) - xlogy(q, 1 - other.probs)))

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> Float[Array, "*event"]:
        return as_event(x, self.probs)

    def natural(self) -> Float[Array, "*event"]:
        return safe_log(self.probs) - safe_log(1 - self.probs)

    def log_normalizer(self) -> Scalar:
        return -jnp.sum(self.total_count * safe_log(1 - self.probs))

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.probs)
        n, inside = self.total_count, (x >= 0) & (x <= self.total_count)
        y = jnp.where(inside, x, 0)
        ways = log_factorial(n) - log_factorial(y) - log_factorial(n - y)
        return jnp.sum(jnp.where(inside, ways, jnp.where(jnp.isnan(x), 0, -jnp.inf)))

    @classmethod
    def from_natural(cls, eta: Float[Array, "*event"], total_count: Any) -> Self:
        return cls(jax.nn.sigmoid(eta), total_count)

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "*event"], total_count: Any) -> Self:
        return cls(m / total_count, total_count)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.probs)
        check_counts("data", xs)
        if is_concrete(xs, self.total_count):
            check((xs <= self.total_count[None]) | (xs != xs), "data must not exceed total_count.")

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Tally:
        """Weight seen (in events, not trials) and weighted sum of successes, per coordinate."""
        xs = as_events(xs, self.probs)
        seen = ~jnp.isnan(xs)
        return Tally(pool(weights, seen.astype(weights.dtype)), pool(weights, jnp.where(seen, xs, 0)))

    def refit(self, stats: Tally) -> Self:
        probs = safe_ratio(stats.total, stats.count * self.total_count, self.probs)
        return eqx.tree_at(lambda d: d.probs, self, probs)

    def degenerate(self) -> Flag:
        """Never: a probability of zero or one is a fair estimate."""
        return jnp.array(False)
