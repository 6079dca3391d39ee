"""The prior of a linear regression with independent noise in every row."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from .._constraint import param, positive, positive_definite, real
from .._lapack import solve_triangular
from .._linalg import cholesky
from .._typing import PRNGKey, Scalar
from .._validate import check_above, check_positive, check_shape, common_dtype
from ..distributions.inverse_gamma import InverseGamma
from ..distributions.linear_independent_student_t import LinearIndependentStudentT
from ..distributions.linear_normal import LinearNormal
from ..distributions.regression import RegressionMoments
from .regression import AbstractRegressionPrior, all_free, check_line_prior


class MatrixNormalInverseChiSquared(AbstractRegressionPrior):
    r"""Bayesian linear regression with independent noise: $y_{ij} \sim N(a_j^\top x_i, v_j)$ with $v_j \sim
    \text{Scaled-Inv-}\chi^2(\nu_j, \sigma_j^2)$ and $a_j \mid v_j \sim N(m_j, v_jK^{-1})$.

    Data are a tuple `(x, y)` of arrays (n, p) and (n, m). `scale` is the *squared* scale $\sigma^2$. With
    `intercept=True` the last column of `loc` (and the last row and column of `column_precision`) belongs to the offset
    of $y = Ax + b$, and `x` has one column less. The posterior: $K_n = K + \sum xx^\top$, $M_n = (MK + \sum
    yx^\top)K_n^{-1}$, $\nu_n = \nu + n$, and $\nu_n\sigma_n^2 = \nu\sigma^2$ plus the squared residuals and the pull of
    the prior. The joint mode is $(M, \nu\sigma^2/(\nu+p+2))$; `mean()` exists for $\nu > 2$: below it raises
    `ValueError`, and the scale is infinite in compiled code. Incomplete rows raise in `update` and `log_evidence`; a
    member with a mask of free coefficients raises `ValueError`.

    Cost: $n(mp + p^2) + p^3$. Reference: Murphy (2022), section 11.7; Gelman et al. (2013), section 14.2.

    >>> prior = MatrixNormalInverseChiSquared(jnp.zeros((1, 1)), jnp.eye(1), df=3.0, scale=1.0)
    >>> prior.update((jnp.array([[1.0], [2.0]]), jnp.array([[3.0], [6.0]]))).mean().matrix.tolist()
    [[2.5]]
    """

    loc: Float[Array, "m p"] = param(real)
    column_precision: Float[Array, "p p"] = param(positive_definite)
    df: Float[Array, "m"] = param(positive)
    scale: Float[Array, "m"] = param(positive)
    intercept: bool = eqx.field(static=True, default=False)

    def __init__(self, loc: Any, column_precision: Any, df: Any, scale: Any, intercept: bool = False):
        self.loc, self.column_precision, df, scale = common_dtype(
            loc=loc, column_precision=column_precision, df=df, scale=scale
        )
        spread = lambda a: jnp.broadcast_to(a, self.loc.shape[:1]) if a.ndim == 0 else a
        self.df, self.scale, self.intercept = spread(df), spread(scale), intercept

    def __check_init__(self):
        check_line_prior(self.loc, self.column_precision)
        check_shape("df", self.df, self.loc.shape[:1])
        check_shape("scale", self.scale, self.loc.shape[:1])
        check_positive("df", self.df)
        check_positive("scale", self.scale)

    @property
    def variance(self) -> InverseGamma:
        """The prior over the variances of the rows."""
        return InverseGamma(0.5 * self.df, 0.5 * self.df * self.scale)

    def member(self, matrix: Array, noise: Array) -> LinearNormal:
        return LinearNormal(*self.line(matrix), jnp.sqrt(noise))

    def absorb(self, stats: RegressionMoments, around: LinearNormal) -> Self:
        line = self.learned(stats, all_free(around))
        df = self.df + stats.design[-1, -1]
        scale = (self.df * self.scale + line.scatter) / df
        return MatrixNormalInverseChiSquared(line.loc, line.column_precision, df, scale, self.intercept)

    def expected(self) -> tuple[LinearNormal, Float[Array, "m"]]:
        """The member at the expected natural parameters, and the constants at $x = 0$: see `expected_log_prob`."""
        return self.interior(), 0.5 * (digamma(0.5 * self.df) - jnp.log(0.5 * self.df))

    def expected_log_prob(self, x: tuple[Float[Array, "q"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x, E\eta)$ plus the constants, less $\tfrac m2 x^\top K^{-1}x$.

        Missing entries of `y` are latent variables at their variational optimum: they pay the constants too.
        """
        member, constants = self.expected()
        return member.log_prob(x) + jnp.sum(constants) - 0.5 * self.loc.shape[0] * self.spread_at(x[0])

    def interior(self) -> LinearNormal:
        return self.member(self.loc, self.scale)

    def mode(self) -> LinearNormal:
        return self.member(self.loc, self.df * self.scale / (self.df + self.loc.shape[1] + 2))

    def mean(self) -> LinearNormal:
        check_above("df", self.df, 2)
        return self.member(self.loc, self.variance.mean())

    def sample(self, key: PRNGKey) -> LinearNormal:
        first, second = jr.split(key)
        v = self.variance.sample(first)
        return self.member(self.loc + draw_line(second, self, v), v)

    def predictive(self) -> LinearIndependentStudentT:
        """Conditional Student-t's: `predictive().given(x)` is the distribution of `y`, `log_prob((x, y))` its score."""
        line = self.interior()
        return LinearIndependentStudentT(self.df, line.matrix, line.offset, line.scale, self.input_covariance())

    def log_prob(self, member: LinearNormal) -> Scalar:
        """Log density; without an intercept the member's offset is taken to be zero, as `mode` and `sample` give it."""
        v = all_free(member).scale ** 2
        return self.variance.log_prob(v) + self.line_log_prob(member, v)

    def kl(self, other: Self) -> Scalar:
        return self.variance.kl(other.variance) + self.line_kl(other, 1 / self.scale)


def draw_line(key: PRNGKey, prior: AbstractRegressionPrior, variance: Array) -> Array:
    """Coefficients around the prior's line, given the noise variance of each row (or one for all)."""
    white = jr.normal(key, prior.loc.shape, prior.loc.dtype)
    white = jnp.broadcast_to(jnp.sqrt(variance), prior.loc.shape[:1])[:, None] * white
    return solve_triangular(cholesky(prior.column_precision).factor, white.T, lower=True, trans=1).T
