"""How members become leaves: types and priors are chosen here once, for every builder of mixtures and classifiers."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import conjugate
from .._estimate import MAP, ML, AbstractEstimate, Bayes
from .._stack import AbstractStack, Stacked, Tied
from ..distributions import Bernoulli, Categorical, Multinomial, MultivariateNormal, Normal, Poisson, SphericalNormal
from .start import Start

# start and shrunken centers -> k stacked members, and the default prior of one
Recipe: TypeAlias = Callable[[Start, Array], tuple[Any, Any]]
COVARIANCES = ("full", "diagonal", "spherical", "tied", "tied_diagonal")


def check_covariance(covariance: str) -> None:
    """Raise `ValueError` unless it names a covariance structure."""
    if covariance not in COVARIANCES:
        *most, last = [repr(name) for name in COVARIANCES]
        raise ValueError(f"covariance must be {', '.join(most)} or {last}; got {covariance!r}.")


def check_estimate(estimate: str) -> None:
    """Raise `ValueError` unless it names a way of estimating."""
    if estimate not in ("ml", "map", "bayes"):
        raise ValueError(f"estimate must be 'ml', 'map' or 'bayes'; got {estimate!r}.")


def _stack(make: Callable, *arrays: Array) -> Any:
    return eqx.filter_vmap(make)(*arrays)


def stacked_leaves(members: Any, prior: Any, estimate: str, xs: Array, shares: Array) -> Stacked:
    """k leaves from k members: as they are, with a prior, or as posteriors given each member's share of the data."""
    if estimate == "ml":
        return Stacked(ML(members))
    k = shares.shape[1]
    priors = jax.tree_util.tree_map(lambda a: jnp.broadcast_to(a, (k, *a.shape)), prior)
    if estimate == "map":
        return Stacked(MAP(members, priors))
    absorb = lambda p, m, w: p.absorb(m.statistics(xs, w), m)
    return Stacked(Bayes(eqx.filter_vmap(absorb)(priors, members, shares.T), priors))


def label_leaf(concentration: Any, estimate: str, counts: Float[Array, "k"]) -> AbstractEstimate:
    """A leaf over k labels that have been counted; `concentration` is that of its Dirichlet prior."""
    k, dtype = counts.size, counts.dtype
    uniform = Categorical(jnp.full(k, 1 / k, dtype))
    if estimate == "ml":
        return ML(uniform)
    default = 2.0 if estimate == "map" else 1.0
    value = jnp.asarray(default if concentration is None else concentration, dtype)
    prior = conjugate.DirichletCategorical(jnp.broadcast_to(value, (k,)))
    return MAP(uniform, prior) if estimate == "map" else Bayes(prior.absorb(counts, uniform), prior)


def family_leaves(recipe: Recipe, start: Start, events: Any, estimate: str, prior: Any) -> Stacked:
    """A stack of one family, whose members start near the centers; `events` are what they are learned from."""
    pull = start.counts[:, None] / (start.counts[:, None] + 1)  # one unit of everybody's keeps a start off the edges
    members, default = recipe(start, pull * start.centers + (1 - pull) * start.loc[None, :])
    return stacked_leaves(members, default if prior is None else prior, estimate, events, start.shares)


# ------------------------------------------------------------------ Gaussian


def gaussian_leaves(start: Start, xs: Array, covariance: str, estimate: str, prior: Any, floor: float) -> AbstractStack:
    """A stack of Gaussians with a covariance structure; floors only where nothing else keeps estimates definite."""
    smallest = floor * jnp.where(start.variance > 0, start.variance, 1)
    spread = start.within + jnp.diag(smallest)
    shape = {"tied": "full", "tied_diagonal": "diagonal"}.get(covariance, covariance)
    if prior is None and estimate != "ml":
        prior = _default_prior(shape, start, smallest, start.counts.size)
    make = lambda center: _member(shape, center, spread, smallest if estimate == "ml" else None)
    if shape == covariance:
        return stacked_leaves(_stack(make, start.centers), prior, estimate, xs, start.shares)
    return _tied(eqx.tree_at(lambda m: m.loc, make(start.loc), start.centers), prior, estimate, xs, start.shares)


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


# ------------------------------------------------------------------ counts and labels


def bernoullis(start: Start, centers: Array) -> tuple[Any, Any]:
    """Vectors of independent binary coordinates."""
    half = jnp.full_like(start.loc, 1.5)
    return _stack(Bernoulli, jnp.clip(centers, 0.01, 0.99)), conjugate.BetaBernoulli(half, half)


def poissons(start: Start, centers: Array) -> tuple[Any, Any]:
    """Vectors of independent counts."""
    shape = jnp.full_like(start.loc, 1.5)
    prior = conjugate.GammaPoisson(shape, shape / jnp.maximum(start.loc, 1e-3))
    return _stack(Poisson, jnp.maximum(centers, 1e-3)), prior


@functools.cache  # one function per shape, so that compiled builders are found again
def categoricals(num_features: int, num_categories: int) -> Recipe:
    """Vectors of independent labels; centers are indicators of (feature, category) in one row."""

    def recipe(start: Start, centers: Array) -> tuple[Any, Any]:
        shape = (num_features, num_categories)
        probs = jnp.clip(centers + 0.5 / num_categories, 1e-3).reshape(-1, *shape)
        members = _stack(Categorical, probs / jnp.sum(probs, axis=-1, keepdims=True))
        return members, conjugate.DirichletCategorical(jnp.full(shape, 1.5, centers.dtype))

    return recipe


def multinomials(start: Start, centers: Array) -> tuple[Any, Any]:
    """Rows of counts of given total; centers are shares."""
    probs = centers + 0.5 / centers.shape[1]
    members = _stack(lambda p: Multinomial(p, None), probs / jnp.sum(probs, axis=1, keepdims=True))
    return members, conjugate.DirichletMultinomial(jnp.full_like(start.loc, 1.5), None)
