"""Sparse Gaussian-process regression: all that the observations say is passed on by a few inducing points."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import fixed, network, param, positive, real
from .._lapack import solve_triangular
from .._linalg import cholesky, log_det, matmul
from .._model import AbstractModel
from .._special import LOG_2PI
from .._typing import Data, Flag, Scalar
from .._validate import check_finite, check_positive, float_dtype
from .composition import AbstractKernel, as_inputs, as_kernel
from .evidence import AbstractEvidence, LeaveOneOut, without_own
from .means import as_mean
from .regression import GaussianProcess, as_pairs


class Inducing(AbstractEvidence):
    r"""Additive statistics of observations seen through $u = f(Z)$: $AA^\top$ and $Ar$ with
    $A = L_{uu}^{-1}K_{uf}\Sigma^{-1/2}$, and the factor of $I + AA^\top$."""

    inducing: Array
    xs: Array
    residual: Float[Array, "n"]
    noise: Float[Array, "n"]
    root: Float[Array, "m m"]
    factor: Float[Array, "m m"]
    weights: Float[Array, "m"]
    jitter: Float[Array, ""]

    def _white(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "m k"]:
        return solve_triangular(self.root, kernel.cross(self.inducing, xs), lower=True)

    def mean(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "k"]:
        return matmul(self.weights, solve_triangular(self.factor, self._white(kernel, xs), lower=True))

    def variance(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "k"]:
        white = self._white(kernel, xs)
        known = solve_triangular(self.factor, white, lower=True)
        return jnp.maximum(kernel.diagonal(xs) - jnp.sum(white**2, axis=0) + jnp.sum(known**2, axis=0), 0)

    def covariance(self, kernel: AbstractKernel, xs: Array) -> Float[Array, "k k"]:
        white = self._white(kernel, xs)
        known = solve_triangular(self.factor, white, lower=True)
        return kernel.gram(xs) - matmul(white.T, white) + matmul(known.T, known)

    def leave_one_out(self, kernel: AbstractKernel) -> LeaveOneOut:
        """Of the observations as the inducing points explain them, at fixed inducing points."""
        known = solve_triangular(self.factor, self._white(kernel, self.xs), lower=True)
        return without_own(self.residual, matmul(self.weights, known), jnp.sum(known**2, axis=0), self.noise)

    def extended(self, kernel: AbstractKernel, xs: Array, residual: Array, noise: Array) -> "Inducing":
        """All observations together: statistics add."""
        join = lambda a, b: jnp.concatenate([a, b])
        return seen_through(
            kernel, self.inducing, join(self.xs, xs), join(self.residual, residual), join(self.noise, noise)
        )


def seen_through(kernel: AbstractKernel, inducing: Array, xs: Array, residual: Array, noise: Array) -> Inducing:
    """Observations in $O(nm^2)$; NaN is missing."""
    root, jitter = cholesky(kernel.gram(inducing))
    seen = ~jnp.isnan(residual)
    scale = jnp.where(seen, 1 / jnp.sqrt(noise), 0)
    white = solve_triangular(root, kernel.cross(inducing, xs), lower=True) * scale[None, :]
    factor = cholesky(jnp.eye(inducing.shape[0], dtype=white.dtype) + matmul(white, white.T)).factor
    pulled = matmul(white, scale * jnp.where(seen, residual, 0))
    weights = solve_triangular(factor, pulled, lower=True)
    return Inducing(inducing, xs, residual, noise, root, factor, weights, jitter)


class SparseGaussianProcess(AbstractModel):
    r"""Regression through `inducing` points $Z$ (m, d) that are learned with the other parameters (SGPR).

    `fit` climbs Titsias' collapsed bound
    $\log N(y; m, Q + \sigma^2I) - \tfrac1{2\sigma^2}\mathrm{tr}(K - Q)$ with $Q = K_{fu}K_{uu}^{-1}K_{uf}$: never above
    the exact evidence, and equal to it when the inducing points are the inputs. `condition(x, y)` gives a
    `GaussianProcess`. Arguments, data and weights are those of `GaussianProcess`; the noise must be positive.

    Cost: $O(nm^2)$ time, $O(nm)$ memory. Reference: Titsias (2009).

    >>> from probml_jax.gaussian_processes import kernels
    >>> x = jnp.linspace(0.0, 1.0, 50)
    >>> sparse = SparseGaussianProcess(kernels.RBF(0.3), inducing=x[::10], noise=0.01)
    >>> exact = GaussianProcess(kernels.RBF(0.3), noise=0.01)
    >>> bool(sparse.log_prob((x, jnp.sin(6 * x))) <= exact.log_prob((x, jnp.sin(6 * x))))
    True
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    inducing: Float[Array, "m d"] = param(real)
    noise: Float[Array, ""] = param(positive)
    mean_function: Callable[[Array], Array] = network(default=None, converter=as_mean)
    prior: Callable[["SparseGaussianProcess"], Array] | None = fixed(default=None)

    def __init__(self, kernel: Any, inducing: Any, noise: Any, mean_function: Any = None, prior: Any = None):
        self.kernel, self.noise, self.mean_function, self.prior = kernel, noise, mean_function, prior
        self.inducing = as_inputs(inducing, "inducing")

    def __check_init__(self):
        check_positive("noise", self.noise)
        check_finite("inducing", self.inducing, nan=False)

    def log_likelihood(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        x, y = as_pairs(data)
        counts = jnp.where(jnp.isnan(y), 0, weights)
        residual = jnp.where(counts > 0, y - jax.vmap(self.mean_function)(x), jnp.nan)
        noise = self.noise / jnp.where(counts > 0, counts, 1)
        found = seen_through(self.kernel, self.inducing, x, residual, noise)
        left = self.kernel.diagonal(x) - jnp.sum(found._white(self.kernel, x) ** 2, axis=0)
        squares = jnp.sum(counts * jnp.where(counts > 0, residual, 0) ** 2) / self.noise
        size = log_det(found.factor) + jnp.sum(counts) * (jnp.log(self.noise) + LOG_2PI)
        return -0.5 * (size + squares - jnp.sum(found.weights**2) + jnp.sum(counts * left) / self.noise)

    def log_prob(self, datum: Data) -> Scalar:
        """The bound on the log evidence of a data set `(x, y)`."""
        x, y = as_pairs(datum)
        return _bound(self, x, y)

    def condition(self, x: Any, y: Any) -> GaussianProcess:
        """The process given observations as the inducing points pass them on."""
        x, y = as_pairs((x, y))
        return _conditioned(self, x, y)

    def log_prior(self) -> Scalar:
        return jnp.zeros((), float_dtype(self)) if self.prior is None else self.prior(self)

    def validate(self, data: Data) -> None:
        x, y = as_pairs(data)
        check_finite("x", x, nan=False)
        check_finite("y", y)
        if x.shape[1:] != self.inducing.shape[1:]:
            raise ValueError(f"x has shape {x.shape}; the inducing points want (n, {self.inducing.shape[1]}).")

    def degenerate(self) -> Flag:
        return jnp.array(False)


@eqx.filter_jit
def _bound(model: SparseGaussianProcess, x: Array, y: Array) -> Scalar:
    return model.log_likelihood((x, y), jnp.ones_like(y))


@eqx.filter_jit
def _conditioned(model: SparseGaussianProcess, x: Array, y: Array) -> GaussianProcess:
    noise = jnp.broadcast_to(model.noise, y.shape)
    residual = y - jax.vmap(model.mean_function)(x)
    evidence = seen_through(model.kernel, model.inducing, x, residual, noise)
    return GaussianProcess(model.kernel, model.noise, model.mean_function, evidence=evidence)
