"""A linear-Gaussian state-space system as arrays, and its observations in the form that the filters work on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._lapack import solve_triangular
from .._special import LOG_2PI
from .._validate import as_float, check_positive_definite, check_rank, check_shape, is_concrete
from .small import SMALL, apply, factors, identity, over_time, solve, times, turned


class System(NamedTuple):
    r"""$z_1 \sim N(m, P)$, $z_{s+1} = A_sz_s + b_s + N(0, Q_s)$, $y_s = C_sz_s + c_s + N(0, R_s)$.

    Matrices are constant, or vary with a leading time axis: `dynamics (p, p)` or `(t-1, p, p)` with `dynamics[s]`
    leading from step s to s+1, `dynamics_noise` alike, `emission (d, p)` or `(t, d, p)`, `emission_noise` a vector of
    variances `(d,)`, a matrix `(d, d)` or `(t, d, d)`, `dynamics_offset (p,)` or `(t-1, p)`, `emission_offset (d,)` or
    `(t, d)`. Inputs enter through the offsets. Noise may be singular.

    `diffuse (p,)` marks coordinates of $z_1$ about which nothing is known: they have an infinite variance, exactly.
    """

    initial_mean: Float[Array, "p"]
    initial_covariance: Float[Array, "p p"]
    dynamics: Float[Array, "*steps p p"]
    dynamics_noise: Float[Array, "*steps p p"]
    emission: Float[Array, "*t d p"]
    emission_noise: Float[Array, "..."]
    dynamics_offset: Float[Array, "*steps p"] | None = None
    emission_offset: Float[Array, "*t d"] | None = None
    diffuse: Bool[Array, "p"] | None = None

    @property
    def num_latents(self) -> int:
        """p."""
        return self.initial_mean.shape[0]

    @property
    def num_features(self) -> int:
        """d."""
        return self.emission.shape[-2]


def as_system(system: System) -> System:
    """A system of JAX arrays, whatever arrays it was made of."""
    parts = zip(System._fields, system, strict=True)
    return System(
        *[jnp.asarray(a, bool) if name == "diffuse" and a is not None else as_float(a, name) for name, a in parts]
    )


def check_system(system: System, y: Array | None = None) -> None:
    """Raise `ValueError` naming the part of the system (or the observations) whose shape or value is wrong."""
    check_rank("initial_mean", system.initial_mean, 1, "a vector (p,)")
    p, t = system.num_latents, None
    if system.emission.ndim not in (2, 3):
        raise ValueError(f"emission has shape {system.emission.shape}; wanted (d, {p}) or (t, d, {p}).")
    d = system.num_features
    if y is not None:
        check_rank("y", y, 2, f"(t, {d}): one series; many are a vmap")
        if y.shape[1] != d:
            raise ValueError(f"y has {y.shape[1]} features; the system emits {d}.")
        t = y.shape[0]
        if t == 0:
            raise ValueError("y is empty: at least one step is wanted.")
    wanted = {
        "initial_covariance": ((p, p), None),
        "dynamics": ((p, p), -1),
        "dynamics_noise": ((p, p), -1),
        "emission": ((d, p), 0),
        "emission_noise": ((d, d), 0),
        "dynamics_offset": ((p,), -1),
        "emission_offset": ((d,), 0),
        "diffuse": ((p,), None),
    }
    for name, (shape, shift) in wanted.items():
        value = getattr(system, name)
        if value is not None and not (name == "emission_noise" and value.shape == (d,)):
            _check_part(name, value, shape, None if shift is None else (t, shift))
    check_positive_definite("initial_covariance", system.initial_covariance)
    for name in ("dynamics_noise", "emission_noise"):
        noise = getattr(system, name)
        if noise.ndim < 3:  # on the host; thousands of matrices would cost more than the filter
            check_positive_definite(name, noise if noise.ndim == 2 or not is_concrete(noise) else np.diag(noise))


def _check_part(name: str, value: Array, shape: tuple[int, ...], varies: tuple[int | None, int] | None) -> None:
    if varies is None or value.ndim <= len(shape):
        check_shape(name, value, shape)
        return
    t, shift = varies
    check_shape(name, value, (value.shape[0] if t is None else t + shift, *shape))


class Transitions(NamedTuple):
    """What leads from each of t steps to the next, constant or varying; the last one leads nowhere and is unused.

    `live (t,)` tells which transitions lead to a step that exists: elsewhere the state stays as it is.
    """

    matrix: Array
    offset: Array
    noise: Array
    live: Bool[Array, "t"] | None

    def at(self, part: "Transitions") -> tuple[Array, Array, Array]:
        """Matrix, offset and noise of one step (or, time last, of all), given what varies: `part`, the rest `None`."""
        matrix, offset, noise = (own if given is None else given for own, given in zip(self[:3], part[:3], strict=True))
        if part.live is None:
            return matrix, offset, noise
        here, stay = part.live[None], identity(matrix.shape[0], matrix)
        return jnp.where(here[None], matrix, stay), jnp.where(here, offset, 0), jnp.where(here[None], noise, 0)

    def varying(self) -> "Transitions":
        """The parts with a time axis; `None` in place of constants."""
        ranks = (2, 1, 2)
        matrix, offset, noise = (a if a.ndim > rank else None for a, rank in zip(self[:3], ranks, strict=True))
        return self._replace(matrix=matrix, offset=offset, noise=noise)

    def map(self, function: Callable, *sequences: Any) -> Any:
        """`function(matrix, offset, noise, *items)` for every step, vectorized."""
        run = lambda own, part, *items: function(*own.at(part), *items)
        part = self.varying()
        own = self._replace(**{n: None for n in self._fields if getattr(part, n) is not None})
        return over_time(run, self.matrix.shape[-1], own, part, *sequences)

    def each(self, function: Callable, *sequences: Any) -> Any:
        """The same one step at a time, for functions of the matrix library."""
        return jax.vmap(lambda part, *items: function(*self.at(part), *items))(self.varying(), *sequences)


def transitions(system: System, t: int, mask: Bool[Array, "t"] | None) -> Transitions:
    """The system's transitions, padded to one per step."""
    p = system.num_latents
    offset = jnp.zeros(p, system.initial_mean.dtype) if system.dynamics_offset is None else system.dynamics_offset
    # an unused last one: a copy of the first would do, and identity works when there is none (t = 1)
    pad = lambda a, rank: a if a.ndim == rank else jnp.concatenate([a, jnp.zeros((1, *a.shape[1:]), a.dtype)])
    live = None if mask is None else jnp.concatenate([mask[1:], jnp.zeros(1, bool)])
    return Transitions(pad(system.dynamics, 2), pad(offset, 1), pad(system.dynamics_noise, 2), live)


