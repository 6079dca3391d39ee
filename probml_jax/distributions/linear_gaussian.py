"""The linear-Gaussian conditional distribution: linear regression with a full noise covariance."""

from typing import Any, NamedTuple, NoReturn, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import param, positive_definite, real
from .._distribution import AbstractFamily
from .._linalg import cho_solve, cholesky, matmul, symmetric
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check_finite, check_positive_definite, check_rank, check_shape, common_dtype
from .multivariate_normal import MultivariateNormal


class RegressionMoments(NamedTuple):
    r"""Weighted moments of $\tilde x = (x, 1)$ and of the residual $r = y - Ax - b$ of the member that accumulated
    them.

    $\sum w\tilde x\tilde x^\top$ (its last entry is $\sum w$), $\sum w\,r\tilde x^\top$ and $\sum w\,rr^\top$.
    """

    design: Array
    cross: Array
    residual: Array


class LinearGaussian(AbstractFamily):
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
        check_rank("matrix", self.matrix, 2, "a matrix (m, p)")
        m = self.matrix.shape[0]
        check_shape("offset", self.offset, (m,))
        check_shape("covariance", self.covariance, (m, m))
        check_positive_definite("covariance", self.covariance)

    def given(self, x: Float[Array, "p"]) -> MultivariateNormal:
        """The distribution of `y` at this `x`."""
        return MultivariateNormal(self.matrix @ x + self.offset, self.covariance)

    def log_prob(self, x: tuple[Float[Array, "p"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x)$ of the pair `(x, y)`."""
        x, y = x
        return self.given(x).log_prob(y)

    def sample(self, key: PRNGKey) -> NoReturn:
        raise TypeError("LinearGaussian does not model x, so no (x, y) can be drawn; use given(x).sample(key).")

    def validate(self, xs) -> None:
        check_pairs(xs, self.matrix.shape)

    def statistics(
        self, xs: tuple[Float[Array, "n p"], Float[Array, "n m"]], weights: Float[Array, "n"]
    ) -> RegressionMoments:
        """Moments of the residuals around this member's line. Rows with a NaN are dropped: only `log_prob`
        marginalizes."""
        x, y = xs
        complete = ~(jnp.any(jnp.isnan(x), axis=1) | jnp.any(jnp.isnan(y), axis=1))
        x, y = jnp.where(complete[:, None], x, 0), jnp.where(complete[:, None], y, 0)
        weights = jnp.where(complete, weights, 0)
        residual = y - matmul(x, self.matrix.T) - self.offset[None, :]
        design = jnp.concatenate([x, jnp.ones((x.shape[0], 1), x.dtype)], axis=1)
        weighted = weights[:, None] * design
        spread = matmul((weights[:, None] * residual).T, residual)
        return RegressionMoments(matmul(weighted.T, design), matmul(residual.T, weighted), spread)

    def refit(self, stats: RegressionMoments) -> Self:
        count = stats.design[-1, -1]
        empty = count == 0
        design = jnp.where(empty, jnp.eye(stats.design.shape[0], dtype=count.dtype), stats.design)
        change = cho_solve(cholesky(design).factor, stats.cross.T).T
        # the residuals' scatter around the *new* line, a sum of squares whatever the accuracy of the solve
        cross = matmul(change, stats.cross.T)
        scatter = stats.residual - cross - cross.T + matmul(matmul(change, stats.design), change.T)
        new = LinearGaussian(
            matrix=self.matrix + change[:, :-1],
            offset=self.offset + change[:, -1],
            covariance=symmetric(scatter) / jnp.where(empty, 1, count),
        )
        return jax.tree_util.tree_map(lambda a, b: jnp.where(empty, b, a), new, self)

    def degenerate(self) -> Flag:
        """The noise covariance is singular to working precision."""
        return cholesky(self.covariance).helped


def check_pairs(xs, shape: tuple[int, int]) -> None:
    """Raise `ValueError` unless `xs` is a pair of arrays (n, p) and (n, m); NaN is allowed in the second only."""
    m, p = shape
    if not isinstance(xs, tuple) or len(xs) != 2:
        raise ValueError(f"data must be a tuple (x, y); got {type(xs).__name__}.")
    for name, value, size in (("x", xs[0], p), ("y", xs[1], m)):
        check_rank(name, value, 2, f"(n, {size})")
        check_shape(name, value, (value.shape[0], size))
    check_finite("x", xs[0], nan=False)
    check_finite("y", xs[1])
