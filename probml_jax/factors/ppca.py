"""Probabilistic PCA: factor analysis with one noise variance, in closed form where data are complete."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from .._estimate import ML, AbstractEstimate
from .._typing import Scalar
from .._validate import check_finite, is_concrete
from ..distributions.linear_spherical_normal import LinearSphericalNormal
from ..inference.blocks import pooled, repeated
from .build import checked, filled_moments
from .factor_analysis import AbstractFactorModel, check_leaf
from .moments import checked_events, weighted_moments

_BLOCK = 1024


class PPCA(AbstractFactorModel):
    r"""Probabilistic PCA: $z \sim N(0, I_k)$, $x \mid z \sim N(Az + b, \sigma^2I)$: factor analysis with equal noise.

    The maximum-likelihood subspace is PCA's, whatever the noise: $A = U(\Lambda - \sigma^2I)^{1/2}$ with $\sigma^2$ the
    mean of the variances left out (divisor $n$). The posterior-mean projection is the orthogonal one only as
    $\sigma^2 \to 0$. Everything of `FactorAnalysis` works here: missing entries, posterior, sampling, EM, gradients.
    `observation` is an `ML`, `MAP` or `Frozen` leaf of `LinearSphericalNormal`.

    Reference: Tipping and Bishop (1999); Bishop (2006), section 12.2.

    >>> import jax.random as jr
    >>> xs = jr.normal(jr.key(0), (100, 5)) * jnp.array([[3.0, 2.0, 1.0, 1.0, 1.0]])
    >>> PPCA.from_data(xs, num_components=2).num_factors
    2
    """

    observation: AbstractEstimate

    def __check_init__(self):
        check_leaf(self.observation, (LinearSphericalNormal,))

    @classmethod
    def from_data(cls, xs: Any, num_components: int, *, weights: Any = None, num_steps: int = 200) -> Self:
        r"""The maximum-likelihood model of `xs (n, d)` with `num_components` latent dimensions (fewer than d).

        Complete data: in closed form. With missing (NaN) entries there is none: `num_steps` of EM, started at the
        closed form of the data with column means in place of the holes; carry on with `fit` where that is not enough
        (`num_steps=0` gives the start). Noise that vanishes, with as many components as the data's rank, is floored at
        1e-6 of the mean variance and reported by `degenerate()`. A feature that is missing in every row, a wrong rank
        and infinite entries raise `ValueError`.

        Cost: $nd^2 + d^3$; per step of EM $n(dk^2 + k^3)$.
        """
        xs, weights = checked(xs, num_components, weights, "num_components")
        if num_components >= xs.shape[1]:
            raise ValueError(
                f"num_components must be less than the {xs.shape[1]} features, so that there is noise; "
                f"got {num_components}."
            )
        holes = not is_concrete(xs) or bool(jnp.any(jnp.isnan(xs)))
        return _from_data(xs, weights, num_components, num_steps if holes else 0)

    @property
    def noise_scale(self) -> Scalar:
        r"""$\sigma$."""
        return self.observation.point().scale

    @property
    def components(self) -> Float[Array, "k d"]:
        """Orthonormal rows that span the subspace: the principal components, where the fit has converged."""
        return jnp.linalg.svd(self.loadings, full_matrices=False)[0].T


@eqx.filter_jit
def _from_data(xs: Array, weights: Array, num_components: int, num_steps: int) -> PPCA:
    loc, variance, _, covariance = filled_moments(xs, weights)
    values, vectors = jnp.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = 1e-6 * jnp.where(jnp.mean(variance) > 0, jnp.mean(variance), 1)
    noise = jnp.maximum(jnp.mean(values[num_components:]), floor)
    strength = jnp.sqrt(jnp.maximum(values[:num_components] - noise, 0))
    loadings = vectors[:, :num_components] * strength[None, :]
    tallest = jnp.take_along_axis(loadings, jnp.argmax(jnp.abs(loadings), axis=0)[None, :], axis=0)
    loadings = jnp.where(tallest < 0, -loadings, loadings)
    model = PPCA(ML(LinearSphericalNormal(loadings, loc, jnp.sqrt(noise), floor=floor)))
    step = lambda model: model.m_step(pooled(model.e_step, xs, weights, _BLOCK)[0])
    return repeated(step, model, num_steps)


# ------------------------------------------------------------------ how many dimensions


def dimension_evidence(xs: Any, weights: Any = None) -> Float[Array, "_"]:
    r"""Laplace's approximation of $\log p(X \mid k)$ of probabilistic PCA, for $k = 1, \dots, d-1$ dimensions.

    $\log p(U) - \tfrac n2\sum_{i\le k}\log\lambda_i - \tfrac{n(d-k)}2\log v_k + \tfrac{m+k}2\log 2\pi -
    \tfrac12\log|A_z| - \tfrac k2\log n$ with $v_k$ the mean of the variances left out and $m = dk - k(k+1)/2$. `xs`
    must be complete and have at least as many rows as columns; a dimension whose variance is zero has evidence `-inf`.

    Cost: $nd^2 + d^3$ for all $k$ together. Reference: Minka (2000), "Automatic choice of dimensionality for PCA".

    >>> import jax.random as jr
    >>> xs = jr.normal(jr.key(0), (300, 4)) * jnp.array([[9.0, 5.0, 1.0, 1.0]])
    >>> int(jnp.argmax(dimension_evidence(xs))) + 1
    2
    """
    xs, weights = checked_events(xs, weights)
    check_finite("xs", xs, nan=False)
    if xs.shape[0] < xs.shape[1] or xs.shape[1] < 2:
        raise ValueError(f"xs has shape {tuple(xs.shape)}; wanted (n, d) with n >= d >= 2.")
    return _dimension_evidence(xs, weights)


def choose_dimension(xs: Any, weights: Any = None) -> int:
    """The number of dimensions with the highest `dimension_evidence`.

    >>> import jax.random as jr
    >>> plane = jr.normal(jr.key(0), (100, 2)) @ jr.normal(jr.key(1), (2, 5))
    >>> choose_dimension(plane + 0.1 * jr.normal(jr.key(2), (100, 5)))
    2
    """
    return int(jnp.argmax(dimension_evidence(xs, weights))) + 1


@eqx.filter_jit
def _dimension_evidence(xs: Array, weights: Array) -> Array:
    n, _, scatter = weighted_moments(xs, weights)
    spectrum = jnp.linalg.eigvalsh(scatter / (n - 1))[::-1]
    d = spectrum.size
    tiny = jnp.finfo(xs.dtype).eps * spectrum[0]
    positive = jnp.maximum(spectrum, tiny)
    k = jnp.arange(1, d)
    index = jnp.arange(d)
    before = lambda terms: jnp.cumsum(terms)[:-1]  # sums over i <= k
    half = 0.5 * (d - index)
    log_prior = before(gammaln(half) - half * jnp.log(jnp.pi)) - k * jnp.log(2.0)
    left = jnp.maximum((jnp.sum(positive) - before(positive)) / (d - k), tiny)
    later = index[:, None] < index[None, :]
    gap = jnp.where(later, positive[:, None] - positive[None, :], 1)
    pair = jnp.log(jnp.where(gap > 0, gap, tiny)) + jnp.where(later, jnp.log(n), 0)
    inner = jnp.where(later, 1 / positive[None, :] - 1 / positive[:, None], 1)
    within = jnp.log(jnp.where(inner > 0, inner, tiny))
    outer = 1 / left[:, None] - 1 / positive[None, :]
    kept = index[None, :] < k[:, None]
    across = jnp.sum(jnp.where(kept, jnp.log(jnp.where(kept & (outer > 0), outer, 1)), 0), axis=1)
    log_det = before(jnp.sum(pair, axis=1)) + before(jnp.sum(within, axis=0)) + (d - k) * across
    m = d * k - k * (k + 1) / 2
    fit = -0.5 * n * (before(jnp.log(positive)) + (d - k) * jnp.log(left))
    value = log_prior + fit + 0.5 * (m + k) * jnp.log(2 * jnp.pi) - 0.5 * log_det - 0.5 * k * jnp.log(n)
    return jnp.where(spectrum[:-1] > tiny, value, -jnp.inf)
