"""Gaussian classes: discriminant analysis and Gaussian naive Bayes, in closed form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._stack import Tied
from .._validate import is_concrete
from ..distributions import MultivariateNormal
from ..inference.grouped_rows import grouped
from ..mixtures.leaves import check_covariance, check_estimate, gaussian_leaves
from ..mixtures.start import describe_labelled
from .data import as_class_prior, as_labelled, as_table, check_every_class, class_leaf, counted
from .generative import GenerativeClassifier


def gaussian_classifier(
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    covariance: str = "full",
    *,
    estimate: str = "ml",
    prior: Any = None,
    class_prior: Any = None,
    smoothing: Any = 0.0,
    shrinkage: Any = 0.0,
    unbiased: bool = False,
    floor: float = 1e-6,
    weights: Any = None,
) -> GenerativeClassifier:
    r"""A classifier with Gaussian classes, estimated from `xs (n, d)` and labels `ys (n,)` (-1 is unobserved).

    - `covariance`: "full" (`qda`), "tied" (`lda`), "diagonal" (`gaussian_naive_bayes`), "spherical", "tied_diagonal".
    - `estimate`: "ml"; "map" (the mode under `prior`); "bayes" (the posterior: predictions are Student-t).
    - `prior`: a conjugate prior of one class; by default a weak one on the scale of the data.
    - `class_prior`: probabilities of the classes, if known; else counted, with `smoothing` added to each count.
    - `shrinkage`: in [0, 1], moves full covariances towards $\bar\sigma^2 I$; "auto" chooses it for each class by
      Ledoit and Wolf (2004) on standardized features. A point estimate ("ml") only.
    - `unbiased`: divide scatters by $n - 1$ (or, shared, by $n$ less the number of classes) instead of $n$.
    - `floor`: smallest variance, relative to each column's (as some ten thousand rows show it).
    - `weights`: real sample weights.

    Exact when labels are known and nothing is missing; NaN entries of "diagonal" and "spherical" classes too. Otherwise
    a start for `fit(model, (xs, ys), EM())`, which then learns from all that is seen. One class only, a class without
    events (or with one, if its covariance is its own), labels out of range raise `ValueError`. Works under `jit` and
    `vmap` (give `num_classes`). Cost: one pass, $O(nd^2)$ per class for full covariances.

    Reference: Murphy (2022), section 9.2.

    >>> xs, ys = jnp.array([[0.0], [1.0], [4.0], [6.0]]), jnp.array([0, 0, 1, 1])
    >>> gaussian_classifier(xs, ys, covariance="spherical").class_conditionals.each.distribution.loc.ravel().tolist()
    [0.5, 5.0]
    """
    check_covariance(covariance)
    check_estimate(estimate)
    _check_shrinkage(shrinkage, unbiased, covariance, estimate)
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    xs = as_table(xs)
    class_prior = as_class_prior(class_prior, num_classes)
    separate = estimate == "ml" and not covariance.startswith("tied")
    check_every_class(ys, weights, num_classes, 2 if separate else 1)
    options = covariance, estimate, prior, class_prior, smoothing, shrinkage, unbiased, floor
    return _gaussian(xs, ys, weights, grouped(ys, num_classes), num_classes, *options)


@eqx.filter_jit
def _gaussian(xs, ys, weights, groups, num_classes, covariance, estimate, *options) -> GenerativeClassifier:
    prior, class_prior, smoothing, shrinkage, unbiased, floor = options
    known = jnp.where(ys >= 0, weights, 0)
    start = describe_labelled(xs, ys, known, num_classes, sample=estimate == "ml")
    stack = gaussian_leaves(start, xs, covariance, estimate, prior, floor)
    leaf = class_leaf(class_prior, smoothing, estimate, num_classes, xs.dtype)
    found = counted(GenerativeClassifier(leaf, stack), xs, ys, known, groups)
    if unbiased or isinstance(shrinkage, str) or shrinkage:
        return _adjusted(found, xs, start.shares, shrinkage, unbiased)
    return found


def _check_shrinkage(shrinkage: Any, unbiased: bool, covariance: str, estimate: str) -> None:
    named = isinstance(shrinkage, str)
    amount: Any = 0 if named or not is_concrete(shrinkage) else shrinkage
    if (named and shrinkage != "auto") or not 0 <= amount <= 1:
        raise ValueError(f"shrinkage must lie in [0, 1] or be 'auto'; got {shrinkage!r}.")
    shrunken = named or amount > 0
    if (shrunken or unbiased) and estimate != "ml":
        raise ValueError("shrinkage and unbiased are for estimate='ml'.")
    if shrunken and covariance not in ("full", "tied"):
        raise ValueError(f"shrinkage is for 'full' and 'tied' covariances; got covariance={covariance!r}.")


def _adjusted(
    found: GenerativeClassifier, xs: Array, shares: Float[Array, "n c"], shrinkage: Any, unbiased: bool
) -> GenerativeClassifier:
    """Covariances shrunken, or divided by degrees of freedom."""
    stack, counts = found.class_conditionals, jnp.sum(shares, axis=0)
    tied, member = isinstance(stack, Tied), stack.each.distribution
    mass = jnp.sum(counts)
    factor = 1.0 if not unbiased else (mass / (mass - counts.size) if tied else counts / (counts - 1))
    replace = lambda where, value: eqx.tree_at(
        lambda clf: where(clf.class_conditionals.each.distribution), found, value
    )
    if not isinstance(member, MultivariateNormal):
        times = lambda scale: scale * jnp.reshape(jnp.sqrt(factor), (-1, *[1] * (scale.ndim - 1)))
        return replace(lambda dist: dist.scale, times(member.scale) if not tied else member.scale * jnp.sqrt(factor))
    covariance = member.covariance
    if isinstance(shrinkage, str):
        covariance = _ledoit_wolf(xs, shares, member.loc)
        covariance = jnp.tensordot(counts / mass, covariance, 1) if tied else covariance
    else:
        shrink = lambda a: _towards_sphere(a, shrinkage)
        covariance = shrink(covariance) if tied else jax.vmap(shrink)(covariance)
    return replace(lambda dist: dist.covariance, covariance * jnp.reshape(factor, (1, 1) if tied else (-1, 1, 1)))


def _towards_sphere(covariance: Float[Array, "d d"], amount: Any) -> Float[Array, "d d"]:
    d = covariance.shape[0]
    return (1 - amount) * covariance + amount * jnp.trace(covariance) / d * jnp.eye(d, dtype=covariance.dtype)


def _ledoit_wolf(xs: Array, shares: Float[Array, "n c"], locs: Float[Array, "c d"]) -> Float[Array, "c d d"]:
    """Each class's covariance, shrunken in units of its standard deviations by the estimated best amount."""

    def one(share, loc):
        mass, d = jnp.sum(share), loc.size
        residual = xs - loc[None]
        covariance = jnp.matmul((share[:, None] * residual).T, residual, precision="highest") / mass
        variance = jnp.diagonal(covariance)
        scale = jnp.sqrt(jnp.where(variance > 0, variance, 1))  # a column that is constant within the class
        correlation = covariance / (scale[:, None] * scale[None])
        fourth = jnp.sum(share * jnp.sum((residual / scale[None]) ** 2, axis=1) ** 2) / mass
        distance = jnp.sum(correlation**2) - d
        amount = jnp.clip((fourth - jnp.sum(correlation**2)) / mass / jnp.where(distance > 0, distance, 1), 0, 1)
        return _towards_sphere(correlation, jnp.where(distance > 0, amount, 0)) * scale[:, None] * scale[None]

    return jax.vmap(one, in_axes=(1, 0))(shares, locs)


