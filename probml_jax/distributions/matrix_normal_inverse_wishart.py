"""The matrix-normal inverse-Wishart distribution over regression coefficients and a noise covariance."""

from typing import Any, Self

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from .._constraint import above, param, positive_definite, real
from .._distribution import AbstractDistribution
from .._lapack import solve_triangular
from .._linalg import cholesky, log_det, matmul
from .._special import LOG_2PI
from .._typing import PRNGKey, Scalar
from .._validate import check_positive_definite, check_rank, check_shape, common_dtype
from .inverse_wishart import InverseWishart
from .wishart import check_matrix_prior, support_factor


class MatrixNormalInverseWishart(AbstractDistribution):
    r"""$\Sigma \sim IW(\nu, S)$, $A \mid \Sigma \sim MN(M, \Sigma, K^{-1})$ with $A$ of $m \times p$. An event is
    $(A, \Sigma)$.

    $p \propto |\Sigma|^{-(\nu+m+p+1)/2}\exp(-\tfrac12\mathrm{tr}\,\Sigma^{-1}(S + (A-M)K(A-M)^\top))$, so the joint
    mode is $(M, S/(\nu+m+p+1))$. `loc` $M$, `column_precision` $K$, `scale` $S$, `df` $\nu > m-1$. With $p = 1$ this
    is the normal-inverse-Wishart. A covariance that is not positive definite is impossible: `-inf`.

    Cost: $m^3 + p^3$ per event. Reference: Murphy (2023), section 15.2.

    >>> dist = MatrixNormalInverseWishart(jnp.zeros((1, 2)), jnp.eye(2), 9 * jnp.eye(1), df=5.0)
    >>> dist.mode()[1].tolist()
    [[1.0]]
    """

    loc: Float[Array, "m p"] = param(real)
    column_precision: Float[Array, "p p"] = param(positive_definite)
    scale: Float[Array, "m m"] = param(positive_definite)
    df: Float[Array, ""] = param(lambda self: above(self.scale.shape[-1] - 1))

    def __init__(self, loc: Any, column_precision: Any, scale: Any, df: Any):
        self.loc, self.column_precision, self.scale, self.df = common_dtype(
            loc=loc, column_precision=column_precision, scale=scale, df=df
        )

    def __check_init__(self):
        check_matrix_normal_inverse_wishart(self.loc, self.column_precision, self.scale, self.df)

    @property
    def covariance(self) -> InverseWishart:
        r"""The marginal distribution of $\Sigma$."""
        return InverseWishart(self.df, self.scale)

    def log_prob(self, x: tuple[Float[Array, "m p"], Float[Array, "m m"]]) -> Scalar:
        matrix, sigma = x
        m, p = self.loc.shape
        factor, outside = support_factor(sigma)
        trace = jnp.sum(solve_triangular(factor, cholesky(self.scale).factor, lower=True) ** 2)
        shift = matmul(matrix - self.loc, cholesky(self.column_precision).factor)
        trace = trace + jnp.sum(solve_triangular(factor, shift, lower=True) ** 2)
        return -0.5 * (self.df + m + p + 1) * log_det(factor) - 0.5 * trace - self.log_normalizer() + outside

    def log_normalizer(self) -> Scalar:
        r"""Log of the integral of the kernel above: $\log Z_{IW}(\nu, S) + \tfrac{mp}2\log 2\pi - \tfrac m2\log|K|$."""
        m, p = self.loc.shape
        precision = log_det(cholesky(self.column_precision).factor)
        return self.covariance.log_normalizer() + 0.5 * m * (p * LOG_2PI - precision)

    def sample(self, key: PRNGKey) -> tuple[Float[Array, "m p"], Float[Array, "m m"]]:
        first, second = jr.split(key)
        sigma = self.covariance.sample(first)
        noise = matmul(cholesky(sigma).factor, jr.normal(second, self.loc.shape, self.loc.dtype))
        spread = solve_triangular(cholesky(self.column_precision).factor, noise.T, lower=True, trans=1).T
        return self.loc + spread, sigma

    def mean(self) -> tuple[Float[Array, "m p"], Float[Array, "m m"]]:
        r"""$(M, S/(\nu-m-1))$; the covariance is NaN when its mean does not exist, $\nu \le m+1$."""
        return self.loc, self.covariance.mean()

    def mode(self) -> tuple[Float[Array, "m p"], Float[Array, "m m"]]:
        r"""The joint mode $(M, S/(\nu+m+p+1))$."""
        m, p = self.loc.shape
        return self.loc, self.scale / (self.df + m + p + 1)

    def entropy(self) -> Scalar:
        r"""That of $\Sigma$, and the expected one of the matrix given $\Sigma$."""
        m, p = self.loc.shape
        precision = log_det(cholesky(self.column_precision).factor)
        given = 0.5 * (m * p * (1 + LOG_2PI) - m * precision + p * self.covariance.expected_log_det())
        return self.covariance.entropy() + given

    def kl(self, other: Self) -> Scalar:
        r"""KL(self || other): that of $\Sigma$, and the expected one of the matrix given $\Sigma$."""
        m, p = self.loc.shape
        ours, theirs = cholesky(self.column_precision).factor, cholesky(other.column_precision).factor
        spread = m * (jnp.sum(solve_triangular(ours, theirs, lower=True) ** 2) - p + log_det(ours) - log_det(theirs))
        shift = matmul(self.loc - other.loc, theirs)
        moved = self.df * jnp.sum(solve_triangular(cholesky(self.scale).factor, shift, lower=True) ** 2)
        return self.covariance.kl(other.covariance) + 0.5 * (spread + moved)


def check_matrix_normal_inverse_wishart(loc: Array, column_precision: Array, scale: Array, df: Array) -> None:
    """Raise `ValueError` naming the hyper-parameter that is wrong."""
    check_rank("loc", loc, 2, "a matrix (m, p)")
    m, p = loc.shape
    check_shape("column_precision", column_precision, (p, p))
    check_positive_definite("column_precision", column_precision)
    check_matrix_prior(df, scale, shape=(m, m))
