"""The forward pass over a linear-Gaussian system, in three forms: Joseph, square root, parallel in time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .._linalg import cho_solve, symmetric
from .small import SMALL, congruence, outer, product, root, solve
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


def update(mean: Array, covariance: Array, y: Array, rows: Array, noise: Array) -> tuple[Array, Array, Array, Array]:
    r"""Bayes' rule for observations with independent noise: mean, covariance, whitened innovations, $\log|S|$.

    Few observations enter one by one, so that nothing is factorized. The covariance is updated in Joseph's form
    $(I-kh^\top)P(I-kh^\top)^\top + rkk^\top$: an error in the gain $k$ counts squared.
    """
    if y.shape[0] > SMALL:
        return _update_together(mean, covariance, y, rows, noise)
    innovations, scales = [], []
    for j in range(y.shape[0]):
        h = rows[j]
        cross = product(covariance, h)
        scale = product(h, cross) + noise[j]
        # an exact observation of what is known exactly: nothing to learn
        positive = scale > 0
        gain = jnp.where(positive, cross / jnp.where(positive, scale, 1), 0)
        error = y[j] - product(h, mean)
        reduced = covariance - outer(gain, cross)
        covariance = reduced - outer(product(reduced, h) - noise[j] * gain, gain)
        mean = mean + gain * error
        innovations.append(error)
        scales.append(scale)
    scale = jnp.stack(scales)
    innovation = jnp.stack(innovations) / jnp.sqrt(jnp.where(scale > 0, scale, 1))
    impossible = (scale <= 0) & (innovation != 0)
    log_det = jnp.where(jnp.any(impossible), jnp.inf, jnp.sum(jnp.log(jnp.where(scale > 0, scale, 1))))
    return mean, covariance, innovation, log_det


def _update_together(mean, covariance, y, rows, noise):
    cross = product(rows, covariance)
    factor = jnp.linalg.cholesky(product(cross, rows.T) + jnp.diag(noise))
    gain = cho_solve(factor, cross).T
    keep = jnp.eye(mean.shape[0], dtype=mean.dtype) - product(gain, rows)
    error = y - product(rows, mean)
    covariance = congruence(keep, covariance) + product(gain * noise[None, :], gain.T)
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
    return mean + product(gain, error), symmetric(covariance), solve_triangular(factor, error, lower=True), log_det


def predict(mean: Array, covariance: Array, matrix: Array, offset: Array, noise: Array) -> tuple[Array, Array]:
    """One step ahead."""
    return product(matrix, mean) + offset, congruence(matrix, covariance) + noise


class Influence(NamedTuple):
    r"""How one step's observations act on the predicted state: $\Phi = I - KH$, $K$, $u = H^\top S^{-1}v$,
    $W = H^\top S^{-1}H$ and what $S^{-1}$ makes of the innovations."""

    keep: Float[Array, "p p"]
    gain: Float[Array, "p q"]
    pull: Float[Array, "p"]
    information: Float[Array, "p p"]
    inverse: Float[Array, "q q"]
    error: Float[Array, "q"]


def influence(mean: Array, covariance: Array, y: Array, rows: Array, noise: Array) -> Influence:
    """The observations of one step all together, given the predicted state."""
    q, p = rows.shape
    spread = congruence(rows, covariance) + jnp.diag(noise)
    eye = jnp.eye(q, dtype=mean.dtype)
    right = jnp.concatenate([rows, (y - product(rows, mean))[:, None], eye], axis=1)
    solved = solve(spread, right)
    half, error, inverse = solved[:, :p], solved[:, p], solved[:, p + 1 :]
    gain = product(covariance, half.T)
    keep = jnp.eye(p, dtype=mean.dtype) - product(gain, rows)
    return Influence(keep, gain, product(rows.T, error), symmetric(product(rows.T, half)), symmetric(inverse), error)


# ---------------------------------------------------------------------------------------------- Joseph


def joseph(start: tuple[Array, Array], moves: Transitions, obs: Observations) -> Forward:
    """A scan of `update` and `predict`."""

    def step(carry, inputs):
        move, look = inputs
        mean, covariance, innovation, log_det = update(*carry, *obs.at(look))
        return predict(mean, covariance, *moves.at(move)), (mean, covariance, innovation, log_det)

    look = obs.varying()._replace(constant=None)
    return Forward(*jax.lax.scan(step, start, (moves.varying(), look))[1])


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
        y, rows, noise = obs.at(look)
        q = y.shape[0]
        deviation = jnp.sqrt(noise)
        above = jnp.concatenate([jnp.diag(deviation), product(rows, factor)], axis=1)
        below = jnp.concatenate([jnp.zeros((factor.shape[0], q), factor.dtype), factor], axis=1)
        whole = triangular(jnp.concatenate([above, below]))
        innovation = solve_triangular(whole[:q, :q], y - product(rows, mean), lower=True)
        mean, factor = mean + product(whole[q:, :q], innovation), whole[q:, q:]
        log_det = 2 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(whole[:q, :q]))))
        matrix, offset, noise_root = moves.at(move)
        ahead = triangular(jnp.concatenate([product(matrix, factor), noise_root], axis=1))
        return (product(matrix, mean) + offset, ahead), (mean, factor, innovation, log_det)

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


def element(matrix: Array, offset: Array, noise: Array, y: Array, rows: Array, row_noise: Array) -> Element:
    """One transition and the observations after it."""
    seen = influence(offset, noise, y, rows, row_noise)
    mean, covariance, _, _ = update(offset, noise, y, rows, row_noise)
    vector, information = product(matrix.T, seen.pull), congruence(matrix.T, seen.information)
    return Element(product(seen.keep, matrix), mean, covariance, vector, information)


def compose(first: Element, second: Element) -> Element:
    """Two stretches as one."""
    eye = jnp.eye(first.mean.shape[0], dtype=first.mean.dtype)
    inner = eye + product(first.covariance, second.information)
    right = jnp.concatenate(
        [first.matrix, first.covariance, (first.mean + product(first.covariance, second.vector))[:, None]], axis=1
    )
    p = eye.shape[0]
    solved = jnp.linalg.solve(inner, right)
    through, spread, mean = solved[:, :p], solved[:, p : 2 * p], solved[:, -1]
    back = product(through.T, second.information)
    toward = second.vector - product(second.information, first.mean)
    return Element(
        product(second.matrix, through),
        product(second.matrix, mean) + second.mean,
        symmetric(congruence(second.matrix, spread)) + second.covariance,
        product(through.T, toward) + first.vector,
        symmetric(product(back, first.matrix)) + first.information,
    )


def parallel(start: tuple[Array, Array], moves: Transitions, obs: Observations) -> Forward:
    """An associative scan of `compose`: $O(\\log t)$ rounds."""
    mean, covariance = start
    shifted = jax.tree_util.tree_map(lambda a: jnp.roll(a, 1, axis=0), moves.varying())
    build = lambda move, look: element(*moves.at(move), *obs.at(look))
    elements = jax.vmap(build)(shifted, obs.varying())
    # the first step has no transition before it: its element is the posterior of the initial state itself
    first = jax.tree_util.tree_map(lambda a: a[0], obs.varying())
    belief = update(mean, covariance, *obs.at(first))
    nothing = jnp.zeros_like(covariance)
    begin = Element(nothing, belief[0], belief[1], jnp.zeros_like(mean), nothing)
    elements = jax.tree_util.tree_map(lambda a, b: jnp.concatenate([b[None], a[1:]]), elements, begin)
    found = jax.lax.associative_scan(jax.vmap(compose), elements)
    means, covariances = predictions(start, moves, found.mean, found.covariance)
    _, _, innovation, log_det = obs.map(lambda y, h, r, m, c: update(m, c, y, h, r), means, covariances)
    return Forward(found.mean, found.covariance, innovation, log_det)


def predictions(start: tuple[Array, Array], moves: Transitions, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Predicted moments of every step from filtered ones."""
    means, covariances = moves.map(lambda a, b, q, m, c: predict(m, c, a, b, q), mean, covariance)
    join = lambda first, rest: jnp.concatenate([first[None], rest[:-1]])
    return join(start[0], means), join(start[1], covariances)
