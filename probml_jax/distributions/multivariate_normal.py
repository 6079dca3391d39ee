"""The multivariate normal with a full covariance, and its algebra."""

from collections.abc import Sequence
from typing import Self

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._constraint import definite_above, fixed, param, real
from .._exponential_family import AbstractExponentialFamily
from .._lapack import solve_triangular
from .._linalg import (
    cho_solve,
    cholesky,
    clip_eigenvalues,
    inv_psd,
    inverse_factor,
    is_positive_definite,
    log_det,
    made_definite,
    matmul,
    observed_factor,
    symmetric,
)
from .._special import LOG_2PI, any_in_batch, batch_center, is_stacked, middle, missing_in_batch, separately
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check_positive_definite, check_rank, check_shape
from ..inference.blocks import pooled
from ..inference.whitening import squared_length
from .coordinates import Moments

# beyond this many features the shared products of a block of events no longer fit the cache: when they are pooled, and
# (with one product more per event) when events are scored
_MAX_SHARED, _MAX_SCORED = 32, 16
# events that hold a conditional covariance each at the same time
_IMPUTED_BLOCK = 512


class MultivariateNormal(AbstractExponentialFamily):
    r"""$N(x \mid \mu, \Sigma)$ with a full covariance.

    $\log p(x) = -\tfrac12 (x-\mu)^\top \Sigma^{-1} (x-\mu) - \tfrac12 \log|2\pi\Sigma|$. NaN entries of `x` are
    integrated out: the value is the marginal density of the observed ones. `floor` is the smallest variance
    each coordinate may take when the covariance is estimated. Other forms: `from_precision`,
    `from_scale_tril`, `from_information`.

    Cost: $d^3/3$ once and $d^2$ per event; $d^3/3$ per event where entries are missing.
    Reference: Murphy (2022), section 3.2; Bishop (2006), section 2.3.

    >>> dist = MultivariateNormal(loc=jnp.zeros(2), covariance=jnp.eye(2))
    >>> round(float(dist.log_prob(jnp.array([0.0, jnp.nan]))), 4)
    -0.9189
    """

    loc: Float[Array, "d"] = param(real)
    covariance: Float[Array, "d d"] = param(lambda self: definite_above(self.floor))
    floor: Float[Array, "d"] | None = fixed(default=None, converter=as_float)

    def __check_init__(self):
        check_rank("loc", self.loc, 1, "a vector (d,)")
        check_shape("covariance", self.covariance, (self.loc.size, self.loc.size))
        check_positive_definite("covariance", self.covariance)

    # -------------------------------------------------------------------------------------- other forms

    @classmethod
    def from_precision(cls, loc: Float[Array, "d"], precision: Float[Array, "d d"]) -> Self:
        """From the inverse covariance."""
        return cls(loc, inv_psd(as_float(precision, "precision")))

    @classmethod
    def from_scale_tril(cls, loc: Float[Array, "d"], scale_tril: Float[Array, "d d"]) -> Self:
        """From a lower Cholesky factor of the covariance."""
        scale_tril = as_float(scale_tril, "scale_tril")
        return cls(loc, matmul(scale_tril, scale_tril.T))

    @classmethod
    def from_information(cls, vector: Float[Array, "d"], precision: Float[Array, "d d"]) -> Self:
        r"""From the information form $h = \Lambda\mu$, $\Lambda = \Sigma^{-1}$."""
        covariance = inv_psd(as_float(precision, "precision"))
        return cls(covariance @ as_float(vector, "vector"), covariance)

    @property
    def precision(self) -> Float[Array, "d d"]:
        r"""$\Sigma^{-1}$."""
        return inv_psd(self.covariance)

    @property
    def scale_tril(self) -> Float[Array, "d d"]:
        r"""The lower Cholesky factor of $\Sigma$."""
        return cholesky(self.covariance).factor

    def information(self) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
        r"""$(\Lambda\mu, \Lambda)$: in this form independent sources of evidence add."""
        precision = self.precision
        return precision @ self.loc, precision

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Float[Array, "d"]) -> Scalar:
        """Log density; NaN entries are integrated out."""
        x = jnp.asarray(x)
        check_shape("x", x, self.loc.shape)
        # the factor does not depend on x: under vmap over events it is computed once
        whiten = inverse_factor(self.covariance)
        return jax.lax.cond(missing_in_batch(x), _marginal_log_prob, _log_prob, self.loc, self.covariance, whiten, x)

    def sample(self, key: PRNGKey) -> Float[Array, "d"]:
        return self.loc + self.scale_tril @ jr.normal(key, self.loc.shape, self.loc.dtype)

    def mahalanobis(self, x: Float[Array, "d"]) -> Scalar:
        r"""$\sqrt{(x-\mu)^\top\Sigma^{-1}(x-\mu)}$."""
        squared = squared_length(inverse_factor(self.covariance), self.loc, x)
        return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1)), 0)

    def principal_axes(self) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
        """Lengths (standard deviations, ascending) and directions (columns) of the ellipsoid's axes."""
        values, vectors = jnp.linalg.eigh(self.covariance)
        return jnp.sqrt(jnp.maximum(values, 0)), vectors

    def mean(self) -> Float[Array, "d"]:
        """`loc`."""
        return self.loc

    def mode(self) -> Float[Array, "d"]:
        """`loc`."""
        return self.loc

    def variance(self) -> Float[Array, "d"]:
        """The diagonal of `covariance`."""
        return jnp.diagonal(self.covariance)

    def entropy(self) -> Scalar:
        return 0.5 * (self.loc.size * (1 + LOG_2PI) + log_det(self.scale_tril))

    def kl(self, other: Self) -> Scalar:
        whiten = inverse_factor(other.covariance)
        factor = self.scale_tril
        ratio = log_det(other.scale_tril) - log_det(factor)
        shift = whiten @ (self.loc - other.loc)
        return 0.5 * (jnp.sum(matmul(whiten, factor) ** 2) - self.loc.size + shift @ shift + ratio)

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Float[Array, "d"]) -> tuple[Array, Array]:
        return x, jnp.outer(x, x)

    def natural(self) -> tuple[Array, Array]:
        vector, precision = self.information()
        return vector, -0.5 * precision

    def log_normalizer(self) -> Scalar:
        whitened = solve_triangular(self.scale_tril, self.loc, lower=True)
        return 0.5 * (whitened @ whitened + log_det(self.scale_tril))

    def log_base_measure(self, x: Float[Array, "d"]) -> Scalar:
        return jnp.asarray(-0.5 * x.size * LOG_2PI, self.loc.dtype)

    @classmethod
    def from_natural(cls, eta: tuple[Array, Array], floor: Array | None = None) -> Self:
        covariance = inv_psd(-2 * symmetric(eta[1]))
        return cls(covariance @ eta[0], covariance, floor)

    @classmethod
    def from_mean_parameters(cls, m: tuple[Array, Array], floor: Array | None = None) -> Self:
        return cls(m[0], symmetric(m[1]) - jnp.outer(m[0], m[0]), floor)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_rank("data", xs, 2, f"(n, {self.loc.size})")
        if xs.shape[1] != self.loc.size:
            raise ValueError(f"data has {xs.shape[1]} features; the distribution has {self.loc.size}.")

    def statistics(self, xs: Float[Array, "n d"], weights: Float[Array, "n"]) -> Moments:
        """Moments around `loc`. A missing entry counts with its conditional mean and covariance given the rest."""
        return jax.lax.cond(missing_in_batch(xs), _imputed_moments, _complete_moments, self, xs, weights)

    def refit(self, stats: Moments) -> Self:
        count = jnp.where(stats.count == 0, 1, stats.count)
        shift = stats.first / count
        covariance = symmetric(stats.second / count - jnp.outer(shift, shift))
        new = MultivariateNormal(self.loc + shift, self._above_floor(covariance), self.floor)
        return jax.tree_util.tree_map(lambda a, b: jnp.where(stats.count == 0, b, a), new, self)

    def _above_floor(self, covariance):
        return covariance if self.floor is None else clip_eigenvalues(covariance, self.floor)

    def degenerate(self) -> Flag:
        """The covariance is singular to working precision, or sits on its floor in some direction."""
        floor = 0.0 if self.floor is None else 1.001 * jnp.diag(self.floor)
        return ~is_positive_definite(self.covariance - floor)

    # -------------------------------------------------------------------------------------- Gaussian algebra

    def marginal(self, indices: Sequence[int]) -> Self:
        """Distribution of some coordinates."""
        keep = np.asarray(indices)
        floor = None if self.floor is None else self.floor[keep]
        return MultivariateNormal(self.loc[keep], self.covariance[keep[:, None], keep[None, :]], floor)

    def condition(self, indices: Sequence[int], values: Float[Array, "m"]) -> Self:
        r"""Distribution of the other coordinates (in order) given `x[indices] = values`.

        $\mu_a + \Sigma_{ab}\Sigma_{bb}^{-1}(x_b - \mu_b)$ and $\Sigma_{aa} - \Sigma_{ab}\Sigma_{bb}^{-1}\Sigma_{ba}$.
        """
        given = np.asarray(indices)
        rest = np.setdiff1d(np.arange(self.loc.size), given)
        factor = cholesky(self.covariance[given[:, None], given[None, :]]).factor
        cross = self.covariance[given[:, None], rest[None, :]]
        half = solve_triangular(factor, cross, lower=True)
        loc = self.loc[rest] + half.T @ solve_triangular(factor, as_float(values) - self.loc[given], lower=True)
        covariance = self.covariance[rest[:, None], rest[None, :]] - matmul(half.T, half)
        return MultivariateNormal(loc, symmetric(covariance), None if self.floor is None else self.floor[rest])

    def impute(self, x: Float[Array, "d"]) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
        """Conditional mean of `x` given its observed entries, and the conditional covariance (zero where observed)."""
        return impute(self.loc, made_definite(self.covariance), x)

    def affine(self, matrix: Float[Array, "m d"], offset: Float[Array, "m"], noise: Float[Array, "m m"]) -> Self:
        r"""Distribution of $y = Ax + b + e$ with $e \sim N(0, R)$."""
        covariance = symmetric(matmul(matmul(matrix, self.covariance), matrix.T) + noise)
        return MultivariateNormal(matrix @ self.loc + offset, covariance)

    def bayes_rule(
        self,
        matrix: Float[Array, "m d"],
        offset: Float[Array, "m"],
        noise: Float[Array, "m m"],
        y: Float[Array, "m"],
    ) -> Self:
        r"""Posterior of $x$ after observing $y = Ax + b + e$, $e \sim N(0, R)$ (Joseph form).

        $K = \Sigma A^\top (A\Sigma A^\top + R)^{-1}$, $\mu + K(y - A\mu - b)$,
        $(I-KA)\Sigma(I-KA)^\top + KRK^\top$. The evidence is `self.affine(...).log_prob(y)`.
        """
        innovation = self.affine(matrix, offset, noise)
        gain = cho_solve(innovation.scale_tril, matmul(matrix, self.covariance)).T
        keep = jnp.eye(self.loc.size, dtype=self.loc.dtype) - matmul(gain, matrix)
        covariance = matmul(matmul(keep, self.covariance), keep.T) + matmul(matmul(gain, noise), gain.T)
        return MultivariateNormal(self.loc + gain @ (y - innovation.loc), symmetric(covariance))


