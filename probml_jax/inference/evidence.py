"""The density of one large Gaussian vector, with a derivative that needs one factorization and one inverse."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._lapack import solve_triangular
from .._linalg import cholesky, gram_of_triangular, inverse_triangular, log_det
from .._special import LOG_2PI
from .._typing import Scalar


@jax.custom_jvp
def log_density(covariance: Float[Array, "n n"], residual: Float[Array, "n"]) -> Scalar:
    r"""$\log N(r; 0, K) = -\tfrac12 r^\top K^{-1}r - \tfrac12\log|K| - \tfrac n2\log 2\pi$.

    Its derivative is $\langle\tfrac12(\alpha\alpha^\top - K^{-1}), dK\rangle - \alpha^\top dr$ with
    $\alpha = K^{-1}r$: nothing is differentiated through the factorization. A covariance that is singular to working
    precision is helped as in `cholesky`; an indefinite one gives NaN.

    Cost: $n^3/3$ flops; with the gradient about $5n^3/3$. Reference: Rasmussen and Williams (2006), equation 5.9.
    """
    factor = cholesky(covariance).factor
    whitened = solve_triangular(factor, residual, lower=True)
    return -0.5 * (jnp.sum(whitened**2) + log_det(factor) + residual.shape[0] * LOG_2PI)


@log_density.defjvp
def _(primals, tangents):
    covariance, residual = primals
    factor = cholesky(covariance).factor
    whiten = inverse_triangular(factor)
    whitened = jnp.matmul(whiten, residual, precision="highest")
    weights = jnp.matmul(whitened, whiten, precision="highest")
    value = -0.5 * (jnp.sum(whitened**2) + log_det(factor) + residual.shape[0] * LOG_2PI)
    slope = 0.5 * (weights[:, None] * weights[None, :] - gram_of_triangular(whiten))
    return value, jnp.sum(slope * tangents[0]) - jnp.sum(weights * tangents[1])


@jax.custom_jvp
def log_determinant(matrix: Float[Array, "n n"]) -> Scalar:
    r"""$\log|K|$ of a positive definite matrix, with $d\log|K| = \mathrm{tr}(K^{-1}dK)$."""
    return log_det(cholesky(matrix).factor)


@log_determinant.defjvp
def _(primals, tangents):
    factor = cholesky(primals[0]).factor
    return log_det(factor), jnp.sum(gram_of_triangular(inverse_triangular(factor)) * tangents[0])