class Observations(NamedTuple):
    r"""Observations with independent noise: $y_{sj} = h_{sj}^\top z_s + N(0, r_{sj})$, at most p of them per step.

    Where `seen` is false there is nothing (`y` is 0); it is `None` where all is seen. `constant (t,)` is what the
    log-likelihood has besides $\sum_{j}-\tfrac12(\log\sigma^2_{sj} + v_{sj}^2/\sigma^2_{sj})$ over innovations $v$ with
    variance $\sigma^2$.
    """

    y: Float[Array, "t q"]
    seen: Bool[Array, "t q"] | None
    rows: Float[Array, "*t q p"]
    noise: Float[Array, "*t q"]
    constant: Float[Array, "t"]

    def varying(self) -> "Observations":
        """The parts with a time axis; `None` in place of constants."""
        rows = self.rows if self.rows.ndim == 3 else None
        return self._replace(rows=rows, noise=self.noise if self.noise.ndim == 2 else None)

    def at(self, part: "Observations") -> tuple[Array, Array, Array, Array]:
        """`y`, rows, noise and what is seen at one step (or, time last, at all)."""
        rows = self.rows if part.rows is None else part.rows
        seen = jnp.ones(part.y.shape, bool) if part.seen is None else part.seen
        return part.y, rows, self.noise if part.noise is None else part.noise, seen

    def map(self, function: Callable, *sequences: Any) -> Any:
        """`function(y, rows, noise, seen, *items)` for every step, vectorized."""
        run = lambda own, part, *items: function(*own.at(part), *items)
        part = self.varying()
        own = self._replace(**{n: None for n in self._fields if getattr(part, n) is not None})
        return over_time(run, max(self.rows.shape[-2:]), own, part, *sequences)


def observations(
    system: System, y: Float[Array, "t d"], mask: Bool[Array, "t"] | None, *, complete: bool
) -> Observations:
    """The observations decorrelated, and condensed to p of them per step when there are more.

    NaN entries, and steps outside the mask, are not there. `complete` promises that everything is: then nothing but
    `y` differs from series to series, and a batch of them shares its covariances.
    """
    seen = jnp.ones(y.shape, bool) if complete else ~jnp.isnan(y)
    seen = seen if mask is None else seen & mask[:, None]
    y = jnp.where(seen, y, 0)
    if system.emission_offset is not None:
        offset = system.emission_offset
        y = jnp.where(seen, y - (offset if offset.ndim == 2 else offset[None]), 0)
    constant = -0.5 * LOG_2PI * jnp.sum(seen, axis=1).astype(y.dtype)
    rows, noise = system.emission, system.emission_noise
    if noise.ndim == 2 and rows.ndim == 2 and complete:
        inverse, noise = _unit_inverse(noise, seen[0])
        y, rows = jnp.matmul(y, inverse.T, precision="highest"), times(inverse, rows)
    elif noise.ndim == 3 and y.shape[1] == 1:
        noise = noise[:, :, 0]  # nothing to decorrelate, and one row for all steps if there was one
    elif noise.ndim > 1:
        y, rows, noise = _decorrelated(rows, noise, y, seen)
    plain = Observations(y, None if complete and mask is None else seen, rows, noise, constant)
    if y.shape[1] <= system.num_latents:
        return plain
    if plain.seen is None and rows.ndim == 2 and noise.ndim == 1:
        return _condensed_alike(plain)
    return _condensed(plain._replace(seen=seen))