def _log_prob(loc, covariance, whiten, x):
    constant = jnp.sum(jnp.log(jnp.diagonal(whiten))) - 0.5 * x.size * LOG_2PI
    if x.size > _MAX_SCORED:
        return constant + _direct_quadratic(loc, whiten, None, x)
    center = batch_center(jax.lax.stop_gradient(x))
    precision = jnp.sum(whiten**2, axis=0)
    size = jnp.sum(precision * (jnp.diagonal(covariance) + (center - loc) ** 2))
    quadratic = jax.lax.cond(separately(loc, size), _direct_quadratic, _shared_quadratic, loc, whiten, center, x)
    return constant + quadratic


@jax.checkpoint  # a branch stores for its gradient what either branch would store: let that be the inputs alone
def _direct_quadratic(loc, whiten, _, x):
    return -0.5 * squared_length(whiten, loc, x)


@jax.checkpoint
def _shared_quadratic(loc, whiten, center, x):
    """The quadratic form in the events' products about their common centre.

    Under vmap over events and members this is one matrix product of the products (shared by all members) with the
    precisions (shared by all events), and nothing of size events x members x features is ever formed.
    """
    d = x.size
    z, shift = x - center, matmul(whiten, center - loc)
    precision = matmul(whiten.T, whiten)
    products = [z[j] * z[j:] for j in range(d)]
    squares = [precision[j, j:] * np.where(np.arange(j, d) == j, 0.5, 1.0).astype(z.dtype) for j in range(d)]
    coefficients = jnp.concatenate([matmul(whiten.T, shift), *squares])
    return -0.5 * jnp.sum(shift * shift) - jnp.dot(
        jnp.concatenate([z, *products]), coefficients, precision=jax.lax.Precision.HIGHEST
    )


