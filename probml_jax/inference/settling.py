"""The forward pass over a constant system without gaps: covariances until they settle, then all means together.

Nothing that is observed changes such a system's covariances. They tend to a limit, mostly within a few dozen steps, and
what is left is an affine recursion of means, which runs in blocks side by side.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._special import any_in_batch
from . import affine
from .riccati import Forward, influence, predict, update, updated
from .small import SMALL, apply, times
from .system import Observations, Transitions

_WINDOW = 32


def applies(moves: Transitions, obs: Observations) -> bool:
    """Whether a system is constant, small, and observed at every step (offsets may vary)."""
    varying = moves.varying()
    constant = varying.matrix is None and varying.noise is None and moves.live is None
    return constant and obs.seen is None and obs.rows.ndim == 2 and obs.noise.ndim == 1 and max(obs.rows.shape) <= SMALL


def forward(start: tuple[Array, Array], moves: Transitions, obs: Observations) -> Forward:
    """Filtered moments and innovations, as `riccati.joseph` finds them."""
    mean, covariance = start
    before, after = _covariances(covariance, moves.matrix, moves.noise, obs.rows, obs.noise, obs.y.shape[0])
    keep, gain = obs._replace(y=jnp.zeros_like(obs.y)).map(_effect, before)
    onward, push = moves.map(lambda a, b, q, keep, gain: (times(a, keep), times(a, gain)), keep, gain)
    pushed = moves.map(lambda a, b, q, push, y: apply(push, y) + b, push, obs.y)
    later, _ = affine.recursion(onward[:-1], pushed[:-1], None, (mean, None))
    means = jnp.concatenate([mean[None], later])
    found = Forward(*obs.map(lambda *look: update(*look[4:], *look[:4]), means, before))
    # out of the loop, not computed again: a batch of series then copies it instead of fusing it into each of them
    return found._replace(covariance=after)


def _effect(y, rows, noise, seen, covariance) -> tuple[Array, Array]:
    """How the predicted mean and the observations enter the filtered mean."""
    found = influence(jnp.zeros_like(covariance[0]), covariance, y, rows, noise, seen)
    return found.keep, found.gain


def _next(covariance: Array, matrix: Array, noise: Array, rows: Array, row_noise: Array) -> tuple[Array, Array]:
    """One observation and one step ahead: the next predicted covariance, and the filtered one between."""
    nothing, unseen = jnp.zeros(matrix.shape[0], matrix.dtype), jnp.zeros(rows.shape[0], rows.dtype)
    mean, filtered, _, _ = updated(nothing, covariance, unseen, rows, row_noise, jnp.ones(unseen.shape, bool))
    return predict(mean, filtered, matrix, nothing, noise)[1], filtered


def _scanned(covariance: Array, *system: Array, steps: int) -> tuple[Array, tuple[Array, Array]]:
    def step(before, _):
        ahead, after = _next(before, *system)
        return ahead, (before, after)

    return jax.lax.scan(step, covariance, None, length=steps)


def _covariances(
    covariance: Array, matrix: Array, noise: Array, rows: Array, row_noise: Array, steps: int
) -> tuple[Float[Array, "t p p"], Float[Array, "t p p"]]:
    """Predicted and filtered covariances of all steps."""

    @jax.custom_jvp
    def settling(covariance, *system):
        return _until_settled(covariance, *system, steps=steps)

    # the loop ends when it may, which reverse mode cannot follow: derivatives are those of all steps
    settling.defjvp(lambda primals, tangents: jax.jvp(lambda *args: _scanned(*args, steps=steps)[1], primals, tangents))
    return settling(covariance, matrix, noise, rows, row_noise)


def _until_settled(covariance: Array, *system: Array, steps: int) -> tuple[Array, Array]:
    """Windows of steps until one of them changes nothing but rounding; from there on the covariance stays.

    A mode that still moves by a part $\\delta$ of its distance per step is then within some $8\\epsilon/(32\\delta)$ of
    its limit, where rounding would have stopped the recursion too.
    """
    windows = -(-steps // _WINDOW)
    p = covariance.shape[0]

    def moving(carry):
        _, _, done, settled = carry
        return (done < windows) & ~settled

    def window(carry):
        covariance, found, done, _ = carry
        last, stretch = _scanned(covariance, *system, steps=_WINDOW)
        scale = jnp.sqrt(jnp.maximum(jnp.diagonal(last), 0))
        change = jnp.max(jnp.abs(stretch[0] - last[None]), axis=0)
        still = jnp.all(change <= 8 * jnp.finfo(last.dtype).eps * scale[:, None] * scale[None, :])
        put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, done * _WINDOW, axis=0)
        return last, jax.tree_util.tree_map(put, found, stretch), done + 1, ~any_in_batch(~still)

    empty = jnp.zeros((windows * _WINDOW, p, p), covariance.dtype)
    begin = covariance, (empty, empty), jnp.zeros((), jnp.int32), jnp.array(False)
    last, (before, after), done, _ = jax.lax.while_loop(moving, window, begin)
    beyond = (jnp.arange(steps) >= done * _WINDOW)[:, None, None]
    _, settled = _next(last, *system)
    return jnp.where(beyond, last[None], before[:steps]), jnp.where(beyond, settled[None], after[:steps])
