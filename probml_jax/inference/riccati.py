"""The forward pass over a linear-Gaussian system, in three forms: Joseph, square root, parallel in time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._lapack import cholesky_factor, solve_triangular
from .._linalg import cho_solve, matmul, symmetric
from .small import SMALL, apply, congruence, diagonal, identity, inner, outer, root, solve, times, turned
from .system import Observations, Transitions


class Forward(NamedTuple):
    r"""Filtered moments and whitened innovations $e_s = S_s^{-1/2}v_s$ with $\log|S_s|$.

    `factor` is a square root of the covariance where the form has one.
    """

    mean: Float[Array, "t p"]
    covariance: Float[Array, "t p p"]
    innovation: Float[Array, "t q"]
    log_det: Float[Array, "t"]
    factor: Float[Array, "t p p"] | None = None


# ---------------------------------------------------------------------------------------------- one step


def update(
    mean: Array, covariance: Array, y: Array, rows: Array, noise: Array, seen: Array
) -> tuple[Array, Array, Array, Array]:
    r"""Bayes' rule for observations with independent noise: mean, covariance, whitened innovations, $\log|S|$.

    Few observations enter one by one, so that nothing is factorized. The covariance is updated in Joseph's form
    $(I-kh^\top)P(I-kh^\top)^\top + rkk^\top$: an error in the gain $k$ counts squared.
    """
    mean, covariance, error, scale = updated(mean, covariance, y, rows, noise, seen)
    return mean, covariance, *_whitened(error, scale, seen)


def updated(
    mean: Array, covariance: Array, y: Array, rows: Array, noise: Array, seen: Array
) -> tuple[Array, Array, Array, Array]:
    """Mean, covariance, and independent innovations with their variances (of what is seen)."""
    if y.shape[0] > SMALL:
        return _updated_together(mean, covariance, y, *_masked(rows, noise, seen))
    errors, scales, tiny = [], [], jnp.finfo(y.dtype).tiny
    for j in range(y.shape[0]):
        h = rows[j]
        cross = apply(covariance, h)
        scale = inner(h, cross) + noise[j]
        # nothing is learned from what is not seen, nor from an exact observation of what is known (scale 0, cross 0)
        gain = cross * jnp.where(seen[j], 1 / jnp.maximum(scale, tiny), 0)[None]
        error = y[j] - inner(h, mean)
        reduced = covariance - outer(gain, cross)
        covariance = reduced - outer(apply(reduced, h) - noise[j][None] * gain, gain)
        mean = mean + gain * error[None]
        errors.append(error)
        scales.append(scale)
    return mean, covariance, jnp.stack(errors), jnp.stack(scales)


def _masked(rows: Array, noise: Array, seen: Array) -> tuple[Array, Array]:
    """Rows 0 and noise 1 for what is not seen: it says nothing."""
    return jnp.where(seen[:, None], rows, 0), jnp.where(seen, noise, 1)


def _whitened(error: Array, scale: Array, seen: Array) -> tuple[Array, Array]:
    """Innovations of variance one, and the logarithm of the variances' product; infinite for an impossible one."""
    error, scale = jnp.where(seen, error, 0), jnp.where(seen, scale, 1)
    positive = scale > 0
    safe = jnp.where(positive, scale, 1)
    log_det = jnp.sum(jnp.where(positive, jnp.log(safe), jnp.where(error != 0, jnp.inf, 0)), axis=0)
    return error / jnp.sqrt(safe), log_det


def _updated_together(mean, covariance, y, rows, noise):
    cross = times(rows, covariance)
    factor = cholesky_factor(times(cross, rows.T) + jnp.diag(noise))
    gain = cho_solve(factor, cross).T
    keep = jnp.eye(mean.shape[0], dtype=mean.dtype) - times(gain, rows)
    error = y - apply(rows, mean)
    covariance = congruence(keep, covariance) + times(gain * noise[None, :], gain.T)
    scale = jnp.diagonal(factor)
    return (
        mean + apply(gain, error),
        symmetric(covariance),
        solve_triangular(factor, error, lower=True) * scale,
        scale**2,
    )