def _decorrelated(rows: Array, noise: Array, y: Array, seen: Array) -> tuple[Array, Array, Array]:
    r"""With $R = LDL^\top$ of what is seen: $L^{-1}y$, $L^{-1}C$ and $D$, for every step."""
    t, d = y.shape
    each_step = lambda a: a if a.ndim == 3 else jnp.broadcast_to(a[None], (t, *a.shape))
    if noise.ndim == 3:
        inverse, pivots = over_time(lambda _, *items: _unit_inverse(*items), d, None, noise, seen)
    else:
        inverse, pivots = over_time(_unit_inverse, d, noise, seen)
    mix = lambda _, inverse, rows, y: (times(inverse, rows), apply(inverse, y))
    rows, y = over_time(mix, d, None, inverse, each_step(rows), y)
    return y, rows, pivots


def _unit_inverse(noise: Array, seen: Array) -> tuple[Array, Array]:
    """The inverse of the unit lower factor of the noise among what is seen, and the pivots."""
    size = noise.shape[0]
    stay = identity(size, noise)
    lower, pivots = factors(jnp.where(seen[:, None] & seen[None], noise, stay))
    if size > SMALL:
        return solve_triangular(lower, stay, lower=True, unit_diagonal=True), pivots
    rows = [jnp.broadcast_to(stay[i], lower.shape[1:]) for i in range(size)]
    for i in range(size):
        for j in range(i):
            rows[i] = rows[i] - lower[i, j][None] * rows[j]
    return jnp.stack(rows), pivots


def _condensed(obs: Observations) -> Observations:
    r"""More observations than states: the same information in p of them.

    They observe $Uz$ with precisions $D$, where $U^\top D U = \sum_j h_jh_j^\top/r_j$.
    What they leave over, the residuals around the least-squares state, does not depend on the state.
    """
    noise = _not_exact(obs)
    varying = noise if noise.ndim == 2 else noise[None]
    weight = jnp.where(obs.seen, 1 / varying, 0)
    if obs.rows.ndim == 2:
        information = jnp.einsum("td,dp,dq->tpq", weight, obs.rows, obs.rows, precision="highest")
        vector = jnp.matmul(weight * obs.y, obs.rows, precision="highest")
        fitted = lambda x: jnp.matmul(x, obs.rows.T, precision="highest")
    else:
        information = jnp.einsum("td,tdp,tdq->tpq", weight, obs.rows, obs.rows, precision="highest")
        vector = jnp.einsum("td,tdp->tp", weight * obs.y, obs.rows, precision="highest")
        fitted = lambda x: jnp.einsum("tp,tdp->td", x, obs.rows, precision="highest")
    nothing = ~jnp.any(obs.seen, axis=1)[:, None]
    information = jnp.where(nothing[:, :, None], jnp.eye(vector.shape[1], dtype=vector.dtype)[None], information)
    rows, best, y, precision = over_time(
        lambda _, *normal: _condense(*normal), vector.shape[1], None, information, vector
    )
    seen = (precision > 0) & ~nothing
    safe = jnp.where(seen, precision, 1)
    left = jnp.sum(weight * jnp.where(obs.seen, obs.y - fitted(best), 0) ** 2, axis=1)
    scales = jnp.sum(jnp.where(obs.seen, jnp.log(varying), 0), axis=1) + jnp.sum(jnp.log(safe), axis=1)
    return Observations(jnp.where(seen, y, 0), seen, rows, 1 / safe, obs.constant - 0.5 * (scales + left))


def _condensed_alike(obs: Observations) -> Observations:
    """The same where every step observes the same: one set of rows for all."""
    noise = _not_exact(obs)
    information = times(turned(obs.rows) / noise[None], obs.rows)
    vector = jnp.matmul(obs.y / noise[None], obs.rows, precision="highest")
    lower, precision = factors(information)
    seen = precision > 0
    safe, rows = jnp.where(seen, precision, 1), jnp.where(seen[:, None], turned(lower), 0)
    best = solve(information, vector.T).T
    left = jnp.sum((obs.y - jnp.matmul(best, obs.rows.T, precision="highest")) ** 2 / noise[None], axis=1)
    constant = obs.constant - 0.5 * (jnp.sum(jnp.log(noise)) + jnp.sum(jnp.log(safe)) + left)
    return Observations(jnp.matmul(best, rows.T, precision="highest"), None, rows, 1 / safe, constant)


def _not_exact(obs: Observations) -> Array:
    """An exact observation (r = 0) among more of them than states: as exact as the dtype can tell."""
    least = jnp.finfo(obs.y.dtype).eps * jnp.max(obs.noise)
    return jnp.maximum(obs.noise, jnp.where(least > 0, least, 1))


def _condense(information: Array, vector: Array) -> tuple[Array, Array, Array, Array]:
    best = solve(information, vector[:, None])[:, 0]
    lower, precision = factors(information)
    rows = turned(lower)
    return rows, best, apply(rows, best), precision
