"""The gamma prior of a Poisson distribution."""

from typing import Any, Self

import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._conjugate import AbstractConjugatePrior, expected_score
from .._constraint import param, positive
from .._event import Tally, common_event
from .._typing import PRNGKey, Scalar
from .._validate import check_positive
from ..distributions.gamma import Gamma
from ..distributions.negative_binomial import NegativeBinomial
from ..distributions.poisson import Poisson


class GammaPoisson(AbstractConjugatePrior):
    r"""$\lambda_j \sim Gamma(a_j, b_j)$, counts $x_{ij} \sim Poi(\lambda_j)$; `shape` $a$, `rate` $b$.

    The posterior is $Gamma(a + \sum_i x_i, b + n)$, the predictive a negative binomial; a NaN coordinate counts
    nowhere. The event has the shape of the parameters. `mode()` is $\max(a-1, 0)/b$. Parameters that are not positive
    raise `ValueError`.

    Cost: O(1) per coordinate and event. Reference: Gelman et al. (2013), section 2.6.

    >>> GammaPoisson(shape=2.0, rate=1.0).update(jnp.array([1, 2, 4])).mean().rate.tolist()
    2.25
    """

    shape: Float[Array, "*event"] = param(positive)
    rate: Float[Array, "*event"] = param(positive)

    def __init__(self, shape: Any, rate: Any):
        self.shape, self.rate = common_event(shape=shape, rate=rate)

    def __check_init__(self):
        check_positive("shape", self.shape)
        check_positive("rate", self.rate)

    @property
    def distribution(self) -> Gamma:
        """The prior over `rate`."""
        return Gamma(self.shape, self.rate)

    def absorb(self, stats: Tally, around: Poisson) -> Self:
        return GammaPoisson(self.shape + stats.total, self.rate + stats.count)

    def expected(self) -> tuple[Poisson, Float[Array, "*event"]]:
        geometric = jnp.exp(digamma(self.shape)) / self.rate
        return Poisson(geometric), geometric - self.shape / self.rate

    def expected_log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return expected_score(self.expected(), x)

    def interior(self) -> Poisson:
        return self.mean()

    def mode(self) -> Poisson:
        return Poisson(self.distribution.mode())

    def mean(self) -> Poisson:
        return Poisson(self.distribution.mean())

    def sample(self, key: PRNGKey) -> Poisson:
        return Poisson(self.distribution.sample(key))

    def predictive(self) -> NegativeBinomial:
        return NegativeBinomial(self.shape, 1 / (1 + self.rate))

    def log_prob(self, member: Poisson) -> Scalar:
        return self.distribution.log_prob(member.rate)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
