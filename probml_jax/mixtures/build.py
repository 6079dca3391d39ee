"""Builders: data in, a well-started mixture out. They choose types once, so that nothing else has to."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._estimate import ML
from .._stack import Stacked
from .._typing import PRNGKey
from .._validate import as_data, as_weights, check_counts, check_finite, check_labels, check_probabilities
from ..distributions import MultivariateStudentT
from .leaves import (
    Recipe,
    bernoullis,
    categoricals,
    check_covariance,
    check_estimate,
    family_leaves,
    gaussian_leaves,
    label_leaf,
    multinomials,
    poissons,
)
from .mixture import Mixture
from .start import describe


def prepare(xs: Any, num_components: int, weights: Any, estimate: str, init: Any) -> tuple[Array, Array]:
    """Data `(n, d)` and weights, checked for a builder."""
    check_estimate(estimate)
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


@eqx.filter_jit
def _assemble(recipe: Recipe, key, events, features, weights, num_components, estimate, init, prior, concentration):
    """A mixture of one family: where its members start, from `features`; what they are learned from is `events`."""
    start = describe(key, features, weights, num_components, init)
    stack = family_leaves(recipe, start, events, estimate, prior)
    return Mixture(label_leaf(concentration, estimate, start.counts), stack)


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
    check_covariance(covariance)
    xs, weights = prepare(xs, num_components, weights, estimate, init)
    return _gaussian(key, xs, weights, num_components, covariance, estimate, init, prior, concentration, floor)


@eqx.filter_jit
def _gaussian(key, xs, weights, num_components, covariance, estimate, init, prior, concentration, floor) -> Mixture:
    start = describe(key, xs, weights, num_components, init)
    stack = gaussian_leaves(start, xs, covariance, estimate, prior, floor)
    return Mixture(label_leaf(concentration, estimate, start.counts), stack)


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
    """A mixture of vectors of independent Bernoullis (binary data). Default prior: Beta(1.5, 1.5) per coordinate.

    >>> import jax.random as jr
    >>> model = bernoulli_mixture(jr.key(0), jnp.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), 2)
    >>> model.components.each.distribution.probs.shape
    (2, 3)
    """
    xs, weights = prepare(xs, num_components, weights, estimate, init)
    check_probabilities("xs", jnp.nan_to_num(xs))
    return _assemble(bernoullis, key, xs, xs, weights, num_components, estimate, init, prior, concentration)


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
    """A mixture of vectors of independent Poissons (counts). Default prior: Gamma(1.5, 1.5/mean) per coordinate.

    >>> import jax.random as jr
    >>> model = poisson_mixture(jr.key(0), jnp.array([[0.0, 1.0], [9.0, 8.0], [1.0, 0.0], [7.0, 9.0]]), 2)
    >>> model.components.each.distribution.rate.shape
    (2, 2)
    """
    xs, weights = prepare(xs, num_components, weights, estimate, init)
    check_counts("xs", xs)
    return _assemble(poissons, key, xs, xs, weights, num_components, estimate, init, prior, concentration)


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

    >>> import jax.random as jr
    >>> model = categorical_mixture(jr.key(0), jnp.array([[0, 2], [1, 1], [0, -1], [1, 0]]), 2, num_categories=3)
    >>> model.components.each.distribution.probs.shape
    (2, 2, 3)
    """
    labels = as_data(xs)
    if labels.ndim != 2 or jnp.issubdtype(labels.dtype, jnp.floating):
        raise ValueError(f"xs must be whole labels of shape (n, d); got {labels.dtype} of shape {labels.shape}.")
    check_labels("xs", labels, num_categories)
    onehot = jax.nn.one_hot(labels, num_categories, dtype=jnp.result_type(float) if dtype is None else dtype)
    flat = jnp.where((labels >= 0)[:, :, None], onehot, jnp.nan).reshape(labels.shape[0], -1)
    flat, weights = prepare(flat, num_components, weights, estimate, init)
    init = init if isinstance(init, str) else jnp.asarray(init, flat.dtype).reshape(num_components, -1)
    recipe = categoricals(labels.shape[1], num_categories)
    return _assemble(recipe, key, labels, flat, weights, num_components, estimate, init, prior, concentration)


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

    >>> import jax.random as jr
    >>> model = multinomial_mixture(jr.key(0), jnp.array([[5.0, 1.0, 0.0], [0.0, 2.0, 6.0], [4.0, 0.0, 1.0]]), 2)
    >>> model.components.each.distribution.probs.shape
    (2, 3)
    """
    xs, weights = prepare(xs, num_components, weights, estimate, init)
    check_counts("xs", xs)
    check_finite("xs", xs, nan=False)
    shares = xs / jnp.maximum(jnp.sum(xs, axis=1, keepdims=True), 1)
    return _assemble(multinomials, key, xs, shares, weights, num_components, estimate, init, prior, concentration)


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

    >>> import jax.random as jr
    >>> model = student_t_mixture(jr.key(0), jr.normal(jr.key(1), (20, 2)), 2, df=5.0)
    >>> model.components.each.distribution.df.tolist()
    [5.0, 5.0]
    """
    xs, weights = prepare(xs, num_components, weights, "ml", init)
    return _student_t(key, xs, weights, num_components, df, init, floor)


@eqx.filter_jit
def _student_t(key, xs, weights, num_components, df, init, floor) -> Mixture:
    start = describe(key, xs, weights, num_components, init)
    smallest = floor * jnp.where(start.variance > 0, start.variance, 1)
    spread = start.within + jnp.diag(smallest)
    tails = jnp.full(num_components, df, xs.dtype)
    members = eqx.filter_vmap(lambda v, c: MultivariateStudentT(v, c, spread, smallest))(tails, start.centers)
    return Mixture(label_leaf(None, "ml", start.counts), Stacked(ML(members)))
