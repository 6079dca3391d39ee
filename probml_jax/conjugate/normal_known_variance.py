"""The normal prior of the mean of a normal whose variance is known."""

from typing import Any, Self

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._conjugate import AbstractConjugatePrior, expected_score
from .._constraint import fixed, param, positive, real
from .._event import common_event
from .._typing import PRNGKey, Scalar
from .._validate import check_positive
from ..distributions.multivariate_normal import Moments
from ..distributions.normal import Normal


class NormalKnownVariance(AbstractConjugatePrior):
    r"""$\mu_j \sim N(m_j, s_j^2)$, $x_{ij} \sim N(\mu_j, \sigma_j^2)$ with $\sigma$ known: `loc` $m$, `scale` $s$,
    `known_scale` $\sigma$.

    With $g = ns^2/(\sigma^2 + ns^2)$ the posterior is $m_n = m + g(\bar x - m)$, $s_n^2 = s^2\sigma^2/(\sigma^2 +
    ns^2)$. A NaN coordinate counts nowhere. The event has the shape of the parameters. Scales must be positive.

    Cost: O(1) per coordinate and event. Reference: Murphy (2007), section 2; Murphy (2022), section 4.6.1.

    >>> prior = NormalKnownVariance(loc=0.0, scale=1.0, known_scale=1.0)
    >>> prior.update(jnp.array([2.0, 3.0, 3.0])).mean().loc.tolist()
    2.0
    """

    loc: Float[Array, "*event"] = param(real)
    scale: Float[Array, "*event"] = param(positive)
    known_scale: Float[Array, "*event"] = fixed()

    def __init__(self, loc: Any, scale: Any, known_scale: Any):
        self.loc, self.scale, self.known_scale = common_event(loc=loc, scale=scale, known_scale=known_scale)

    def __check_init__(self):
        check_positive("scale", self.scale)
        check_positive("known_scale", self.known_scale)

    @property
    def distribution(self) -> Normal:
        """The prior over `loc`."""
        return Normal(self.loc, self.scale)

    def absorb(self, stats: Moments, around: Normal) -> Self:
        count = jnp.where(stats.count == 0, 1, stats.count)
        noise = self.known_scale**2
        total = noise + stats.count * self.scale**2
        shift = around.loc - self.loc + stats.first / count
        loc = self.loc + stats.count * self.scale**2 / total * shift
        return NormalKnownVariance(loc, self.scale * jnp.sqrt(noise / total), self.known_scale)

    def expected(self) -> tuple[Normal, Float[Array, "*event"]]:
        return self.mean(), -0.5 * (self.scale / self.known_scale) ** 2

    def expected_log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return expected_score(self.expected(), x)

    def interior(self) -> Normal:
        return self.mean()

    def mode(self) -> Normal:
        return self.mean()

    def mean(self) -> Normal:
        return Normal(self.loc, self.known_scale)

    def sample(self, key: PRNGKey) -> Normal:
        return Normal(self.distribution.sample(key), self.known_scale)

    def predictive(self) -> Normal:
        return Normal(self.loc, jnp.sqrt(self.scale**2 + self.known_scale**2))

    def log_prob(self, member: Normal) -> Scalar:
        return self.distribution.log_prob(member.loc)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
