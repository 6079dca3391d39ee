"""The Dirichlet-multinomial distribution: a multinomial whose probabilities are Dirichlet (Polya's urn)."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Shaped

from .._constraint import fixed, param, positive
from .._counts import log_factorial, log_rising
from .._distribution import AbstractDistribution
from .._event import as_event, common_event
from .._typing import PRNGKey, Scalar
from .._validate import as_float, check_counts, check_positive, check_rank


class DirichletMultinomial(AbstractDistribution):
    r"""Counts whose category probabilities are Dirichlet: the predictive of Dirichlet-Multinomial.

    $p(x) = \frac{n!\,\Gamma(A)}{\Gamma(n+A)}\prod_j\frac{\Gamma(x_j+\alpha_j)}{x_j!\,\Gamma(\alpha_j)}$ with
    $A = \sum_j\alpha_j$.

    NaN entries are integrated out (their categories are lumped into one). Negative, fractional or wrongly summing
    counts score `-inf`. Concentrations must be positive, `total_count` whole; `None` scores each event given its own
    total. Samples are floats.

    Cost: O(k) per event; accurate in float32 also where large concentrations make it nearly multinomial.
    Reference: Murphy (2022), section 4.6.3.

    >>> round(float(DirichletMultinomial(concentration=[1.0, 1.0], total_count=3).log_prob(jnp.array([2, 1]))), 4)
    -1.3863
    """

    concentration: Float[Array, "k"] = param(positive)
    total_count: Float[Array, ""] | None = fixed(default=None, converter=as_float)

    def __init__(self, concentration: Any, total_count: Any = None):
        (self.concentration,) = common_event(concentration=concentration)
        total_count = as_float(total_count, "total_count")
        self.total_count = None if total_count is None else total_count.astype(self.concentration.dtype)

    def __check_init__(self):
        check_rank("concentration", self.concentration, 1, "a vector (k,)")
        check_positive("concentration", self.concentration)
        if self.total_count is not None:
            check_rank("total_count", self.total_count, 0, "a scalar")
            check_counts("total_count", self.total_count)

    @property
    def _draws(self) -> Array:
        if self.total_count is None:
            raise ValueError("total_count is None, so events have no fixed total; give total_count for this.")
        return self.total_count

    def log_prob(self, x: Shaped[Array, "k"]) -> Scalar:
        x = as_event(x, self.concentration)
        seen = ~jnp.isnan(x)
        count = (x >= 0) & (x == jnp.floor(x)) & (x < jnp.inf)
        y = jnp.where(count, x, 0)
        if self.total_count is None:  # given the total of what is observed, the rest drops out
            draws, complete = jnp.sum(y), jnp.asarray(True)
            concentration = jnp.where(seen, self.concentration, 0)
        else:
            draws, complete = self.total_count, jnp.all(seen)
            concentration = self.concentration
        rest = draws - jnp.sum(y)
        clash = jnp.where(complete, rest != 0, rest < 0) | jnp.any(seen & ~count)
        rest = jnp.where(complete | clash, 0, rest)
        hidden = jnp.where(complete, 1, jnp.sum(jnp.where(seen, 0, self.concentration)))
        terms = jnp.sum(log_rising(self.concentration, y) - log_factorial(y))
        lumped = log_rising(hidden, rest) - log_factorial(rest)
        total = log_factorial(draws) - log_rising(jnp.sum(concentration), draws)
        return jnp.where(clash, -jnp.inf, total + terms + lumped)

    def sample(self, key: PRNGKey) -> Float[Array, "k"]:
        key_probs, key_count = jr.split(key)
        probs = jr.dirichlet(key_probs, self.concentration, dtype=self.concentration.dtype)
        return jr.multinomial(key_count, self._draws, probs, dtype=probs.dtype)

    def mean(self) -> Float[Array, "k"]:
        r"""$n\alpha_k/\sum_j\alpha_j$."""
        return self._draws * self.concentration / jnp.sum(self.concentration)

    def variance(self) -> Float[Array, "k"]:
        """The diagonal of `covariance()`."""
        return jnp.diagonal(self.covariance())

    def covariance(self) -> Float[Array, "k k"]:
        r"""$n\frac{\alpha_0+n}{\alpha_0+1}(\mathrm{diag}(m) - m m^\top)$ with $m = \alpha/\alpha_0$ and
        $\alpha_0 = \sum_k\alpha_k$.
        """
        total = jnp.sum(self.concentration)
        probs = self.concentration / total
        spread = self._draws * (total + self._draws) / (total + 1)
        return spread * (jnp.diag(probs) - jnp.outer(probs, probs))
