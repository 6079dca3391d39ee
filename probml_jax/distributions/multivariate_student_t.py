"""The multivariate Student t distribution."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from .._constraint import definite_above, fixed, param, positive, real
from .._counts import log_rising
from .._distribution import AbstractFamily
from .._event import check_events
from .._lapack import solve_triangular
from .._linalg import (
    cho_solve,
    cholesky,
    clip_eigenvalues,
    inverse_factor,
    is_positive_definite,
    log_det,
    made_definite,
    matmul,
    observed_factor,
    symmetric,
)
from .._special import missing_in_batch
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_positive, check_positive_definite, check_rank, check_shape
from ..inference.whitening import squared_length
from .student_t import ScaleMixtureMoments, latent_precision, refit_df


class MultivariateStudentT(AbstractFamily):
    r"""$t_\nu(x \mid \mu, \Sigma)$, density proportional to $(1 + \Delta^2/\nu)^{-(\nu+d)/2}$.

    $\Delta^2 = (x-\mu)^\top\Sigma^{-1}(x-\mu)$.

    A normal whose precision is scaled by one $u \sim \mathrm{Gamma}(\nu/2, \nu/2)$, which is what `statistics` (one
    E-step) and `refit` (its M-step: location, scale matrix and degrees of freedom) use; `refit` keeps `df` in
    [0.1, 1e4] and the matrix above `floor` (the smallest diagonal it may take). NaN entries of `x` are integrated
    out. `df` must be positive and `scale_matrix` positive definite.

    Cost: $d^3/3$ once and $d^2$ per event; $d^3/3$ per event where entries are missing.
    Reference: Murphy (2022), section 3.2 and exercise 4.5; Bishop (2006), section 2.3.7.

    >>> dist = MultivariateStudentT(df=1.0, loc=jnp.zeros(2), scale_matrix=jnp.eye(2))
    >>> round(float(dist.log_prob(jnp.array([0.0, jnp.nan]))), 4)
    -1.1447
    """

    df: Float[Array, ""] = param(positive)
    loc: Float[Array, "d"] = param(real)
    scale_matrix: Float[Array, "d d"] = param(lambda self: definite_above(self.floor))
    floor: Float[Array, "d"] | None = fixed(default=None, converter=as_float)

    def __init__(self, df: Any, loc: Any, scale_matrix: Any, floor: Any = None):
        df, loc, matrix = as_float(df, "df"), as_float(loc, "loc"), as_float(scale_matrix, "scale_matrix")
        dtype = jnp.result_type(df, loc, matrix)
        self.df, self.loc, self.scale_matrix = df.astype(dtype), loc.astype(dtype), matrix.astype(dtype)
        self.floor = None if floor is None else as_float(floor, "floor").astype(dtype)

    def __check_init__(self):
        check_rank("df", self.df, 0, "a scalar")
        check_rank("loc", self.loc, 1, "a vector (d,)")
        check_shape("scale_matrix", self.scale_matrix, (self.loc.size, self.loc.size))
        check_positive("df", self.df)
        check_positive_definite("scale_matrix", self.scale_matrix)
        if self.floor is not None:
            check_shape("floor", self.floor, self.loc.shape)
            check(self.floor > 0, "floor must be positive.")

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Float[Array, "d"]) -> Scalar:
        """Log density; NaN entries are integrated out."""
        seen, squared, log_scale = jax.lax.cond(
            missing_in_batch(x), _observed_distance, _distance, self.loc, self.scale_matrix, x
        )
        constant = log_rising(0.5 * self.df, 0.5 * seen) - 0.5 * seen * jnp.log(jnp.pi * self.df)
        return constant - log_scale - 0.5 * (self.df + seen) * jnp.log1p(squared / self.df)

    def sample(self, key: PRNGKey) -> Float[Array, "d"]:
        key_normal, key_precision = jr.split(key)
        normal = cholesky(self.scale_matrix).factor @ jr.normal(key_normal, self.loc.shape, self.loc.dtype)
        u = jr.gamma(key_precision, 0.5 * self.df, (), self.loc.dtype) / (0.5 * self.df)
        return self.loc + normal / jnp.sqrt(u)

    def mean(self) -> Float[Array, "d"]:
        """NaN where there is none: `df` up to one."""
        return jnp.where(self.df > 1, self.loc, jnp.nan)

    def mode(self) -> Float[Array, "d"]:
        """`loc`."""
        return self.loc

    def covariance(self) -> Float[Array, "d d"]:
        """Infinite for `df` up to two, NaN up to one."""
        proper = self.df > 2
        inflation = self.df / jnp.where(proper, self.df - 2, 1)
        return jnp.where(proper, inflation, jnp.where(self.df > 1, jnp.inf, jnp.nan)) * self.scale_matrix

    def variance(self) -> Float[Array, "d"]:
        """The diagonal of `covariance()`."""
        return jnp.diagonal(self.covariance())

    def entropy(self) -> Scalar:
        r"""$\tfrac{\nu+d}2\big(\psi(\tfrac{\nu+d}2)-\psi(\tfrac\nu2)\big) + \tfrac12\log\lvert S\rvert$ and the
        log-normalizer.
        """
        d = self.loc.size
        half, more = 0.5 * self.df, 0.5 * (self.df + d)
        constant = log_rising(half, jnp.full_like(half, 0.5 * d)) - 0.5 * d * jnp.log(jnp.pi * self.df)
        return more * (digamma(more) - digamma(half)) - constant + 0.5 * log_det(cholesky(self.scale_matrix).factor)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.loc)

    def statistics(self, xs: Float[Array, "n d"], weights: Float[Array, "n"]) -> ScaleMixtureMoments:
        r"""One E-step around `loc`. A missing entry counts with its conditional mean; its conditional covariance
        $\Sigma_{mm} - \Sigma_{mo}\Sigma_{oo}^{-1}\Sigma_{om}$ enters once per weight: $E[u\,\Sigma/u] = \Sigma$.
        """
        # lambdas: lax.cond hashes its branches, and a bound method of a module of arrays has no hash
        imputed, complete = (lambda *a: self._imputed(*a)), (lambda *a: self._complete(*a))
        return jax.lax.cond(missing_in_batch(xs), imputed, complete, xs, weights)

    def _complete(self, xs, weights):
        delta = xs - self.loc[None, :]
        whiten = inverse_factor(self.scale_matrix)
        squared = jax.vmap(lambda x: squared_length(whiten, self.loc, x))(xs)
        return self._moments(delta, squared, jnp.full_like(weights, self.loc.size), weights)

    def _imputed(self, xs, weights):
        delta, squared, spread = jax.vmap(self._impute)(xs)
        dims = jnp.sum(~jnp.isnan(xs), axis=1).astype(xs.dtype)
        stats = self._moments(delta, squared, dims, weights)
        return stats._replace(second=stats.second + jnp.tensordot(weights, spread, 1))

    def _moments(self, delta, squared, dims, weights):
        u, tail = latent_precision(self.df, dims, squared)
        scaled = (weights * u)[:, None] * delta
        return ScaleMixtureMoments(
            jnp.sum(weights), weights @ u, jnp.sum(scaled, axis=0), matmul(scaled.T, delta), weights @ tail
        )

    def _impute(self, x):
        """Conditional mean minus `loc`, squared distance of what is observed, conditional scale of what is not."""
        seen, factor, delta = _observed(self.loc, self.scale_matrix, x)
        cross = jnp.where(seen[None, :], self.scale_matrix, 0)
        solved = cho_solve(factor, delta)
        half = solve_triangular(factor, cross.T, lower=True)
        hidden = ~seen[:, None] & ~seen[None, :]
        spread = jnp.where(hidden, self.scale_matrix - matmul(half.T, half), 0)
        return jnp.where(seen, delta, cross @ solved), delta @ solved, spread

    def refit(self, stats: ScaleMixtureMoments) -> Self:
        empty = stats.count == 0
        shift = stats.first / jnp.where(empty, 1, stats.weight)
        matrix = symmetric(stats.second - jnp.outer(stats.first, shift)) / jnp.where(empty, 1, stats.count)
        matrix = matrix if self.floor is None else clip_eigenvalues(matrix, self.floor)
        new = (
            refit_df(self.df, stats.count, stats.tail),
            self.loc + jnp.where(empty, 0, shift),
            jnp.where(empty, self.scale_matrix, matrix),
        )
        return eqx.tree_at(lambda d: (d.df, d.loc, d.scale_matrix), self, new)

    def degenerate(self) -> Flag:
        """The scale matrix is singular to working precision, or sits on its floor in some direction."""
        floor = 0.0 if self.floor is None else 1.001 * jnp.diag(self.floor)
        return ~is_positive_definite(self.scale_matrix - floor)


def _distance(loc, matrix, x):
    """Observed dimensions, squared distance and half log-determinant of one complete event."""
    # the factor does not depend on x: under vmap over events it is computed once
    whiten = inverse_factor(matrix)
    log_scale = -jnp.sum(jnp.log(jnp.diagonal(whiten)))
    return jnp.full((), x.size, x.dtype), squared_length(whiten, loc, x), log_scale


def _observed(loc, matrix, x):
    seen = ~jnp.isnan(x)
    factor = observed_factor(made_definite(matrix), seen)
    return seen, factor, jnp.where(seen, jnp.where(seen, x, 0) - loc, 0)


def _observed_distance(loc, matrix, x):
    seen, factor, delta = _observed(loc, matrix, x)
    y = solve_triangular(factor, delta, lower=True)
    return jnp.sum(seen).astype(x.dtype), y @ y, 0.5 * log_det(factor)
