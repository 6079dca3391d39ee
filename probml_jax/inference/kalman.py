"""Kalman filtering and smoothing on arrays: one series, constant or varying systems, missing entries, any start.

Every function takes a `System` and observations `y (t, d)`; NaN entries are missing, and `mask (t,)` says which steps
exist (padding comes last). Many series are a `vmap`.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from .._special import missing_in_batch
from .._typing import PRNGKey, Scalar
from .._validate import as_float
from . import affine, diffuse, riccati, score, smoothing
from .small import apply, congruence, over_time, root, solve, times
from .system import Observations, System, as_system, check_system, observations, transitions

__all__ = [
    "Filtered",
    "Smoothed",
    "SteadyState",
    "System",
    "filter",
    "log_likelihood",
    "predict",
    "sample",
    "simulate",
    "smooth",
    "steady_state",
    "step",
]


class Filtered(NamedTuple):
    r"""$p(z_s \mid y_{1:s})$ for every step, and $\log p(y)$."""

    mean: Float[Array, "t p"]
    covariance: Float[Array, "t p p"]
    log_likelihood: Float[Array, ""]


class Smoothed(NamedTuple):
    r"""$p(z_s \mid y_{1:t})$ for every step, $\mathrm{Cov}(z_{s+1}, z_s \mid y_{1:t})$, and $\log p(y)$."""

    mean: Float[Array, "t p"]
    covariance: Float[Array, "t p p"]
    cross: Float[Array, "steps p p"]
    log_likelihood: Float[Array, ""]


class SteadyState(NamedTuple):
    """What the filter of a constant system tends to: covariances before and after an observation, and the gain.

    `converged` is false where there is no such limit (an unstable part that is never observed).
    """

    predicted: Float[Array, "p p"]
    filtered: Float[Array, "p p"]
    gain: Float[Array, "p d"]
    converged: Bool[Array, ""]


def _checked(function: Callable) -> Callable:
    """Compiled, after a look at shapes and values that only concrete arguments allow."""
    compiled, signature = eqx.filter_jit(function), inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        given["system"] = as_system(given["system"])
        if "y" in given:
            given["y"] = as_float(given["y"], "y")
        y, mask = given.get("y"), given.get("mask")
        check_system(given["system"], None if function.__name__ == "step" else y)
        if mask is not None and y is not None and mask.shape != y.shape[:1]:
            raise ValueError(f"mask has shape {mask.shape}; wanted {y.shape[:1]}.")
        return compiled(*bound.args, **bound.kwargs)

    return call


def _asked(function: Callable, system: System, y: Array, mask: Array | None) -> Any:
    """`function(start, moves, obs)`, compiled twice: series without gaps share all covariances of a batch.

    Once where that would cost more than it brings: padded series, and diffuse starts, which compile long.
    """
    start, moves = (system.initial_mean, system.initial_covariance), transitions(system, y.shape[0], mask)
    run = lambda complete: lambda y: function(start, moves, observations(system, y, mask, complete=complete))
    if mask is not None or system.diffuse is not None:
        return run(False)(y)
    return jax.lax.cond(missing_in_batch(y), run(False), run(True), y)


def _runner(form: str, parallel: bool):
    if form not in ("joseph", "square_root"):
        raise ValueError(f"form must be 'joseph' or 'square_root'; got {form!r}.")
    if form == "square_root" and parallel:
        raise ValueError("form='square_root' runs step by step: parallel=True wants form='joseph'.")
    by_joseph = lambda start, moves, obs: score.run(start, moves, obs, parallel)
    return riccati.square_root if form == "square_root" else by_joseph


def _total(forward: riccati.Forward, obs: Observations) -> Scalar:
    return jnp.sum(score.log_density(forward) + obs.constant)


# ---------------------------------------------------------------------------------------------- likelihood


@_checked
def log_likelihood(
    system: System, y: Float[Array, "t d"], mask: Bool[Array, "t"] | None = None, *, parallel: bool = False
) -> Scalar:
    r"""$\log p(y)$, with a gradient that costs one smoother.

    With a diffuse start it is the limit of $\log p(y) + \tfrac m2\log\kappa$ as the variance $\kappa$ of the $m$
    unknown (and determined) directions grows: Durbin and Koopman's diffuse log-likelihood. Its first derivatives are
    exact; for second ones differentiate `filter(...).log_likelihood`.

    Cost: $O(t(p^3 + dp^2))$, memory $O(tp^2)$. Reference: Murphy (2023), section 8.2; Särkkä (2013), chapter 4.

    >>> walk = System(jnp.zeros(1), jnp.eye(1), jnp.eye(1), jnp.eye(1), jnp.eye(1), jnp.ones(1))
    >>> round(float(log_likelihood(walk, jnp.array([[1.0], [jnp.nan], [2.0]]))), 4)
    -3.3823
    """

    def value(start, moves, obs):
        if system.diffuse is None:
            return score.log_evidence(start, moves, obs, parallel) + jnp.sum(obs.constant)
        frozen = jax.lax.stop_gradient((start, moves, obs))
        forward, unknown, _ = _resolved(_runner("joseph", parallel), system, *frozen)
        slope = diffuse.slope(start, system.diffuse, moves, obs, unknown, parallel) + jnp.sum(obs.constant)
        return _total(forward, frozen[2]) - 0.5 * unknown.log_det + slope - jax.lax.stop_gradient(slope)

    return _asked(value, system, y, mask)


def _resolved(run, system: System, start, moves, obs):
    """The forward pass from the best first state, that state's uncertainty, and the effects of its coordinates."""
    known = start[0], diffuse.known(start[1], system.diffuse)
    first, effects = diffuse.columns(run, known, system.diffuse, moves, obs)
    unknown = diffuse.regress(first.innovation, effects.innovation, system.diffuse)
    # run again from there: what a far start gets wrong and its correction need not cancel
    return run((known[0] + unknown.estimate, known[1]), moves, obs), unknown, effects


