"""Builders: data in, a well-started factor model out."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .. import conjugate
from .._estimate import MAP, ML, AbstractEstimate, Nested
from .._linalg import matmul
from .._stack import Stacked
from .._typing import PRNGKey
from .._validate import is_concrete
from ..distributions import Categorical
from ..distributions.linear_normal import LinearNormal
from ..distributions.linear_spherical_normal import LinearSphericalNormal
from ..inference import seeding
from ..mixtures.mixture import Mixture
from .factor_analysis import FactorAnalysis
from .moments import check_size, checked_events

_PERTURBATION = 0.05
_LLOYD_STEPS = 5


class Start(NamedTuple):
    """Where a factor model begins: the data's mean and variances, and loadings and noise by their principal axes."""

    loc: Float[Array, "d"]
    variance: Float[Array, "d"]
    loadings: Float[Array, "d p"]
    noise: Float[Array, "d"]


def checked(xs: Any, num_factors: int, weights: Any, name: str = "num_factors") -> tuple[Array, Array]:
    """Events and weights of a factor model; a feature that nobody has seen raises `ValueError`."""
    xs, weights = checked_events(xs, weights)
    check_size(name, num_factors, xs)
    if is_concrete(xs):
        unseen = np.flatnonzero(np.isnan(np.asarray(xs)).all(axis=0))
        if unseen.size:
            raise ValueError(f"feature {unseen[0]} of xs is missing (NaN) in every row: nothing can be learned of it.")
    return xs, weights


def filled_moments(xs: Float[Array, "n d"], weights: Float[Array, "n"]) -> tuple[Array, Array, Array, Array]:
    """Mean and variance of what is seen, events with means in place of holes, and the covariance of these."""
    seen = ~jnp.isnan(xs)
    mass = matmul(weights, seen.astype(xs.dtype))
    mass = jnp.where(mass > 0, mass, 1)
    some = jnp.where(seen, xs, 0)[jnp.argmax(seen, axis=0), jnp.arange(xs.shape[1])]  # a point to centre on
    loc = some + matmul(weights, jnp.where(seen, xs - some[None, :], 0)) / mass
    centred = jnp.where(seen, xs - loc[None, :], 0)
    variance = matmul(weights, centred**2) / mass
    covariance = matmul((weights[:, None] * centred).T, centred) / jnp.sum(weights)
    return loc, variance, centred, covariance


def _begin(xs: Array, weights: Array, num_factors: int, noise: str) -> Start:
    """Principal axes: of correlations for noise of its own in each feature, of covariances for noise common to all."""
    loc, variance, _, covariance = filled_moments(xs, weights)
    unit = jnp.sqrt(jnp.where(variance > 0, variance, 1)) if noise == "diagonal" else jnp.ones_like(variance)
    values, vectors = jnp.linalg.eigh(covariance / (unit[:, None] * unit[None, :]))
    values, vectors = values[::-1], vectors[:, ::-1]
    rest = xs.shape[1] - num_factors
    left = jnp.sum(values[num_factors:]) / rest if rest else 0.1 * jnp.mean(values)
    strength = jnp.sqrt(jnp.maximum(values[:num_factors] - left, 1e-3 * jnp.mean(values)))
    loadings = unit[:, None] * vectors[:, :num_factors] * strength[None, :]
    # what the loadings leave of each feature, and never so little that the start looks like a Heywood case
    own = jnp.maximum(variance - jnp.sum(loadings**2, axis=1), 0.05 * variance)
    return Start(loc, variance, loadings, own)


def _member(start: Start, noise: str, floor: Array | None) -> LinearNormal | LinearSphericalNormal:
    safe = jnp.where(start.noise > 0, start.noise, 1 if floor is None else floor)
    if noise == "diagonal":
        safe = safe if floor is None else jnp.maximum(safe, floor)
        return LinearNormal(start.loadings, start.loc, jnp.sqrt(safe), floor=floor)
    least = None if floor is None else jnp.mean(floor)
    return LinearSphericalNormal(start.loadings, start.loc, jnp.sqrt(jnp.mean(safe)), floor=least)


def _default_prior(start: Start, noise: str) -> Any:
    """Worth a few events: loadings around zero, half of each feature's variance its own, means where the data's are."""
    p = start.loadings.shape[1]
    loc = jnp.concatenate([jnp.zeros_like(start.loadings), start.loc[:, None]], axis=1)
    strength = jnp.append(jnp.full(p, 0.5, loc.dtype), jnp.asarray(0.01, loc.dtype))
    variance = 0.5 * jnp.where(start.variance > 0, start.variance, 1)
    df = jnp.asarray(3.0, loc.dtype)
    if noise == "diagonal":
        return conjugate.MatrixNormalInverseChiSquared(loc, jnp.diag(strength), df, variance, intercept=True)
    return conjugate.SphericalMatrixNormalInverseChiSquared(
        loc, jnp.diag(strength), df, jnp.mean(variance), intercept=True
    )


def _leaf(start: Start, estimate: str, noise: str, prior: Any, floor: float) -> AbstractEstimate:
    if estimate == "ml":
        return ML(_member(start, noise, floor * jnp.where(start.variance > 0, start.variance, 1)))
    return MAP(_member(start, noise, None), _default_prior(start, noise) if prior is None else prior)


