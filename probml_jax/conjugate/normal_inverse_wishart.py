"""The normal-inverse-Wishart prior of a multivariate normal."""

from typing import Any, ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._conjugate import AbstractLocationPrior, expected_score
from .._constraint import above, param, positive, positive_definite, real
from .._linalg import symmetric
from .._typing import PRNGKey, Scalar
from .._validate import check_above, common_dtype
from ..distributions.multivariate_normal import Moments, MultivariateNormal
from ..distributions.multivariate_student_t import MultivariateStudentT
from ..distributions.normal_inverse_wishart import NormalInverseWishart as Prior
from ..distributions.normal_inverse_wishart import check_normal_inverse_wishart
from ..distributions.wishart import log_det_of_standard


class NormalInverseWishart(AbstractLocationPrior):
    r"""$\Sigma \sim IW(\nu, S)$, $\mu \mid \Sigma \sim N(m, \Sigma/\kappa)$, events $x_i \sim N(\mu, \Sigma)$.

    After $n$ events with mean $\bar x$ and *centred* scatter $S_x$: $\kappa_n = \kappa + n$, $\nu_n = \nu + n$, $m_n
    = (\kappa m + n\bar x)/\kappa_n$, $S_n = S + S_x + \frac{\kappa n}{\kappa_n}(\bar x-m)(\bar x-m)^\top$. The joint
    mode is $(m, S/(\nu+d+2))$. `mean()` exists for $\nu > d+1$: below that it raises `ValueError`, and is NaN in
    compiled code. Incomplete rows (NaN) raise in `update` and `log_evidence`: their posterior has another form.

    Cost: $n d^2 + d^3$. Reference: Murphy (2007), section 9; Murphy (2022), section 4.6.

    >>> prior = NormalInverseWishart(loc=jnp.zeros(2), strength=1.0, scale=jnp.eye(2), df=4.0)
    >>> prior.update(jnp.ones((3, 2))).mode().loc.tolist()
    [0.75, 0.75]
    """

    complete_events_only: ClassVar[bool] = True

    loc: Float[Array, "d"] = param(real)
    strength: Float[Array, ""] = param(positive)
    scale: Float[Array, "d d"] = param(positive_definite)
    df: Float[Array, ""] = param(lambda self: above(self.scale.shape[-1] - 1))

    def __init__(self, loc: Any, strength: Any, scale: Any, df: Any):
        self.loc, self.strength, self.scale, self.df = common_dtype(loc=loc, strength=strength, scale=scale, df=df)

    def __check_init__(self):
        check_normal_inverse_wishart(self.loc, self.strength, self.scale, self.df)

    @property
    def distribution(self) -> Prior:
        """The prior over `(loc, covariance)`."""
        return Prior(self.loc, self.strength, self.scale, self.df)

    def absorb(self, stats: Moments, around: MultivariateNormal) -> Self:
        count = jnp.where(stats.count == 0, 1, stats.count)
        strength = self.strength + stats.count
        shift = around.loc - self.loc + stats.first / count
        scatter = stats.second - jnp.outer(stats.first, stats.first / count)
        pull = self.strength * stats.count / strength * jnp.outer(shift, shift)
        return NormalInverseWishart(
            loc=self.loc + stats.count / strength * shift,
            strength=strength,
            scale=self.scale + symmetric(scatter + pull),
            df=self.df + stats.count,
        )

    def expected(self) -> tuple[MultivariateNormal, Scalar]:
        d = self.loc.size
        # E log|Sigma^-1| exceeds log|df S^-1| by what the standard Wishart's does: the scale cancels
        spread = log_det_of_standard(self.df, d) - d * jnp.log(self.df)
        return self.interior(), 0.5 * spread - 0.5 * d / self.strength

    def expected_log_prob(self, x: Float[Array, "d"]) -> Scalar:
        return expected_score(self.expected(), x)

    def interior(self) -> MultivariateNormal:
        return MultivariateNormal(self.loc, self.scale / self.df)

    def mode(self) -> MultivariateNormal:
        return MultivariateNormal(*self.distribution.mode())

    def mean(self) -> MultivariateNormal:
        check_above("df", self.df, self.loc.size + 1)
        return MultivariateNormal(*self.distribution.mean())

    def sample(self, key: PRNGKey) -> MultivariateNormal:
        return MultivariateNormal(*self.distribution.sample(key))

    def predictive(self) -> MultivariateStudentT:
        df = self.df - self.loc.size + 1
        return MultivariateStudentT(df, self.loc, self.scale * ((self.strength + 1) / (self.strength * df)))

    def log_prob(self, member: MultivariateNormal) -> Scalar:
        return self.distribution.log_prob((member.loc, member.covariance))

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)

    def tie(self, posteriors: Self) -> Self:
        scale = self.scale + jnp.sum(posteriors.scale - self.scale[None], axis=0)
        df = self.df + jnp.sum(posteriors.df - self.df)
        return eqx.tree_at(lambda p: (p.scale, p.df), posteriors, (scale, df))

    def shared_mode(self, num_members: int) -> MultivariateNormal:
        return MultivariateNormal(self.loc, self.scale / (self.df + self.loc.size + 1 + num_members))

    def spread_log_prob(self, member: MultivariateNormal) -> Scalar:
        return self.distribution.covariance.log_prob(member.covariance)

    def spread_kl(self, other: Self) -> Scalar:
        return self.distribution.covariance.kl(other.distribution.covariance)