# ---------------------------------------------------------------------------------------------- filter


@_checked
def filter(
    system: System,
    y: Float[Array, "t d"],
    mask: Bool[Array, "t"] | None = None,
    *,
    form: str = "joseph",
    parallel: bool = False,
) -> Filtered:
    r"""$p(z_s \mid y_{1:s})$ by the Kalman filter.

    - `form`: "joseph" (default) or "square_root", which carries a factor of the covariance (QR) and cannot lose
      positive definiteness.
    - `parallel`: an associative scan over time, for accelerators.

    With a diffuse start, variances are infinite until the observations determine the state.
    """
    run = _runner(form, parallel)

    def filtered(start, moves, obs):
        if system.diffuse is None:
            forward = run(start, moves, obs)
            return Filtered(forward.mean, forward.covariance, _total(forward, obs))
        forward, unknown, effects = _resolved(run, system, start, moves, obs)
        seen = effects.innovation
        information = jnp.cumsum(jnp.einsum("itq,jtq->tij", seen, seen, precision="highest"), axis=0)
        vector = -jnp.cumsum(jnp.einsum("itq,tq->ti", seen, forward.innovation, precision="highest"), axis=0)
        so_far = jax.vmap(diffuse.determine, in_axes=(0, 0, None))(information, vector, system.diffuse)
        columns = jnp.swapaxes(effects.mean, 0, 1)
        mean = forward.mean + jnp.einsum("tip,ti->tp", columns, so_far.estimate)
        covariance = forward.covariance + jax.vmap(diffuse.spread)(columns, so_far)
        return Filtered(mean, covariance, _total(forward, obs) - 0.5 * unknown.log_det)

    return _asked(filtered, system, y, mask)


# ---------------------------------------------------------------------------------------------- smoother


