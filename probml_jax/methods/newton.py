"""Newton's method with a trust region: few steps, each of which looks at the curvature."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._constraint import split
from .._method import AbstractMethod
from .._model import AbstractModel, objective
from .._typing import Data
from .gradient import check_trainable, slope

# up to so many parameters the Hessian is written down and diagonalized; beyond, conjugate gradients only multiply by it
_DENSE = 64
_TRIES = 12


class _Local(NamedTuple):
    """The objective's quadratic model at one point, to be minimized: its slope, and the product with its Hessian."""

    value: Array
    slope: Float[Array, "p"]
    times: Callable[[Array], Array]


class Newton(AbstractMethod):
    r"""Newton's method on unconstrained coordinates: minimize $g^\top s + \tfrac12 s^\top Hs$ within a trust region.

    For smooth objectives with up to some thousand parameters (logistic and softmax regression, hyperparameters): far
    fewer steps than first-order methods, and a minimum to full precision. Up to 64 parameters the Hessian is
    diagonalized (an indefinite one is no obstacle); beyond that, Steihaug's conjugate gradients multiply by it only,
    at the cost of two gradients each. Steps that would lower the objective are shortened, so every step climbs.

    `max_inner` bounds conjugate-gradient iterations per step. Reference: Nocedal and Wright (2006), chapter 4 and
    algorithm 7.2.
    """

    max_inner: int = eqx.field(static=True, default=60)
    monotone: ClassVar[bool] = True
    patience: ClassVar[int] = 1

    def __check_init__(self):
        if self.max_inner < 1:
            raise ValueError(f"max_inner must be at least 1; got {self.max_inner}.")

    def check(self, model: AbstractModel) -> None:
        check_trainable(model)

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        flat, _ = ravel_pytree(split(model)[0])
        return jnp.asarray(jnp.inf, flat.dtype)  # the first step may be as long as it likes

    def step(self, model: AbstractModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        free, rebuild = split(model)
        start, unravel = ravel_pytree(free)
        loss = lambda flat: -objective(rebuild(unravel(flat)), data, weights)
        value, gradient = jax.value_and_grad(loss)(start)
        _, times = jax.linearize(jax.grad(loss), start)
        local = _Local(value, gradient, times)
        solver = _diagonalized(local) if start.size <= _DENSE else _conjugate_gradients(local, self.max_inner)
        radius, moved = _within_trust(loss, local, solver, start, state)
        return rebuild(unravel(moved)), radius, -value

    def optimality(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return slope(model, data, weights)


def _within_trust(loss: Callable, local: _Local, solver: Callable, start: Array, radius: Array) -> tuple[Array, Array]:
    """A step that lowers the loss, from ever smaller regions; none if there is none. And the next region."""

    def attempt(carry):
        radius, _, _, tries = carry
        step = solver(radius)
        promised = -(local.slope @ step + 0.5 * step @ local.times(step))
        found = local.value - loss(start + step)
        length = jnp.linalg.norm(step)
        good = jnp.isfinite(found) & (found >= 0)
        ratio = jnp.where(good & (promised > 0), found / jnp.where(promised > 0, promised, 1), -1)
        wider = jnp.where(ratio > 0.75, jnp.maximum(radius, 2 * length), radius)
        # of a step that could not be trusted, the region is a part
        radius = jnp.where(ratio < 0.25, 0.25 * length, wider)
        return radius, jnp.where(good, step, 0), good, tries + 1

    failing = lambda carry: ~carry[2] & (carry[3] < _TRIES)
    begin = radius, jnp.zeros_like(start), jnp.array(False), jnp.zeros((), jnp.int32)
    radius, step, _, _ = jax.lax.while_loop(failing, attempt, begin)
    return radius, start + step


def _diagonalized(local: _Local) -> Callable[[Array], Array]:
    """The exact minimizer within a radius: $-(H + \\lambda I)^{-1}g$ with the least $\\lambda$ that is enough."""
    size = local.slope.size
    hessian = jax.vmap(local.times)(jnp.eye(size, dtype=local.slope.dtype))
    values, vectors = jnp.linalg.eigh(0.5 * (hessian + hessian.T))
    along = vectors.T @ local.slope
    scale = jnp.maximum(jnp.max(jnp.abs(values)), jnp.finfo(values.dtype).tiny)
    # directions without curvature and without slope (a softmax's common shift) are left alone
    floor = 8 * size * jnp.finfo(values.dtype).eps * scale
    flat = (jnp.abs(values) <= floor) & (jnp.abs(along) <= jnp.sqrt(floor) * jnp.linalg.norm(along))
    along = jnp.where(flat, 0, along)
    least = jnp.maximum(-jnp.min(jnp.where(flat, scale, values)), 0)
    parts = lambda shift: -along / jnp.where(flat, 1, jnp.maximum(values + shift, floor))

    def solve(radius):
        smallest = jnp.where(least > 0, least + floor, 0)
        most = smallest + jnp.linalg.norm(along) / jnp.maximum(radius, jnp.finfo(values.dtype).tiny)

        def halve(_, bounds):
            low, high = bounds
            middle = 0.5 * (low + high)
            long = jnp.linalg.norm(parts(middle)) > radius
            return jnp.where(long, middle, low), jnp.where(long, high, middle)

        _, shift = jax.lax.fori_loop(0, 40, halve, (smallest, most))
        shift = jnp.where(jnp.linalg.norm(parts(smallest)) <= radius, smallest, shift)
        return vectors @ parts(shift)

    return solve


def _conjugate_gradients(local: _Local, max_inner: int) -> Callable[[Array], Array]:
    """Steihaug's approximate minimizer: it stops at the region's edge, at negative curvature, or when near enough."""
    size = jnp.linalg.norm(local.slope)
    enough = size * jnp.minimum(0.5, jnp.sqrt(size))

    def to_edge(step, direction, radius):
        a, b, c = direction @ direction, step @ direction, radius**2 - step @ step
        root = (-b + jnp.sqrt(jnp.maximum(b**2 + a * c, 0))) / a
        return step + jnp.where(jnp.isfinite(root), root, 1 / jnp.sqrt(a)) * direction

    def solve(radius):
        def turn(carry):
            step, residual, direction, _, count = carry
            product = local.times(direction)
            curvature = direction @ product
            square = residual @ residual
            length = square / jnp.where(curvature > 0, curvature, 1)
            ahead = step + length * direction
            stop = (curvature <= 0) | (jnp.linalg.norm(ahead) >= radius)
            new = residual + length * product
            turned = -new + (new @ new) / square * direction
            done = stop | (jnp.linalg.norm(new) <= enough)
            step = jnp.where(stop, to_edge(step, direction, radius), ahead)
            return step, new, turned, done, count + 1

        going = lambda carry: ~carry[3] & (carry[4] < max_inner)
        begin = jnp.zeros_like(local.slope), local.slope, -local.slope, size == 0, jnp.zeros((), jnp.int32)
        return jax.lax.while_loop(going, turn, begin)[0]

    return solve
