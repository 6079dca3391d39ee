"""Cross-validation in one compiled call: a fold is left out by giving its units no weight."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int

from .._typing import Data, PRNGKey
from .._validate import as_data, as_weights, check, check_shape, check_units, float_dtype


def fold_indices(key: PRNGKey, num_units: int, num_folds: int, labels: Any = None) -> Int[Array, "n"]:
    """The fold 0..num_folds-1 of each unit, at random, folds as equal in size as can be.

    With `labels (n,)` the folds are stratified: each class is spread over all of them evenly. Leave-one-out is
    `jnp.arange(num_units)` with as many folds.

    >>> jnp.bincount(fold_indices(jr.key(0), 10, 3)).tolist()
    [4, 3, 3]
    """
    if not 2 <= num_folds <= num_units:
        raise ValueError(f"num_folds must be from 2 to the number of units, {num_units}; got {num_folds}.")
    turn = jr.permutation(key, num_units)
    if labels is not None:
        labels = jnp.asarray(labels)
        check_shape("labels", labels, (num_units,))
        turn = turn[jnp.argsort(labels[turn])]  # classes one after the other, each shuffled, dealt out like cards
    return jnp.zeros(num_units, jnp.int32).at[turn].set(jnp.arange(num_units, dtype=jnp.int32) % num_folds)


def holdout(key: PRNGKey, num_units: int, fraction: float = 0.25) -> Bool[Array, "n"]:
    """Which units to keep for evaluation: `fraction` of them, at random, at least one and not all.

    >>> int(holdout(jr.key(0), 10, 0.3).sum())
    3
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1; got {fraction}.")
    if num_units < 2:
        raise ValueError(f"num_units must be at least 2; got {num_units}.")
    kept = min(max(round(fraction * num_units), 1), num_units - 1)
    return jnp.zeros(num_units, bool).at[jr.permutation(key, num_units)[:kept]].set(True)


def cross_validate(
    fit: Callable[[Data, Array], Any],
    score: Callable[[Any, Data, Array], Any],
    data: Data,
    folds: Any,
    num_folds: int,
    *,
    weights: Any = None,
) -> Any:
    r"""`score(fit(data, w_train), data, w_test)` for every fold, all at once.

    - `fit(data, weights)`: any function that learns from weighted units, such as
      `lambda xs, w: pml.fit(start, xs, weights=w).model`; zero weight means not seen.
    - `score(model, data, weights)`: any function of weighted units; a tree of arrays.
    - `folds (n,)`: from `fold_indices`. `data`: arrays with a leading axis of n units.

    Shapes are those of all data in every fold, so one program, compiled once and vmapped, serves all of them, and every
    later call with the same functions. Returns
    the scores with a leading axis of folds. Folds outside of the range raise `ValueError`. Cost: `num_folds` fits of
    all n units.

    >>> xs = jnp.arange(6.0)
    >>> mean = lambda xs, w: w @ xs / w.sum()
    >>> error = lambda m, xs, w: w @ (xs - m) ** 2 / w.sum()
    >>> cross_validate(mean, error, xs, jnp.array([0, 0, 0, 1, 1, 1]), 2).round(2).tolist()
    [9.67..., 9.67...]
    """
    return _scores(fit, score, *_ready(data, folds, num_folds, weights), num_folds)


@eqx.filter_jit
def _scores(fit: Callable, score: Callable, data: Data, folds: Array, weights: Array, num_folds: int) -> Any:
    def one(fold):
        left_out = folds == fold
        model = fit(data, jnp.where(left_out, 0, weights))
        return score(model, data, jnp.where(left_out, weights, 0))

    return eqx.filter_vmap(one)(jnp.arange(num_folds))


def cross_val_predict(
    fit: Callable[[Data, Array], Any],
    predict: Callable[[Any, Data], Any],
    data: Data,
    folds: Any,
    num_folds: int,
    *,
    weights: Any = None,
) -> Any:
    """For each unit, the prediction of the model that has not seen its fold; arguments as in `cross_validate`.

    `predict(model, data)` answers for all units, with a leading axis of n. Memory: `num_folds` times its answer.

    >>> mean = lambda xs, w: w @ xs / w.sum()
    >>> same = lambda m, xs: jnp.full_like(xs, m)
    >>> cross_val_predict(mean, same, jnp.array([0.0, 0.0, 3.0, 3.0]), jnp.array([0, 0, 1, 1]), 2).tolist()
    [3.0, 3.0, 0.0, 0.0]
    """
    return _predictions(fit, predict, *_ready(data, folds, num_folds, weights), num_folds)


@eqx.filter_jit
def _predictions(fit: Callable, predict: Callable, data: Data, folds: Array, weights: Array, num_folds: int) -> Any:
    one = lambda fold: predict(fit(data, jnp.where(folds == fold, 0, weights)), data)
    found = eqx.filter_vmap(one)(jnp.arange(num_folds))
    return jax.tree_util.tree_map(lambda a: a[folds, jnp.arange(folds.size)], found)


def _ready(data: Data, folds: Any, num_folds: int, weights: Any) -> tuple[Data, Array, Array]:
    data = as_data(data)
    n = check_units(data)
    folds = jnp.asarray(folds)
    check_shape("folds", folds, (n,))
    check((folds >= 0) & (folds < num_folds), f"folds must lie in 0..{num_folds - 1}.")
    return data, folds, as_weights(weights, n, float_dtype(data))
