"""What a state emits: the form of one observation, and what is expected of it given the entries that were seen."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree

from .._product import Independent
from .._stack import AbstractStack
from ..distributions import (
    Bernoulli,
    Beta,
    BetaBinomial,
    Binomial,
    Categorical,
    Exponential,
    Gamma,
    InverseGamma,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    SphericalNormal,
    StudentT,
    Uniform,
)
from ..distributions.regression import AbstractLinear
from ..mixtures.mixture import Mixture

# their coordinates are independent: what was seen of an event says nothing about the rest
_COORDINATES = (
    Normal,
    SphericalNormal,
    Bernoulli,
    Poisson,
    Binomial,
    NegativeBinomial,
    Exponential,
    Gamma,
    InverseGamma,
    Beta,
    BetaBinomial,
    StudentT,
    Uniform,
)

# ------------------------------------------------------------------ the form of an observation


def event_form(emission: AbstractStack, lags: int) -> PyTree:
    """Shape and dtype of one observation, a tuple where it has several parts; `None` where nothing is known of it."""
    if lags:  # inputs are made of the observations
        point = eqx.filter_eval_shape(lambda stack: stack.member(0).point(), emission)
        return point.offset if isinstance(point, AbstractLinear) else None
    try:
        return eqx.filter_eval_shape(lambda stack, key: stack.member(0).predictive().sample(key), emission, jr.key(0))
    except (AttributeError, TypeError):  # a conditional density has no samples of its own, some densities have none
        return None


def fitted(xs: PyTree, form: PyTree, axes: tuple[str, ...]) -> PyTree:
    """Observations of the form that is wanted, whole numbers as floats where there are floats; `ValueError` else.

    `axes` names what comes before an observation: `("n", "t")`, `("t",)` or nothing.
    """
    if form is None:
        return xs
    parts = len(form) if isinstance(form, tuple) else None
    given = len(xs) if isinstance(xs, tuple) else None
    if parts != given:
        what = f"a tuple of {parts} arrays, one per part of an observation" if parts else "one array"
        what = what if given is None else f"{what}, and lengths are whole numbers, one per sequence"
        came = f"a tuple of {given}" if given is not None else "one array"
        raise ValueError(f"xs is {came}; this model wants {what}.")
    return jax.tree_util.tree_map(lambda want, a: _fitted(a, want, axes), form, xs)


def _fitted(a: Array, want: Any, axes: tuple[str, ...]) -> Array:
    rank = len(axes)
    if a.ndim != rank + want.ndim or a.shape[rank:] != want.shape:
        shape = ", ".join((*axes, *map(str, want.shape))) + ("," if rank + want.ndim == 1 else "")
        beyond = a.ndim - rank - want.ndim
        other = {(2, -1): ": one sequence is xs[None]", (1, 1): ": for many sequences vmap"}.get((rank, beyond), "")
        raise ValueError(f"xs has shape {tuple(a.shape)}; wanted ({shape}){other}.")
    if not jnp.issubdtype(want.dtype, jnp.integer):
        return a if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(want.dtype)
    if not jnp.issubdtype(a.dtype, jnp.integer):
        raise ValueError(f"xs is {a.dtype}; this model's observations are labels: whole numbers, -1 for missing.")
    return a


# ------------------------------------------------------------------ what is expected


def expected(density: Any, event: PyTree = None) -> PyTree:
    """The mean of an event given its entries that were seen (`None`: nothing was); probabilities of labels.

    `TypeError` where there is no closed form.
    """
    if isinstance(density, Independent):
        events = [None] * len(density.parts) if event is None else event
        return tuple(expected(part, e) for part, e in zip(density.parts, events, strict=True))
    if isinstance(density, Mixture):
        shares = density.weights.point().probs if event is None else density.posterior(event)
        each = density.components.map(lambda leaf: expected(leaf.point(), event))
        return jax.tree_util.tree_map(lambda a: jnp.tensordot(shares, a, 1), each)
    if isinstance(density, Categorical):
        if event is None:
            return density.probs
        known = jax.nn.one_hot(event, density.num_categories, dtype=density.probs.dtype)
        return jnp.where((event == -1)[..., None], density.probs, known)
    if isinstance(density, MultivariateNormal) and event is not None:
        return density.impute(event)[0]
    mean = getattr(density, "mean", None)
    if mean is None or not (event is None or isinstance(density, _COORDINATES)):
        raise TypeError(
            f"the expected observation of {type(density).__name__} has no closed form here: average draws of "
            "simulate(key, x, steps) or of next_observation(x) instead."
        )
    return mean() if event is None else jnp.where(jnp.isnan(event), mean(), event)


def filled(xs: PyTree, each: PyTree, beliefs: Float[Array, "t k"], where: Array) -> PyTree:
    """Observations with what is missing replaced by its mean over states, or by the most probable label.

    `each (t, k, ...)` is what is `expected` in every state; steps outside `where` stay as they are.
    """

    def of_array(x, a):
        spread = lambda flag: flag.reshape(*flag.shape, *[1] * (a.ndim - flag.ndim))
        shares = spread(beliefs)
        mean = jnp.sum(jnp.where(shares > 0, shares * a, 0), axis=1)
        if jnp.issubdtype(x.dtype, jnp.integer):
            missing, value = x == -1, jnp.argmax(mean, axis=-1).astype(x.dtype)
        else:
            missing, value = jnp.isnan(x), mean
        here = where.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(missing & here, value, x)

    return jax.tree_util.tree_map(of_array, xs, each)
