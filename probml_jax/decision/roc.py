"""Curves of a binary classifier over all thresholds: ROC, DET, precision and recall; and the best point of one.

Curves have one point per unit and one more, whatever the number of different scores, so that they compile: units
of equal score share the point where all of them are in. `distinct` marks one point of each.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._typing import Scalar
from .._validate import check, check_shape
from .outcomes import Outcomes, as_cost, as_outcomes, marked
from .ranking import ranking


class RocCurve(NamedTuple):
    """Rates of false and true alarms when everything that scores at least `thresholds` is called positive."""

    fpr: Float[Array, "points"]
    tpr: Float[Array, "points"]
    thresholds: Float[Array, "points"]
    distinct: Bool[Array, "points"]
    prevalence: Scalar


class DetCurve(NamedTuple):
    """Detection error tradeoff: rates of false alarms and of misses at each threshold."""

    fpr: Float[Array, "points"]
    fnr: Float[Array, "points"]
    thresholds: Float[Array, "points"]
    distinct: Bool[Array, "points"]


class PrecisionRecallCurve(NamedTuple):
    """Precision and recall at each threshold; the first point is (1, 0) by convention, where nothing is positive."""

    precision: Float[Array, "points"]
    recall: Float[Array, "points"]
    thresholds: Float[Array, "points"]
    distinct: Bool[Array, "points"]


class OperatingPoint(NamedTuple):
    """The threshold of least risk, the rates it has and the risk itself."""

    threshold: Scalar
    fpr: Scalar
    tpr: Scalar
    risk: Scalar


class Rates(NamedTuple):
    """Rates of false and true alarms."""

    fpr: Scalar
    tpr: Scalar


class _Cumulated(NamedTuple):
    """Mass of negatives and positives at or above each threshold, thresholds falling from infinity."""

    below: Array
    false: Array
    true: Array
    thresholds: Array
    distinct: Array


def _cumulate(given: Outcomes) -> _Cumulated:
    seen = given.positive | given.negative
    # what does not count joins the lowest score, with no mass
    lowest = jnp.min(jnp.where(seen, given.scores, jnp.inf))
    found = ranking(jnp.where(seen, given.scores, lowest), descending=True)
    last = jnp.append(found.ordered[1:] != found.ordered[:-1], True)
    start = lambda a, first: jnp.concatenate([jnp.asarray([first], a.dtype), a])
    heap = lambda which: start(found.heaped(given.mass(which)), 0).astype(given.scores.dtype)
    false, true = heap(given.negative), heap(given.positive)
    return _Cumulated(false + true, false, true, start(found.ordered, jnp.inf), start(last, True))


def roc_curve(scores: Any, labels: Any, weights: Any = None) -> RocCurve:
    r"""The receiver operating characteristic: $(P(s \ge t \mid y=0), P(s \ge t \mid y=1))$ for all thresholds t.

    - `scores (n,)`: larger means more positive; `labels (n,)`: 0, 1 (or bool), -1 unknown; `weights (n,)`.

    Points run from (0, 0) at an infinite threshold to (1, 1). Equal scores give one and the same point, repeated, as
    often as there are units (`distinct` marks one of each), so shapes are fixed under `jit`. Many classifiers are a
    `vmap`. One class only, NaN scores or labels outside of the range raise `ValueError`; NaN in compiled code.
    Cost: one sort. Reference: Fawcett (2006); Murphy (2022), section 5.1.3.

    >>> curve = roc_curve(jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1]))
    >>> curve.fpr.tolist(), curve.tpr.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    return _roc(as_outcomes(scores, labels, weights))


@jax.jit
def _roc(given: Outcomes) -> RocCurve:
    found = _cumulate(given)
    rates = found.false / found.false[-1], found.true / found.true[-1]
    return marked(given.sound, RocCurve(*rates, found.thresholds, found.distinct, found.true[-1] / found.below[-1]))


def det_curve(scores: Any, labels: Any, weights: Any = None) -> DetCurve:
    """The detection error tradeoff: false alarms against misses (`1 - tpr`); arguments as in `roc_curve`.

    Usually drawn on normal deviates of both rates, where Gaussian scores give straight lines. Reference: Martin and
    others (1997).

    >>> det_curve(jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1])).fnr.tolist()
    [1.0, 0.5, 0.5, 0.0, 0.0]
    """
    return _det(as_outcomes(scores, labels, weights))