def _marginal_log_prob(loc, covariance, whiten, x):
    seen = ~jnp.isnan(x)
    factor = observed_factor(made_definite(covariance), seen)
    delta = jnp.where(seen, jnp.where(seen, x, 0) - loc, 0)
    y = solve_triangular(factor, delta, lower=True)
    return -0.5 * (y @ y + log_det(factor) + seen.sum() * LOG_2PI)


def _moments(dist, xs, weights):
    delta = xs - dist.loc[None, :]
    return Moments(weights.sum(), weights @ delta, matmul((weights[:, None] * delta).T, delta))


def _shared_moments(dist, xs, weights):
    """The same moments by way of the events' own centre, which all members of a stack have in common.

    Under vmap over members the products `z z'` are formed once and pooling is a single matrix product. Moving from
    the centre to `loc` cancels by their squared distance in standard deviations, hence `_far`.
    """
    center = middle(xs)
    z = xs - center[None, :]
    d = z.shape[1]
    # slices, not indices: a gather of columns costs more than the product it feeds
    products = [z[:, j : j + 1] * z[:, j:] for j in range(d)]
    pooled = matmul(weights, jnp.concatenate([jnp.ones_like(z[:, :1]), z, *products], axis=1))
    count, first, upper = pooled[0], pooled[1 : d + 1], pooled[d + 1 :]
    rows, columns = np.triu_indices(d)
    second = jnp.zeros((d, d), z.dtype).at[rows, columns].set(upper).at[columns, rows].set(upper)
    shift = dist.loc - center
    cross = jnp.outer(first, shift)
    return Moments(count, first - count * shift, second - cross - cross.T + count * jnp.outer(shift, shift))


