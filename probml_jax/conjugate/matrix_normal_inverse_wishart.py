"""The matrix-normal inverse-Wishart prior of a linear regression."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import above, param, positive_definite, real
from .._linalg import symmetric
from .._typing import PRNGKey, Scalar
from .._validate import check_above, common_dtype
from ..distributions.linear_gaussian import LinearGaussian
from ..distributions.linear_student_t import LinearStudentT
from ..distributions.matrix_normal_inverse_wishart import MatrixNormalInverseWishart as Prior
from ..distributions.matrix_normal_inverse_wishart import check_matrix_normal_inverse_wishart
from ..distributions.regression import RegressionMoments
from ..distributions.wishart import log_det_of_standard
from .regression import AbstractRegressionPrior


class MatrixNormalInverseWishart(AbstractRegressionPrior):
    r"""Bayesian linear regression: $y_i \sim N(Ax_i, \Sigma)$ with $\Sigma \sim IW(\nu, S)$, $A \mid \Sigma \sim
    MN(M, \Sigma, K^{-1})$.

    Data are a tuple `(x, y)` of arrays (n, p) and (n, m). With `intercept=True` the last column of `loc` (and the
    last row and column of `column_precision`) belongs to the offset $b$ of $y = Ax + b$, and `x` has one column less;
    without it the offset is zero. The posterior: $K_n = K + \sum x x^\top$, $M_n = (MK + \sum y x^\top)K_n^{-1}$,
    $\nu_n = \nu + n$ and $S_n = S + \sum (y-M_nx)(y-M_nx)^\top + (M_n-M)K(M_n-M)^\top$, from residuals, not raw
    moments. The joint mode is $(M, S/(\nu+m+p+1))$; `mean()` exists for $\nu > m+1$: below it raises `ValueError`,
    and is NaN in compiled code. Incomplete rows (NaN) raise in `update` and `log_evidence`.

    Cost: $n(m+p)^2 + p^3 + m^3$. Reference: Murphy (2023), section 15.2; Minka (2000), "Bayesian linear regression".

    >>> prior = MatrixNormalInverseWishart(jnp.zeros((1, 1)), jnp.eye(1), jnp.eye(1), df=3.0)
    >>> prior.update((jnp.array([[1.0], [2.0]]), jnp.array([[3.0], [6.0]]))).mean().matrix.tolist()
    [[2.5]]
    """

    loc: Float[Array, "m p"] = param(real)
    column_precision: Float[Array, "p p"] = param(positive_definite)
    scale: Float[Array, "m m"] = param(positive_definite)
    df: Float[Array, ""] = param(lambda self: above(self.scale.shape[-1] - 1))
    intercept: bool = eqx.field(static=True, default=False)

    def __init__(self, loc: Any, column_precision: Any, scale: Any, df: Any, intercept: bool = False):
        self.loc, self.column_precision, self.scale, self.df = common_dtype(
            loc=loc, column_precision=column_precision, scale=scale, df=df
        )
        self.intercept = intercept

    def __check_init__(self):
        check_matrix_normal_inverse_wishart(self.loc, self.column_precision, self.scale, self.df)

    @property
    def distribution(self) -> Prior:
        """The prior over `(matrix, covariance)`; the matrix includes the offset when there is an intercept."""
        return Prior(self.loc, self.column_precision, self.scale, self.df)

    def member(self, matrix: Array, noise: Array) -> LinearGaussian:
        return LinearGaussian(*self.line(matrix), noise)

    def absorb(self, stats: RegressionMoments, around: LinearGaussian) -> Self:
        line = self.learned(stats, around)
        df = self.df + stats.design[-1, -1]
        scale = self.scale + symmetric(line.scatter)
        return MatrixNormalInverseWishart(line.loc, line.column_precision, scale, df, self.intercept)

    def expected(self) -> tuple[LinearGaussian, Scalar]:
        r"""The member at $E[\Sigma^{-1}]$, $E[\Sigma^{-1}A]$ and the constant at $x = 0$.

        $E[A^\top\Sigma^{-1}A]$ exceeds its value at that member by $mK^{-1}$: see `expected_log_prob`.
        """
        m = self.loc.shape[0]
        return self.interior(), 0.5 * (log_det_of_standard(self.df, m) - m * jnp.log(self.df))

    def expected_log_prob(self, x: tuple[Float[Array, "q"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x, E\eta)$ plus the constant, less $\tfrac m2 x^\top K^{-1}x$."""
        member, constant = self.expected()
        return member.log_prob(x) + constant - 0.5 * self.loc.shape[0] * self.spread_at(x[0])

    def interior(self) -> LinearGaussian:
        return self.member(self.loc, self.scale / self.df)

    def mode(self) -> LinearGaussian:
        return self.member(*self.distribution.mode())

    def mean(self) -> LinearGaussian:
        check_above("df", self.df, self.loc.shape[0] + 1)
        return self.member(*self.distribution.mean())

    def sample(self, key: PRNGKey) -> LinearGaussian:
        return self.member(*self.distribution.sample(key))

    def predictive(self) -> LinearStudentT:
        """A conditional Student-t: `predictive().given(x)` is the distribution of `y`, `log_prob((x, y))` its score."""
        df = self.df - self.loc.shape[0] + 1
        line = self.interior()
        return LinearStudentT(df, line.matrix, line.offset, self.scale / df, self.input_covariance())

    def log_prob(self, member: LinearGaussian) -> Scalar:
        """Log density; without an intercept the member's offset is taken to be zero, as `mode` and `sample` give it."""
        return self.distribution.log_prob((self.coefficients(member), member.covariance))

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
