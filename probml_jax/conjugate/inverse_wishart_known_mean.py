"""The inverse-Wishart prior of the covariance of a multivariate normal whose mean is known."""

from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._conjugate import AbstractConjugatePrior, expected_score
from .._constraint import above, fixed, param, positive_definite
from .._linalg import symmetric
from .._typing import PRNGKey, Scalar
from .._validate import check_above, check_rank, common_dtype
from ..distributions.inverse_wishart import InverseWishart
from ..distributions.multivariate_normal import Moments, MultivariateNormal
from ..distributions.multivariate_student_t import MultivariateStudentT
from ..distributions.wishart import check_matrix_prior, log_det_of_standard


class InverseWishartKnownMean(AbstractConjugatePrior):
    r"""$\Sigma \sim IW(\nu, S)$, events $x_i \sim N(\mu, \Sigma)$ with $\mu$ known: `df` $\nu$, `scale` $S$,
    `known_loc` $\mu$.

    The posterior is $IW(\nu + n, S + \sum_i (x_i-\mu)(x_i-\mu)^\top)$. The mode is $S/(\nu+d+1)$; the mean
    $S/(\nu-d-1)$ exists for $\nu > d+1$: below it raises `ValueError`, and is NaN in compiled code. Incomplete rows
    (NaN) raise in `update` and `log_evidence`.

    Cost: $n d^2 + d^3$. Reference: Gelman et al. (2013), section 3.6; Murphy (2007), section 9.

    >>> prior = InverseWishartKnownMean(df=4.0, scale=jnp.eye(2), known_loc=jnp.zeros(2))
    >>> prior.update(jnp.array([[3.0, 0.0]])).mode().covariance.tolist()
    [[1.25, 0.0], [0.0, 0.125]]
    """

    complete_events_only: ClassVar[bool] = True

    df: Float[Array, ""] = param(lambda self: above(self.scale.shape[-1] - 1))
    scale: Float[Array, "d d"] = param(positive_definite)
    known_loc: Float[Array, "d"] = fixed()

    def __init__(self, df: Any, scale: Any, known_loc: Any):
        self.df, self.scale, self.known_loc = common_dtype(df=df, scale=scale, known_loc=known_loc)

    def __check_init__(self):
        check_rank("known_loc", self.known_loc, 1, "a vector (d,)")
        check_matrix_prior(self.df, self.scale, shape=(self.known_loc.size, self.known_loc.size))

    @property
    def distribution(self) -> InverseWishart:
        """The prior over `covariance`."""
        return InverseWishart(self.df, self.scale)

    def absorb(self, stats: Moments, around: MultivariateNormal) -> Self:
        count = jnp.where(stats.count == 0, 1, stats.count)
        shift = around.loc - self.known_loc + stats.first / count
        scatter = stats.second - jnp.outer(stats.first, stats.first / count)
        scale = self.scale + symmetric(scatter + stats.count * jnp.outer(shift, shift))
        return InverseWishartKnownMean(self.df + stats.count, scale, self.known_loc)

    def expected(self) -> tuple[MultivariateNormal, Scalar]:
        d = self.known_loc.size
        return self.interior(), 0.5 * (log_det_of_standard(self.df, d) - d * jnp.log(self.df))

    def expected_log_prob(self, x: Float[Array, "d"]) -> Scalar:
        return expected_score(self.expected(), x)

    def interior(self) -> MultivariateNormal:
        return MultivariateNormal(self.known_loc, self.scale / self.df)

    def mode(self) -> MultivariateNormal:
        return MultivariateNormal(self.known_loc, self.distribution.mode())

    def mean(self) -> MultivariateNormal:
        check_above("df", self.df, self.known_loc.size + 1)
        return MultivariateNormal(self.known_loc, self.distribution.mean())

    def sample(self, key: PRNGKey) -> MultivariateNormal:
        return MultivariateNormal(self.known_loc, self.distribution.sample(key))

    def predictive(self) -> MultivariateStudentT:
        df = self.df - self.known_loc.size + 1
        return MultivariateStudentT(df, self.known_loc, self.scale / df)

    def log_prob(self, member: MultivariateNormal) -> Scalar:
        return self.distribution.log_prob(member.covariance)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
