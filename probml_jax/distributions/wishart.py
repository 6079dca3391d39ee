"""The Wishart distribution over positive-definite matrices."""

import math
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from .._constraint import above, param, positive_definite
from .._exponential_family import AbstractExponentialFamily
from .._lapack import solve_triangular
from .._linalg import cholesky, inv_psd, log_det, matmul, symmetric
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check_above, check_finite, check_positive_definite, check_rank, check_shape, common_dtype
from ..inference.root import newton, trigamma


class MatrixTally(NamedTuple):
    r"""Weighted statistics of matrices: $\sum w$, $\sum w \log|X|$ and $\sum w X$ (or $\sum w X^{-1}$)."""

    count: Array
    log_det: Array
    total: Array


class Wishart(AbstractExponentialFamily):
    r"""$W(X \mid \nu, S) \propto |X|^{(\nu-d-1)/2} \exp(-\tfrac12 \mathrm{tr}\, S^{-1}X)$ over $d \times d$ matrices.

    Its mean is $\nu S$; with $d = 1$ it is a Gamma of shape $\nu/2$ and rate $1/(2S)$. `df` $> d-1$. A matrix that is
    not positive definite is impossible: `-inf`.

    Cost: $d^3$ per event. Reference: Murphy (2022), section 2.6.5; Anderson (2003), chapter 7.

    >>> Wishart(df=4.0, scale=jnp.eye(2)).mean().tolist()
    [[4.0, 0.0], [0.0, 4.0]]
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
        trace = jnp.sum(solve_triangular(cholesky(self.scale).factor, factor, lower=True) ** 2)
        return 0.5 * (self.df - d - 1) * log_det(factor) - 0.5 * trace - self.log_normalizer() + outside

    def sample(self, key: PRNGKey) -> Float[Array, "d d"]:
        """By Bartlett's decomposition."""
        half = matmul(cholesky(self.scale).factor, bartlett(key, self.df, self.scale.shape[0]))
        return matmul(half, half.T)

    def mean(self) -> Float[Array, "d d"]:
        r"""$\nu S$."""
        return self.df * self.scale

    def mode(self) -> Float[Array, "d d"]:
        r"""$(\nu-d-1)S$; the zero matrix (the edge of the domain) when $\nu < d+1$."""
        return jnp.maximum(self.df - self.scale.shape[0] - 1, 0) * self.scale

    def variance(self) -> Float[Array, "d d"]:
        r"""Of each entry: $\nu(S_{ij}^2 + S_{ii}S_{jj})$."""
        diagonal = jnp.diagonal(self.scale)
        return self.df * (self.scale**2 + jnp.outer(diagonal, diagonal))

    def expected_log_det(self) -> Scalar:
        r"""$E \log|X|$."""
        return log_det_of_standard(self.df, self.scale.shape[0]) + log_det(cholesky(self.scale).factor)

    def entropy(self) -> Scalar:
        d = self.scale.shape[0]
        return self.log_normalizer() - 0.5 * (self.df - d - 1) * self.expected_log_det() + 0.5 * d * self.df

    def kl(self, other: Self) -> Scalar:
        ours, theirs = cholesky(self.scale).factor, cholesky(other.scale).factor
        trace = jnp.sum(solve_triangular(theirs, ours, lower=True) ** 2)
        return kl_of_standard(self.df, other.df, log_det(theirs) - log_det(ours), trace, self.scale.shape[0])

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Float[Array, "d d"]) -> tuple[Array, Array]:
        return log_det(cholesky(x).factor), x

    def natural(self) -> tuple[Array, Array]:
        return 0.5 * (self.df - self.scale.shape[0] - 1), -0.5 * inv_psd(self.scale)

    def log_normalizer(self) -> Scalar:
        r"""$\tfrac{\nu}{2}\log|S| + \tfrac{\nu d}{2}\log 2 + \log\Gamma_d(\nu/2)$."""
        return 0.5 * self.df * log_det(cholesky(self.scale).factor) + standard_normalizer(self.df, self.scale.shape[0])

    def log_base_measure(self, x: Float[Array, "d d"]) -> Scalar:
        return jnp.zeros((), self.df.dtype)

    @classmethod
    def from_natural(cls, eta: tuple[Array, Array]) -> Self:
        return cls(2 * eta[0] + eta[1].shape[0] + 1, inv_psd(-2 * symmetric(eta[1])))

    @classmethod
    def from_mean_parameters(cls, m: tuple[Array, Array]) -> Self:
        r"""From $E\log|X|$ and $E X$: one equation for $\nu$, by Newton's method."""
        mean = symmetric(m[1])
        df = _solve_df(m[0] - log_det(cholesky(mean).factor), mean.shape[0])
        return cls(df, mean / df)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_matrices(xs, self.scale)

    def statistics(self, xs: Float[Array, "n d d"], weights: Float[Array, "n"]) -> MatrixTally:
        log_dets, values = jax.vmap(self.suffstats)(xs)
        return MatrixTally(weights.sum(), weights @ log_dets, jnp.tensordot(weights, values, 1))

    def refit(self, stats: MatrixTally) -> Self:
        return _refit(self, stats)

    def degenerate(self) -> Flag:
        """The scale is singular to working precision."""
        return cholesky(self.scale).helped


