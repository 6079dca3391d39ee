"""The normal-inverse-chi-squared prior of a normal with one variance for all coordinates."""

from typing import Any, Self

import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from .._conjugate import AbstractConjugatePrior, expected_score
from .._constraint import param, positive, real
from .._typing import PRNGKey, Scalar
from .._validate import check_above, check_positive, check_rank, check_shape, common_dtype
from ..distributions.inverse_gamma import InverseGamma
from ..distributions.multivariate_normal import Moments
from ..distributions.multivariate_student_t import MultivariateStudentT
from ..distributions.normal import Normal
from ..distributions.spherical_normal import SphericalNormal


class SphericalNormalInverseChiSquared(AbstractConjugatePrior):
    r"""$v \sim \text{Scaled-Inv-}\chi^2(\nu, \sigma^2)$, $\mu_j \mid v \sim N(m_j, v/\kappa_j)$, events $x_i \sim
    N(\mu, vI)$.

    One variance is shared by all $d$ coordinates. `scale` is the *squared* scale $\sigma^2$. `strength` may be a
    scalar; it is kept as one $\kappa_j$ per coordinate, so that missing (NaN) coordinates are dropped exactly. Each
    observed coordinate adds one to $\nu$. The joint mode is $(m, \nu\sigma^2/(\nu+d+2))$; `mean()` exists for $\nu >
    2$: below it raises `ValueError`, and the scale is infinite in compiled code.

    Cost: O(d) per event. Reference: Murphy (2007), section 5.

    >>> prior = SphericalNormalInverseChiSquared(loc=jnp.zeros(2), strength=1.0, df=1.0, scale=1.0)
    >>> prior.update(jnp.ones((3, 2))).mode().loc.tolist()
    [0.75, 0.75]
    """

    loc: Float[Array, "d"] = param(real)
    strength: Float[Array, "d"] = param(positive)
    df: Float[Array, ""] = param(positive)
    scale: Float[Array, ""] = param(positive)

    def __init__(self, loc: Any, strength: Any, df: Any, scale: Any):
        self.loc, strength, self.df, self.scale = common_dtype(loc=loc, strength=strength, df=df, scale=scale)
        self.strength = jnp.broadcast_to(strength, self.loc.shape) if strength.ndim == 0 else strength

    def __check_init__(self):
        check_rank("loc", self.loc, 1, "a vector (d,)")
        check_shape("strength", self.strength, self.loc.shape)
        check_shape("df", self.df, ())
        check_shape("scale", self.scale, ())
        check_positive("strength", self.strength)
        check_positive("df", self.df)
        check_positive("scale", self.scale)

    @property
    def variance(self) -> InverseGamma:
        """The prior over the shared variance."""
        return InverseGamma(0.5 * self.df, 0.5 * self.df * self.scale)

    def given(self, v: Float[Array, ""]) -> Normal:
        """The prior over `loc` given the variance."""
        return Normal(self.loc, jnp.sqrt(v / self.strength))

    def absorb(self, stats: Moments, around: SphericalNormal) -> Self:
        count = jnp.where(stats.count == 0, 1, stats.count)
        strength, df = self.strength + stats.count, self.df + jnp.sum(stats.count)
        shift = around.loc - self.loc + stats.first / count
        scatter = stats.second - stats.first * (stats.first / count)
        pull = self.strength * stats.count / strength * shift**2
        loc = self.loc + stats.count / strength * shift
        scale = (self.df * self.scale + jnp.sum(scatter + pull)) / df
        return SphericalNormalInverseChiSquared(loc, strength, df, scale)

    def expected(self) -> tuple[SphericalNormal, Float[Array, "d"]]:
        spread = digamma(0.5 * self.df) - jnp.log(0.5 * self.df)
        return self.interior(), 0.5 * (spread - 1 / self.strength)

    def expected_log_prob(self, x: Float[Array, "d"]) -> Scalar:
        return expected_score(self.expected(), x)

    def interior(self) -> SphericalNormal:
        return SphericalNormal(self.loc, jnp.sqrt(self.scale))

    def mode(self) -> SphericalNormal:
        return SphericalNormal(self.loc, jnp.sqrt(self.df * self.scale / (self.df + self.loc.size + 2)))

    def mean(self) -> SphericalNormal:
        check_above("df", self.df, 2)
        return SphericalNormal(self.loc, jnp.sqrt(self.variance.mean()))

    def sample(self, key: PRNGKey) -> SphericalNormal:
        first, second = jr.split(key)
        v = self.variance.sample(first)
        return SphericalNormal(self.given(v).sample(second), jnp.sqrt(v))

    def predictive(self) -> MultivariateStudentT:
        return MultivariateStudentT(self.df, self.loc, jnp.diag(self.scale * (1 + 1 / self.strength)))

    def log_prob(self, member: SphericalNormal) -> Scalar:
        v = member.scale**2
        return self.variance.log_prob(v) + self.given(v).log_prob(member.loc)

    def kl(self, other: Self) -> Scalar:
        ratio = other.strength / self.strength
        shift = other.strength * (self.loc - other.loc) ** 2 / self.scale
        return self.variance.kl(other.variance) + 0.5 * jnp.sum(ratio - 1 - jnp.log(ratio) + shift)
