"""The log-likelihood of a linear-Gaussian system with its exact gradient: the adjoint of the filter is a smoother."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from . import affine, riccati, settling
from .small import apply, congruence, outer, times, turned
from .system import Observations, Transitions


class _Gradient(NamedTuple):
    """Derivatives of the log-likelihood by the start, the transitions and the observations of every step."""

    start: tuple[Array, Array]
    moves: tuple[Array, Array, Array]
    looks: tuple[Array, Array, Array]


def log_density(forward: riccati.Forward) -> Array:
    """What each step adds to the log-likelihood, but for the observations' own constant."""
    return -0.5 * (forward.log_det + jnp.sum(forward.innovation**2, axis=-1))


def run(start: tuple[Array, Array], moves: Transitions, obs: Observations, parallel: bool) -> riccati.Forward:
    """The forward pass, sequential or parallel in time."""
    if parallel:
        return riccati.parallel(start, moves, obs)
    return (settling.forward if settling.applies(moves, obs) else riccati.joseph)(start, moves, obs)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def log_evidence(start: tuple[Array, Array], moves: Transitions, obs: Observations, parallel: bool) -> Array:
    """The log-likelihood but for the observations' own constant."""
    return jnp.sum(log_density(run(start, moves, obs, parallel)))


@log_evidence.defjvp
def _log_evidence_jvp(parallel, primals, tangents):
    start, moves, obs = primals
    d_start, d_moves, d_obs = tangents
    forward = run(start, moves, obs, parallel)
    found = _gradient(start, moves, obs, forward, parallel)
    parts = zip(
        (*found.start, *found.moves, *found.looks),
        (*start, *moves[:3], obs.y, obs.rows, obs.noise),
        (*d_start, *d_moves[:3], d_obs.y, d_obs.rows, d_obs.noise),
        strict=True,
    )
    slope = sum(_paired(*part) for part in parts)
    return jnp.sum(log_density(forward)), slope


def _paired(gradient: Array, value: Array, tangent: Array) -> Array:
    """A constant of the system collects the gradients of all steps."""
    return jnp.sum((jnp.sum(gradient, axis=0) if gradient.ndim > value.ndim else gradient) * tangent)


def _gradient(start: Any, moves: Transitions, obs: Observations, forward: riccati.Forward, parallel: bool) -> _Gradient:
    r"""By the backward recursion $r_s = u_s + \Phi_s^\top A_s^\top r_{s+1}$, $N_s = W_s + \Phi_s^\top A_s^\top
    N_{s+1}A_s\Phi_s$, which needs no inverse of a covariance of states: singular noise is fine.

    $r$ is the expected gradient of $\log p(y_{s:t} \mid z_s)$, so $\partial/\partial b = r$,
    $\partial/\partial Q = \tfrac12(rr^\top - N)$ and $\partial/\partial A = r\hat z^\top - NAP$.
    Reference: Koopman and Shephard (1992); Durbin and Koopman (2012), section 7.3.
    """
    means, covariances = riccati.predictions(start, moves, forward.mean, forward.covariance)
    look = obs.map(lambda *look: riccati.influence(*look[4:], *look[:4]), means, covariances)
    through = moves.map(lambda a, b, q, keep: times(turned(keep), turned(a)), look.keep)
    nothing = jnp.zeros_like(start[0]), jnp.zeros_like(start[1])
    r, n = affine.recursion(through, look.pull, look.information, nothing, reverse=True, parallel=parallel)
    assert n is not None, "the recursion was given spreads"
    after = lambda a: jnp.concatenate([a[1:], jnp.zeros_like(a[:1])])
    rest = after(r), after(n), forward.mean, forward.covariance
    by_move, message, curvature, smoothed = moves.map(_by_transition, *rest)
    live = moves.live
    if live is not None:
        kept = lambda a: jnp.where(live.reshape(-1, *[1] * (a.ndim - 1)), a, 0)
        by_move = jax.tree_util.tree_map(kept, by_move)
    by_look = obs.map(_by_observation, look, message, curvature, smoothed, forward.covariance)
    return _Gradient((r[0], 0.5 * (outer(r[0], r[0]) - n[0])), by_move, by_look)


def _by_transition(matrix, offset, noise, r, n, mean, covariance):
    message, curvature = apply(turned(matrix), r), congruence(turned(matrix), n)
    smoothed = mean + apply(covariance, message)
    by_matrix = outer(r, smoothed) - times(n, times(matrix, covariance))
    return (by_matrix, r, 0.5 * (outer(r, r) - n)), message, curvature, smoothed


def _by_observation(y, rows, noise, seen, look: riccati.Influence, message, curvature, smoothed, covariance):
    error = look.error - apply(turned(look.gain), message)
    spread = look.inverse + congruence(turned(look.gain), curvature)
    spread = jnp.stack([spread[j, j] for j in range(seen.shape[0])])
    cross = turned(look.gain) - times(times(turned(look.gain), curvature), covariance)
    by_rows = outer(error, smoothed) - cross
    return (
        jnp.where(seen, -error, 0),
        jnp.where(seen[:, None], by_rows, 0),
        jnp.where(seen, 0.5 * (error**2 - spread), 0),
    )