# ------------------------------------------------------------------------------------------ shared with the inverse


def check_matrix_prior(df: Array, scale: Array, *, shape: tuple[int, ...] = ()) -> None:
    """Raise `ValueError` unless `scale` is positive definite and `df` greater than its size less one."""
    check_rank("scale", scale, 2, "a matrix (d, d)")
    check_shape("scale", scale, shape or (scale.shape[0], scale.shape[0]))
    check_positive_definite("scale", scale)
    check_shape("df", df, ())
    check_above("df", df, scale.shape[0] - 1)


def check_matrices(xs, like: Array) -> None:
    """Raise `ValueError` unless `xs` is n complete positive-definite matrices of the right size."""
    check_rank("data", xs, 3, f"(n, {like.shape[0]}, {like.shape[0]})")
    check_shape("data", xs, (xs.shape[0], *like.shape))
    check_finite("data", xs, nan=False)
    check_positive_definite("data", xs)


def support_factor(x: Array) -> tuple[Array, Array]:
    """Lower factor of a matrix, and what to add to its log-density: 0, `-inf` when it is not positive definite.

    Outside the support the factor is the identity, so that gradients stay finite; NaN in, NaN out.
    """
    unknown = jnp.any(jnp.isnan(x))
    inside = jnp.isfinite(cholesky(jax.lax.stop_gradient(x)).jitter)
    factor = cholesky(jnp.where(inside, x, jnp.eye(x.shape[0], dtype=x.dtype))).factor
    return factor, jnp.where(inside, 0, jnp.where(unknown, jnp.nan, -jnp.inf)).astype(x.dtype)


def bartlett(key: PRNGKey, df: Array, d: int) -> Float[Array, "d d"]:
    r"""A lower factor of a draw from $W(\nu, I)$: chi on the diagonal, normal below it."""
    below, diagonal = jr.split(key)
    chi_squared = 2 * jr.gamma(diagonal, _halves(df, d), dtype=df.dtype)
    return jnp.tril(jr.normal(below, (d, d), df.dtype), -1) + jnp.diag(jnp.sqrt(chi_squared))


def _halves(df: Array, d: int) -> Array:
    return 0.5 * (df - jnp.arange(d, dtype=df.dtype))


def standard_normalizer(df: Array, d: int) -> Array:
    r"""Log-normalizer of $W(\nu, I)$: $\tfrac{\nu d}{2}\log 2 + \log\Gamma_d(\nu/2)$."""
    return 0.5 * d * df * math.log(2) + _log_multigamma(df, d)


def _log_multigamma(df: Array, d: int) -> Array:
    return jnp.sum(gammaln(_halves(df, d))) + 0.25 * d * (d - 1) * math.log(math.pi)


def log_det_of_standard(df: Array, d: int) -> Array:
    r"""$E\log|X|$ under $W(\nu, I)$: $\sum_i \psi((\nu-i)/2) + d\log 2$."""
    return jnp.sum(digamma(_halves(df, d))) + d * math.log(2)


def kl_of_standard(df: Array, other_df: Array, log_det_ratio: Array, trace: Array, d: int) -> Array:
    r"""KL between Wisharts from $\log|S_p|/|S_q|$ and $\mathrm{tr}\,S_p^{-1}S_q$; the same for their inverses."""
    gammas = _log_multigamma(other_df, d) - _log_multigamma(df, d)
    slope = 0.5 * (df - other_df) * jnp.sum(digamma(_halves(df, d)))
    return 0.5 * other_df * log_det_ratio + 0.5 * df * (trace - d) + gammas + slope


def _solve_df(target: Array, d: int) -> Array:
    r"""The $\nu > d-1$ with $\sum_i\psi((\nu-i)/2) + d\log(2/\nu) = t < 0$; infinity for $t \ge 0$ (no spread)."""
    proper = target < 0
    target = jnp.where(proper, target, -1)

    def step(free, target):
        # Newton in log(nu - d + 1), where the left side is nearly linear at both ends; damped to a factor e
        df = jnp.exp(free) + d - 1
        value = jnp.sum(digamma(_halves(df, d))) + d * jnp.log(2 / df) - target
        slope = 0.5 * jnp.sum(trigamma(_halves(df, d))) - d / df
        return free - jnp.clip(value / (slope * (df - d + 1)), -1, 1)

    start = jnp.log(1 + 0.5 * d * (d + 1) / -target)
    return jnp.where(proper, jnp.exp(newton(step, start, target)) + d - 1, jnp.inf)


def _refit(self: Wishart, stats: MatrixTally) -> Wishart:
    empty = stats.count == 0
    count = jnp.where(empty, 1, stats.count)
    mean = self.mean_parameters()
    m = jnp.where(empty, mean[0], stats.log_det / count), jnp.where(empty, mean[1], stats.total / count)
    new = Wishart.from_mean_parameters(m)
    return jax.tree_util.tree_map(lambda a, b: jnp.where(empty, b, a), new, self)