def qda(xs: Any, ys: Any, num_classes: int | None = None, **options: Any) -> GenerativeClassifier:
    """Quadratic discriminant analysis: every class has a covariance of its own. Options of `gaussian_classifier`.

    >>> import jax.random as jr
    >>> xs, ys = jr.normal(jr.key(0), (30, 2)), jnp.arange(30) % 3
    >>> qda(xs, ys).probs(xs[0]).shape
    (3,)
    """
    return gaussian_classifier(xs, ys, num_classes, "full", **options)


def lda(xs: Any, ys: Any, num_classes: int | None = None, **options: Any) -> GenerativeClassifier:
    """Linear discriminant analysis: all classes share one covariance. Options of `gaussian_classifier`.

    >>> import jax.random as jr
    >>> xs, ys = jr.normal(jr.key(0), (30, 2)), jnp.arange(30) % 3
    >>> model = lda(xs, ys)
    >>> bool(jnp.allclose(model.to_softmax().probs(xs[0]), model.probs(xs[0]), atol=1e-5))
    True
    """
    return gaussian_classifier(xs, ys, num_classes, "tied", **options)


def gaussian_naive_bayes(xs: Any, ys: Any, num_classes: int | None = None, **options: Any) -> GenerativeClassifier:
    """Gaussian naive Bayes: features are independent within a class; NaN entries are exactly integrated out.

    Options of `gaussian_classifier`.

    >>> xs, ys = jnp.array([[0.0, 1.0], [1.0, jnp.nan], [4.0, 0.0], [6.0, 2.0]]), jnp.array([0, 0, 1, 1])
    >>> gaussian_naive_bayes(xs, ys).predict(jnp.array([5.0, jnp.nan])).item()
    1
    """
    return gaussian_classifier(xs, ys, num_classes, "diagonal", **options)
