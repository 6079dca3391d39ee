"""Classes that are models themselves: mixtures, hidden Markov models, kernel densities."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._estimate import Known, Nested
from .._stack import Stacked
from .._typing import PRNGKey
from .._validate import check_finite, check_rank, is_concrete
from ..density import KernelDensity
from ..mixtures.build import gaussian_mixture
from ..sequences.build import gaussian_hmm
from ..sequences.data import check_lengths
from .data import as_class_prior, as_labelled, as_table, check_every_class, class_leaf
from .generative import GenerativeClassifier


def _prior_leaf(class_prior: Any, smoothing: Any, ys: Array, weights: Array, num_classes: int):
    counts = jnp.sum((ys[None, :] == jnp.arange(num_classes)[:, None]) * weights[None, :], axis=1)
    return class_leaf(as_class_prior(class_prior, num_classes), smoothing, "ml", num_classes, weights.dtype).refit(
        counts
    )


def mixture_classifier(
    key: PRNGKey,
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    num_components: int = 2,
    covariance: str = "full",
    *,
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    weights: Any = None,
    **options: Any,
) -> GenerativeClassifier:
    """A Gaussian mixture for every class, started by k-means++ within it: `fit(model, (xs, ys), EM())` learns them.

    `options` are those of `pml.mixtures.gaussian_mixture` ("estimate", "prior", "floor", ...).

    >>> xs, ys = jr.normal(jr.key(0), (40, 2)), jnp.arange(40) % 2
    >>> mixture_classifier(jr.key(1), xs, ys, num_components=3).num_classes
    2
    """
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    xs = as_table(xs)
    check_every_class(ys, weights, num_classes, num_components)
    shares = (ys[None, :] == jnp.arange(num_classes)[:, None]) * weights[None, :]
    make = lambda key, share: gaussian_mixture(key, xs, num_components, covariance, weights=share, **options)
    mixtures = eqx.filter_vmap(make)(jr.split(key, num_classes), shares)
    return GenerativeClassifier(
        _prior_leaf(class_prior, class_smoothing, ys, weights, num_classes), Stacked(Nested(mixtures))
    )


def hmm_classifier(
    key: PRNGKey,
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    num_states: int = 2,
    covariance: str = "diagonal",
    *,
    lengths: Any = None,
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    **options: Any,
) -> GenerativeClassifier:
    """A Gaussian HMM for every class of sequences `xs (n, t, d)` with true `lengths (n,)`, started on its sequences.

    Data for `fit` and events for `predict` are what an HMM takes: `((xs, lengths), ys)` and `(x, length)`, or `xs` and
    `x` alone when all sequences are full. `options` are those of `pml.sequences.gaussian_hmm`.

    >>> xs, ys = jr.normal(jr.key(0), (6, 10, 1)), jnp.arange(6) % 2
    >>> hmm_classifier(jr.key(1), xs, ys).predict(xs[0]).shape
    ()
    """
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, None)
    check_rank("xs", xs, 3, "(n, t, d)")
    check_every_class(ys, weights, num_classes, 1)
    check_lengths(lengths, *xs.shape[:2])
    lengths = jnp.full(xs.shape[0], xs.shape[1]) if lengths is None else jnp.asarray(lengths)

    def make(key, label):
        mine = jnp.where(ys == label, lengths, 0)  # sequences of other classes have no steps
        return gaussian_hmm(key, (xs, mine), num_states, covariance, **options)

    hmms = eqx.filter_vmap(make)(jr.split(key, num_classes), jnp.arange(num_classes))
    return GenerativeClassifier(
        _prior_leaf(class_prior, class_smoothing, ys, weights, num_classes), Stacked(Nested(hmms))
    )


def kde_classifier(
    xs: Any,
    ys: Any,
    num_classes: int | None = None,
    *,
    bandwidth: Any = "scott",
    kernel: str = "gaussian",
    class_prior: Any = None,
    class_smoothing: Any = 0.0,
    weights: Any = None,
) -> GenerativeClassifier:
    """A kernel density for every class; nothing is left to learn.

    `bandwidth` and `kernel` are those of `pml.density.KernelDensity`; a rule is applied to every class by itself.
    Points are padded to one number per class, so very unequal classes cost as much as equal ones of the largest size.

    >>> xs, ys = jnp.array([[0.0], [1.0], [5.0], [6.0]]), jnp.array([0, 0, 1, 1])
    >>> kde_classifier(xs, ys).predict(jnp.array([5.2])).item()
    1
    """
    xs, ys, weights, num_classes = as_labelled(xs, ys, num_classes, weights)
    xs = as_table(xs)
    check_finite("xs", xs, nan=False)
    check_every_class(ys, weights, num_classes, 2)
    if not is_concrete(xs, ys):
        raise ValueError("kde_classifier sorts points by class: it cannot be built inside jit or vmap.")
    labels = np.asarray(ys)
    most = int(np.bincount(labels[labels >= 0], minlength=num_classes).max())
    rows = [np.flatnonzero(labels == c) for c in range(num_classes)]
    index = np.stack([np.resize(r, most) for r in rows])
    real = np.stack([np.arange(most) < len(r) for r in rows])
    make = lambda points, share: KernelDensity.from_data(points, bandwidth, kernel, share)
    densities = eqx.filter_vmap(make)(xs[index], jnp.where(real, weights[index], 0))
    leaf = _prior_leaf(class_prior, class_smoothing, ys, weights, num_classes)
    return GenerativeClassifier(leaf, Stacked(Known(densities)))