def _far(dist, xs):
    """Whether `_shared_moments` could cost more than 2e-4 (float32) or 1e-10 (float64) of a covariance."""
    shift = dist.loc - middle(xs)
    limit = 100.0 if jnp.finfo(xs.dtype).bits <= 32 else 5e4
    return ~jnp.all(shift**2 <= limit * jnp.diagonal(dist.covariance))


def _complete_moments(dist, xs, weights):
    if xs.shape[1] > _MAX_SHARED:
        return _moments(dist, xs, weights)
    alone = ~is_stacked(jax.lax.stop_gradient(dist.loc))
    return jax.lax.cond(alone | any_in_batch(_far(dist, xs)), _moments, _shared_moments, dist, xs, weights)


def impute(
    loc: Float[Array, "d"], covariance: Float[Array, "d d"], x: Float[Array, "d"]
) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
    """Conditional mean of a Gaussian event given its observed entries, and the conditional covariance of the others."""
    seen = ~jnp.isnan(x)
    factor = observed_factor(covariance, seen)
    cross = jnp.where(seen[None, :], covariance, 0)
    delta = jnp.where(seen, jnp.where(seen, x, 0) - loc, 0)
    mean = jnp.where(seen, jnp.where(seen, x, 0), loc + cross @ cho_solve(factor, delta))
    half = solve_triangular(factor, cross.T, lower=True)
    hidden = ~seen[:, None] & ~seen[None, :]
    return mean, jnp.where(hidden, covariance - matmul(half.T, half), 0)


def _imputed_moments(dist, xs, weights):
    covariance = made_definite(dist.covariance)

    def moments(xs, weights):
        filled, spread = jax.vmap(lambda x: impute(dist.loc, covariance, x))(xs)
        count, first, second = _moments(dist, filled, weights)
        return Moments(count, first, second + jnp.tensordot(weights, spread, 1))

    return pooled(moments, xs, weights, _IMPUTED_BLOCK)
