"""What a builder of classifiers is given, checked; and what is counted from it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import conjugate
from .._estimate import MAP, ML, AbstractEstimate, Bayes, Frozen
from .._typing import Data
from .._validate import (
    as_data,
    as_float,
    as_weights,
    check_labels,
    check_shape,
    check_simplex,
    check_units,
    float_dtype,
    is_concrete,
)
from ..distributions import Categorical
from ..inference.grouped_rows import Groups
from .generative import GenerativeClassifier
from .moments import statistics_by_class


def as_labels(ys: Any, num_classes: int | None, num_units: int) -> tuple[Int[Array, "n"], int]:
    """Labels and the number of classes, which is read off concrete labels where it is not given."""
    ys = jnp.asarray(ys)
    ys = ys.astype(int) if ys.dtype == bool else ys
    if ys.ndim != 1 or not jnp.issubdtype(ys.dtype, jnp.integer):
        raise ValueError(f"ys must be whole labels of shape (n,); got {ys.dtype} of shape {ys.shape}.")
    if ys.shape[0] != num_units:
        raise ValueError(f"xs has {num_units} events and ys {ys.shape[0]} labels; wanted as many.")
    if num_classes is None:
        if not is_concrete(ys):
            raise ValueError("num_classes must be given inside jit or vmap: it cannot be read off traced labels.")
        num_classes = int(np.max(np.asarray(ys), initial=-1)) + 1
    check_labels("ys", ys, max(num_classes, 1))
    if num_classes < 2:
        raise ValueError(f"ys has one class only (num_classes={num_classes}); a classifier wants at least two.")
    return ys, num_classes


def check_every_class(ys: Array, weights: Array, num_classes: int, least: int) -> None:
    """Raise `ValueError` for a class with fewer events than its estimate needs; silent for tracers."""
    if is_concrete(ys, weights):
        labels = np.asarray(ys)[(np.asarray(weights) > 0) & (np.asarray(ys) >= 0)]
        counts = np.bincount(labels, minlength=num_classes)
        if counts.min() < least:
            few = int(np.argmin(counts))
            raise ValueError(
                f"class {few} has {counts[few]} event(s); its estimate wants at least {least}. Use a prior "
                "(estimate='map'), or a covariance that classes share."
            )


def as_labelled(
    xs: Any, ys: Any, num_classes: int | None, weights: Any
) -> tuple[Data, Int[Array, "n"], Float[Array, "n"], int]:
    """Events, labels, weights and the number of classes; errors name the argument."""
    xs = as_data(as_float(xs, "xs") if isinstance(xs, list) else xs)
    n = check_units(xs)
    ys, num_classes = as_labels(ys, num_classes, n)
    return xs, ys, as_weights(weights, n, float_dtype(xs)), num_classes


def as_table(xs: Data) -> Float[Array, "n d"]:
    """Rows of floating features."""
    if not isinstance(xs, jax.Array) or xs.ndim != 2:
        shape = tuple(xs.shape) if isinstance(xs, jax.Array) else "several arrays"
        raise ValueError(f"xs has shape {shape}; wanted (n, d). One feature is xs[:, None].")
    if not jnp.issubdtype(xs.dtype, jnp.floating):
        return xs.astype(jnp.result_type(float))
    if is_concrete(xs):
        values = np.asarray(xs)
        for j in np.flatnonzero(np.isnan(values[0])):  # none, mostly: the rest is then not looked at
            if np.isnan(values[:, j]).all():
                raise ValueError(f"column {j} of xs has no observed entry: nothing can be learned of it.")
    return xs


def as_class_prior(class_prior: Any, num_classes: int) -> Array | None:
    """Given probabilities of the classes, checked before anything is compiled."""
    if class_prior is None:
        return None
    probs = as_float(class_prior, "class_prior")
    check_shape("class_prior", probs, (num_classes,))
    check_simplex("class_prior", probs)
    return probs


def class_leaf(
    class_prior: Array | None, smoothing: Any, estimate: str, num_classes: int, dtype: Any
) -> AbstractEstimate:
    r"""A leaf over classes: given probabilities, counts, counts plus $\alpha$, or a Dirichlet posterior.

    Smoothing with $\alpha$ is the mode under $Dir(\alpha + 1)$.
    """
    if is_concrete(smoothing) and np.any(np.asarray(smoothing) < 0):
        raise ValueError(f"smoothing of classes must be zero or positive; got {smoothing!r}.")
    if class_prior is not None:
        return Frozen(ML(Categorical(class_prior.astype(dtype))))
    even = Categorical(jnp.full(num_classes, 1 / num_classes, dtype))
    if estimate == "bayes":
        prior = conjugate.DirichletCategorical(jnp.full(num_classes, 1.0, dtype) * (smoothing or 1.0))
        return Bayes(prior, prior)
    if smoothing:
        return MAP(even, conjugate.DirichletCategorical(jnp.full(num_classes, 1.0, dtype) + smoothing))
    return ML(even)


def counted(
    classifier: GenerativeClassifier, xs: Data, ys: Int[Array, "n"], weights: Float[Array, "n"], groups: Groups
) -> GenerativeClassifier:
    """The classifier learned from labelled events in one pass; unlabelled ones count for nothing here.

    Closed form where every leaf has one and nothing is missing; otherwise a start for `fit`. `groups` are the rows by
    class (`grouped(ys, num_classes)`).
    """
    stack, classes = classifier.class_conditionals, jnp.arange(classifier.num_classes, dtype=ys.dtype)
    counts = jnp.sum(jnp.where(ys[None, :] == classes[:, None], weights[None, :], 0), axis=1)
    return classifier.m_step((counts, statistics_by_class(stack, xs, ys, weights, groups)))
