"""Builders: data in, a well-started mixture out. They choose types once, so that nothing else has to."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import conjugate
from .._estimate import MAP, ML, AbstractEstimate, Bayes
from .._stack import Stacked, Tied
from .._typing import PRNGKey
from .._validate import (
    as_data,
    as_float,
    as_weights,
    check_counts,
    check_finite,
    check_labels,
    check_probabilities,
    check_shape,
)
from ..distributions import (
    Bernoulli,
    Categorical,
    Multinomial,
    MultivariateNormal,
    MultivariateStudentT,
    Normal,
    Poisson,
    SphericalNormal,
)
from ..inference import seeding
from .mixture import Mixture

_LLOYD_STEPS = 5
# start and shrunken centers -> k stacked members, and the default prior of one
Recipe: TypeAlias = Callable[["Start", Array], tuple[Any, Any]]


class Start(NamedTuple):
    """A crude description of the data, from which every builder makes its components."""

    centers: Float[Array, "k d"]
    shares: Float[Array, "n k"]  # weighted
    counts: Float[Array, "k"]
    loc: Float[Array, "d"]
    variance: Float[Array, "d"]
    covariance: Float[Array, "d d"]
    within: Float[Array, "d d"]


def _prepare(xs: Any, num_components: int, weights: Any, estimate: str, init: Any) -> tuple[Array, Array]:
    if estimate not in ("ml", "map", "bayes"):
        raise ValueError(f"estimate must be 'ml', 'map' or 'bayes'; got {estimate!r}.")
    if isinstance(init, str) and init not in ("kmeans++", "random"):
        raise ValueError(f"init must be 'kmeans++', 'random' or an array of centers (k, d); got {init!r}.")
    xs = as_data(xs)
    if xs.ndim != 2:
        raise ValueError(f"xs has shape {tuple(xs.shape)}; wanted (n, d). One feature is xs[:, None].")
    if num_components < 1:
        raise ValueError(f"num_components must be at least 1; got {num_components}.")
    if num_components > xs.shape[0]:
        raise ValueError(f"num_components is {num_components} but there are only {xs.shape[0]} units in xs.")
    xs = xs if jnp.issubdtype(xs.dtype, jnp.floating) else xs.astype(jnp.result_type(float))
    return xs, as_weights(weights, xs.shape[0], xs.dtype)


def describe(
    key: PRNGKey, xs: Float[Array, "n d"], weights: Float[Array, "n"], num_components: int, init: Any
) -> Start:
    """Seeds, hard shares and moments of the data; a missing entry stands at its column's mean here, and only here."""
    seen = ~jnp.isnan(xs)
    mass = weights @ seen.astype(xs.dtype)
    mass = jnp.where(mass > 0, mass, 1)
    some = jnp.where(seen, xs, 0)[jnp.argmax(seen, axis=0), jnp.arange(xs.shape[1])]  # a point to centre on
    delta = jnp.where(seen, xs - some[None, :], 0)
    loc = some + weights @ delta / mass
    filled = jnp.where(seen, xs, loc[None, :])
    centred = filled - loc[None, :]
    variance = weights @ centred**2 / mass
    covariance = (weights[:, None] * centred).T @ centred / jnp.sum(weights)
    if isinstance(init, str):
        # distances in units of each column's spread: a column in milliseconds must not drown one in meters
        unit = jnp.sqrt(jnp.where(variance > 0, variance, 1))[None, :]
        seed = seeding.plus_plus if init == "kmeans++" else seeding.random_points
        centers = seed(key, centred / unit, weights, num_components)
        if init == "kmeans++":
            centers = seeding.lloyd(centred / unit, weights, centers, _LLOYD_STEPS)
        centers = centers * unit + loc[None, :]
    else:
        centers = jnp.asarray(as_float(init, "init"), xs.dtype)
        check_shape("init", centers, (num_components, xs.shape[1]))
    unit = jnp.sqrt(jnp.where(variance > 0, variance, 1))[None, :]
    labels = seeding.assign(filled / unit, centers / unit)
    shares = jax.nn.one_hot(labels, num_components, dtype=xs.dtype)
    residual = filled - shares @ centers
    within = (weights[:, None] * residual).T @ residual / jnp.sum(weights)
    shares = shares * weights[:, None]
    return Start(centers, shares, jnp.sum(shares, axis=0), loc, variance, covariance, within)


