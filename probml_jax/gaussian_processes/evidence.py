"""What a Gaussian process has seen, in the form in which it answers questions."""

from abc import abstractmethod
from typing import NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._lapack import solve_triangular
from .._linalg import cho_solve, cholesky, inverse_triangular, matmul
from .._special import LOG_2PI
from .composition import AbstractKernel


class LeaveOneOut(NamedTuple):
    """For every observation, its prediction from all the others (NaN where it is missing): mean, variance (noise
    included) and log density."""

    mean: Float[Array, "n"]
    variance: Float[Array, "n"]
    log_prob: Float[Array, "n"]


def left_out(y: Array, mean: Array, variance: Array) -> LeaveOneOut:
    """With the density of what was observed."""
    return LeaveOneOut(mean, variance, -0.5 * ((y - mean) ** 2 / variance + jnp.log(variance) + LOG_2PI))


def without_own(y: Array, mean: Array, variance: Array, noise: Array) -> LeaveOneOut:
    r"""Leave-one-out predictions from the posterior of the function at each input: less what its own observation (NaN:
    none) said, $1/v_{-i} = 1/v_i - 1/\sigma^2_i$. Observations without noise leave nothing to predict from: NaN."""
    seen = ~jnp.isnan(y)
    rest = jnp.where(seen, noise - variance, 1)
    others = (noise * mean - variance * jnp.where(seen, y, 0)) / rest
    missing = lambda a: jnp.where(seen, a, jnp.nan)
    return left_out(y, missing(others), missing(noise * variance / rest + noise))


class AbstractEvidence(eqx.Module):
    """Observations of a function with a zero prior mean."""

    jitter: eqx.AbstractVar[Float[Array, ""]]

    @abstractmethod
    def mean(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m"]:
        """Posterior mean at new inputs."""

    @abstractmethod
    def variance(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m"]:
        """Posterior variances at new inputs, without their covariances."""

    @abstractmethod
    def covariance(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m m"]:
        """Posterior covariances of new inputs."""

    @abstractmethod
    def leave_one_out(self, kernel: AbstractKernel) -> LeaveOneOut:
        """Residuals from zero, each predicted from the others."""

    @abstractmethod
    def extended(self, kernel: AbstractKernel, xs: Array, residual: Array, noise: Array) -> Self:
        """With more observations."""


class Factorized(AbstractEvidence):
    r"""The Cholesky factor of $K + \Sigma$ and $\alpha = (K + \Sigma)^{-1}r$; NaN residuals are missing."""

    xs: Array
    residual: Float[Array, "n"]
    factor: Float[Array, "n n"]
    weights: Float[Array, "n"]
    jitter: Float[Array, ""]

    @property
    def seen(self) -> Bool[Array, "n"]:
        return ~jnp.isnan(self.residual)

    def _whitened(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "n m"]:
        cross = jnp.where(self.seen[:, None], kernel.cross(self.xs, xs), 0)
        return solve_triangular(self.factor, cross, lower=True)

    def mean(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m"]:
        return matmul(kernel.cross(xs, self.xs), self.weights)

    def variance(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m"]:
        left = kernel.diagonal(xs) - jnp.sum(self._whitened(kernel, xs) ** 2, axis=0)
        return jnp.maximum(left, 0)

    def covariance(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m m"]:
        white = self._whitened(kernel, xs)
        return kernel.gram(xs) - matmul(white.T, white)

    def leave_one_out(self, kernel: AbstractKernel) -> LeaveOneOut:
        precision = jnp.sum(inverse_triangular(self.factor) ** 2, axis=0)
        y = self.residual
        return left_out(y, y - self.weights / precision, jnp.where(self.seen, 1 / precision, jnp.nan))

    def extended(self, kernel: AbstractKernel, xs: Array, residual: Array, noise: Array) -> "Factorized":
        """The factor grows by rows: $O(n^2m)$ for m observations."""
        below = self._whitened(kernel, xs).T
        seen = ~jnp.isnan(residual)
        below = jnp.where(seen[:, None], below, 0)
        left = noisy_gram(kernel, xs, noise, seen) - matmul(below, below.T)
        corner, jitter = cholesky(left)
        empty = jnp.zeros((self.factor.shape[0], xs.shape[0]), left.dtype)
        factor = jnp.concatenate(
            [jnp.concatenate([self.factor, empty], axis=1), jnp.concatenate([below, corner], axis=1)]
        )
        every = jnp.concatenate([self.residual, residual])
        inputs = jnp.concatenate([self.xs, xs])
        return Factorized(inputs, every, factor, _solved(factor, every), jnp.maximum(self.jitter, jitter))


def noisy_gram(kernel: AbstractKernel, xs: Array, noise: Float[Array, "n"], seen: Bool[Array, "n"]) -> Array:
    r"""$K + \Sigma$ of what is seen; what is not stands apart with variance one."""
    both = seen[:, None] & seen[None, :]
    eye = jnp.eye(xs.shape[0], dtype=noise.dtype)
    return jnp.where(both, kernel.gram(xs) + eye * noise[None, :], eye)


def _solved(factor: Array, residual: Array) -> Array:
    return cho_solve(factor, jnp.where(jnp.isnan(residual), 0, residual))


@eqx.filter_jit
def factorized(kernel: AbstractKernel, xs: Array, residual: Array, noise: Array) -> Factorized:
    """Observations as one Cholesky factor: $n^3/3$ flops, $n^2$ numbers."""
    factor, jitter = cholesky(noisy_gram(kernel, xs, noise, ~jnp.isnan(residual)))
    return Factorized(xs, residual, factor, _solved(factor, residual), jitter)
