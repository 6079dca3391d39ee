"""The gamma prior of an exponential distribution."""

from typing import Any, Self

import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._conjugate import AbstractConjugatePrior, expected_score
from .._constraint import param, positive
from .._event import Tally, common_event
from .._typing import PRNGKey, Scalar
from .._validate import check, check_positive
from ..distributions.exponential import Exponential
from ..distributions.gamma import Gamma
from ..distributions.lomax import Lomax


class GammaExponential(AbstractConjugatePrior):
    r"""$\lambda_j \sim Gamma(a_j, b_j)$, waiting times $x_{ij} \sim Exp(\lambda_j)$; `shape` $a$, `rate` $b$.

    The posterior is $Gamma(a + n, b + \sum_i x_i)$, the predictive a Lomax; a NaN coordinate counts nowhere. The event
    has the shape of the parameters. `mode()` exists for $a > 1$: otherwise the density peaks at the impossible rate 0,
    and `mode()` raises `ValueError` (in compiled code the rate is 0). Parameters must be positive.

    Cost: O(1) per coordinate and event. Reference: Gelman et al. (2013), section 2.6.

    >>> GammaExponential(shape=2.0, rate=1.0).update(jnp.array([1.0, 3.0])).mean().rate.tolist()
    0.8
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

    def absorb(self, stats: Tally, around: Exponential) -> Self:
        return GammaExponential(self.shape + stats.count, self.rate + stats.total)

    def expected(self) -> tuple[Exponential, Float[Array, "*event"]]:
        return self.mean(), digamma(self.shape) - jnp.log(self.shape)

    def expected_log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return expected_score(self.expected(), x)

    def interior(self) -> Exponential:
        return self.mean()

    def mode(self) -> Exponential:
        check(self.shape > 1, "shape must be greater than 1: at or below it the density of the rate peaks at 0.")
        return Exponential(self.distribution.mode())

    def mean(self) -> Exponential:
        return Exponential(self.distribution.mean())

    def sample(self, key: PRNGKey) -> Exponential:
        return Exponential(self.distribution.sample(key))

    def predictive(self) -> Lomax:
        return Lomax(self.shape, self.rate)

    def log_prob(self, member: Exponential) -> Scalar:
        return self.distribution.log_prob(member.rate)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