def _stack(make: Callable, *arrays: Array) -> Any:
    return eqx.filter_vmap(make)(*arrays)


def _leaves(members: Any, prior: Any, estimate: str, xs: Array, shares: Array) -> Stacked:
    """k leaves from k members: as they are, with a prior, or as posteriors given each member's share of the data."""
    if estimate == "ml":
        return Stacked(ML(members))
    k = shares.shape[1]
    priors = jax.tree_util.tree_map(lambda a: jnp.broadcast_to(a, (k, *a.shape)), prior)
    if estimate == "map":
        return Stacked(MAP(members, priors))
    absorb = lambda p, m, w: p.absorb(m.statistics(xs, w), m)
    return Stacked(Bayes(eqx.filter_vmap(absorb)(priors, members, shares.T), priors))


def _weights(concentration: Any, estimate: str, counts: Float[Array, "k"]) -> AbstractEstimate:
    k, dtype = counts.size, counts.dtype
    uniform = Categorical(jnp.full(k, 1 / k, dtype))
    if estimate == "ml":
        return ML(uniform)
    default = 2.0 if estimate == "map" else 1.0
    value = jnp.asarray(default if concentration is None else concentration, dtype)
    prior = conjugate.DirichletCategorical(jnp.broadcast_to(value, (k,)))
    return MAP(uniform, prior) if estimate == "map" else Bayes(prior.absorb(counts, uniform), prior)


@eqx.filter_jit
def _assemble(recipe: Recipe, key, events, features, weights, num_components, estimate, init, prior, concentration):
    """A mixture of one family: where its members start, from `features`; what they are learned from is `events`."""
    start = describe(key, features, weights, num_components, init)
    pull = start.counts[:, None] / (start.counts[:, None] + 1)  # one unit of everybody's keeps a start off the edges
    members, default = recipe(start, pull * start.centers + (1 - pull) * start.loc[None, :])
    stack = _leaves(members, default if prior is None else prior, estimate, events, start.shares)
    return Mixture(_weights(concentration, estimate, start.counts), stack)


# ------------------------------------------------------------------ Gaussian


def gaussian_mixture(
    key: PRNGKey,
    xs: Any,
    num_components: int,
    covariance: str = "full",
    *,
    estimate: str = "ml",
    init: Any = "kmeans++",
    prior: Any = None,
    concentration: Any = None,
    floor: float = 1e-6,
    weights: Any = None,
) -> Mixture:
    r"""A Gaussian mixture of `xs (n, d)`, started on the data and ready for `fit`.

    - `covariance`: "full", "diagonal", "spherical", one "tied" full matrix, or one "tied_diagonal".
    - `estimate`: "ml"; "map" (posterior mode under `prior`); "bayes" (variational posterior).
    - `init`: "kmeans++" (then a few Lloyd steps), "random" points, or an array of centers `(k, d)`.
    - `prior`: a conjugate prior of one component (`NormalInverseWishart`, `NormalInverseChiSquared`,
      `SphericalNormalInverseChiSquared`); by default a weak one on the scale of the data: strength 0.01 at the data's
      mean and the data's covariance over $k^{2/d}$ with d+2 degrees of freedom (Fraley and Raftery, 2007).
    - `concentration`: of the Dirichlet prior of the weights (default 2 for "map", 1 for "bayes").
    - `floor`: smallest variance, relative to each column's variance; keeps ML estimates off the singularities.

    NaN entries of `xs` are missing. More components than units, an empty array or a wrong rank raise `ValueError`.
    Works under `jit` and `vmap` over `key`. Cost: O(n k d).

    >>> import jax.random as jr
    >>> xs = jr.normal(jr.key(0), (100, 2))
    >>> gaussian_mixture(jr.key(1), xs, num_components=3).num_components
    3
    """
    if covariance not in ("full", "diagonal", "spherical", "tied", "tied_diagonal"):
        raise ValueError(
            f"covariance must be 'full', 'diagonal', 'spherical', 'tied' or 'tied_diagonal'; got {covariance!r}."
        )
    xs, weights = _prepare(xs, num_components, weights, estimate, init)
    return _gaussian(key, xs, weights, num_components, covariance, estimate, init, prior, concentration, floor)