def predict(mean: Array, covariance: Array, matrix: Array, offset: Array, noise: Array) -> tuple[Array, Array]:
    """One step ahead."""
    return apply(matrix, mean) + offset, congruence(matrix, covariance) + noise


class Influence(NamedTuple):
    r"""How one step's observations act on the predicted state: $\Phi = I - KH$, $K$, $u = H^\top S^{-1}v$,
    $W = H^\top S^{-1}H$ and what $S^{-1}$ makes of the innovations."""

    keep: Float[Array, "p p"]
    gain: Float[Array, "p q"]
    pull: Float[Array, "p"]
    information: Float[Array, "p p"]
    inverse: Float[Array, "q q"]
    error: Float[Array, "q"]


def influence(mean: Array, covariance: Array, y: Array, rows: Array, noise: Array, seen: Array) -> Influence:
    """The observations of one step all together, given the predicted state."""
    rows, noise = _masked(rows, noise, seen)
    q, p = rows.shape[:2]
    spread = congruence(rows, covariance) + diagonal(noise)
    batch = jnp.broadcast_shapes(spread.shape[2:], y.shape[1:])
    parts = rows, (y - apply(rows, mean))[:, None], identity(q, spread)
    right = jnp.concatenate([jnp.broadcast_to(a, (*a.shape[:2], *batch)) for a in parts], axis=1)
    solved = solve(spread, right)
    half, error, inverse = solved[:, :p], solved[:, p], solved[:, p + 1 :]
    gain = times(covariance, turned(half))
    keep = identity(p, covariance) - times(gain, rows)
    return Influence(keep, gain, apply(turned(rows), error), times(turned(rows), half), inverse, error)


# ---------------------------------------------------------------------------------------------- Joseph


def joseph(start: tuple[Array, Array], moves: Transitions, obs: Observations) -> Forward:
    """A scan of `update` and `predict` that leaves predicted moments; what each observation did to them follows for
    all steps at once."""

    def step(carry, inputs):
        (before, spread), (move, look) = carry, inputs
        mean, covariance, _, _ = updated(before, spread, *obs.at(look))
        return predict(mean, covariance, *moves.at(move)), carry

    look = obs.varying()._replace(constant=None)
    means, covariances = jax.lax.scan(step, start, (moves.varying(), look))[1]
    return Forward(*obs.map(lambda *look: update(*look[4:], *look[:4]), means, covariances))


# ---------------------------------------------------------------------------------------------- square root


def triangular(columns: Float[Array, "p m"]) -> Float[Array, "p p"]:
    """The lower triangular `f` with `f f' = columns columns'`."""
    return jnp.linalg.qr(columns.T, mode="r").T


def square_root(start: tuple[Array, Array], moves: Transitions, obs: Observations) -> Forward:
    """A scan that carries a factor of the covariance: it cannot lose positive definiteness."""
    varying = moves.varying()
    roots = root(moves.noise) if varying.noise is None else jax.vmap(root)(moves.noise)
    moves = moves._replace(noise=roots)

    def step(carry, inputs):
        move, look = inputs
        mean, factor = carry
        y, rows, noise, seen = obs.at(look)
        rows, noise = _masked(rows, noise, seen)
        q = y.shape[0]
        deviation = jnp.sqrt(noise)
        above = jnp.concatenate([jnp.diag(deviation), times(rows, factor)], axis=1)
        below = jnp.concatenate([jnp.zeros((factor.shape[0], q), factor.dtype), factor], axis=1)
        whole = triangular(jnp.concatenate([above, below]))
        innovation = solve_triangular(whole[:q, :q], y - apply(rows, mean), lower=True)
        mean, factor = mean + apply(whole[q:, :q], innovation), whole[q:, q:]
        log_det = 2 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(whole[:q, :q]))))
        matrix, offset, noise_root = moves.at(move)
        ahead = triangular(jnp.concatenate([times(matrix, factor), noise_root], axis=1))
        return (apply(matrix, mean) + offset, ahead), (mean, factor, innovation, log_det)

    look = obs.varying()._replace(constant=None)
    first = start[0], root(start[1])
    mean, factor, innovation, log_det = jax.lax.scan(step, first, (moves.varying(), look))[1]
    return Forward(mean, factor @ jnp.swapaxes(factor, -1, -2), innovation, log_det, factor)


