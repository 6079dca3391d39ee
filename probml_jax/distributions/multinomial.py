"""The multinomial distribution of counts over k categories."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Shaped

from .._constraint import fixed, param, simplex
from .._counts import log_binomial, log_factorial, log_poisson, window
from .._event import as_event, as_events, check_events, common_event, dot, pool
from .._exponential_family import AbstractExponentialFamily
from .._linalg import matmul
from .._special import logsumexp, safe_log, xlogy
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_counts, check_rank, check_simplex, is_concrete


class Multinomial(AbstractExponentialFamily):
    r"""Counts of k categories in n draws, $p(x) = n!\prod_j \pi_j^{x_j}/x_j!$ with $\sum_j x_j = n$.

    `total_count` $n$ is known, not estimated. `None` scores each event given its own total (documents of different
    lengths); then what needs $n$ (`mean`, `sample`, `entropy`, `kl`, the exponential form) raises `ValueError`. NaN
    entries are integrated out. Negative, fractional or wrongly summing counts score `-inf`, and so does a positive
    count of probability 0. Probabilities off the simplex raise `ValueError`. Samples are floats.

    Cost: O(k) per event; over n events and many members two matrix products.
    Reference: Murphy (2022), section 2.5; Bishop (2006), section 2.2.

    >>> round(float(Multinomial(probs=[0.5, 0.25, 0.25], total_count=2).log_prob(jnp.array([1, 1, 0]))), 4)
    -1.3863
    """

    probs: Float[Array, "k"] = param(simplex)
    total_count: Float[Array, ""] | None = fixed(default=None, converter=as_float)

    def __init__(self, probs: Any, total_count: Any = None):
        (self.probs,) = common_event(probs=probs)
        total_count = as_float(total_count, "total_count")
        self.total_count = None if total_count is None else total_count.astype(self.probs.dtype)

    def __check_init__(self):
        check_rank("probs", self.probs, 1, "a vector (k,)")
        check_simplex("probs", self.probs)
        if self.total_count is not None:
            check_rank("total_count", self.total_count, 0, "a scalar")
            check_counts("total_count", self.total_count)

    @property
    def _draws(self) -> Scalar:
        if self.total_count is None:
            raise ValueError("total_count is None, so events have no fixed total; give total_count for this.")
        return self.total_count

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[Array, "k"]) -> Scalar:
        x = as_event(x, self.probs)
        seen = ~jnp.isnan(x)
        count = (x >= 0) & (x == jnp.floor(x)) & (x < jnp.inf)
        y = jnp.where(count, x, 0)
        possible = self.probs > 0
        log_probs = jnp.where(possible, jnp.log(jnp.where(possible, self.probs, 1)), 0)
        value = dot(y, log_probs) - jnp.sum(log_factorial(y))
        clash = (dot(y, (~possible).astype(x.dtype)) > 0) | jnp.any(seen & ~count)
        total, complete = jnp.sum(y), jnp.all(seen)
        if self.total_count is None:
            # given the total of what was observed: the observed categories, renormalized
            observed = jnp.where(complete, 1, dot(seen.astype(x.dtype), self.probs))
            value = value + log_factorial(total) - xlogy(total, observed)
        else:
            rest = self.total_count - total
            hidden = dot((~seen).astype(x.dtype), self.probs)
            clash = clash | jnp.where(complete, rest != 0, rest < 0)
            rest = jnp.where(complete | (rest < 0), 0, rest)
            value = value + log_factorial(self.total_count) + xlogy(rest, hidden) - log_factorial(rest)
        return jnp.where(clash, -jnp.inf, value)

    def sample(self, key: PRNGKey) -> Float[Array, "k"]:
        return jr.multinomial(key, self._draws, self.probs, dtype=self.probs.dtype)

    def mean(self) -> Float[Array, "k"]:
        """$n p_k$."""
        return self._draws * self.probs

    def mode(self) -> Float[Array, "k"]:
        r"""The most probable counts: the n largest of $\pi_j/m$, $m = 1, 2, \ldots$ (D'Hondt's rule). O(k^2)."""
        quota = jnp.floor(self._draws * self.probs)
        more = jnp.arange(1, max(quota.size, 2), dtype=quota.dtype)
        gain = self.probs[:, None] / (quota[:, None] + more[None, :])
        rank = jnp.argsort(jnp.argsort(-gain.ravel())).reshape(gain.shape)
        return quota + jnp.sum(rank < self._draws - jnp.sum(quota), axis=1)

    def variance(self) -> Float[Array, "k"]:
        """$n p_k(1-p_k)$."""
        return self._draws * self.probs * (1 - self.probs)

    def covariance(self) -> Float[Array, "k k"]:
        r"""$n(\mathrm{diag}(p) - p p^\top)$."""
        return self._draws * (jnp.diag(self.probs) - jnp.outer(self.probs, self.probs))

    def entropy(self) -> Scalar:
        r"""$\sum_j E[-\log \mathrm{Poisson}(x_j; n\pi_j)] + \log \mathrm{Poisson}(n; n)$, summed over the marginals'
        support near their means; absolute error below 1e-10 in float64.
        """
        n = self._draws
        x, spacing = window(self.mean(), jnp.sqrt(jax.lax.stop_gradient(self.variance())))
        probs = jnp.broadcast_to(self.probs, x.shape)
        mass = jnp.exp(log_binomial(x, jnp.broadcast_to(n, x.shape), probs))
        score = log_poisson(x, n * probs)
        terms = jnp.where(mass > 0, -mass * jnp.where(mass > 0, score, 0), 0)
        return jnp.sum(spacing * jnp.sum(terms, axis=0)) + log_poisson(n, n)

    def kl(self, other: Self) -> Scalar:
        """In closed form; both must have the same total."""
        check(self._draws == other._draws, "kl wants two multinomials with the same total_count.")
        return self._draws * jnp.sum(xlogy(self.probs, self.probs) - xlogy(self.probs, other.probs))

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[Array, "k"]) -> Float[Array, "free"]:
        return as_event(x, self.probs)[:-1]

    def natural(self) -> Float[Array, "free"]:
        log_probs = safe_log(self.probs)
        return log_probs[:-1] - log_probs[-1]

    def log_normalizer(self) -> Scalar:
        return -self._draws * safe_log(self.probs[-1])

    def log_base_measure(self, x: Shaped[Array, "k"]) -> Scalar:
        x = as_event(x, self.probs)
        y = jnp.where(x >= 0, x, 0)
        total = jnp.sum(y) if self.total_count is None else self.total_count
        return log_factorial(total) - jnp.sum(log_factorial(y))

    @classmethod
    def from_natural(cls, eta: Float[Array, "free"], total_count: Any) -> Self:
        logits = jnp.concatenate([eta, jnp.zeros(1, eta.dtype)])
        return cls(jnp.exp(logits - logsumexp(logits)), total_count)

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "free"], total_count: Any) -> Self:
        probs = m / total_count
        return cls(jnp.concatenate([probs, 1 - jnp.sum(probs, keepdims=True)]), total_count)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.probs)
        check_counts("data", xs)
        if self.total_count is not None and is_concrete(xs, self.total_count):
            missing = jnp.any(xs != xs, axis=-1)
            check(missing | (jnp.sum(xs, axis=-1) == self.total_count), "rows of data must sum to total_count.")

    def statistics(self, xs: Shaped[Array, "n k"], weights: Float[Array, "n"]) -> Float[Array, "k"]:
        """Weighted counts of categories; missing entries count with their conditional expectation."""
        xs = as_events(xs, self.probs)
        seen = ~jnp.isnan(xs)
        ys = jnp.where(seen, xs, 0)
        hidden = matmul((~seen).astype(xs.dtype), self.probs)
        total = jnp.sum(ys, axis=-1)
        if self.total_count is None:
            observed = jnp.where(hidden > 0, 1 - hidden, 1)
            each = total / jnp.where(observed > 0, observed, 1)
        else:
            each = jnp.maximum(self.total_count - total, 0) / jnp.where(hidden > 0, hidden, 1)
        return pool(weights, jnp.where(seen, ys, each[:, None] * self.probs[None, :]))

    def refit(self, stats: Float[Array, "k"]) -> Self:
        total = jnp.sum(stats)
        probs = jnp.where(total == 0, self.probs, stats / jnp.where(total == 0, 1, total))
        return eqx.tree_at(lambda d: d.probs, self, probs)

    def degenerate(self) -> Flag:
        """Never: a zero probability is a fair estimate."""
        return jnp.array(False)
