"""The inverse-Wishart distribution over covariance matrices."""

from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import above, param, positive_definite
from .._exponential_family import AbstractExponentialFamily
from .._lapack import solve_triangular
from .._linalg import cholesky, inv_psd, log_det, matmul, symmetric
from .._typing import Flag, PRNGKey, Scalar
from .._validate import common_dtype
from .wishart import (
    MatrixTally,
    Wishart,
    bartlett,
    check_matrices,
    check_matrix_prior,
    kl_of_standard,
    log_det_of_standard,
    standard_normalizer,
    support_factor,
)


class InverseWishart(AbstractExponentialFamily):
    r"""$IW(\Sigma \mid \nu, \Psi) \propto |\Sigma|^{-(\nu+d+1)/2} \exp(-\tfrac12 \mathrm{tr}\, \Psi\Sigma^{-1})$.

    If $\Sigma^{-1} \sim W(\nu, S)$ then $\Sigma \sim IW(\nu, S^{-1})$, with the same $\nu$ > d-1. The mean is
    $\Psi/(\nu-d-1)$ and the mode $\Psi/(\nu+d+1)$. A matrix that is not positive definite is impossible: `-inf`.

    Cost: $d^3$ per event. Reference: Murphy (2022), section 3.3.3; Gelman et al. (2013), appendix A.

    >>> InverseWishart(df=5.0, scale=jnp.eye(2)).mean().tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """

    df: Float[Array, ""] = param(lambda self: above(self.scale.shape[-1] - 1))
    scale: Float[Array, "d d"] = param(positive_definite)

    def __init__(self, df: Any, scale: Any):
        self.df, self.scale = common_dtype(df=df, scale=scale)

    def __check_init__(self):
        check_matrix_prior(self.df, self.scale)

    def log_prob(self, x: Float[Array, "d d"]) -> Scalar:
        d = self.scale.shape[0]
        factor, outside = support_factor(x)
        trace = jnp.sum(solve_triangular(factor, cholesky(self.scale).factor, lower=True) ** 2)
        return -0.5 * (self.df + d + 1) * log_det(factor) - 0.5 * trace - self.log_normalizer() + outside

    def sample(self, key: PRNGKey) -> Float[Array, "d d"]:
        """By Bartlett's decomposition of the inverse."""
        standard = bartlett(key, self.df, self.scale.shape[0])
        half = solve_triangular(standard, cholesky(self.scale).factor.T, lower=True).T
        return matmul(half, half.T)

    def mean(self) -> Float[Array, "d d"]:
        r"""$\Psi/(\nu-d-1)$; NaN when it does not exist, $\nu \le d+1$."""
        excess = self.df - self.scale.shape[0] - 1
        return jnp.where(excess > 0, self.scale / jnp.where(excess > 0, excess, 1), jnp.nan)

    def mode(self) -> Float[Array, "d d"]:
        r"""$\Psi/(\nu+d+1)$."""
        return self.scale / (self.df + self.scale.shape[0] + 1)

    def expected_log_det(self) -> Scalar:
        r"""$E \log|\Sigma|$."""
        return log_det(cholesky(self.scale).factor) - log_det_of_standard(self.df, self.scale.shape[0])

    def entropy(self) -> Scalar:
        d = self.scale.shape[0]
        return self.log_normalizer() + 0.5 * (self.df + d + 1) * self.expected_log_det() + 0.5 * d * self.df

    def kl(self, other: Self) -> Scalar:
        ours, theirs = cholesky(self.scale).factor, cholesky(other.scale).factor
        trace = jnp.sum(solve_triangular(ours, theirs, lower=True) ** 2)
        return kl_of_standard(self.df, other.df, log_det(ours) - log_det(theirs), trace, self.scale.shape[0])

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Float[Array, "d d"]) -> tuple[Array, Array]:
        return log_det(cholesky(x).factor), inv_psd(x)

    def natural(self) -> tuple[Array, Array]:
        return -0.5 * (self.df + self.scale.shape[0] + 1), -0.5 * self.scale

    def log_normalizer(self) -> Scalar:
        r"""$-\tfrac{\nu}{2}\log|\Psi| + \tfrac{\nu d}{2}\log 2 + \log\Gamma_d(\nu/2)$."""
        return standard_normalizer(self.df, self.scale.shape[0]) - 0.5 * self.df * log_det(cholesky(self.scale).factor)

    def log_base_measure(self, x: Float[Array, "d d"]) -> Scalar:
        return jnp.zeros((), self.df.dtype)

    @classmethod
    def from_natural(cls, eta: tuple[Array, Array]) -> Self:
        return cls(-2 * eta[0] - eta[1].shape[0] - 1, -2 * symmetric(eta[1]))

    @classmethod
    def from_mean_parameters(cls, m: tuple[Array, Array]) -> Self:
        r"""From $E\log|\Sigma|$ and $E\Sigma^{-1}$: the Wishart of the inverse."""
        inverse = Wishart.from_mean_parameters((-m[0], m[1]))
        return cls(inverse.df, inv_psd(inverse.scale))

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_matrices(xs, self.scale)

    def statistics(self, xs: Float[Array, "n d d"], weights: Float[Array, "n"]) -> MatrixTally:
        log_dets, values = jax.vmap(self.suffstats)(xs)
        return MatrixTally(weights.sum(), weights @ log_dets, jnp.tensordot(weights, values, 1))

    def refit(self, stats: MatrixTally) -> Self:
        inverse = Wishart(self.df, inv_psd(self.scale))
        fitted = inverse.refit(MatrixTally(stats.count, -stats.log_det, stats.total))
        return InverseWishart(fitted.df, inv_psd(fitted.scale))

    def degenerate(self) -> Flag:
        """The scale is singular to working precision."""
        return cholesky(self.scale).helped