@eqx.filter_jit
def _gaussian(key, xs, weights, num_components, covariance, estimate, init, prior, concentration, floor) -> Mixture:
    start = describe(key, xs, weights, num_components, init)
    smallest = floor * jnp.where(start.variance > 0, start.variance, 1)
    spread = start.within + jnp.diag(smallest)
    shape = {"tied": "full", "tied_diagonal": "diagonal"}.get(covariance, covariance)
    if prior is None and estimate != "ml":
        prior = _default_prior(shape, start, smallest, num_components)
    make = lambda center: _member(shape, center, spread, smallest if estimate == "ml" else None)
    if shape == covariance:
        stack = _leaves(_stack(make, start.centers), prior, estimate, xs, start.shares)
    else:
        stack = _tied(eqx.tree_at(lambda m: m.loc, make(start.loc), start.centers), prior, estimate, xs, start.shares)
    return Mixture(_weights(concentration, estimate, start.counts), stack)


def _tied(members: Any, prior: Any, estimate: str, xs: Array, shares: Array) -> Tied:
    if estimate == "ml":
        return Tied(ML(members))
    start = Tied(MAP(members, prior))
    if estimate == "map":
        return start
    posteriors = start.map(lambda leaf: leaf.distribution)
    posteriors = eqx.filter_vmap(lambda m, w: prior.absorb(m.statistics(xs, w), m))(posteriors, shares.T)
    return Tied(Bayes(prior.tie(posteriors), prior))


def _member(covariance: str, loc: Array, spread: Array, floor: Array | None) -> Any:
    if covariance == "full":
        return MultivariateNormal(loc, spread, floor)
    variance = jnp.diagonal(spread)
    if covariance == "diagonal":
        return Normal(loc, jnp.sqrt(variance), floor)
    return SphericalNormal(loc, jnp.sqrt(jnp.mean(variance)), None if floor is None else jnp.mean(floor))


def _default_prior(covariance: str, start: Start, smallest: Array, num_components: int) -> Any:
    d = start.loc.size
    strength = jnp.asarray(0.01, start.loc.dtype)
    scale = start.covariance / num_components ** (2 / d) + jnp.diag(smallest)
    if covariance == "full":
        return conjugate.NormalInverseWishart(start.loc, strength, scale, jnp.asarray(d + 2.0, start.loc.dtype))
    df = jnp.asarray(3.0, start.loc.dtype)
    variance = jnp.diagonal(scale)
    if covariance == "diagonal":
        fill = lambda a: jnp.full_like(start.loc, a)
        return conjugate.NormalInverseChiSquared(start.loc, fill(strength), fill(df), variance)
    return conjugate.SphericalNormalInverseChiSquared(start.loc, strength, df, jnp.mean(variance))


# ------------------------------------------------------------------ counts, labels, heavy tails


def bernoulli_mixture(
    key: PRNGKey,
    xs: Any,
    num_components: int,
    *,
    estimate: str = "ml",
    init: Any = "kmeans++",
    prior: Any = None,
    concentration: Any = None,
    weights: Any = None,
) -> Mixture:
    """A mixture of vectors of independent Bernoullis (binary data). Default prior: Beta(1.5, 1.5) per coordinate."""
    xs, weights = _prepare(xs, num_components, weights, estimate, init)
    check_probabilities("xs", jnp.nan_to_num(xs))
    return _assemble(_bernoullis, key, xs, xs, weights, num_components, estimate, init, prior, concentration)


def _bernoullis(start: Start, centers: Array) -> tuple[Any, Any]:
    half = jnp.full_like(start.loc, 1.5)
    return _stack(Bernoulli, jnp.clip(centers, 0.01, 0.99)), conjugate.BetaBernoulli(half, half)


def poisson_mixture(
    key: PRNGKey,
    xs: Any,
    num_components: int,
    *,
    estimate: str = "ml",
    init: Any = "kmeans++",
    prior: Any = None,
    concentration: Any = None,
    weights: Any = None,
) -> Mixture:
    """A mixture of vectors of independent Poissons (counts). Default prior: Gamma(1.5, 1.5/mean) per coordinate."""
    xs, weights = _prepare(xs, num_components, weights, estimate, init)
    check_counts("xs", xs)
    return _assemble(_poissons, key, xs, xs, weights, num_components, estimate, init, prior, concentration)


def _poissons(start: Start, centers: Array) -> tuple[Any, Any]:
    shape = jnp.full_like(start.loc, 1.5)
    prior = conjugate.GammaPoisson(shape, shape / jnp.maximum(start.loc, 1e-3))
    return _stack(Poisson, jnp.maximum(centers, 1e-3)), prior