def _check_words(estimate: str, noise: str) -> None:
    if estimate not in ("ml", "map"):
        raise ValueError(f"estimate must be 'ml' or 'map'; got {estimate!r}.")
    if noise not in ("diagonal", "spherical"):
        raise ValueError(f"noise must be 'diagonal' or 'spherical'; got {noise!r}.")


def factor_analysis(
    key: PRNGKey,
    xs: Any,
    num_factors: int,
    *,
    estimate: str = "ml",
    noise: str = "diagonal",
    prior: Any = None,
    floor: float = 1e-6,
    weights: Any = None,
) -> FactorAnalysis:
    r"""A factor analysis of `xs (n, d)`, started on the data and ready for `fit`.

    - `estimate`: "ml", or "map" (posterior mode under `prior`), which has no Heywood cases.
    - `noise`: "diagonal" (each feature its own), or "spherical" (one for all: probabilistic PCA).
    - `prior`: of $[A, b]$ and the noise, a `MatrixNormalInverseChiSquared` (or the spherical one) with an intercept; by
      default one that is worth a few events on the scale of the data.
    - `floor`: smallest noise variance of an ML estimate, relative to each feature's variance. An estimate that ends on
      it (a Heywood case, or a feature that does not vary) is reported as `Status.degenerate`.

    The start is the principal axes of the correlations (of the covariances, for spherical noise), slightly perturbed
    by `key`, so that restarts differ. NaN entries of `xs` are missing; a feature that is missing in every row, a wrong
    rank, or more factors than $\min(n, d)$ raise `ValueError`. Works under `jit` and `vmap` over `key`.

    Cost: $nd^2 + d^3$.

    >>> xs = jr.normal(jr.key(0), (100, 4))
    >>> factor_analysis(jr.key(1), xs, num_factors=2).num_factors
    2
    """
    _check_words(estimate, noise)
    xs, weights = checked(xs, num_factors, weights)
    return _factor_analysis(key, xs, weights, num_factors, estimate, noise, prior, floor)


def _perturbed(key: PRNGKey, start: Start) -> Start:
    unit = jnp.sqrt(start.variance)[:, None]
    away = _PERTURBATION * unit * jr.normal(key, start.loadings.shape, start.loadings.dtype)
    return start._replace(loadings=start.loadings + away)


@eqx.filter_jit
def _factor_analysis(key, xs, weights, num_factors, estimate, noise, prior, floor) -> FactorAnalysis:
    start = _perturbed(key, _begin(xs, weights, num_factors, noise))
    return FactorAnalysis(_leaf(start, estimate, noise, prior, floor))


def mixture_of_factor_analysers(
    key: PRNGKey,
    xs: Any,
    num_components: int,
    num_factors: int,
    *,
    estimate: str = "ml",
    noise: str = "diagonal",
    prior: Any = None,
    floor: float = 1e-6,
    weights: Any = None,
) -> Mixture:
    r"""A mixture of factor analyses of `xs (n, d)`: Gaussian clusters whose covariances are $A_kA_k^\top + D_k$.

    By composition alone: a `Mixture` of `Nested` factor analyses, with every method of a mixture. Components start at
    k-means++ centers (then a few Lloyd steps), with the loadings of the clusters found; arguments are those of
    `factor_analysis`. NaN entries are missing.

    Cost of a step: k times that of factor analysis on n events. Reference: Ghahramani and Hinton (1996).

    >>> xs = jr.normal(jr.key(0), (100, 4))
    >>> mixture_of_factor_analysers(jr.key(1), xs, num_components=2, num_factors=1).num_components
    2
    """
    _check_words(estimate, noise)
    xs, weights = checked(xs, num_factors, weights)
    if not 1 <= num_components <= xs.shape[0]:
        raise ValueError(f"num_components must be between 1 and {xs.shape[0]}, the rows of xs; got {num_components}.")
    return _mixture(key, xs, weights, num_components, num_factors, estimate, noise, prior, floor)


@eqx.filter_jit
def _mixture(key, xs, weights, num_components, num_factors, estimate, noise, prior, floor) -> Mixture:
    seeds, *others = jr.split(key, num_components + 1)
    loc, variance, centred, _ = filled_moments(xs, weights)
    unit = jnp.sqrt(jnp.where(variance > 0, variance, 1))[None, :]
    scaled = centred / unit
    centers = seeding.lloyd(scaled, weights, seeding.plus_plus(seeds, scaled, weights, num_components), _LLOYD_STEPS)
    shares = jax.nn.one_hot(seeding.assign(scaled, centers), num_components, dtype=xs.dtype)
    # a cluster too small for its own covariance borrows a tenth of everybody
    shares = (0.9 * shares + 0.1 / num_components) * weights[:, None]

    def component(key, center, share):
        start = _begin(xs, share, num_factors, noise)
        start = start._replace(loc=loc + center * unit[0], variance=variance)
        return Nested(FactorAnalysis(_leaf(_perturbed(key, start), estimate, noise, prior, floor)))

    parts = eqx.filter_vmap(component)(jnp.stack(others), centers, shares.T)
    uniform = Categorical(jnp.full(num_components, 1 / num_components, xs.dtype))
    if estimate == "ml":
        return Mixture(ML(uniform), Stacked(parts))
    weak = conjugate.DirichletCategorical(jnp.full(num_components, 2.0, xs.dtype))
    return Mixture(MAP(uniform, weak), Stacked(parts))
