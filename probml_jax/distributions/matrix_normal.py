"""The matrix normal distribution."""

from typing import Any, Self

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from .._constraint import param, positive_definite, real
from .._distribution import AbstractDistribution
from .._lapack import solve_triangular
from .._linalg import cholesky, log_det, matmul
from .._special import LOG_2PI
from .._typing import PRNGKey, Scalar
from .._validate import check_positive_definite, check_rank, check_shape, common_dtype


class MatrixNormal(AbstractDistribution):
    r"""$MN(X \mid M, U, V)$ over $m \times p$ matrices: $\mathrm{vec}(X) \sim N(\mathrm{vec}(M), V \otimes U)$.

    $\log p = -\tfrac12 \mathrm{tr}\,V^{-1}(X-M)^\top U^{-1}(X-M) - \tfrac p2\log|U| - \tfrac m2\log|V| -
    \tfrac{mp}2\log 2\pi$, with the covariance $U$ between rows and $V$ between columns. Wrong shapes and indefinite
    matrices raise `ValueError`.

    Cost: $m^3 + p^3$ once, $m^2p + mp^2$ per event. Reference: Gupta and Nagar (1999), chapter 2.

    >>> dist = MatrixNormal(loc=jnp.zeros((2, 3)), row_covariance=jnp.eye(2), column_covariance=jnp.eye(3))
    >>> round(float(dist.log_prob(jnp.zeros((2, 3)))), 4)
    -5.5136
    """

    loc: Float[Array, "m p"] = param(real)
    row_covariance: Float[Array, "m m"] = param(positive_definite)
    column_covariance: Float[Array, "p p"] = param(positive_definite)

    def __init__(self, loc: Any, row_covariance: Any, column_covariance: Any):
        self.loc, self.row_covariance, self.column_covariance = common_dtype(
            loc=loc, row_covariance=row_covariance, column_covariance=column_covariance
        )

    def __check_init__(self):
        check_rank("loc", self.loc, 2, "a matrix (m, p)")
        m, p = self.loc.shape
        check_shape("row_covariance", self.row_covariance, (m, m))
        check_shape("column_covariance", self.column_covariance, (p, p))
        check_positive_definite("row_covariance", self.row_covariance)
        check_positive_definite("column_covariance", self.column_covariance)

    def _factors(self):
        return cholesky(self.row_covariance).factor, cholesky(self.column_covariance).factor

    def log_prob(self, x: Float[Array, "m p"]) -> Scalar:
        m, p = self.loc.shape
        row, column = self._factors()
        white = _whiten(row, column, x - self.loc)
        return -0.5 * (jnp.sum(white**2) + p * log_det(row) + m * log_det(column) + m * p * LOG_2PI)

    def sample(self, key: PRNGKey) -> Float[Array, "m p"]:
        row, column = self._factors()
        return self.loc + matmul(matmul(row, jr.normal(key, self.loc.shape, self.loc.dtype)), column.T)

    def mean(self) -> Float[Array, "m p"]:
        """`loc`."""
        return self.loc

    def mode(self) -> Float[Array, "m p"]:
        """`loc`."""
        return self.loc

    def variance(self) -> Float[Array, "m p"]:
        """Entry by entry, $U_{ii}V_{jj}$."""
        return jnp.outer(jnp.diagonal(self.row_covariance), jnp.diagonal(self.column_covariance))

    def entropy(self) -> Scalar:
        r"""$\tfrac12(mp(1+\log 2\pi) + p\log\lvert U\rvert + m\log\lvert V\rvert)$ for $m$ rows, $p$ columns."""
        m, p = self.loc.shape
        row, column = self._factors()
        return 0.5 * (m * p * (1 + LOG_2PI) + p * log_det(row) + m * log_det(column))

    def kl(self, other: Self) -> Scalar:
        """KL(self || other), from the factors of rows and columns; the mp x mp covariance is never formed."""
        m, p = self.loc.shape
        (row, column), (other_row, other_column) = self._factors(), other._factors()
        rows = jnp.sum(solve_triangular(other_row, row, lower=True) ** 2)
        columns = jnp.sum(solve_triangular(other_column, column, lower=True) ** 2)
        shift = jnp.sum(_whiten(other_row, other_column, self.loc - other.loc) ** 2)
        ratio = p * (log_det(other_row) - log_det(row)) + m * (log_det(other_column) - log_det(column))
        return 0.5 * (rows * columns - m * p + shift + ratio)


def _whiten(row, column, x):
    return solve_triangular(column, solve_triangular(row, x, lower=True).T, lower=True)
