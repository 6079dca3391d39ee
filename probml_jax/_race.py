"""Many starts, one winner: all run on a part of the data, and the best of them go on with all of it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._batches import Batches
from ._buckets import Buckets
from ._fit import default_rtol, fit
from ._method import AbstractMethod
from ._model import AbstractModel, objective
from ._outcome import Fit, Status, best_of
from ._placed import Placed
from ._typing import Data
from ._validate import as_data, as_weights, check_units, float_dtype

# fewer units than this say too little of where the data's own optima lie
_LEAST_UNITS = 100


def race(
    starts: Any,
    data: Data,
    method: AbstractMethod | None = None,
    *,
    fraction: float = 0.25,
    survivors: int = 2,
    at_once: int = 1,
    weights: Any = None,
    max_steps: int = 100,
    rtol: float | None = None,
) -> Fit:
    r"""The best of several starts, most of which see a part of the data only.

    Every start is fitted to a `fraction` of the units, evenly spread over the data (one hundred at least; with fewer
    units every start sees all). What came out is scored on all units, and the best `survivors` that differ in score
    are fitted to all of them; what came to the same place counts as one. Where a step costs $n^3$, as for Gaussian
    processes, a quarter of the data is a sixty-fourth of the work, so that eight starts cost little more than one or
    two fits. A start whose optimum shows on all data only may lose: `fraction=1` runs all of them to their end.

    - `starts`: models of one kind with a leading axis, such as `jax.vmap(lambda k: perturbed(k, model))(keys)` or a
      vmapped builder.
    - `at_once`: how many run side by side (by `vmap`). One after the other is best where a single fit fills the
      machine; small models, and accelerators, want all.
    - `weights`, `max_steps`, `rtol`: those of `fit`; the limit of steps holds on the part and again on all data.

    Returns the `Fit` of the winner on all data; a failed fit never wins. Works under `jit` and `vmap`.

    >>> import jax.random as jr, probml_jax as pml
    >>> xs = jnp.concatenate([jr.normal(jr.key(0), (200, 1)) + c for c in (-9.0, 1.0, 9.0)])
    >>> start = lambda key: pml.mixtures.gaussian_mixture(key, xs, num_components=3, init="random")
    >>> best = pml.race(jax.vmap(start)(jr.split(jr.key(1), 8)), xs, at_once=8)
    >>> jnp.sort(best.model.components.each.distribution.loc[:, 0]).round().tolist()
    [-9.0, 1.0, 9.0]
    """
    if not isinstance(starts, AbstractModel):
        raise TypeError(f"starts must be a batch of models, made by vmap; got {type(starts).__name__}.")
    if isinstance(data, (Batches, Buckets, Placed)):
        kind = type(data).__name__
        raise TypeError(f"race cuts its part out of arrays; got {kind}: vmap fit over the starts instead.")
    count = _count(starts)
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must lie in (0, 1]; got {fraction}.")
    if not 1 <= survivors <= count:
        raise ValueError(f"survivors must be 1 to {count}, the number of starts; got {survivors}.")
    if at_once < 1:
        raise ValueError(f"at_once must be at least 1; got {at_once}.")
    data = as_data(data)
    weights = as_weights(weights, check_units(data), float_dtype(starts))
    _member(starts, 0).validate(data)
    return _race(starts, data, weights, method, fraction, survivors, at_once, max_steps, rtol)


@eqx.filter_jit
def _race(
    starts: AbstractModel,
    data: Data,
    weights: Float[Array, "n"],
    method: AbstractMethod | None,
    fraction: float,
    survivors: int,
    at_once: int,
    max_steps: int,
    rtol: float | None,
) -> Fit:
    total = weights.shape[0]
    part = min(total, max(_LEAST_UNITS, round(fraction * total)))
    rtol = default_rtol(weights.dtype) if rtol is None else rtol

    def learned(models: AbstractModel, rtols: Float[Array, "k"], data: Data, weights: Array) -> Fit:
        one = lambda given: fit(given[0], data, method, weights=weights, max_steps=max_steps, rtol=given[1])
        return _mapped(one, (models, rtols), at_once)

    every = jnp.full(_count(starts), rtol, weights.dtype)
    if part == total:
        return best_of(learned(starts, every, data, weights))
    counts = weights > 0  # padding is no part of the data
    rows = jnp.argsort(~counts, stable=True)[jnp.arange(part) * jnp.sum(counts) // part]
    take = lambda a: a[rows]
    found = learned(starts, every, jax.tree_util.tree_map(take, data), take(weights)).model
    scores = _mapped(lambda model: objective(model, data, weights), found, at_once)
    order, repeats = (a[:survivors] for a in _leaders(scores))
    # what came to where a better one is may rest as soon as its method can, and is no candidate
    fits = learned(_member(found, order), jnp.where(repeats, jnp.inf, every[:survivors]), data, weights)
    return best_of(eqx.tree_at(lambda f: f.status, fits, jnp.where(repeats, Status.nonfinite, fits.status)))


def _leaders(scores: Float[Array, "k"]) -> tuple[Int[Array, "k"], Bool[Array, "k"]]:
    """Starts by score, best first, and which of them came to where a better one is; these stand behind all others."""
    scores = jnp.where(jnp.isnan(scores), -jnp.inf, scores)
    order = jnp.argsort(-scores)
    ranked = scores[order]
    drop = jnp.where(jnp.isfinite(ranked[1:]), ranked[:-1] - ranked[1:], jnp.inf)
    # where the score of a part's optimum ends is as exact as the search for it was
    same = jnp.append(False, drop <= 1e-4 * jnp.maximum(jnp.abs(ranked[:-1]), 1))
    last = jnp.argsort(same, stable=True)
    return order[last], same[last]


def _count(starts: AbstractModel) -> int:
    """How many there are; `ValueError` if it is not a batch of models."""
    sizes = {a.shape[:1] for a in jax.tree_util.tree_leaves(starts) if eqx.is_array(a)}
    if len(sizes) != 1 or sizes == {()}:
        raise ValueError("starts must be a batch: models with a leading axis on every array, made by vmap.")
    return sizes.pop()[0]


def _member(models: PyTree, index: Any) -> Any:
    return jax.tree_util.tree_map(lambda a: a[index] if eqx.is_array(a) else a, models)


def _mapped(function: Any, models: PyTree, at_once: int) -> PyTree:
    """`function` of each model, so many side by side; what comes back may hold more than arrays."""
    dynamic, static = eqx.partition(models, eqx.is_array)
    rest = None

    def one(arrays):
        nonlocal rest
        answer, rest = eqx.partition(function(eqx.combine(arrays, static)), eqx.is_array)
        return answer

    answers = jax.lax.map(one, dynamic) if at_once == 1 else jax.lax.map(one, dynamic, batch_size=at_once)
    return eqx.combine(answers, rest)
