"""The normal prior of the mean of a multivariate normal whose covariance is known."""

from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._conjugate import AbstractConjugatePrior, expected_score
from .._constraint import fixed, param, positive_definite, real
from .._lapack import solve_triangular
from .._linalg import cho_solve, cholesky, matmul, symmetric
from .._typing import PRNGKey, Scalar
from .._validate import check_positive_definite, check_rank, check_shape, common_dtype
from ..distributions.multivariate_normal import Moments, MultivariateNormal


class MultivariateNormalKnownCovariance(AbstractConjugatePrior):
    r"""$\mu \sim N(m, V)$, events $x_i \sim N(\mu, \Sigma)$ with $\Sigma$ known: `loc` $m$, `covariance` $V$,
    `known_covariance` $\Sigma$.

    With the gain $K = nV(\Sigma + nV)^{-1}$ the posterior is $m_n = m + K(\bar x - m)$, $V_n = (I-K)V$, computed in
    Joseph's form. Incomplete rows (NaN) raise `ValueError` in `update` and `log_evidence`, as do indefinite matrices
    at once.

    Cost: $n d + d^3$. Reference: Murphy (2007), section 2; Murphy (2022), section 3.3.

    >>> prior = MultivariateNormalKnownCovariance(jnp.zeros(2), jnp.eye(2), jnp.eye(2))
    >>> prior.update(jnp.ones((3, 2))).mean().loc.tolist()
    [0.75, 0.75]
    """

    complete_events_only: ClassVar[bool] = True

    loc: Float[Array, "d"] = param(real)
    covariance: Float[Array, "d d"] = param(positive_definite)
    known_covariance: Float[Array, "d d"] = fixed()

    def __init__(self, loc: Any, covariance: Any, known_covariance: Any):
        self.loc, self.covariance, self.known_covariance = common_dtype(
            loc=loc, covariance=covariance, known_covariance=known_covariance
        )

    def __check_init__(self):
        check_rank("loc", self.loc, 1, "a vector (d,)")
        for name in ("covariance", "known_covariance"):
            check_shape(name, getattr(self, name), (self.loc.size, self.loc.size))
            check_positive_definite(name, getattr(self, name))

    @property
    def distribution(self) -> MultivariateNormal:
        """The prior over `loc`."""
        return MultivariateNormal(self.loc, self.covariance)

    def absorb(self, stats: Moments, around: MultivariateNormal) -> Self:
        count = jnp.where(stats.count == 0, 1, stats.count)
        shift = around.loc - self.loc + stats.first / count
        total = cholesky(self.known_covariance + stats.count * self.covariance).factor
        gain = cho_solve(total, self.covariance).T
        keep = jnp.eye(self.loc.size, dtype=self.loc.dtype) - stats.count * gain
        covariance = matmul(matmul(keep, self.covariance), keep.T)
        covariance = covariance + stats.count * matmul(matmul(gain, self.known_covariance), gain.T)
        loc = self.loc + stats.count * (gain @ shift)
        return MultivariateNormalKnownCovariance(loc, symmetric(covariance), self.known_covariance)

    def expected(self) -> tuple[MultivariateNormal, Scalar]:
        noise, spread = cholesky(self.known_covariance).factor, cholesky(self.covariance).factor
        return self.mean(), -0.5 * jnp.sum(solve_triangular(noise, spread, lower=True) ** 2)

    def expected_log_prob(self, x: Float[Array, "d"]) -> Scalar:
        return expected_score(self.expected(), x)

    def interior(self) -> MultivariateNormal:
        return self.mean()

    def mode(self) -> MultivariateNormal:
        return self.mean()

    def mean(self) -> MultivariateNormal:
        return MultivariateNormal(self.loc, self.known_covariance)

    def sample(self, key: PRNGKey) -> MultivariateNormal:
        return MultivariateNormal(self.distribution.sample(key), self.known_covariance)

    def predictive(self) -> MultivariateNormal:
        return MultivariateNormal(self.loc, self.covariance + self.known_covariance)

    def log_prob(self, member: MultivariateNormal) -> Scalar:
        return self.distribution.log_prob(member.loc)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
