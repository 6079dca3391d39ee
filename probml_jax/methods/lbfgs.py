"""Limited-memory BFGS with a line search."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._constraint import split
from .._method import AbstractMethod
from .._model import AbstractModel
from .._typing import Data, Flag, Scalar
from .gradient import check_trainable, climb, slope, with_prior

_ARMIJO, _CURVATURE = 1e-4, 0.9


class _Point(NamedTuple):
    """The loss and its gradient somewhere."""

    value: Scalar
    grad: Float[Array, "d"]


class _History(NamedTuple):
    """The last steps and the changes of the gradient along them, in a ring; empty slots have `curvature` 0."""

    steps: Float[Array, "m d"]
    changes: Float[Array, "m d"]
    curvature: Float[Array, "m"]
    latest: Int[Array, ""]

    def push(self, step: Array, change: Array) -> "_History":
        """Remember a step, unless the loss curves down along it."""
        curvature = jnp.dot(step, change)
        useful = curvature > jnp.finfo(step.dtype).eps * jnp.linalg.norm(step) * jnp.linalg.norm(change)
        slot = jnp.where(useful, (self.latest + 1) % len(self.curvature), self.latest)
        put = lambda old, new: old.at[slot].set(jnp.where(useful, new, old[slot]))
        return _History(put(self.steps, step), put(self.changes, change), put(self.curvature, curvature), slot)

    def direction(self, grad: Float[Array, "d"]) -> Float[Array, "d"]:
        """Minus the inverse curvature times the gradient, by the two-loop recursion."""
        inverse = jnp.where(self.curvature > 0, 1 / jnp.where(self.curvature > 0, self.curvature, 1), 0)
        m = len(self.curvature)
        newest_first = (self.latest - jnp.arange(m)) % m

        def back(q, i):
            share = inverse[i] * jnp.dot(self.steps[i], q)
            return q - share * self.changes[i], share

        def forth(r, past):
            i, share = past
            return r + self.steps[i] * (share - inverse[i] * jnp.dot(self.changes[i], r)), None

        q, shares = jax.lax.scan(back, grad, newest_first)
        size = jnp.sum(self.changes[self.latest] ** 2)
        scale = jnp.where(size > 0, self.curvature[self.latest] / jnp.where(size > 0, size, 1), 1)
        return -jax.lax.scan(forth, scale * q, (newest_first, shares), reverse=True)[0]


class _Search(NamedTuple):
    """A line search under way: a bracket of step lengths, what is known at its ends, and the next trial."""

    here: _Point
    known: Flag
    direction: Float[Array, "d"]
    trial: Scalar
    low: Scalar
    high: Scalar
    low_value: Scalar
    low_slope: Scalar
    high_value: Scalar
    high_slope: Scalar
    best: _Point
    length: Scalar
    count: Int[Array, ""]
    done: Bool[Array, ""]


def _cubic(low, high, low_value, low_slope, high_value, high_slope):
    """The minimum of the cubic through two points with slopes, kept inside the bracket."""
    width = high - low
    ratio = 3 * (low_value - high_value) / jnp.where(width == 0, 1, width) + low_slope + high_slope
    root = jnp.sqrt(jnp.maximum(ratio**2 - low_slope * high_slope, 0))
    denominator = high_slope - low_slope + 2 * root
    guess = high - width * (high_slope + root - ratio) / jnp.where(denominator == 0, 1, denominator)
    guess = jnp.where(jnp.isfinite(guess), guess, low + 0.5 * width)
    return jnp.clip(guess, low + 0.1 * width, high - 0.1 * width)


def _advance(search: _Search, tried: _Point) -> _Search:
    """Judge a trial by the (approximate) Wolfe conditions and choose the next."""
    here, a = search.here, search.trial
    slope_here, slope_there = jnp.dot(here.grad, search.direction), jnp.dot(tried.grad, search.direction)
    noise = 4 * jnp.finfo(a.dtype).eps * jnp.maximum(jnp.abs(here.value), 1)
    falls = tried.value <= here.value + _ARMIJO * a * slope_here
    # where the loss no longer resolves the fall, its slope still does (Hager and Zhang, 2005)
    falls = falls | ((tried.value <= here.value + noise) & (slope_there <= (2 * _ARMIJO - 1) * slope_here))
    falls = falls & jnp.isfinite(tried.value) & jnp.all(jnp.isfinite(tried.grad))
    flat = slope_there >= _CURVATURE * slope_here
    pick = lambda flag, new, old: jax.tree_util.tree_map(lambda x, y: jnp.where(flag, x, y), new, old)
    low, low_value, low_slope = pick(
        falls, (a, tried.value, slope_there), (search.low, search.low_value, search.low_slope)
    )
    edge = (search.high, search.high_value, search.high_slope)
    high, high_value, high_slope = pick(falls, edge, (a, tried.value, slope_there))
    inside = _cubic(low, high, low_value, low_slope, high_value, high_slope)
    inside = jnp.where(jnp.isfinite(high_value) & jnp.isfinite(high_slope), inside, low + 0.1 * (high - low))
    return search._replace(
        trial=jnp.where(jnp.isinf(high), 2 * a, inside),
        low=low,
        high=high,
        low_value=low_value,
        low_slope=low_slope,
        high_value=high_value,
        high_slope=high_slope,
        best=pick(falls, tried, search.best),
        length=jnp.where(falls, a, search.length),
        count=search.count + 1,
        done=falls & flat,
    )


def _begin(here: _Point, direction: Array, trial: Array, known: Any) -> _Search:
    zero = jnp.zeros((), here.value.dtype)
    down = jnp.dot(here.grad, direction)
    infinite = jnp.full((), jnp.inf, here.value.dtype)
    return _Search(
        here,
        jnp.asarray(known),
        direction,
        trial,
        low=zero,
        high=infinite,
        low_value=here.value,
        low_slope=down,
        high_value=infinite,
        high_slope=infinite,
        best=here,
        length=zero,
        count=jnp.zeros((), jnp.int32),
        done=jnp.array(False),
    )


class LBFGS(AbstractMethod):
    """Limited-memory BFGS with a Wolfe line search, on unconstrained coordinates.

    `memory` past steps approximate the curvature. One value and gradient per trial of the line search, usually one.
    The loss stands once in the compiled program, so compiling costs what compiling its gradient costs.
    Reference: Nocedal and Wright (2006), algorithms 7.4, 3.5 and 3.6; Hager and Zhang (2005).
    """

    memory: int = eqx.field(static=True, default=10)
    max_linesearch_steps: int = eqx.field(static=True, default=20)
    monotone: ClassVar[bool] = True
    patience: ClassVar[int] = 3

    def check(self, model: AbstractModel) -> None:
        check_trainable(model)

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        x, _ = ravel_pytree(split(model)[0])
        empty = jnp.zeros((self.memory, x.size), x.dtype)
        nowhere = _Point(jnp.zeros((), x.dtype), jnp.zeros_like(x))
        return (
            nowhere,
            _History(empty, empty, jnp.zeros(self.memory, x.dtype), jnp.zeros((), jnp.int32)),
            jnp.array(False),
        )

    def step(self, model: AbstractModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        here, history, known = state
        free, rebuild = split(model)
        x, unravel = ravel_pytree(free)
        mass = jnp.sum(weights)

        def evaluate(x: Array) -> _Point:
            raw = unravel(x)
            value, grad = with_prior(model, raw, climb(model, raw, data, weights))
            return _Point((-value / mass).astype(x.dtype), -ravel_pytree(grad)[0] / mass)

        def body(search: _Search) -> _Search:
            tried = evaluate(x + search.trial * search.direction)
            size = jnp.linalg.norm(tried.grad)
            first = jnp.minimum(1, 1 / jnp.where(size > 0, size, 1)).astype(x.dtype)
            started = _begin(tried, -tried.grad, first, True)._replace(done=~jnp.isfinite(tried.value) | ~(size > 0))
            moved = _advance(search, tried)
            return jax.tree_util.tree_map(lambda a, b: jnp.where(search.known, a, b), moved, started)

        direction = history.direction(here.grad)
        downhill = jnp.dot(direction, here.grad) < 0
        direction = jnp.where(known, jnp.where(downhill, direction, -here.grad), 0)
        going = lambda search: ~search.done & (search.count < self.max_linesearch_steps)
        search = jax.lax.while_loop(going, body, _begin(here, direction, jnp.ones((), x.dtype), known))
        taken = search.length * search.direction
        history = history.push(taken, search.best.grad - search.here.grad)
        return rebuild(unravel(x + taken)), (search.best, history, jnp.array(True)), -search.here.value * mass

    def optimality(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return slope(model, data, weights)