@_checked
def smooth(
    system: System,
    y: Float[Array, "t d"],
    mask: Bool[Array, "t"] | None = None,
    *,
    form: str = "joseph",
    parallel: bool = False,
) -> Smoothed:
    r"""$p(z_s \mid y_{1:t})$ and lag-one covariances by the Rauch-Tung-Striebel smoother; arguments as in `filter`.

    Beyond the mask the last existing state is repeated. Cost: that of the filter, twice.
    """
    run = _runner(form, parallel)

    def smoothed(start, moves, obs):
        if system.diffuse is None:
            forward = run(start, moves, obs)
            return Smoothed(*smoothing.smoothed(moves, forward, parallel), _total(forward, obs))
        forward, unknown, columns = _resolved(run, system, start, moves, obs)
        mean, covariance, cross = smoothing.smoothed(moves, forward, parallel)
        still = moves._replace(offset=jnp.zeros_like(moves.offset))
        effect = lambda column: smoothing.smoothed(still, column, parallel)[0]
        effects = jnp.swapaxes(jax.vmap(effect, in_axes=(diffuse.SHARED,))(columns), 0, 1)
        covariance = covariance + jax.vmap(lambda a: diffuse.spread(a, unknown))(effects)
        cross = cross + jax.vmap(lambda a, b: diffuse.spread(a, unknown, b))(effects[1:], effects[:-1])
        return Smoothed(mean, covariance, cross, _total(forward, obs) - 0.5 * unknown.log_det)

    return _asked(smoothed, system, y, mask)


# ---------------------------------------------------------------------------------------------- sampling


@_checked
def sample(
    key: PRNGKey,
    system: System,
    y: Float[Array, "t d"],
    mask: Bool[Array, "t"] | None = None,
    *,
    parallel: bool = False,
) -> Float[Array, "t p"]:
    """A path of states drawn given the observations (forward filtering, backward sampling)."""
    first, path = jr.split(key)
    run = _runner("joseph", parallel)

    def drawn(start, moves, obs):
        if system.diffuse is None:
            forward = run(start, moves, obs)
        else:
            _, unknown, _ = _resolved(run, system, start, moves, obs)
            guess = unknown.estimate + root(unknown.covariance) @ jr.normal(first, start[0].shape, start[0].dtype)
            forward = run((start[0] + guess, diffuse.known(start[1], system.diffuse)), moves, obs)
        back = smoothing.backward(moves, forward)
        noise = jr.normal(path, forward.mean.shape, forward.mean.dtype)
        last = forward.mean[-1] + apply(root(forward.covariance[-1]), noise[-1])
        offset = back.offset + over_time(
            lambda _, m, e: apply(root(m), e), noise.shape[1], None, back.spread, noise[:-1]
        )
        states, _ = affine.recursion(back.gain, offset, None, (last, None), reverse=True, parallel=parallel)
        return jnp.concatenate([states, last[None]])

    return _asked(drawn, system, y, mask)


@_checked
def simulate(
    key: PRNGKey, system: System, num_steps: int, *, parallel: bool = False
) -> tuple[Float[Array, "t p"], Float[Array, "t d"]]:
    """States and observations of a new series. A diffuse start begins at its mean: there is nothing to draw from."""
    begin, move, look = jr.split(key, 3)
    dtype, p = system.initial_mean.dtype, system.num_latents
    covariance = system.initial_covariance
    covariance = covariance if system.diffuse is None else diffuse.known(covariance, system.diffuse)
    first = system.initial_mean + apply(root(covariance), jr.normal(begin, (p,), dtype))
    moves = transitions(system, num_steps, None)
    shake = lambda a, b, q, e: (a, b + apply(root(q), e))
    matrix, offset = moves.map(shake, jr.normal(move, (num_steps, p), dtype))
    later, _ = affine.recursion(matrix[:-1], offset[:-1], None, (first, None), parallel=parallel)
    states = jnp.concatenate([first[None], later])
    return states, emit(look, system, states)


def emit(key: PRNGKey, system: System, states: Float[Array, "t p"]) -> Float[Array, "t d"]:
    """Observations drawn at given states."""
    t, d = states.shape[0], system.num_features
    noise = jr.normal(key, (t, d), states.dtype)
    spread = system.emission_noise
    if spread.ndim == 1:
        noise = jnp.sqrt(spread)[None] * noise
    else:
        roots = root(spread)[None] if spread.ndim == 2 else jax.vmap(root)(spread)
        noise = (roots @ noise[:, :, None])[:, :, 0]
    rows = system.emission if system.emission.ndim == 3 else system.emission[None]
    y = (rows @ states[:, :, None])[:, :, 0] + noise
    offset = system.emission_offset
    return y if offset is None else y + (offset if offset.ndim == 2 else offset[None])


