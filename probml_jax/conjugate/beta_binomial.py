"""The beta prior of a binomial distribution."""

from typing import Any, Self

import jax
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._conjugate import AbstractConjugatePrior, expected_score
from .._constraint import fixed, param, positive
from .._event import Tally, common_event
from .._typing import PRNGKey, Scalar
from .._validate import check_counts, check_positive
from ..distributions.beta import Beta
from ..distributions.beta_binomial import BetaBinomial as Predictive
from ..distributions.binomial import Binomial
from .beta_bernoulli import beta_expectations, beta_mode


class BetaBinomial(AbstractConjugatePrior):
    r"""$p_j \sim Beta(\alpha_j, \beta_j)$, counts $x_{ij} \sim Bin(N_j, p_j)$ of `total_count` $N$ trials each.

    The posterior is $Beta(\alpha + \sum_i x_i, \beta + \sum_i (N - x_i))$; a NaN coordinate counts nowhere. The event
    has the shape of the parameters. `mode()` is on an edge when one parameter is at most one, and is the mean when
    both are. Parameters that are not positive raise `ValueError`.

    Cost: O(1) per coordinate and event. Reference: Murphy (2022), section 4.6.2.

    >>> import jax.numpy as jnp
    >>> BetaBinomial(alpha=1.0, beta=1.0, total_count=3).update(jnp.array([2, 1])).mean().probs.tolist()
    0.5
    """

    alpha: Float[Array, "*event"] = param(positive)
    beta: Float[Array, "*event"] = param(positive)
    total_count: Float[Array, "*event"] = fixed()

    def __init__(self, alpha: Any, beta: Any, total_count: Any):
        self.alpha, self.beta, self.total_count = common_event(alpha=alpha, beta=beta, total_count=total_count)

    def __check_init__(self):
        check_positive("alpha", self.alpha)
        check_positive("beta", self.beta)
        check_counts("total_count", self.total_count)

    @property
    def distribution(self) -> Beta:
        """The prior over `probs`."""
        return Beta(self.alpha, self.beta)

    def absorb(self, stats: Tally, around: Binomial) -> Self:
        failures = self.total_count * stats.count - stats.total
        return BetaBinomial(self.alpha + stats.total, self.beta + failures, self.total_count)

    def expected(self) -> tuple[Binomial, Float[Array, "*event"]]:
        log_odds, mean_normalizer = beta_expectations(self.alpha, self.beta)
        constant = self.total_count * (jax.nn.softplus(log_odds) - mean_normalizer)
        return Binomial(jax.nn.sigmoid(log_odds), self.total_count), constant

    def expected_log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return expected_score(self.expected(), x)

    def interior(self) -> Binomial:
        return self.mean()

    def mode(self) -> Binomial:
        return Binomial(beta_mode(self.distribution), self.total_count)

    def mean(self) -> Binomial:
        return Binomial(self.distribution.mean(), self.total_count)

    def sample(self, key: PRNGKey) -> Binomial:
        return Binomial(self.distribution.sample(key), self.total_count)

    def predictive(self) -> Predictive:
        return Predictive(self.alpha, self.beta, self.total_count)

    def log_prob(self, member: Binomial) -> Scalar:
        return self.distribution.log_prob(member.probs)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
