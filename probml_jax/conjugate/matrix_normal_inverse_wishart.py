"""The matrix-normal inverse-Wishart prior of a linear regression."""

from typing import Any, ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .._conjugate import AbstractConjugatePrior
from .._constraint import above, param, positive_definite, real
from .._linalg import cho_solve, cholesky, inv_psd, matmul, symmetric
from .._typing import PRNGKey, Scalar
from .._validate import check_above, common_dtype
from ..distributions.linear_gaussian import LinearGaussian
from ..distributions.linear_student_t import LinearStudentT
from ..distributions.matrix_normal_inverse_wishart import MatrixNormalInverseWishart as Prior
from ..distributions.matrix_normal_inverse_wishart import check_matrix_normal_inverse_wishart
from ..distributions.regression import RegressionMoments
from ..distributions.wishart import log_det_of_standard


class MatrixNormalInverseWishart(AbstractConjugatePrior):
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

    complete_events_only: ClassVar[bool] = True

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

    def _member(self, matrix, covariance) -> LinearGaussian:
        if self.intercept:
            return LinearGaussian(matrix[:, :-1], matrix[:, -1], covariance)
        return LinearGaussian(matrix, jnp.zeros_like(matrix[:, 0]), covariance)

    def _coefficients(self, member: LinearGaussian) -> Array:
        return jnp.concatenate([member.matrix, member.offset[:, None]], axis=1) if self.intercept else member.matrix

    def _inputs(self, x: Float[Array, "q"]) -> Float[Array, "p"]:
        return jnp.append(x, 1) if self.intercept else x

    def absorb(self, stats: RegressionMoments, around: LinearGaussian) -> Self:
        design, cross, residual = stats if self.intercept else _without_offset(stats, around.offset)
        line = self._coefficients(around)
        prior = self.loc - line
        precision = symmetric(self.column_precision + design)
        change = cho_solve(cholesky(precision).factor, (matmul(prior, self.column_precision) + cross).T).T
        # sums of squares around the new line and of its distance from the prior's: nothing large cancels
        both = matmul(change, cross.T)
        scatter = residual - both - both.T + matmul(matmul(change, design), change.T)
        pull = matmul(matmul(change - prior, self.column_precision), (change - prior).T)
        return MatrixNormalInverseWishart(
            loc=line + change,
            column_precision=precision,
            scale=self.scale + symmetric(scatter + pull),
            df=self.df + stats.design[-1, -1],
            intercept=self.intercept,
        )

    def expected(self) -> tuple[LinearGaussian, Scalar]:
        r"""The member at $E[\Sigma^{-1}]$, $E[\Sigma^{-1}A]$ and the constant at $x = 0$.

        $E[A^\top\Sigma^{-1}A]$ exceeds its value at that member by $mK^{-1}$: see `expected_log_prob`.
        """
        m = self.loc.shape[0]
        return self.interior(), 0.5 * (log_det_of_standard(self.df, m) - m * jnp.log(self.df))

    def expected_log_prob(self, x: tuple[Float[Array, "q"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x, E\eta)$ plus the constant, less $\tfrac m2 x^\top K^{-1}x$."""
        member, constant = self.expected()
        spread = solve_triangular(cholesky(self.column_precision).factor, self._inputs(x[0]), lower=True)
        return member.log_prob(x) + constant - 0.5 * self.loc.shape[0] * (spread @ spread)

    def interior(self) -> LinearGaussian:
        return self._member(self.loc, self.scale / self.df)

    def mode(self) -> LinearGaussian:
        return self._member(*self.distribution.mode())

    def mean(self) -> LinearGaussian:
        check_above("df", self.df, self.loc.shape[0] + 1)
        return self._member(*self.distribution.mean())

    def sample(self, key: PRNGKey) -> LinearGaussian:
        return self._member(*self.distribution.sample(key))

    def predictive(self) -> LinearStudentT:
        """A conditional Student-t: `predictive().given(x)` is the distribution of `y`, `log_prob((x, y))` its score."""
        df = self.df - self.loc.shape[0] + 1
        line = self.interior()
        spread = inv_psd(self.column_precision)
        if not self.intercept:
            spread = jnp.pad(spread, ((0, 1), (0, 1)))
        return LinearStudentT(df, line.matrix, line.offset, self.scale / df, spread)

    def log_prob(self, member: LinearGaussian) -> Scalar:
        """Log density; without an intercept the member's offset is taken to be zero, as `mode` and `sample` give it."""
        return self.distribution.log_prob((self._coefficients(member), member.covariance))

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)


def _without_offset(stats: RegressionMoments, offset: Array) -> RegressionMoments:
    """The same statistics as if they had been accumulated by a member whose offset is zero."""
    total, count = stats.cross[:, -1], stats.design[-1, -1]
    both = jnp.outer(total, offset)
    return RegressionMoments(
        stats.design[:-1, :-1],
        stats.cross[:, :-1] + jnp.outer(offset, stats.design[-1, :-1]),
        stats.residual + both + both.T + count * jnp.outer(offset, offset),
    )
