"""The area under the ROC curve: the probability that a positive scores above a negative, a tie counting half."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from .._typing import Scalar
from .._validate import as_float, as_weights, check, check_finite, check_positive, check_rank, is_concrete
from ..inference.blocks import pooled
from .outcomes import Outcomes, as_labels, as_outcomes, marked
from .ranking import mass_below, ranking

_PAIRS = 1 << 20  # as many pairs at a time fit the caches


def auc(
    scores: Any, labels: Any, weights: Any = None, *, multi_class: str = "one_vs_rest", average: str | None = "macro"
) -> Array:
    r"""Area under the ROC curve, $P(s_+ > s_-) + \tfrac12 P(s_+ = s_-)$.

    - `scores (n,)` with `labels (n,)` of 0 and 1 (or bool): larger means more positive; -1 is an unknown label.
    - `scores (n, c)` with labels 0..c-1: "one_vs_rest" (each class against all others) or "one_vs_one" (each ordered
      pair of classes, on units of these two only; Hand and Till, 2001). `average`: "macro", "weighted" by the
      frequency of classes (of pairs), or `None` for the values of all classes `(c,)`, of all pairs `(c, c)`.

    It does not differentiate: see `soft_auc`. One class only, NaN scores or labels outside of the range raise
    `ValueError`; NaN in compiled code. Cost: one sort, per class or pair. Reference: Murphy (2022), section 5.1.3.2.

    >>> float(auc(jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1])))
    0.75
    """
    if jnp.ndim(scores) == 1:
        return _auc(as_outcomes(scores, labels, weights))
    if multi_class not in ("one_vs_rest", "one_vs_one"):
        raise ValueError(f"multi_class must be 'one_vs_rest' or 'one_vs_one'; got {multi_class!r}.")
    if average not in ("macro", "weighted", None):
        raise ValueError(f"average must be 'macro', 'weighted' or None; got {average!r}.")
    scores = as_float(scores, "scores")
    check_rank("scores", scores, 2, "(n,) or (n, c)")
    check_finite("scores", scores, nan=False)
    labels = as_labels(labels, *scores.shape)
    weights = as_weights(weights, scores.shape[0], scores.dtype)
    if is_concrete(labels, weights):
        counted = set(np.unique(np.asarray(labels)[np.asarray(weights) > 0]).tolist())
        for label in range(scores.shape[1]):
            check(label in counted, f"no unit (of positive weight) has label {label}: its AUC is not defined.")
    values, shares = (_one_vs_rest if multi_class == "one_vs_rest" else _one_vs_one)(scores, labels, weights)
    if average is None:
        return values
    defined = jnp.ones(values.shape, bool) if values.ndim == 1 else ~jnp.eye(values.shape[0], dtype=bool)
    shares = jnp.where(defined, shares if average == "weighted" else 1, 0)
    return jnp.sum(jnp.where(defined, shares * values, 0)) / jnp.sum(shares)


@jax.jit
def _auc(given: Outcomes) -> Scalar:
    return marked(given.sound, _area(given))


def _area(given: Outcomes) -> Scalar:
    dtype = given.scores.dtype
    negatives, positives = given.mass(given.negative), given.mass(given.positive)
    below, upto = mass_below(ranking(given.scores), negatives)
    # shares before sums: counts of pairs would overflow
    share = (below.astype(dtype) + upto.astype(dtype)) / (2 * jnp.sum(negatives)).astype(dtype)
    return jnp.sum(jnp.where(given.positive, positives * share, 0)) / jnp.sum(positives).astype(dtype)


@jax.jit
def _one_vs_rest(scores: Array, labels: Array, weights: Array) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
    def one(column, label):
        positive, known = labels == label, (labels >= 0) & (weights > 0)
        return _weighted(column, positive & known, ~positive & known, weights)

    classes = jnp.arange(scores.shape[1])
    shares = jax.vmap(lambda label: jnp.sum(jnp.where(labels == label, weights, 0)))(classes)
    return marked(jnp.all(labels >= -1), jax.vmap(one)(scores.T, classes)), shares


@jax.jit
def _one_vs_one(scores: Array, labels: Array, weights: Array) -> tuple[Float[Array, "c c"], Float[Array, "c c"]]:
    def one(column, label, other):
        counts = weights > 0
        return _weighted(column, counts & (labels == label), counts & (labels == other), weights)

    classes = jnp.arange(scores.shape[1])
    each = jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None))
    shares = jax.vmap(lambda label: jnp.sum(jnp.where(labels == label, weights, 0)))(classes)
    return marked(jnp.all(labels >= -1), each(scores.T, classes, classes)), shares[:, None] + shares[None, :]


def _weighted(column: Array, positive: Array, negative: Array, weights: Array) -> Scalar:
    return _area(Outcomes(column, positive, negative, weights, jnp.array(True)))


# ---------------------------------------------------------------------------------------------- uncertainty


class AucInterval(NamedTuple):
    """An AUC with its standard error and confidence limits."""

    auc: Scalar
    standard_error: Scalar
    low: Scalar
    high: Scalar


def auc_interval(scores: Any, labels: Any, weights: Any = None, *, level: float | int = 0.95) -> AucInterval:
    r"""AUC with DeLong's standard error and the normal interval that goes with it, within [0, 1].

    $\mathrm{Var} = S_+/m + S_-/n$ with the sample variances, over the m positives and the n negatives, of the share of
    the other class that each is ranked right against. Whole `weights` are repetitions. Fewer than two units of a class
    have no variance: NaN. Cost: two sorts. Reference: DeLong, DeLong and Clarke-Pearson (1988); Sun and Xu (2014).

    >>> found = auc_interval(jnp.array([0.1, 0.4, 0.35, 0.8, 0.9]), jnp.array([0, 0, 1, 1, 1]))
    >>> round(float(found.auc), 3), round(float(found.standard_error), 3)
    (0.833, 0.236)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1; got {level}.")
    return _interval(as_outcomes(scores, labels, weights), level)


