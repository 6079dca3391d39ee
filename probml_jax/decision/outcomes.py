"""Scores, probabilities, labels and weights made ready: checked on the host, or marked as unsound in compiled code.

Eagerly, bad values raise `ValueError`. Tracers cannot be read, so every function also computes whether its input is
sound, and answers NaN (or the action -1) where it is not.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._typing import Flag
from .._validate import (
    as_float,
    as_weights,
    check,
    check_finite,
    check_labels,
    check_probabilities,
    check_rank,
    check_shape,
    check_simplex,
    is_concrete,
)


class Outcomes(NamedTuple):
    """Scores of a binary classifier with what turned out to be true. `weights` is `None` where all count once.

    Units of unknown label (-1) or without weight are neither `positive` nor `negative`.
    """

    scores: Float[Array, "n"]
    positive: Bool[Array, "n"]
    negative: Bool[Array, "n"]
    weights: Float[Array, "n"] | None
    sound: Flag

    def mass(self, which: Bool[Array, "n"]) -> Array:
        """Weight of each of these units, 0 of all others; whole numbers where there are no weights."""
        return which.astype(jnp.int32) if self.weights is None else jnp.where(which, self.weights, 0)


def as_outcomes(scores: Any, labels: Any, weights: Any = None) -> Outcomes:
    """Checked scores `(n,)`, labels `(n,)` of 0, 1 (or bool; -1 is unknown) and weights `(n,)`.

    One class only, a NaN score, a label outside of the range or negative weights raise `ValueError`.
    """
    scores = as_float(scores, "scores")
    check_rank("scores", scores, 1, "(n,): one score per unit")
    labels = as_labels(labels, scores.shape[0], 2)
    weights = None if weights is None else as_weights(weights, scores.shape[0], scores.dtype)
    counts = jnp.ones(labels.shape, bool) if weights is None else weights > 0
    positive, negative = counts & (labels == 1), counts & (labels == 0)
    if is_concrete(scores, labels, weights):
        check(~np.isnan(np.asarray(scores)), "scores has NaN entries; wanted a score for every unit.")
        there = {1: np.asarray(positive).any(), 0: np.asarray(negative).any()}
        for label, some in there.items():
            check(some, f"labels has one class only: no unit (of positive weight) has label {label}.")
    seen = positive | negative
    sound = _in_range(labels, 2) & ~jnp.any(jnp.isnan(scores) & seen) & jnp.any(positive) & jnp.any(negative)
    return Outcomes(scores, positive, negative, weights, sound & _sound_weights(weights))


class Predictions(NamedTuple):
    """Probabilities of classes with what turned out to be true; `weights` is 0 where the label is unknown (-1)."""

    probs: Float[Array, "n c"]
    labels: Int[Array, "n"]
    weights: Float[Array, "n"]
    sound: Flag


def as_predictions(probs: Any, labels: Any, weights: Any = None) -> Predictions:
    """Checked probabilities `(n, c)`, or `(n,)` of the second of two classes, with labels `(n,)`."""
    probs = as_float(probs, "probs")
    if probs.ndim == 1:
        check_probabilities("probs", probs)
        probs = jnp.stack([1 - probs, probs], axis=1)
    check_rank("probs", probs, 2, "(n, c), or (n,) for two classes")
    probs = as_rows(probs)
    n, c = probs.shape
    labels = as_labels(labels, n, c)
    weights = as_weights(weights, n, probs.dtype)
    counts = jnp.where(labels >= 0, weights, 0)
    if is_concrete(counts):
        check(np.asarray(counts).any(), "no unit has both a known label and a positive weight.")
    sound = _in_range(labels, c) & jnp.all(on_simplex(probs)) & _sound_weights(weights)
    return Predictions(probs, jnp.clip(labels, 0, c - 1), counts, sound)


def as_rows(probs: Any) -> Float[Array, "*n c"]:
    """Checked class probabilities over the last axis, of one event or of many."""
    probs = as_float(jnp.asarray(probs) if isinstance(probs, (list, tuple)) else probs, "probs")
    if probs.ndim == 0:
        raise ValueError("probs is a number; wanted probabilities of all classes, (..., c).")
    check_finite("probs", probs, nan=False)
    check_simplex("probs", probs)
    return probs


def on_simplex(probs: Float[Array, "*n c"]) -> Bool[Array, "*n"]:
    """Whether rows are probabilities, to the tolerance of the eager checks."""
    tolerance = 1e-6 if jnp.finfo(probs.dtype).bits >= 64 else 1e-3
    proper = jnp.all((probs >= 0) & (probs <= 1), axis=-1)
    return proper & (jnp.abs(jnp.sum(probs, axis=-1) - 1) <= tolerance)


def as_labels(labels: Any, num_units: int, num_classes: int) -> Int[Array, "n"]:
    """Labels 0..c-1 (-1 unknown) as int32; those outside of the range raise, and are -2 in compiled code."""
    labels = jnp.asarray(labels)
    check_shape("labels", labels, (num_units,))
    labels = labels.astype(jnp.int32) if labels.dtype == bool else labels
    check_labels("labels", labels, num_classes)
    good = (labels >= -1) & (labels < num_classes) & (labels == jnp.floor(labels))
    return jnp.where(good, labels, -2).astype(jnp.int32)


def as_cost(cost: Any, num_classes: int, dtype: Any = None) -> Float[Array, "a c"]:
    """A finite cost matrix C[action, truth] with one column per class; `None` is the 0-1 loss."""
    if cost is None:
        return 1 - jnp.eye(num_classes, dtype=dtype)
    cost = as_float(jnp.asarray(cost) if isinstance(cost, (list, tuple)) else cost, "cost")
    check_rank("cost", cost, 2, f"(actions, {num_classes}): C[action, truth]")
    if cost.shape[1] != num_classes:
        raise ValueError(f"cost has shape {tuple(cost.shape)}; wanted (actions, {num_classes}): C[action, truth].")
    check_finite("cost", cost, nan=False)
    return cost if dtype is None else cost.astype(dtype)


def marked(sound: Array, tree: Any) -> Any:
    """The tree where the input was sound; NaN in every floating array where it was not."""
    spoil = lambda a: jnp.where(sound, a, jnp.nan) if jnp.issubdtype(a.dtype, jnp.floating) else a
    return jax.tree_util.tree_map(spoil, tree)


def _in_range(labels: Array, num_classes: int) -> Flag:
    return jnp.all((labels >= -1) & (labels < num_classes))


def _sound_weights(weights: Array | None) -> Flag:
    return jnp.array(True) if weights is None else jnp.all((weights >= 0) & (weights < jnp.inf))
