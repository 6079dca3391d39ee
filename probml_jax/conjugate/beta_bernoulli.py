"""The beta prior of a Bernoulli distribution."""

from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._conjugate import AbstractConjugatePrior
from .._constraint import param, positive
from .._event import Tally, as_event, common_event
from .._typing import PRNGKey, Scalar
from .._validate import check_positive
from ..distributions.bernoulli import Bernoulli
from ..distributions.beta import Beta


class BetaBernoulli(AbstractConjugatePrior):
    r"""$p_j \sim Beta(\alpha_j, \beta_j)$, binary coordinates $x_{ij} \sim Ber(p_j)$.

    The posterior is $Beta(\alpha + \text{ones}, \beta + \text{zeros})$; a NaN coordinate counts nowhere. The event
    has the shape of the parameters. `mode()` is on an edge when one parameter is at most one, and is the mean when
    both are. Parameters that are not positive raise `ValueError`.

    Cost: O(1) per coordinate and event. Reference: Murphy (2022), section 4.6.2.

    >>> BetaBernoulli(alpha=1.0, beta=1.0).update(jnp.array([1, 1, 0, 1, 0, 0])).mean().probs.tolist()
    0.5
    """

    alpha: Float[Array, "*event"] = param(positive)
    beta: Float[Array, "*event"] = param(positive)

    def __init__(self, alpha: Any, beta: Any):
        self.alpha, self.beta = common_event(alpha=alpha, beta=beta)

    def __check_init__(self):
        check_positive("alpha", self.alpha)
        check_positive("beta", self.beta)

    @property
    def distribution(self) -> Beta:
        """The prior over `probs`."""
        return Beta(self.alpha, self.beta)

    def absorb(self, stats: Tally, around: Bernoulli) -> Self:
        return BetaBernoulli(self.alpha + stats.total, self.beta + (stats.count - stats.total))

    def expected(self) -> tuple[Bernoulli, Float[Array, "*event"]]:
        log_odds, mean_normalizer = beta_expectations(self.alpha, self.beta)
        return Bernoulli(jax.nn.sigmoid(log_odds)), jax.nn.softplus(log_odds) - mean_normalizer

    def expected_log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        # by hand: the probabilities of the expected member may round to 0 or 1 where the expected logarithm is finite
        x = as_event(x, self.alpha)
        log_odds, mean_normalizer = beta_expectations(self.alpha, self.beta)
        value = jnp.where(x == 1, log_odds, 0) - mean_normalizer
        possible = (x == 0) | (x == 1)
        return jnp.where(jnp.any(~possible & ~jnp.isnan(x)), -jnp.inf, jnp.sum(jnp.where(possible, value, 0)))

    def interior(self) -> Bernoulli:
        return self.mean()

    def mode(self) -> Bernoulli:
        return Bernoulli(beta_mode(self.distribution))

    def mean(self) -> Bernoulli:
        return Bernoulli(self.distribution.mean())

    def sample(self, key: PRNGKey) -> Bernoulli:
        return Bernoulli(self.distribution.sample(key))

    def predictive(self) -> Bernoulli:
        return self.mean()

    def log_prob(self, member: Bernoulli) -> Scalar:
        return self.distribution.log_prob(member.probs)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)


def beta_expectations(alpha: Array, beta: Array) -> tuple[Array, Array]:
    r"""$E\log\frac{p}{1-p}$ and $-E\log(1-p)$ under $Beta(\alpha, \beta)$."""
    return digamma(alpha) - digamma(beta), digamma(alpha + beta) - digamma(beta)


def beta_mode(distribution: Beta) -> Array:
    """The mode; where both parameters are at most one (the density has no single inner peak), the mean."""
    flat = (distribution.alpha <= 1) & (distribution.beta <= 1)
    return jnp.where(flat, distribution.mean(), distribution.mode())
