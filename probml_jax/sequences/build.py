"""Builders: sequences in, a well-started HMM out."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from .. import conjugate
from .._estimate import MAP, ML, AbstractEstimate, Bayes, Nested
from .._stack import AbstractStack, Stacked
from .._typing import PRNGKey
from .._validate import as_data, check, check_labels, check_rank, is_concrete
from ..distributions import Categorical, LinearGaussian
from ..mixtures.build import bernoulli_mixture, gaussian_mixture, poisson_mixture
from ..mixtures.mixture import Mixture
from .data import as_sequences, check_lengths, check_steps, exists, lagged, seen
from .hmm import HMM


def _prepare(data: Any, rank: int, wanted: str, num_states: int) -> tuple[Array, Array]:
    """Observations and which of them exist `(n, t)`."""
    many = as_sequences(as_data(data), batched=True)
    check_rank("xs", many.xs, rank, wanted)
    if num_states < 1:
        raise ValueError(f"num_states must be at least 1; got {num_states}.")
    n, t = many.xs.shape[0], check_steps(many.xs, 1)
    check_lengths(many.lengths, n, t)
    here = jnp.ones((n, t), bool)
    if many.lengths is not None:
        here = jax.vmap(lambda length: exists(length, t))(many.lengths)
    known = jax.vmap(lambda x: seen(x, whole=False))(many.xs)
    check(jnp.any(known & here), "xs has no observed entry: there is nothing to start from.")
    return many.xs, here


def _flat(xs: Array, here: Array) -> tuple[Array, Array]:
    """All events in one row, with weight zero (and harmless values) for the padding."""
    weights = here.reshape(-1)
    events = xs.reshape(weights.size, *xs.shape[2:])
    spread = weights.reshape(-1, *[1] * (events.ndim - 1))
    floating = jnp.issubdtype(events.dtype, jnp.floating)
    dtype = events.dtype if floating else jnp.result_type(float)
    return jnp.where(spread, events, events[:1]), weights.astype(dtype)


def _topology(transitions: Any, num_states: int) -> Array | None:
    """Which transitions are allowed; `None` when all are."""
    if isinstance(transitions, str):
        if transitions not in ("ergodic", "left_to_right"):
            raise ValueError(f"transitions must be 'ergodic', 'left_to_right' or a mask (k, k); got {transitions!r}.")
        step = jnp.arange(num_states)[None, :] - jnp.arange(num_states)[:, None]
        return None if transitions == "ergodic" else (step == 0) | (step == 1)
    mask = jnp.asarray(transitions).astype(bool)
    if mask.shape != (num_states, num_states):
        raise ValueError(f"transitions has shape {mask.shape}; wanted a mask {(num_states, num_states)}.")
    if is_concrete(mask) and not bool(mask.any(axis=1).all()):
        raise ValueError("transitions leaves some state without any allowed successor.")
    return mask


def _row_leaf(probs: Float[Array, "k"], allowed: Array, estimate: str, concentration: Any) -> AbstractEstimate:
    if estimate == "ml":
        return ML(Categorical(probs))
    value = jnp.asarray((2.0 if estimate == "map" else 1.0) if concentration is None else concentration, probs.dtype)
    # a forbidden transition has no part in the prior: no pull in a mode, (almost) no mass in a posterior
    prior = conjugate.DirichletCategorical(jnp.where(allowed, value, 1.0 if estimate == "map" else 1e-3))
    if estimate == "map":
        return MAP(Categorical(probs), prior)
    return Bayes(prior.absorb(jnp.where(allowed, 10 * probs, 0), Categorical(probs)), prior)


@eqx.filter_jit
def _assemble(emission: AbstractStack, events, here, estimate, concentration, allowed: Array | None, lags: int) -> HMM:
    """Chain leaves around given emissions: transitions start at those of the events taken one by one, smoothed."""
    k = emission.size
    shares = jax.nn.softmax(emission.expected_log_probs(events), axis=0).reshape(k, *here.shape)
    shares = jnp.where(here[None] & ~jnp.isnan(shares), shares, 0)
    counts = jnp.einsum("int,jnt->ij", shares[:, :, :-1], shares[:, :, 1:])
    counts = counts + 1 + 0.01 * jnp.mean(jnp.sum(counts, axis=1))
    grid = jnp.ones((k, k), bool) if allowed is None else allowed
    counts = jnp.where(grid, counts, 0)
    # a state that no other leads to is where sequences begin; if there is none, they begin anywhere
    entered = jnp.any(grid & ~jnp.eye(k, dtype=bool), axis=0)
    begins = ~entered | jnp.all(entered)
    make = lambda counts, mask: _row_leaf(counts / jnp.sum(counts), mask, estimate, concentration)
    rows = Stacked(eqx.filter_vmap(make)(counts, grid))
    return HMM(make(begins.astype(counts.dtype), begins), rows, emission, allowed, lags)


def gaussian_hmm(
    key: PRNGKey,
    xs: Any,
    num_states: int,
    covariance: str = "full",
    *,
    estimate: str = "ml",
    init: Any = "kmeans++",
    prior: Any = None,
    concentration: Any = None,
    transitions: Any = "ergodic",
    floor: float = 1e-6,
) -> HMM:
    """An HMM with Gaussian emissions of `xs (n, t, d)` or `(xs, lengths)`, started by k-means on all events.

    - `covariance`, `estimate`, `init`, `prior`, `floor`: as in `pml.mixtures.gaussian_mixture`.
    - `concentration`: of the Dirichlet priors of the initial distribution and of each row of transitions.
    - `transitions`: "ergodic", "left_to_right" (stay or go to the next state) or a mask `(k, k)` of what is allowed.

    >>> xs = jr.normal(jr.key(0), (4, 25, 2))
    >>> gaussian_hmm(jr.key(1), xs, num_states=3, covariance="diagonal").num_states
    3
    """
    xs, here = _prepare(xs, 3, "(n, t, d); one sequence is xs[None]", num_states)
    events, weights = _flat(xs, here)
    options = {"estimate": estimate, "init": init, "prior": prior, "weights": weights, "floor": floor}
    start = gaussian_mixture(key, events, num_states, covariance, **options)
    return _around(start, events, here, estimate, concentration, transitions)


def _around(start: Mixture, events, here, estimate, concentration, transitions) -> HMM:
    mask = _topology(transitions, start.num_components)
    return _assemble(start.components, events, here, estimate, concentration, mask, 0)


def poisson_hmm(
    key: PRNGKey,
    xs: Any,
    num_states: int,
    *,
    estimate: str = "ml",
    init: Any = "kmeans++",
    prior: Any = None,
    concentration: Any = None,
    transitions: Any = "ergodic",
) -> HMM:
    """An HMM with vectors of independent Poisson counts `xs (n, t, d)`; arguments as in `gaussian_hmm`.

    >>> import jax.random as jr
    >>> hmm = poisson_hmm(jr.key(0), jnp.array([[[0.0], [1.0], [9.0], [8.0], [0.0]]]), num_states=2)
    >>> hmm.emission.each.distribution.rate.shape
    (2, 1)
    """
    return _counted(poisson_mixture, key, xs, num_states, estimate, init, prior, concentration, transitions)


def bernoulli_hmm(
    key: PRNGKey,
    xs: Any,
    num_states: int,
    *,
    estimate: str = "ml",
    init: Any = "kmeans++",
    prior: Any = None,
    concentration: Any = None,
    transitions: Any = "ergodic",
) -> HMM:
    """An HMM with vectors of independent binary values `xs (n, t, d)`; arguments as in `gaussian_hmm`.

    >>> import jax.random as jr
    >>> hmm = bernoulli_hmm(jr.key(0), jr.bernoulli(jr.key(1), 0.3, (2, 20, 3)).astype(float), num_states=2)
    >>> hmm.emission.each.distribution.probs.shape
    (2, 3)
    """
    return _counted(bernoulli_mixture, key, xs, num_states, estimate, init, prior, concentration, transitions)


def _counted(build, key, xs, num_states, estimate, init, prior, concentration, transitions) -> HMM:
    xs, here = _prepare(xs, 3, "(n, t, d); one sequence is xs[None]", num_states)
    events, weights = _flat(xs, here)
    events = events if jnp.issubdtype(events.dtype, jnp.floating) else events.astype(weights.dtype)
    start = build(key, events, num_states, estimate=estimate, init=init, prior=prior, weights=weights)
    return _around(start, events, here, estimate, concentration, transitions)


def categorical_hmm(
    key: PRNGKey,
    xs: Any,
    num_states: int,
    num_categories: int,
    *,
    estimate: str = "ml",
    prior: Any = None,
    concentration: Any = None,
    transitions: Any = "ergodic",
    dtype: Any = None,
) -> HMM:
    """An HMM over symbols `xs (n, t)` of 0..num_categories-1 (-1 missing), started at random around their frequencies.

    `prior` is a `DirichletCategorical` of one state's emissions (default: 1.5 for "map", 1 for "bayes"). One symbol at
    a time says nothing about the states, so restart from several keys.

    >>> import jax.random as jr
    >>> hmm = categorical_hmm(jr.key(0), jnp.array([[0, 2, 1, 1, -1, 0]]), num_states=2, num_categories=3)
    >>> hmm.emission.each.distribution.probs.shape
    (2, 3)
    """
    xs, here = _prepare(xs, 2, "symbols (n, t); one sequence is xs[None]", num_states)
    if jnp.issubdtype(xs.dtype, jnp.floating):
        raise ValueError(f"xs must be whole symbols; got {xs.dtype}.")
    check_labels("xs", jnp.where(here, xs, 0), num_categories)
    dtype = jnp.result_type(float) if dtype is None else dtype
    events = jnp.where(here, xs, -1).reshape(-1)
    counts = jnp.bincount(jnp.where(events >= 0, events, num_categories), length=num_categories + 1)[:-1] + 1.0
    noise = jr.gamma(key, 2.0, (num_states, num_categories), dtype)
    probs = noise * counts[None].astype(dtype)
    members = jax.vmap(Categorical)(probs / jnp.sum(probs, axis=1, keepdims=True))
    if estimate == "ml":
        emission = Stacked(ML(members))
    else:
        weak = 1.5 if estimate == "map" else 1.0
        prior = conjugate.DirichletCategorical(jnp.full(num_categories, weak, dtype)) if prior is None else prior
        priors = jax.tree_util.tree_map(lambda a: jnp.broadcast_to(a, (num_states, *a.shape)), prior)
        heavy = members.probs * jnp.sum(counts).astype(dtype) / num_states
        posterior = lambda: jax.vmap(lambda p, c, m: p.absorb(c, m))(priors, heavy, members)
        emission = Stacked(MAP(members, priors) if estimate == "map" else Bayes(posterior(), priors))
    mask = _topology(transitions, num_states)
    return _assemble(emission, events, here, estimate, concentration, mask, 0)


def mixture_hmm(
    key: PRNGKey,
    xs: Any,
    num_states: int,
    num_components: int,
    covariance: str = "diagonal",
    *,
    estimate: str = "ml",
    concentration: Any = None,
    transitions: Any = "ergodic",
    floor: float = 1e-3,
) -> HMM:
    """An HMM whose every state emits from a Gaussian mixture of its own; `xs (n, t, d)` or `(xs, lengths)`.

    >>> import jax.random as jr
    >>> hmm = mixture_hmm(jr.key(0), jr.normal(jr.key(1), (2, 30, 2)), num_states=2, num_components=2)
    >>> hmm.num_states
    2
    """
    xs, here = _prepare(xs, 3, "(n, t, d); one sequence is xs[None]", num_states)
    events, weights = _flat(xs, here)
    first, second = jr.split(key)
    crude = gaussian_mixture(first, events, num_states, "diagonal", weights=weights)
    shares = crude.responsibilities(events)[0] * weights[None] + 1e-6 * weights[None]
    build = lambda key, w: gaussian_mixture(
        key, events, num_components, covariance, estimate=estimate, weights=w, floor=floor
    )
    parts = eqx.filter_jit(eqx.filter_vmap(build))(jr.split(second, num_states), shares)
    mask = _topology(transitions, num_states)
    return _assemble(Stacked(Nested(parts)), events, here, estimate, concentration, mask, 0)


def autoregressive_hmm(
    key: PRNGKey,
    xs: Any,
    num_states: int,
    lags: int = 1,
    *,
    estimate: str = "ml",
    prior: Any = None,
    concentration: Any = None,
    transitions: Any = "ergodic",
) -> HMM:
    r"""A switching autoregression $x_s = A_z (x_{s-1}, \dots, x_{s-L}) + b_z + \epsilon_z$ of `xs (n, t, d)`.

    States start as clusters of (past, present); `prior` is a `MatrixNormalInverseWishart` with intercept. The first
    `lags` observations of a sequence are taken as given.

    >>> import jax.random as jr
    >>> hmm = autoregressive_hmm(jr.key(0), jnp.cumsum(jr.normal(jr.key(1), (2, 30, 1)), axis=1), num_states=2)
    >>> hmm.num_states
    2
    """
    if lags < 1:
        raise ValueError(f"lags must be at least 1; got {lags}.")
    xs, here = _prepare(xs, 3, "(n, t, d); one sequence is xs[None]", num_states)
    if xs.shape[1] <= lags:
        raise ValueError(f"xs has {xs.shape[1]} steps; {lags} lags want more.")
    past, now = jax.vmap(lambda x: lagged(x, lags))(xs)
    n, t = xs.shape[:2]
    whole = here & ~jnp.any(jnp.isnan(past), axis=2) & ~jnp.any(jnp.isnan(now), axis=2)
    flat = lambda a: jnp.where(whole.reshape(-1, 1), a.reshape(n * t, -1), 0)
    events, weights = (flat(past), flat(now)), whole.reshape(-1).astype(xs.dtype)
    crude = gaussian_mixture(key, jnp.concatenate(events, axis=1), num_states, "full", weights=weights)
    shares = crude.responsibilities(jnp.concatenate(events, axis=1))[0] * weights[None] + 1e-3 * weights[None]
    if prior is None:
        prior = _default_regression(events, weights)
    emission = _regressions(events, shares, prior, estimate)
    mask = _topology(transitions, num_states)
    return _assemble(emission, events, here, estimate, concentration, mask, lags)


def _default_regression(events: tuple[Array, Array], weights: Array) -> Any:
    """Weak, on the scale of the data: coefficients near zero, noise near the data's own covariance."""
    past, now = events
    count = jnp.sum(weights)
    mean = weights @ now / count
    spread = (weights[:, None] * (now - mean[None])).T @ (now - mean[None]) / count
    power = weights @ past**2 / count
    d, p = now.shape[1], past.shape[1]
    precision = jnp.diag(jnp.append(1e-3 * jnp.where(power > 0, power, 1), jnp.asarray(1e-3, now.dtype)))
    loc = jnp.concatenate([jnp.zeros((d, p), now.dtype), mean[:, None]], axis=1)
    scale = 0.1 * spread + 1e-6 * jnp.diag(jnp.diagonal(spread) + 1e-12)
    return conjugate.MatrixNormalInverseWishart(loc, precision, scale, jnp.asarray(d + 2.0, now.dtype), intercept=True)


@eqx.filter_jit
def _regressions(events, shares, prior, estimate) -> AbstractStack:
    d, p = events[1].shape[1], events[0].shape[1]
    dtype = events[1].dtype
    zero = LinearGaussian(jnp.zeros((d, p), dtype), jnp.zeros(d, dtype), jnp.eye(d, dtype=dtype))
    posteriors = eqx.filter_vmap(lambda w: prior.absorb(zero.statistics(events, w), zero))(shares)
    if estimate == "bayes":
        k = shares.shape[0]
        return Stacked(Bayes(posteriors, jax.tree_util.tree_map(lambda a: jnp.broadcast_to(a, (k, *a.shape)), prior)))
    modes = eqx.filter_vmap(lambda q: q.mode())(posteriors)
    if estimate == "ml":
        return Stacked(ML(modes))
    k = shares.shape[0]
    return Stacked(MAP(modes, jax.tree_util.tree_map(lambda a: jnp.broadcast_to(a, (k, *a.shape)), prior)))
