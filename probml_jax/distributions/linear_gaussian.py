"""The linear-Gaussian conditional distribution: linear regression with a full noise covariance."""

from typing import Any, Self

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from .._constraint import param, positive_definite, real
from .._linalg import cho_solve, cholesky, log_det, matmul, symmetric
from .._special import LOG_2PI
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check_positive_definite, check_shape, common_dtype
from .multivariate_normal import MultivariateNormal
from .regression import AbstractLinear, RegressionMoments, check_line, fill_dense, least_squares


class LinearGaussian(AbstractLinear):
    r"""$p(y \mid x) = N(y \mid Ax + b, \Sigma)$. A datum is the pair `(x, y)`; `x` is given, not modelled.

    NaN entries of `y` are integrated out in `log_prob`; `x` must be complete. There is no distribution of `x`, so
    `sample(key)` raises `TypeError`: condition first, `dist.given(x).sample(key)`. `refit` is least squares.

    Cost: $m^3$ once and $m^2 + mp$ per datum; `refit` $p^3 + m p^2$. Reference: Murphy (2022), section 11.2.

    >>> line = LinearGaussian(matrix=[[2.0]], offset=[1.0], covariance=[[1.0]])
    >>> line.given(jnp.array([3.0])).mean().tolist()
    [7.0]
    """

    matrix: Float[Array, "m p"] = param(real)
    offset: Float[Array, "m"] = param(real)
    covariance: Float[Array, "m m"] = param(positive_definite)

    def __init__(self, matrix: Any, offset: Any, covariance: Any):
        self.matrix, self.offset, self.covariance = common_dtype(matrix=matrix, offset=offset, covariance=covariance)

    def __check_init__(self):
        check_line(self.matrix, self.offset)
        m = self.matrix.shape[0]
        check_shape("covariance", self.covariance, (m, m))
        check_positive_definite("covariance", self.covariance)

    def given(self, x: Float[Array, "p"]) -> MultivariateNormal:
        """The distribution of `y` at this `x`."""
        return MultivariateNormal(self.mean_at(x), self.covariance)

    def log_prob(self, x: tuple[Float[Array, "p"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x)$ of the pair `(x, y)`."""
        inputs, y = x
        return self.given(inputs).log_prob(y)

    def noise(self, key: PRNGKey) -> Float[Array, "m"]:
        return matmul(cholesky(self.covariance).factor, jr.normal(key, self.offset.shape, self.offset.dtype))

    def contract(self, a: Float[Array, "m q"], b: Float[Array, "m q"]) -> Float[Array, "m m"]:
        return matmul(a, b.T)

    def fill(self, residual: Float[Array, "n m"], weights: Float[Array, "n"]) -> tuple[Array, Array]:
        return fill_dense(self.covariance, residual, weights)

    def change(self, stats: RegressionMoments) -> Float[Array, "m q"]:
        return least_squares(stats)

    def renewed(self, matrix: Array, offset: Array, spread: Array) -> Self:
        return LinearGaussian(matrix, offset, symmetric(spread))

    def score(self, stats: RegressionMoments) -> Scalar:
        factor = cholesky(self.covariance).factor
        trace = jnp.trace(cho_solve(factor, stats.residual))
        return -0.5 * (stats.design[-1, -1] * (self.offset.size * LOG_2PI + log_det(factor)) + trace)

    def degenerate(self) -> Flag:
        """The noise covariance is singular to working precision."""
        return cholesky(self.covariance).helped