# ---------------------------------------------------------------------------------------------- parallel in time


class Element(NamedTuple):
    r"""$p(z_s \mid y, z_{0}) = N(Az_0 + b, C)$ and $p(y \mid z_0) \propto N^{-1}(z_0; \eta, J)$ of a stretch of steps.

    Reference: Särkkä and García-Fernández (2021), "Temporal parallelization of Bayesian smoothers".
    """

    matrix: Array
    mean: Array
    covariance: Array
    vector: Array
    information: Array


def element(
    matrix: Array, offset: Array, noise: Array, y: Array, rows: Array, row_noise: Array, seen: Array
) -> Element:
    """One transition and the observations after it."""
    look = influence(offset, noise, y, rows, row_noise, seen)
    mean, covariance, _, _ = updated(offset, noise, y, rows, row_noise, seen)
    vector, information = apply(turned(matrix), look.pull), congruence(turned(matrix), look.information)
    return Element(times(look.keep, matrix), mean, covariance, vector, information)


def compose(first: Element, second: Element) -> Element:
    """Two stretches as one. Whole matrix products: an associative scan compiles this a dozen times."""
    eye = jnp.eye(first.mean.shape[0], dtype=first.mean.dtype)
    between = eye + matmul(first.covariance, second.information)
    start = first.mean + matmul(first.covariance, second.vector)
    p = eye.shape[0]
    solved = jnp.linalg.solve(between, jnp.concatenate([first.matrix, first.covariance, start[:, None]], axis=1))
    through, spread, mean = solved[:, :p], solved[:, p : 2 * p], solved[:, -1]
    toward = second.vector - matmul(second.information, first.mean)
    return Element(
        matmul(second.matrix, through),
        matmul(second.matrix, mean) + second.mean,
        symmetric(matmul(matmul(second.matrix, spread), second.matrix.T)) + second.covariance,
        matmul(through.T, toward) + first.vector,
        symmetric(matmul(matmul(through.T, second.information), first.matrix)) + first.information,
    )


def parallel(start: tuple[Array, Array], moves: Transitions, obs: Observations) -> Forward:
    """An associative scan of `compose`: $O(\\log t)$ rounds."""
    mean, covariance = start
    shifted = jax.tree_util.tree_map(lambda a: jnp.roll(a, 1, axis=0), moves.varying())
    steps = jnp.arange(obs.y.shape[0])
    looks = obs.map(lambda *look: look[:4], steps)
    before = {name: part for name, part in zip(shifted._fields, shifted, strict=True) if part is not None}
    elements = moves._replace(**before).map(element, *looks)
    # the first step has no transition before it: its element is the posterior of the initial state itself
    first = jax.tree_util.tree_map(lambda a: a[0], obs.varying())
    belief = update(mean, covariance, *obs.at(first))
    nothing = jnp.zeros_like(covariance)
    begin = Element(nothing, belief[0], belief[1], jnp.zeros_like(mean), nothing)
    elements = jax.tree_util.tree_map(lambda a, b: jnp.concatenate([b[None], a[1:]]), elements, begin)
    found = jax.lax.associative_scan(jax.vmap(compose), elements)
    means, covariances = predictions(start, moves, found.mean, found.covariance)
    _, _, innovation, log_det = obs.map(lambda *look: update(*look[4:], *look[:4]), means, covariances)
    return Forward(found.mean, found.covariance, innovation, log_det)


def predictions(start: tuple[Array, Array], moves: Transitions, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Predicted moments of every step from filtered ones."""
    means, covariances = moves.map(lambda a, b, q, m, c: predict(m, c, a, b, q), mean, covariance)
    join = lambda first, rest: jnp.concatenate([first[None], rest[:-1]])
    return join(start[0], means), join(start[1], covariances)