@jax.jit
def _interval(given: Outcomes, level: Array) -> AucInterval:
    dtype, found = given.scores.dtype, ranking(given.scores)

    def share_below(mass):
        below, upto = mass_below(found, mass)
        return (below.astype(dtype) + upto.astype(dtype)) / (2 * jnp.sum(mass)).astype(dtype)

    def moments(mass, values):
        mass = mass.astype(dtype)
        count = jnp.sum(mass)
        mean = jnp.sum(mass * values) / count
        spread = jnp.sum(mass * (values - mean) ** 2) / jnp.where(count > 1, count - 1, jnp.nan)
        return mean, spread / count

    negatives, positives = given.mass(given.negative), given.mass(given.positive)
    value, of_positives = moments(positives, share_below(negatives))
    _, of_negatives = moments(negatives, 1 - share_below(positives))
    error = jnp.sqrt(of_positives + of_negatives)
    reach = ndtri(0.5 + 0.5 * jnp.asarray(level, dtype)) * error
    limits = AucInterval(value, error, jnp.clip(value - reach, 0, 1), jnp.clip(value + reach, 0, 1))
    return marked(given.sound, limits)


# ---------------------------------------------------------------------------------------------- for gradients


def soft_auc(scores: Any, labels: Any, weights: Any = None, *, temperature: Any = 1.0) -> Scalar:
    r"""A differentiable AUC: $\sum_{ij} w_i w_j\, \sigma((s_i - s_j)/\tau) / \sum_{ij} w_i w_j$.

    The sums are over positives i and negatives j. It tends to `auc` as the temperature $\tau$ falls to 0. Arguments as
    in `roc_curve`. Cost: all pairs, in blocks of bounded memory, forward and backward. Reference: Yan and others
    (2003).

    >>> scores, labels = jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1])
    >>> round(float(soft_auc(scores, labels, temperature=1e-3)), 4)
    0.75
    """
    temperature = as_float(temperature, "temperature")
    check_positive("temperature", temperature)
    return _soft(as_outcomes(scores, labels, weights), temperature)


@jax.jit
def _soft(given: Outcomes, temperature: Array) -> Scalar:
    scores = given.scores / temperature.astype(given.scores.dtype)
    scores = jnp.where(given.positive | given.negative, scores, 0)
    positives, negatives = (given.mass(w).astype(scores.dtype) for w in (given.positive, given.negative))
    right = lambda s, w: w @ (jax.nn.sigmoid(s[:, None] - scores[None, :]) @ negatives)
    total = pooled(right, scores, positives, max(1, _PAIRS // scores.size))
    return marked(given.sound, total / (jnp.sum(positives) * jnp.sum(negatives)))