@jax.jit
def _det(given: Outcomes) -> DetCurve:
    found = _cumulate(given)
    misses = (found.true[-1] - found.true) / found.true[-1]
    return marked(given.sound, DetCurve(found.false / found.false[-1], misses, found.thresholds, found.distinct))


def precision_recall_curve(scores: Any, labels: Any, weights: Any = None) -> PrecisionRecallCurve:
    r"""Precision $P(y=1 \mid s \ge t)$ and recall $P(s \ge t \mid y=1)$; arguments as in `roc_curve`.

    >>> precision_recall_curve(jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1])).precision.round(2).tolist()
    [1.0, 1.0, 0.5, 0.67..., 0.5]
    """
    return _precision_recall(as_outcomes(scores, labels, weights))


@jax.jit
def _precision_recall(given: Outcomes) -> PrecisionRecallCurve:
    found = _cumulate(given)
    precision = jnp.where(found.below > 0, found.true / jnp.where(found.below > 0, found.below, 1), 1)
    recall = found.true / found.true[-1]
    return marked(given.sound, PrecisionRecallCurve(precision, recall, found.thresholds, found.distinct))


def average_precision(scores: Any, labels: Any, weights: Any = None) -> Scalar:
    r"""Area under precision and recall as steps, $\sum_j (R_j - R_{j-1}) P_j$; arguments as in `roc_curve`.

    >>> round(float(average_precision(jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1]))), 4)
    0.8333
    """
    curve = precision_recall_curve(scores, labels, weights)
    return jnp.sum(jnp.diff(curve.recall) * curve.precision[1:])


def rates_at(threshold: Any, scores: Any, labels: Any, weights: Any = None) -> Rates:
    """Rates of false and true alarms when scores of at least `threshold` are called positive; as in `roc_curve`.

    >>> rates = rates_at(0.35, jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1]))
    >>> float(rates.fpr), float(rates.tpr)
    (0.5, 1.0)
    """
    given = as_outcomes(scores, labels, weights)
    threshold = jnp.asarray(threshold, given.scores.dtype)
    check_shape("threshold", threshold, ())
    return _rates_at(threshold, given)


@jax.jit
def _rates_at(threshold: Array, given: Outcomes) -> Rates:
    called = given.scores >= threshold
    share = lambda mass: jnp.sum(jnp.where(called, mass, 0)) / jnp.sum(mass)
    rates = Rates(share(given.mass(given.negative)), share(given.mass(given.positive)))
    return marked(given.sound, jax.tree_util.tree_map(lambda r: r.astype(given.scores.dtype), rates))


def operating_point(curve: RocCurve, cost: Any, prior: Any = None) -> OperatingPoint:
    r"""The point of an ROC curve of least risk
    $\pi_1(C_{01}\,\mathrm{fnr} + C_{11}\,\mathrm{tpr}) + \pi_0(C_{10}\,\mathrm{fpr} + C_{00}\,\mathrm{tnr})$.

    Lines of equal risk have slope $\pi_0(C_{10} - C_{00}) / \pi_1(C_{01} - C_{11})$, and the point is where one touches
    the curve. `cost (2, 2)` is C[action, truth]; `prior` is $\pi_1$, that of the curve's data by default.

    >>> curve = roc_curve(jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1]))
    >>> round(float(operating_point(curve, [[0.0, 5.0], [1.0, 0.0]]).threshold), 2)
    0.35
    """
    cost = as_cost(cost, 2, curve.fpr.dtype)
    check_shape("cost", cost, (2, 2))
    prior = jnp.asarray(curve.prevalence if prior is None else prior, curve.fpr.dtype)
    check((prior >= 0) & (prior <= 1), "prior must lie in [0, 1]: the probability of class 1.")
    return _operating_point(curve, cost, prior)


@eqx.filter_jit
def _operating_point(curve: RocCurve, cost: Array, prior: Array) -> OperatingPoint:
    of_positives = cost[0, 1] * (1 - curve.tpr) + cost[1, 1] * curve.tpr
    of_negatives = cost[1, 0] * curve.fpr + cost[0, 0] * (1 - curve.fpr)
    risk = prior * of_positives + (1 - prior) * of_negatives
    best = jnp.argmin(risk)
    return OperatingPoint(curve.thresholds[best], curve.fpr[best], curve.tpr[best], risk[best])
