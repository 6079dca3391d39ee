"""Curves that judge scores and probabilities: ROC, precision and recall, DET, reliability."""

from typing import Any

import jax.numpy as jnp  # noqa: F401  (the examples)
import numpy as np

from .. import decision
from .canvas import FAINT, INK, axes, labelled, several

_MARKS = "osD^v"


def roc(
    scores: Any, labels: Any, ax: Any = None, *, weights: Any = None, cost: Any = None, interval: bool = False
) -> Any:
    """Hits against false alarms over all thresholds, with the area under the curve in the legend.

    `scores (n,)`, or a dictionary of them for several curves of the same `labels (n,)`. `cost (2, 2)`, C[action,
    truth], or a dictionary of named ones, marks where each curve has its least risk. `interval` adds DeLong's.

    >>> scores = {"good": jnp.array([0.1, 0.4, 0.6, 0.8]), "bad": jnp.array([0.5, 0.1, 0.4, 0.3])}
    >>> ax = roc(scores, jnp.array([0, 0, 1, 1]))
    >>> [text.get_text() for text in ax.get_legend().get_texts()][-2:]
    ['good: 1.000', 'bad: 0.500']
    """
    ax = axes(ax)
    ax.plot([0, 1], [0, 1], ":", color=FAINT, lw=1)
    chosen = {} if cost is None else several(cost)
    for name, values in several(scores).items():
        curve, area = decision.roc_curve(values, labels, weights), f"{float(decision.auc(values, labels, weights)):.3f}"
        if interval:
            found = decision.auc_interval(values, labels, weights)
            area += f" ({float(found.low):.3f} to {float(found.high):.3f})"
        (line,) = ax.plot(curve.fpr, curve.tpr, lw=1.8, label=labelled(name, area))
        for mark, matrix in zip(_MARKS, chosen.values(), strict=False):
            point = decision.operating_point(curve, matrix)
            ax.plot(point.fpr, point.tpr, mark, color=line.get_color(), mec="k", ms=7)
    for mark, name in zip(_MARKS, chosen, strict=False):
        ax.plot([], [], mark, color="w", mec="k", label=name or "least risk")
    ax.set(xlabel="false alarms", ylabel="hits", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.legend(loc="lower right")
    return ax


def precision_recall(scores: Any, labels: Any, ax: Any = None, *, weights: Any = None) -> Any:
    """Precision against recall over all thresholds, with the average precision in the legend; arguments as in `roc`.

    >>> precision_recall(jnp.array([0.1, 0.4, 0.6, 0.8]), jnp.array([0, 0, 1, 1])).get_ylabel()
    'precision'
    """
    ax = axes(ax)
    for name, values in several(scores).items():
        curve = decision.precision_recall_curve(values, labels, weights)
        area = float(decision.average_precision(values, labels, weights))
        ax.plot(curve.recall, curve.precision, lw=1.8, label=labelled(name, f"{area:.3f}"))
    ax.set(xlabel="recall", ylabel="precision", xlim=(-0.02, 1.02), ylim=(-0.02, 1.04))
    ax.legend(loc="lower left")
    return ax


def _deviate(p: Any) -> np.ndarray:
    from scipy.special import ndtri  # JAX itself needs SciPy

    return ndtri(np.asarray(p, np.float64))


def det(scores: Any, labels: Any, ax: Any = None, *, weights: Any = None) -> Any:
    """Misses against false alarms on normal deviates, where Gaussian scores give lines; arguments as in `roc`.

    >>> det(jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([0, 0, 1, 1])).get_ylabel()
    'misses, %'
    """
    ax = axes(ax)
    curves = {name: decision.det_curve(values, labels, weights) for name, values in several(scores).items()}
    least = max(0.5 / np.size(labels), 1e-4)  # rates of 0 and 1 lie at infinity, and are drawn here
    for name, curve in curves.items():
        inside = [_deviate(np.clip(rate, least, 1 - least)) for rate in (curve.fpr, curve.fnr)]
        ax.plot(*inside, lw=1.8, label=name or None)
    shown = np.array([0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999])
    shown = shown[(shown >= least) & (shown <= 1 - least)]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(_deviate(shown), [f"{100 * p:g}" for p in shown])
    ax.grid(alpha=0.3)
    ax.set(xlabel="false alarms, %", ylabel="misses, %")
    if any(curves):
        ax.legend()
    return ax


def calibration(
    probs: Any,
    labels: Any,
    ax: Any = None,
    *,
    weights: Any = None,
    num_bins: int = 10,
    strategy: str = "uniform",
) -> Any:
    """The reliability diagram: how often class 1 came true against its probability, with the number of units per bin.

    `probs (n,)` of class 1, or a dictionary of them for several curves; `labels (n,)` of 0 and 1, or a dictionary with
    the same names. The legend has the mean distance from the diagonal; below are the numbers of units.

    >>> calibration(jnp.array([0.1, 0.2, 0.7, 0.9]), jnp.array([0, 0, 1, 1]), num_bins=2).get_ylabel()
    'came true'
    """
    ax, given = axes(ax), several(probs)
    ax.plot([0, 1], [0, 1], ":", color=FAINT, lw=1)
    masses, width, tones = {}, 0.8 / num_bins / len(given), []
    for name, values in given.items():
        truth = labels[name] if isinstance(labels, dict) else labels
        curve = decision.calibration_curve(values, truth, weights, num_bins=num_bins, strategy=strategy)
        predicted, observed, mass = (np.asarray(part) for part in curve)
        gap = np.nansum(mass * np.abs(observed - predicted)) / mass.sum()
        full = mass > 0
        (line,) = ax.plot(
            predicted[full], observed[full], "o-", ms=5, lw=1.8, label=labelled(name, f"off by {gap:.3f}")
        )
        masses[name], tones = (predicted, mass), [*tones, line.get_color()]
    most = max(mass.max() for _, mass in masses.values())
    for i, ((predicted, mass), tone) in enumerate(zip(masses.values(), tones, strict=True)):
        full = mass > 0
        # bars stand under their points if there is one curve, next to each other in the bins' middles otherwise
        middle = (np.arange(num_bins) + 0.5) / num_bins + width * (i - (len(masses) - 1) / 2)
        place = predicted if len(masses) == 1 else middle
        ax.bar(place[full], 0.16 * mass[full] / most, width, bottom=-0.24, color=tone, alpha=0.5, lw=0)
        if len(masses) == 1:
            for x, m in zip(place[full], mass[full], strict=True):
                ax.text(x, -0.235 + 0.16 * m / most, f"{m:g}", ha="center", va="bottom", fontsize=7, color=INK)
    ax.axhline(-0.04, color=FAINT, lw=0.5)
    ax.text(0.0, -0.055, "units per bin", fontsize=7, color=INK, va="top")
    ax.set(xlabel="probability", ylabel="came true", xlim=(-0.04, 1.04), ylim=(-0.24, 1.04))
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.16))  # good curves leave that corner free
    return ax
