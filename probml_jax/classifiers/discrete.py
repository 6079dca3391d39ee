"""Naive Bayes over binary columns, labels, counts and documents; columns of several kinds; the full table."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import conjugate
from .._product import Product
from .._stack import Stacked
from .._validate import check_counts, check_finite, check_labels, check_probabilities, is_concrete
from ..distributions import Categorical
from ..inference.grouped_rows import grouped
from ..mixtures.leaves import (
    Recipe,
    bernoullis,
    categoricals,
    check_estimate,
    family_leaves,
    gaussian_leaves,
    multinomials,
    poissons,
    stacked_leaves,
)
from ..mixtures.start import describe_labelled
from .data import as_class_prior, as_labelled, as_table, check_every_class, class_leaf, counted
from .generative import GenerativeClassifier


def _how(smoothing: Any, estimate: str | None) -> str:
    """Counts as they are without smoothing, the mode under a prior with it, unless an estimate is asked for."""
    if is_concrete(smoothing) and np.any(np.asarray(smoothing) < 0):
        raise ValueError(f"smoothing must be zero or positive; got {smoothing!r}.")
    if estimate is not None:
        check_estimate(estimate)
        return estimate
    return "map" if not is_concrete(smoothing) or np.any(np.asarray(smoothing) > 0) else "ml"


def _concentration(shape: tuple[int, ...], smoothing: Any, estimate: str, dtype: Any) -> Array:
    r"""A smoothing of $\alpha$ is the mode under $\alpha + 1$, and the posterior mean under $\alpha$ itself."""
    value = jnp.broadcast_to(jnp.asarray(smoothing, dtype), shape)
    return jnp.where(value > 0, value, 1) if estimate == "bayes" else value + 1


def _family(recipe: Recipe, events, features, ys, weights, num_classes, *options) -> GenerativeClassifier:
    """A classifier of one family, started at `features` and learned from `events`."""
    estimate, prior, class_prior, class_smoothing = options
    options = estimate, prior, as_class_prior(class_prior, num_classes), class_smoothing
    return _compiled_family(recipe, events, features, ys, weights, grouped(ys, num_classes), num_classes, *options)


@eqx.filter_jit
def _compiled_family(recipe, events, features, ys, weights, groups, num_classes, *options):
    estimate, prior, class_prior, class_smoothing = options
    known = jnp.where(ys >= 0, weights, 0)
    start = describe_labelled(features, ys, known, num_classes, sample=estimate == "ml")
    stack = family_leaves(recipe, start, events, estimate, prior)
    leaf = class_leaf(class_prior, class_smoothing, estimate, num_classes, features.dtype)
    return counted(GenerativeClassifier(leaf, stack), events, ys, known, groups)


def bernoulli_naive_bayes(
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    *,
    smoothing: Any = 1.0,
    estimate: str | None = None,
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    weights: Any = None,
) -> GenerativeClassifier:
    r"""Naive Bayes over binary columns `xs (n, d)`, NaN for missing: $(n_{c1} + \alpha)/(n_c + 2\alpha)$.

    - `smoothing`: $\alpha$, added to the counts of both outcomes; 0 for plain frequencies.
    - `estimate`: "bayes" keeps the Beta posteriors and predicts with their means.
    - `class_prior`, `class_smoothing`, `weights`: as in `gaussian_classifier`.

    >>> xs, ys = jnp.array([[1.0, 0], [1, 1], [0, 1], [0, 1]]), jnp.array([0, 0, 1, 1])
    >>> bernoulli_naive_bayes(xs, ys).class_conditionals.each.distribution.probs.tolist()
    [[0.75, 0.5], [0.25, 0.75]]
    """
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    xs, how = as_table(xs), _how(smoothing, estimate)
    weights = weights.astype(xs.dtype)
    check_probabilities("xs", jnp.nan_to_num(xs))
    check_every_class(ys, weights, num_classes, 1)
    both = _concentration(xs.shape[1:], smoothing, how, xs.dtype)
    prior = conjugate.BetaBernoulli(both, both)
    return _family(bernoullis, xs, xs, ys, weights, num_classes, how, prior, class_prior, class_smoothing)


def multinomial_naive_bayes(
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    *,
    smoothing: Any = 1.0,
    estimate: str | None = None,
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    weights: Any = None,
) -> GenerativeClassifier:
    r"""Naive Bayes over rows of counts `xs (n, d)` (documents over words): $(n_{cj} + \alpha)/(n_c + d\alpha)$.

    Arguments as in `bernoulli_naive_bayes`; no count may be missing. Fractional ones (tf-idf) are learned from, but an
    event with them is no draw of a multinomial: its density is zero.

    >>> xs, ys = jnp.array([[2.0, 0, 1], [1, 0, 0], [0, 3, 0], [0, 1, 1]]), jnp.array([0, 0, 1, 1])
    >>> multinomial_naive_bayes(xs, ys).predict(jnp.array([1.0, 0.0, 1.0])).item()
    0
    """
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    xs, how = as_table(xs), _how(smoothing, estimate)
    weights = weights.astype(xs.dtype)
    check_finite("xs", xs, nan=False)
    if is_concrete(xs) and np.any(np.asarray(xs) < 0):
        raise ValueError(f"xs must be counts, zero or more; got {float(np.min(np.asarray(xs))):.6g}.")
    check_every_class(ys, weights, num_classes, 1)
    shares = xs / jnp.maximum(jnp.sum(xs, axis=1, keepdims=True), 1)
    prior = conjugate.DirichletMultinomial(_concentration(xs.shape[1:], smoothing, how, xs.dtype), None)
    return _family(multinomials, xs, shares, ys, weights, num_classes, how, prior, class_prior, class_smoothing)


def poisson_naive_bayes(
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    *,
    estimate: str = "ml",
    prior: Any = None,
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    weights: Any = None,
) -> GenerativeClassifier:
    """Naive Bayes over columns of counts `xs (n, d)`, each Poisson; `prior` is a `GammaPoisson` for "map" and "bayes".

    >>> xs, ys = jnp.array([[2.0], [1], [7], [9]]), jnp.array([0, 0, 1, 1])
    >>> poisson_naive_bayes(xs, ys).class_conditionals.each.distribution.rate.ravel().tolist()
    [1.5, 8.0]
    """
    check_estimate(estimate)
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    xs = as_table(xs)
    weights = weights.astype(xs.dtype)
    check_counts("xs", xs)
    check_every_class(ys, weights, num_classes, 1)
    return _family(poissons, xs, xs, ys, weights, num_classes, estimate, prior, class_prior, class_smoothing)


def categorical_naive_bayes(
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    num_categories: int | Sequence[int] | None = None,
    *,
    smoothing: Any = 1.0,
    estimate: str | None = None,
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    weights: Any = None,
    dtype: Any = None,
) -> GenerativeClassifier:
    r"""Naive Bayes over columns of labels `xs (n, d)`, -1 for missing: $(n_{cjv} + \alpha)/(n_{cj} + K_j\alpha)$.

    `num_categories` is one number of categories $K$ for all columns or one for each, read off the data where it is not
    given. Other arguments as in `bernoulli_naive_bayes`; `dtype` is the model's.

    >>> xs, ys = jnp.array([[0, 2], [1, 2], [1, 0], [0, 1]]), jnp.array([0, 0, 1, 1])
    >>> categorical_naive_bayes(xs, ys).predict(jnp.array([0, 2])).item()
    0
    """
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    xs, sizes = _as_categories(xs, num_categories)
    how = _how(smoothing, estimate)
    dtype = jnp.result_type(float) if dtype is None else dtype
    weights = weights.astype(dtype)
    check_every_class(ys, weights, num_classes, 1)
    features, prior = _categories(xs, sizes, smoothing, how, dtype)
    recipe = categoricals(xs.shape[1], max(sizes))
    return _family(recipe, xs, features, ys, weights, num_classes, how, prior, class_prior, class_smoothing)


def _as_categories(xs: Any, num_categories: int | Sequence[int] | None) -> tuple[Array, tuple[int, ...]]:
    if not isinstance(xs, jax.Array) or xs.ndim != 2 or jnp.issubdtype(xs.dtype, jnp.floating):
        raise ValueError("xs must be whole labels of shape (n, d).")
    d = xs.shape[1]
    if num_categories is None:
        if not is_concrete(xs):
            raise ValueError("num_categories must be given inside jit or vmap.")
        sizes = tuple(int(v) + 1 for v in np.asarray(xs).max(axis=0))
    else:
        sizes = tuple(int(k) for k in np.broadcast_to(np.asarray(num_categories), (d,)))
    for j, size in enumerate(sizes):
        check_labels(f"column {j} of xs", xs[:, j], max(size, 1))
    return xs, tuple(max(size, 1) for size in sizes)


def _categories(xs: Array, sizes: tuple[int, ...], smoothing: Any, how: str, dtype: Any) -> tuple[Array, Any]:
    """Indicators of categories in one row, and a prior that gives nothing to categories a column does not have."""
    most = max(sizes)
    onehot = jax.nn.one_hot(xs, most, dtype=dtype)
    features = jnp.where((xs >= 0)[:, :, None], onehot, jnp.nan).reshape(xs.shape[0], -1)
    exists = jnp.asarray(np.arange(most)[None, :] < np.asarray(sizes)[:, None])
    concentration = _concentration((len(sizes), most), smoothing, how, dtype)
    absent = 1e-30 if how == "bayes" else 1.0
    return features, conjugate.DirichletCategorical(jnp.where(exists, concentration, absent))


def table_classifier(
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    num_values: int | None = None,
    *,
    smoothing: Any = 0.0,
    estimate: str | None = None,
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    weights: Any = None,
    dtype: Any = None,
) -> GenerativeClassifier:
    """The empirical classifier of one discrete variable `xs (n,)`: a table of frequencies for every class.

    Several variables are one after `jnp.ravel_multi_index`; the table then has an entry for every combination.

    >>> model = table_classifier(jnp.array([0, 0, 1, 1, 1]), jnp.array([0, 0, 0, 1, 1]))
    >>> model.probs(jnp.array(1)).round(3).tolist()
    [0.333, 0.667]
    """
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    if not isinstance(xs, jax.Array) or xs.ndim != 1 or jnp.issubdtype(xs.dtype, jnp.floating):
        raise ValueError("xs must be whole values of shape (n,): one discrete variable.")
    if num_values is None:
        if not is_concrete(xs):
            raise ValueError("num_values must be given inside jit or vmap.")
        num_values = int(np.max(np.asarray(xs))) + 1
    check_labels("xs", xs, num_values)
    how = _how(smoothing, estimate)
    dtype = jnp.result_type(float) if dtype is None else dtype
    weights = jnp.where(ys >= 0, weights, 0).astype(dtype)
    check_every_class(ys, weights, num_classes, 1)
    even = eqx.filter_vmap(Categorical)(jnp.full((num_classes, num_values), 1 / num_values, dtype))
    prior = conjugate.DirichletCategorical(_concentration((num_values,), smoothing, how, dtype))
    shares = (ys[:, None] == jnp.arange(num_classes)[None, :]) * weights[:, None]
    stack = stacked_leaves(even, prior, how, xs, shares)
    leaf = class_leaf(as_class_prior(class_prior, num_classes), class_smoothing, how, num_classes, dtype)
    return _counted(GenerativeClassifier(leaf, stack), xs, ys, weights, grouped(ys, num_classes))


# ---------------------------------------------------------------------------------------------- several kinds


def mixed_naive_bayes(
    xs: tuple[Any, ...],
    ys: Any,
    kinds: tuple[str, ...],
    num_classes: int | None = None,
    *,
    smoothing: Any = 1.0,
    estimate: str | None = None,
    num_categories: int | None = None,
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    floor: float = 1e-6,
    weights: Any = None,
) -> GenerativeClassifier:
    """Naive Bayes over columns of several kinds: `xs` is a tuple of tables, `kinds` says what each of them is.

    Kinds: "gaussian" (n, d), "bernoulli" (n, d), "poisson" (n, d), "categorical" (n, d) whole labels, "multinomial"
    (n, d) counts of one document. Entries may be missing (NaN; -1 for labels; not in documents). `smoothing` is that of
    binary columns, labels and words; `estimate="bayes"` keeps the posteriors of all columns; `num_categories` of labels
    is read off the data where it is not given.

    >>> numbers, colors = jnp.array([[1.0], [2.0], [8.0], [9.0]]), jnp.array([[0], [1], [1], [1]])
    >>> model = mixed_naive_bayes((numbers, colors), jnp.array([0, 0, 1, 1]), ("gaussian", "categorical"))
    >>> model.predict((jnp.array([2.0]), jnp.array([0]))).item()
    0
    """
    if not isinstance(xs, tuple) or len(xs) != len(kinds):
        raise ValueError(f"xs must be a tuple of {len(kinds)} tables, one per kind.")
    parts, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    known = jnp.where(ys >= 0, weights, 0)
    how = _how(smoothing, estimate)
    check_every_class(ys, weights, num_classes, 2 if "gaussian" in kinds and how != "bayes" else 1)
    stacks = []
    for kind, part in zip(kinds, parts, strict=True):
        if kind not in _KINDS:
            raise ValueError(f"kinds must be of {', '.join(map(repr, _KINDS))}; got {kind!r}.")
        sizes = _as_categories(part, num_categories)[1] if kind == "categorical" else ()
        if kind == "multinomial":
            check_finite("xs", part, nan=False)
        stacks.append(_column_leaves(kind, part, sizes, ys, known, num_classes, smoothing, how, floor))
    stack = Stacked(Product(tuple(stack.each for stack in stacks)))
    leaf = class_leaf(as_class_prior(class_prior, num_classes), class_smoothing, "ml", num_classes, known.dtype)
    return _counted(GenerativeClassifier(leaf, stack), parts, ys, known, grouped(ys, num_classes))


_KINDS = ("gaussian", "bernoulli", "poisson", "categorical", "multinomial")
_counted = eqx.filter_jit(counted)


@eqx.filter_jit
def _column_leaves(kind, part, sizes, ys, weights, num_classes, smoothing, how, floor) -> Stacked:
    dtype = weights.dtype
    begin = lambda features: describe_labelled(features, ys, weights, num_classes, sample=False)
    if kind == "categorical":
        features, prior = _categories(part, sizes, smoothing, how, dtype)
        return family_leaves(categoricals(part.shape[1], max(sizes)), begin(features), part, how, prior)
    table = as_table(part).astype(dtype)
    concentration = _concentration(table.shape[1:], smoothing, how, dtype)
    if kind == "multinomial":
        shares = table / jnp.maximum(jnp.sum(table, axis=1, keepdims=True), 1)
        return family_leaves(
            multinomials, begin(shares), table, how, conjugate.DirichletMultinomial(concentration, None)
        )
    if kind == "bernoulli":
        prior = conjugate.BetaBernoulli(concentration, concentration)
        return family_leaves(bernoullis, begin(table), table, how, prior)
    # smoothing says nothing of these: the best values, or posteriors under a weak prior
    plain = "bayes" if how == "bayes" else "ml"
    if kind == "gaussian":
        return gaussian_leaves(begin(table), table, "diagonal", plain, None, floor)
    return family_leaves(poissons, begin(table), table, plain, None)
