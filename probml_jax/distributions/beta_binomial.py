"""The beta-binomial distribution: a binomial whose probability is beta."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import fixed, param, positive
from .._counts import log_factorial, log_rising
from .._distribution import AbstractDistribution
from .._event import as_event, common_event
from .._typing import PRNGKey, Scalar
from .._validate import as_float, check_counts, check_positive


class BetaBinomial(AbstractDistribution):
    r"""Independent counts, $p(x) = \binom nx B(x+\alpha, n-x+\beta)/B(\alpha,\beta)$: the predictive of Beta-Binomial.

    The event has the shape of the parameters; a NaN coordinate is missing and scores 0. Values other than $0..n$ score
    `-inf`. `alpha` and `beta` must be positive, `total_count` whole. Samples are floats.

    Cost: O(1) per coordinate; accurate in float32 also where large parameters make it nearly binomial.
    Reference: Murphy (2022), section 4.6.2.

    >>> round(float(BetaBinomial(alpha=1.0, beta=1.0, total_count=3).log_prob(2)), 4)
    -1.3863
    """

    alpha: Float[Array, "*event"] = param(positive)
    beta: Float[Array, "*event"] = param(positive)
    total_count: Float[Array, "*event"] = fixed(converter=as_float)

    def __init__(self, alpha: Any, beta: Any, total_count: Any):
        self.alpha, self.beta, self.total_count = common_event(alpha=alpha, beta=beta, total_count=total_count)

    def __check_init__(self):
        check_positive("alpha", self.alpha)
        check_positive("beta", self.beta)
        check_counts("total_count", self.total_count)

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.alpha)
        n = self.total_count
        inside = (x >= 0) & (x <= n) & (x == jnp.floor(x))
        y = jnp.where(inside, x, 0)
        ways = log_factorial(n) - log_factorial(y) - log_factorial(n - y)
        rises = log_rising(self.alpha, y) + log_rising(self.beta, n - y) - log_rising(self.alpha + self.beta, n)
        return jnp.sum(jnp.where(inside, ways + rises, jnp.where(jnp.isnan(x), 0, -jnp.inf)))

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        key_probs, key_count = jr.split(key)
        shape, dtype = self.alpha.shape, self.alpha.dtype
        probs = jr.beta(key_probs, self.alpha, self.beta, shape, dtype)
        return jr.binomial(key_count, self.total_count, probs, shape, dtype)

    def mean(self) -> Float[Array, "*event"]:
        r"""$n\alpha/(\alpha+\beta)$."""
        return self.total_count * self.alpha / (self.alpha + self.beta)

    def variance(self) -> Float[Array, "*event"]:
        r"""$n p(1-p)(\alpha+\beta+n)/(\alpha+\beta+1)$ with $p = \alpha/(\alpha+\beta)$."""
        total = self.alpha + self.beta
        probs = self.alpha / total
        return self.total_count * probs * (1 - probs) * (total + self.total_count) / (total + 1)