def categorical_mixture(
    key: PRNGKey,
    xs: Any,
    num_components: int,
    num_categories: int,
    *,
    estimate: str = "ml",
    init: Any = "kmeans++",
    prior: Any = None,
    concentration: Any = None,
    weights: Any = None,
    dtype: Any = None,
) -> Mixture:
    """A mixture of vectors of independent categorical labels (latent class analysis); -1 is unobserved.

    `xs (n, d)` holds labels 0..num_categories-1. `init` may be an array of probabilities `(k, d, num_categories)`.
    `dtype` is the model's (labels have none of their own). Default prior: Dirichlet(1.5) per coordinate.
    """
    labels = as_data(xs)
    if labels.ndim != 2 or jnp.issubdtype(labels.dtype, jnp.floating):
        raise ValueError(f"xs must be whole labels of shape (n, d); got {labels.dtype} of shape {labels.shape}.")
    check_labels("xs", labels, num_categories)
    onehot = jax.nn.one_hot(labels, num_categories, dtype=jnp.result_type(float) if dtype is None else dtype)
    flat = jnp.where((labels >= 0)[:, :, None], onehot, jnp.nan).reshape(labels.shape[0], -1)
    flat, weights = _prepare(flat, num_components, weights, estimate, init)
    init = init if isinstance(init, str) else jnp.asarray(init, flat.dtype).reshape(num_components, -1)
    recipe = _categoricals(labels.shape[1], num_categories)
    return _assemble(recipe, key, labels, flat, weights, num_components, estimate, init, prior, concentration)


@functools.cache  # one function per shape, so that compiled builders are found again
def _categoricals(num_features: int, num_categories: int) -> Recipe:
    def recipe(start: Start, centers: Array) -> tuple[Any, Any]:
        shape = (num_features, num_categories)
        probs = jnp.clip(centers + 0.5 / num_categories, 1e-3).reshape(-1, *shape)
        members = _stack(Categorical, probs / jnp.sum(probs, axis=-1, keepdims=True))
        return members, conjugate.DirichletCategorical(jnp.full(shape, 1.5, centers.dtype))

    return recipe


def multinomial_mixture(
    key: PRNGKey,
    xs: Any,
    num_components: int,
    *,
    estimate: str = "ml",
    init: Any = "kmeans++",
    prior: Any = None,
    concentration: Any = None,
    weights: Any = None,
) -> Mixture:
    """A mixture over rows of counts (documents over words); the length of each row is taken as given.

    Rows must be complete: a missing count would leave the length unknown.
    Default prior: Dirichlet(1.5) over the d outcomes.
    """
    xs, weights = _prepare(xs, num_components, weights, estimate, init)
    check_counts("xs", xs)
    check_finite("xs", xs, nan=False)
    shares = xs / jnp.maximum(jnp.sum(xs, axis=1, keepdims=True), 1)
    return _assemble(_multinomials, key, xs, shares, weights, num_components, estimate, init, prior, concentration)


def _multinomials(start: Start, centers: Array) -> tuple[Any, Any]:
    probs = centers + 0.5 / centers.shape[1]
    members = _stack(lambda p: Multinomial(p, None), probs / jnp.sum(probs, axis=1, keepdims=True))
    return members, conjugate.DirichletMultinomial(jnp.full_like(start.loc, 1.5), None)


def student_t_mixture(
    key: PRNGKey,
    xs: Any,
    num_components: int,
    *,
    df: float = 10.0,
    init: Any = "kmeans++",
    floor: float = 1e-6,
    weights: Any = None,
) -> Mixture:
    """A mixture of multivariate Student-t: robust to outliers; degrees of freedom are estimated from `df` on.

    Reference: Peel and McLachlan (2000).
    """
    xs, weights = _prepare(xs, num_components, weights, "ml", init)
    return _student_t(key, xs, weights, num_components, df, init, floor)


@eqx.filter_jit
def _student_t(key, xs, weights, num_components, df, init, floor) -> Mixture:
    start = describe(key, xs, weights, num_components, init)
    smallest = floor * jnp.where(start.variance > 0, start.variance, 1)
    spread = start.within + jnp.diag(smallest)
    tails = jnp.full(num_components, df, xs.dtype)
    members = _stack(lambda v, c: MultivariateStudentT(v, c, spread, smallest), tails, start.centers)
    return Mixture(_weights(None, "ml", start.counts), Stacked(ML(members)))
