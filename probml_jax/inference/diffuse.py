"""States about which nothing is known at first: their exact limit of infinite variance, by least squares.

The unknown part of the first state is a vector of regression coefficients. Innovations are linear in it, so the filter
run once more for each of its coordinates (gains and covariances are shared) gives normal equations for it, and
everything else follows by linearity. Reference: de Jong (1991), "The diffuse Kalman filter".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._linalg import matmul
from . import score
from .riccati import Forward
from .small import SMALL, eliminate, root
from .system import Observations, Transitions


class Unknown(NamedTuple):
    r"""The unknown part of the first state after all observations: estimate, covariance, $\log|S|$ of its information.

    `found (p,)` tells which coordinates the observations determine (those that were never unknown included).
    """

    estimate: Float[Array, "p"]
    covariance: Float[Array, "p p"]
    log_det: Float[Array, ""]
    found: Bool[Array, "p"]


def known(covariance: Array, diffuse: Array) -> Array:
    """The initial covariance without its unknown part."""
    return jnp.where(diffuse[:, None] | diffuse[None, :], 0, covariance)


# covariances do not differ between runs from different first states
SHARED = Forward(0, None, 0, 0, None)


def columns(
    run: Callable[..., Forward], start: tuple[Array, Array], diffuse: Array, moves: Transitions, obs: Observations
) -> tuple[Forward, Forward]:
    """`run` as it is, and for each unit of the unknown part alone (leading axis): no observations, no offsets."""
    mean, covariance = start
    starts = jnp.concatenate([mean[None], jnp.diag(diffuse.astype(mean.dtype))])
    every = _from_each(run, starts, covariance, moves, obs, SHARED)
    take = lambda rows: every._replace(
        mean=every.mean[rows], innovation=every.innovation[rows], log_det=every.log_det[rows]
    )
    return take(0), take(slice(1, None))


def _from_each(
    run: Callable, starts: Array, covariance: Array, moves: Transitions, obs: Observations, axes: Any
) -> Any:
    """`run` from several first states: the first with observations and offsets, the others without."""

    def one(first: Array, real: Array) -> Any:
        here = moves._replace(offset=real * moves.offset)
        return run((first, covariance), here, obs._replace(y=real * obs.y))

    real = (jnp.arange(starts.shape[0]) == 0).astype(starts.dtype)
    return jax.vmap(one, out_axes=axes)(starts, real)


def slope(
    start: tuple[Array, Array],
    diffuse: Array,
    moves: Transitions,
    obs: Observations,
    unknown: "Unknown",
    parallel: bool,
) -> Array:
    r"""A function with the first derivatives of the diffuse log-likelihood, out of ordinary ones.

    At the estimate the likelihood is stationary, and $-\tfrac12 d\log|S| = -\tfrac12\mathrm{tr}\,S^{-1}dS$ is a sum of
    log-likelihoods of nothing observed, from the columns of a root of $S^{-1}$, less those from zero.
    """
    run = lambda *args: score.log_evidence(*args, parallel)
    columns = jax.lax.stop_gradient(root(unknown.covariance).T)
    first = start[0] + jax.lax.stop_gradient(unknown.estimate)
    starts = jnp.concatenate([first[None], columns, jnp.zeros_like(columns[:1])])
    found = _from_each(run, starts, known(start[1], diffuse), moves, obs, 0)
    return jnp.sum(found[:-1]) - columns.shape[0] * found[-1]


def regress(innovation: Float[Array, "t q"], effects: Float[Array, "p t q"], diffuse: Bool[Array, "p"]) -> Unknown:
    """Least squares of the innovations on what each coordinate makes of them."""
    information = jnp.einsum("itq,jtq->ij", effects, effects, precision="highest")
    vector = -jnp.einsum("itq,tq->i", effects, innovation, precision="highest")
    return determine(information, vector, diffuse)


def determine(information: Array, vector: Array, diffuse: Array) -> Unknown:
    """The coefficients from their normal equations; those nothing is known about are left at zero."""
    p = vector.shape[0]
    eye = jnp.eye(p, dtype=vector.dtype)
    information = jnp.where(diffuse[:, None] & diffuse[None, :], information, eye)
    if p <= SMALL:
        _, solved, pivots = eliminate(information, jnp.concatenate([eye, vector[:, None]], axis=1), fully=True)
    else:
        values, vectors = jnp.linalg.eigh(information)
        good = values > 4 * p * jnp.finfo(vector.dtype).eps * values[-1]
        inverse = (vectors * jnp.where(good, 1 / jnp.where(good, values, 1), 0)[None, :]) @ vectors.T
        solved, pivots = jnp.concatenate([inverse, (inverse @ vector)[:, None]], axis=1), jnp.where(good, values, 0)
    found = pivots > 0
    covariance = jnp.where(diffuse[:, None] & diffuse[None, :], solved[:, :p], 0)
    log_det = jnp.sum(jnp.log(jnp.where(found, pivots, 1)))
    return Unknown(jnp.where(diffuse, solved[:, p], 0), covariance, log_det, found)


def spread(effects: Float[Array, "p m"], unknown: Unknown, other: Float[Array, "p m"] | None = None) -> Array:
    """What the unknown part adds to a covariance of states that it affects by `effects`; infinite if undetermined."""
    other = effects if other is None else other
    added = matmul(matmul(effects.T, unknown.covariance), other)
    lost = jnp.any((~unknown.found[:, None]) & (effects != 0), axis=0)
    return jnp.where(jnp.diag(lost), jnp.inf, added)
