"""Do probabilities mean what they say? Curves, scores, and the one number that repairs most networks."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._special import logsumexp, safe_log
from .._typing import Scalar
from .._validate import as_float, as_weights, check_above, check_finite, check_rank
from ..inference.root import newton
from .outcomes import Predictions, as_labels, as_predictions, marked

_HOTTEST = 10.0  # temperatures are sought between the exponentials of minus and plus this


class CalibrationCurve(NamedTuple):
    """Per bin: mean predicted probability, observed frequency and weight; NaN where a bin is empty."""

    predicted: Float[Array, "bins"]
    observed: Float[Array, "bins"]
    mass: Float[Array, "bins"]


def calibration_curve(
    probs: Any, labels: Any, weights: Any = None, *, num_bins: int = 10, strategy: str = "uniform"
) -> CalibrationCurve:
    """The reliability diagram of `probs (n,)` of class 1 (or `(n, 2)`) with `labels (n,)` of 0 and 1; -1 is unknown.

    `strategy`: "uniform" bins of equal width, or "quantile" bins of equal numbers of units. A bin holds what lies above
    its left edge, up to its right edge. Probabilities outside of [0, 1] or labels outside of the range raise
    `ValueError`; NaN in compiled code. Reference: DeGroot and Fienberg (1983).

    >>> curve = calibration_curve(jnp.array([0.1, 0.2, 0.7, 0.9]), jnp.array([0, 0, 1, 1]), num_bins=2)
    >>> curve.observed.tolist(), curve.predicted.round(2).tolist()
    ([0.0, 1.0], [0.15..., 0.8...])
    """
    if strategy not in ("uniform", "quantile"):
        raise ValueError(f"strategy must be 'uniform' or 'quantile'; got {strategy!r}.")
    check_above("num_bins", num_bins, 0)
    given = as_predictions(probs, labels, weights)
    if given.probs.shape[1] != 2:
        raise ValueError(f"probs has {given.probs.shape[1]} classes; wanted two. For more: one class against the rest.")
    return _curve(given, num_bins, strategy)


@eqx.filter_jit
def _curve(given: Predictions, num_bins: int, strategy: str) -> CalibrationCurve:
    probs = given.probs[:, 1]
    edges = jnp.linspace(0, 1, num_bins + 1, dtype=probs.dtype)
    if strategy == "quantile":
        edges = jnp.nanquantile(jnp.where(given.weights > 0, probs, jnp.nan), edges)
    truth = (given.labels == 1).astype(probs.dtype)
    return marked(given.sound, _binned(probs, truth, given.weights, edges))


def _binned(probs: Array, truth: Array, weights: Array, edges: Array) -> CalibrationCurve:
    bins = jnp.searchsorted(edges[1:-1], probs)
    total = lambda w: jnp.bincount(bins, w, length=edges.size - 1)
    mass = total(weights)
    full = jnp.where(mass > 0, mass, jnp.nan)
    return CalibrationCurve(total(weights * probs) / full, total(weights * truth) / full, mass)


def expected_calibration_error(probs: Any, labels: Any, weights: Any = None, *, num_bins: int = 10) -> Scalar:
    r"""$\sum_b \frac{w_b}{w} |\mathrm{accuracy}_b - \mathrm{confidence}_b|$ over bins of the most probable class's
    probability.

    `probs (n, c)`, or `(n,)` of class 1. It depends on the bins: compare values of the same `num_bins` only. Reference:
    Guo and others (2017), equation 3.

    >>> probs = jnp.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.2, 0.8]])
    >>> round(float(expected_calibration_error(probs, jnp.array([0, 1, 1, 1]))), 3)
    0.3
    """
    check_above("num_bins", num_bins, 0)
    return _ece(as_predictions(probs, labels, weights), num_bins)


@eqx.filter_jit
def _ece(given: Predictions, num_bins: int) -> Scalar:
    confidence = jnp.max(given.probs, axis=1)
    right = (jnp.argmax(given.probs, axis=1) == given.labels).astype(confidence.dtype)
    edges = jnp.linspace(0, 1, num_bins + 1, dtype=confidence.dtype)
    found = _binned(confidence, right, given.weights, edges)
    gap = jnp.where(found.mass > 0, jnp.abs(found.observed - found.predicted), 0)
    return marked(given.sound, jnp.sum(found.mass * gap) / jnp.sum(found.mass))


def brier_score(probs: Any, labels: Any, weights: Any = None) -> Scalar:
    r"""Mean squared error of probabilities: $(p - y)^2$ for `probs (n,)`, $\sum_k (p_k - [y = k])^2$ for `(n, c)`.

    A proper score, differentiable. For two classes the second form is twice the first. Bad input as in
    `calibration_curve`. Reference: Brier (1950).

    >>> round(float(brier_score(jnp.array([0.1, 0.8]), jnp.array([0, 1]))), 4)
    0.025
    """
    return _brier(as_predictions(probs, labels, weights), jnp.ndim(probs) == 1)


@eqx.filter_jit
def _brier(given: Predictions, halved: bool) -> Scalar:
    truth = jax.nn.one_hot(given.labels, given.probs.shape[1], dtype=given.probs.dtype)
    squares = jnp.sum((given.probs - truth) ** 2, axis=1) * (0.5 if halved else 1.0)
    return marked(given.sound, jnp.sum(given.weights * squares) / jnp.sum(given.weights))


def log_loss(probs: Any, labels: Any, weights: Any = None) -> Scalar:
    r"""Mean of $-\log p(y_i)$, for `probs (n, c)` or `(n,)` of class 1; infinite where the truth had probability 0.

    >>> round(float(log_loss(jnp.array([0.1, 0.8]), jnp.array([0, 1]))), 4)
    0.1643
    """
    return _log_loss(as_predictions(probs, labels, weights))


@eqx.filter_jit
def _log_loss(given: Predictions) -> Scalar:
    chosen = jnp.take_along_axis(given.probs, given.labels[:, None], axis=1)[:, 0]
    paid = jnp.where(given.weights > 0, -safe_log(chosen), 0)
    return marked(given.sound, jnp.sum(given.weights * paid) / jnp.sum(given.weights))


def temperature_scaling(logits: Any, labels: Any, weights: Any = None) -> Scalar:
    r"""The temperature $T$ for which $\mathrm{softmax}(z / T)$ has the least log loss on held-out units.

    `logits (n, c)` (log-probabilities will do), `labels (n,)`. Use it as `softmax(logits / T)`: accuracy stays, only
    confidence changes. The loss is convex in $1/T$ and Newton's method finds its minimum in a few steps; gradients with
    respect to logits and weights go by the implicit function theorem. Where all labels are right
    there is no minimum, and a temperature comes back at which the loss has vanished to rounding; where all are wrong,
    $e^{10}$. Bad labels raise `ValueError`; NaN in compiled code. Reference: Guo and others (2017), section 4.2.

    >>> logits = jnp.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
    >>> round(float(temperature_scaling(logits, jnp.array([0, 0, 0, 1]))), 3)  # 4 / log 3: three of four are right
    3.641
    """
    logits = as_float(logits, "logits")
    check_rank("logits", logits, 2, "(n, c)")
    check_finite("logits", logits, nan=False)
    labels = as_labels(labels, *logits.shape)
    return _temperature(logits, labels, as_weights(weights, logits.shape[0], logits.dtype))


@jax.jit
def _temperature(logits: Array, labels: Array, weights: Array) -> Scalar:
    sound = jnp.all(labels >= -1) & ~jnp.any(jnp.isnan(logits))
    weights = jnp.where(labels >= 0, weights, 0)
    start = jnp.zeros((), logits.dtype)
    return marked(sound, jnp.exp(-newton(_cooler, start, (logits, jnp.maximum(labels, 0), weights))))


def _cooler(log_inverse: Array, given: tuple[Array, Array, Array]) -> Array:
    r"""One Newton step in $\log(1/T)$, of at most 1. The curvature has its own slope added: it is always positive, and
    the same at the minimum, where the slope vanishes."""
    logits, labels, weights = given
    scaled = jnp.exp(log_inverse) * logits
    probs = jnp.exp(scaled - logsumexp(scaled, axis=1)[:, None])
    mean = jnp.sum(probs * scaled, axis=1)
    chosen = jnp.take_along_axis(scaled, labels[:, None], axis=1)[:, 0]
    slope = jnp.sum(weights * (mean - chosen))
    curvature = jnp.sum(weights * jnp.sum(probs * (scaled - mean[:, None]) ** 2, axis=1)) + jnp.abs(slope)
    step = slope / jnp.where(curvature > 0, curvature, 1)
    return jnp.clip(log_inverse - jnp.clip(step, -1, 1), -_HOTTEST, _HOTTEST)