# ---------------------------------------------------------------------------------------------- ahead, online, at rest


@_checked
def predict(
    system: System, mean: Float[Array, "p"], covariance: Float[Array, "p p"], steps: int
) -> tuple[Float[Array, "steps p"], Float[Array, "steps p p"]]:
    """Moments of the next `steps` states given those of the last one; the first row is one step later.

    A varying system is read from its beginning: `dynamics[0]` leads from the given state to the next.
    """
    moves = transitions(system, steps + 1, None)
    matrix, offset, noise = moves.map(lambda a, b, q, _: (a, b, q), jnp.arange(steps + 1))
    return affine.recursion(matrix[:-1], offset[:-1], noise[:-1], (mean, covariance))


@_checked
def step(
    system: System, belief: tuple[Float[Array, "p"], Float[Array, "p p"]] | None, y: Float[Array, "d"]
) -> tuple[tuple[Float[Array, "p"], Float[Array, "p p"]], Scalar]:
    r"""One observation more: moments of $p(z_s \mid y_{1:s})$ and $\log p(y_s \mid y_{1:s-1})$, for a constant system.

    `belief` is what the previous call returned, `None` for the first observation.
    """
    if system.diffuse is not None:
        raise ValueError("an online step needs a proper start: diffuse states want `filter` for the first stretch.")
    start, moves = (system.initial_mean, system.initial_covariance), transitions(system, 1, None)
    obs = observations(system, y[None], None, complete=False)
    before = start if belief is None else riccati.predict(*belief, moves.matrix, moves.offset, moves.noise)
    look = jax.tree_util.tree_map(lambda a: a[0], obs.varying())
    mean, covariance, innovation, log_det = riccati.update(*before, *obs.at(look))
    return (mean, covariance), obs.constant[0] - 0.5 * (log_det + jnp.sum(innovation**2))


@_checked
def steady_state(system: System, *, max_doublings: int = 40) -> SteadyState:
    """The limit of the filter of a constant system, by doubling: $2^k$ steps in k rounds.

    Cost: $p^3$ per round. Reference: Anderson and Moore (1979), section 6.7.
    """
    if max(system.dynamics.ndim, system.dynamics_noise.ndim, system.emission.ndim, system.emission_noise.ndim) > 2:
        raise ValueError("a steady state belongs to a constant system; this one varies with time.")
    p, d = system.num_latents, system.num_features
    plain = system._replace(emission_offset=None, dynamics_offset=None, diffuse=None)
    moves = transitions(plain, 1, None)
    obs = observations(plain, jnp.zeros((1, d), system.initial_mean.dtype), None, complete=True)
    look = obs.at(jax.tree_util.tree_map(lambda a: a[0], obs.varying()))
    nothing = jnp.zeros(p, moves.matrix.dtype)
    one = riccati.element(moves.matrix, nothing, moves.noise, *look)
    tolerance = 8 * jnp.finfo(nothing.dtype).eps

    def moving(carry):
        stretch, before, rounds = carry
        change = jnp.max(jnp.abs(stretch.covariance - before))
        return ~(change <= tolerance * jnp.max(jnp.abs(stretch.covariance))) & (rounds < max_doublings)

    def double(carry):
        stretch, _, rounds = carry
        return riccati.compose(stretch, stretch), stretch.covariance, rounds + 1

    begin = one, jnp.full((p, p), jnp.inf, nothing.dtype), jnp.zeros((), jnp.int32)
    found, before, _ = jax.lax.while_loop(moving, double, begin)
    _, predicted = riccati.predict(nothing, found.covariance, moves.matrix, nothing, moves.noise)
    change = jnp.max(jnp.abs(found.covariance - before))
    converged = (change <= 1e3 * tolerance * jnp.max(jnp.abs(found.covariance))) & jnp.isfinite(change)
    noise = jnp.diag(system.emission_noise) if system.emission_noise.ndim == 1 else system.emission_noise
    innovation = congruence(system.emission, predicted) + noise
    gain = solve(innovation, times(system.emission, predicted)).T
    return SteadyState(predicted, found.covariance, gain, converged)
