"""Builders of linear dynamical systems: learned from data, structural time series, tracking."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .. import conjugate
from .._estimate import MAP, ML, AbstractEstimate, Frozen
from .._linalg import matmul, symmetric
from .._typing import PRNGKey
from .._validate import as_data, check_rank
from ..distributions.linear_gaussian import LinearGaussian
from ..distributions.linear_normal import LinearNormal
from ..distributions.linear_spherical_normal import LinearSphericalNormal
from ..distributions.multivariate_normal import MultivariateNormal
from .data import as_sequences, check_lengths, exists
from .linear_dynamical_system import LinearDynamicalSystem

_NOISES = ("full", "diagonal", "spherical")


# ---------------------------------------------------------------------------------------------- from data


def linear_dynamical_system(
    key: PRNGKey,
    ys: Any,
    num_latents: int,
    *,
    noise: str = "diagonal",
    estimate: str = "ml",
    strength: float = 1.0,
) -> LinearDynamicalSystem:
    r"""A system with `num_latents` states for `ys (n, t, d)`, `(ys, lengths)` or with inputs `((ys, us), lengths)`.

    It starts from the principal subspace of windows of consecutive observations (states are what the past and present
    have in common with them), dynamics and emissions by least squares: close enough for EM or L-BFGS to finish.

    - `noise`: of the emissions, "full", "diagonal" or "spherical". That of the dynamics is full.
    - `estimate`: "ml", or "map" with weak conjugate priors around the start, each worth `strength` observations (more
      where a proper density needs them). The first state has such a prior either way: one series holds only one.

    Cost: one pass and $(dw)^3$ for windows of w steps.

    >>> lds = linear_dynamical_system(jr.key(0), jr.normal(jr.key(1), (4, 30, 3)), num_latents=2)
    >>> lds.num_latents
    2
    """
    many = as_sequences(as_data(ys), batched=True)
    y, inputs = many.xs if isinstance(many.xs, tuple) else (many.xs, None)
    check_rank("ys", y, 3, "(n, t, d); one series is ys[None]")
    check_lengths(many.lengths, *y.shape[:2])
    if num_latents < 1:
        raise ValueError(f"num_latents must be at least 1; got {num_latents}.")
    if noise not in _NOISES:
        raise ValueError(f"noise must be one of {_NOISES}; got {noise!r}.")
    if estimate not in ("ml", "map"):
        raise ValueError(f"estimate must be 'ml' or 'map'; got {estimate!r}.")
    window = -(-num_latents // y.shape[2]) + 1
    if y.shape[1] <= window:
        raise ValueError(f"ys has {y.shape[1]} steps; {num_latents} states want more than {window}.")
    return _from_data(key, y, inputs, many.lengths, num_latents, window, noise, estimate, strength)


@eqx.filter_jit
def _from_data(key, y, inputs, lengths, p: int, window: int, noise: str, estimate: str, strength):
    n, t, _ = y.shape
    here = jnp.ones((n, t), bool) if lengths is None else jax.vmap(lambda l: exists(l, t))(lengths)
    states, filled, weights = _subspace(key, y, here, p, window)
    mean = jnp.tensordot(weights, filled, 2) / jnp.sum(weights)
    before = states if inputs is None else jnp.concatenate([states, inputs[:, window - 1 :]], axis=2)
    flat = lambda a: a.reshape(-1, a.shape[-1])
    w, moves = weights.reshape(-1), (weights[:, :-1] * weights[:, 1:]).reshape(-1)
    dynamics = _regression(flat(before[:, :-1]), flat(states[:, 1:]), moves)
    dynamics = (_stable(dynamics[0], p), *dynamics[1:])
    emission = _regression(flat(before), flat(filled - mean[None, None]), w)
    emission = emission[0], emission[1] + mean, emission[2]
    spread = symmetric(matmul((w[:, None] * flat(states)).T, flat(states)) / jnp.sum(w))
    start = MultivariateNormal(jnp.zeros(p, y.dtype), spread + 0.1 * jnp.eye(p, dtype=y.dtype))
    leaves = [
        _with_prior(member, estimate, strength) for member in (LinearGaussian(*dynamics), _noisy(noise, *emission))
    ]
    # one series says little about the distribution of first states: a prior worth a few keeps it proper
    prior = conjugate.NormalInverseWishart(start.loc, 0.1, (p + 2) * start.covariance, p + 2.0)
    return LinearDynamicalSystem(MAP(start, prior), *leaves)


def _subspace(key, y, here, p: int, window: int) -> tuple[Array, Array, Array]:
    """States `(n, t - window + 1, p)` of unit variance, the filled observations they go with, and which steps count."""
    n, t, _ = y.shape
    seen = here[:, :, None] & ~jnp.isnan(y)
    count = jnp.maximum(jnp.sum(seen, axis=(0, 1)), 1)
    mean = jnp.sum(jnp.where(seen, y, 0), axis=(0, 1)) / count
    filled = jnp.where(seen, y, mean[None, None])
    steps = t - window + 1
    stacked = jnp.concatenate([filled[:, i : i + steps] - mean[None, None] for i in range(window)], axis=2)
    weights = here[:, window - 1 :].astype(y.dtype)
    flat, w = stacked.reshape(n * steps, -1), weights.reshape(-1)
    scatter = matmul((w[:, None] * flat).T, flat) / jnp.sum(w)
    scale = jnp.trace(scatter) / scatter.shape[0] + jnp.finfo(y.dtype).tiny
    # a little noise separates directions of equal strength
    shake = 1e-3 * scale * jr.normal(key, scatter.shape, y.dtype)
    values, vectors = jnp.linalg.eigh(symmetric(scatter + shake))
    size = jnp.maximum(values[-p:], 1e-3 * scale)
    states = matmul(flat, vectors[:, -p:] / jnp.sqrt(size)[None])
    return states.reshape(n, steps, p), filled[:, window - 1 :], weights


def _regression(x: Array, y: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Matrix, offset and residual covariance by least squares with a small ridge."""
    design = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
    weighted = weights[:, None] * design
    gram = matmul(weighted.T, design)
    eye = jnp.eye(gram.shape[0], dtype=x.dtype)
    count = jnp.maximum(jnp.sum(weights), 1)
    solution = jnp.linalg.solve(gram + 1e-4 * count * eye, matmul(weighted.T, y)).T
    residual = y - matmul(design, solution.T)
    spread = matmul((weights[:, None] * residual).T, residual) / count
    total = matmul((weights[:, None] * y).T, y) / count
    floor = 1e-2 * jnp.diag(jnp.diagonal(total)) + jnp.finfo(x.dtype).eps * jnp.eye(y.shape[1], dtype=x.dtype)
    return solution[:, :-1], solution[:, -1], symmetric(spread) + floor


def _stable(matrix: Array, p: int) -> Array:
    """Dynamics shrunk to a spectral norm below one, so that a start never explodes."""
    size = jnp.linalg.norm(matrix[:, :p], ord=2)
    return matrix.at[:, :p].multiply(jnp.minimum(1.0, 0.99 / size))


def _noisy(noise: str, matrix, offset, covariance):
    variance = jnp.diagonal(covariance)
    if noise == "full":
        return LinearGaussian(matrix, offset, covariance)
    if noise == "diagonal":
        return LinearNormal(matrix, offset, jnp.sqrt(variance), floor=1e-6 * variance)
    return LinearSphericalNormal(matrix, offset, jnp.sqrt(jnp.mean(variance)), floor=1e-6 * jnp.mean(variance))


def _with_prior(member: Any, estimate: str, strength: float) -> AbstractEstimate:
    if estimate == "ml":
        return ML(member)
    line = jnp.concatenate([member.matrix, member.offset[:, None]], axis=1)
    m, q = line.shape
    precision = strength * jnp.eye(q, dtype=line.dtype)
    if isinstance(member, LinearGaussian):
        df = m + 1.0 + strength
        prior = conjugate.MatrixNormalInverseWishart(line, precision, df * member.covariance, df, intercept=True)
        return MAP(member, prior)
    kind = conjugate.MatrixNormalInverseChiSquared
    if isinstance(member, LinearSphericalNormal):
        kind = conjugate.SphericalMatrixNormalInverseChiSquared
    return MAP(member, kind(line, precision, strength + 1.0, member.scale**2, intercept=True))


# ---------------------------------------------------------------------------------------------- structural time series


def _spread_of(ys: Any) -> tuple[float, float, Any]:
    """A typical size of steps in the data, one of the data themselves, and their dtype; ones without data."""
    if ys is None:
        return 1.0, 1.0, jnp.result_type(float)
    values = jnp.asarray(ys[0] if isinstance(ys, tuple) else ys)
    check_rank("ys", values, 3, "(n, t, 1); one series is ys[None]")
    if values.shape[2] != 1:
        raise ValueError(f"ys has {values.shape[2]} features; a structural component has one.")
    size = lambda a: float(np.sqrt(np.nanmean(a**2))) if np.isfinite(a).any() else 1.0
    exact = np.asarray(values, np.float64)
    return size(np.diff(exact, axis=1)) or 1.0, size(exact) or 1.0, values.dtype


def _component(matrix, scale, loading, noise_scale, dtype, *, free=None, diffuse=True, start=1.0, parts=None):
    """One series of one feature: fixed dynamics with the given noise, fixed loading, learned scales."""
    array = lambda a: jnp.asarray(np.asarray(a, np.float64), dtype)
    p = len(matrix)
    nothing = np.zeros((p, p + 1), bool) if free is None else free
    dynamics = LinearNormal(array(matrix), array(np.zeros(p)), array(scale), free=nothing)
    emission = LinearNormal(array([loading]), array([0.0]), array([noise_scale]), free=np.zeros((1, p + 1), bool))
    first = Frozen(ML(MultivariateNormal(array(np.zeros(p)), array(start**2 * np.eye(p)))))
    unknown = jnp.ones(p, bool) if diffuse else None
    return LinearDynamicalSystem(first, ML(dynamics), ML(emission), unknown, parts or (p,))


def local_level(ys: Any = None) -> LinearDynamicalSystem:
    r"""A random walk seen through noise: $\mu_{s+1} = \mu_s + N(0, \sigma_\mu^2)$, $y_s = \mu_s + N(0, \sigma^2)$.

    Both scales are learned by `fit` (start: from the size of steps in `ys (n, t, 1)`, else 1); the first level is
    diffuse. Reference: Durbin and Koopman (2012), chapter 2.

    >>> local_level().num_latents
    1
    """
    size, _, dtype = _spread_of(ys)
    return _component([[1.0]], [0.5 * size], [1.0], size, dtype)


def local_trend(ys: Any = None, *, smooth: bool = False) -> LinearDynamicalSystem:
    r"""A level with a slope that wanders too: $\mu_{s+1} = \mu_s + \beta_s + N(0, \sigma_\mu^2)$,
    $\beta_{s+1} = \beta_s + N(0, \sigma_\beta^2)$.

    `smooth` leaves the level without noise of its own (an integrated random walk). Scales are learned; the start is
    diffuse.

    >>> local_trend().num_latents
    2
    """
    size, _, dtype = _spread_of(ys)
    scale = [0.0 if smooth else 0.5 * size, 0.1 * size]
    return _component([[1.0, 1.0], [0.0, 1.0]], scale, [1.0, 0.0], size, dtype)


def seasonal(period: int, ys: Any = None) -> LinearDynamicalSystem:
    r"""A pattern of `period` steps that sums to (nearly) zero: $\gamma_{s+1} = -\sum_{j<period-1}\gamma_{s-j} + N(0,
    \sigma_\gamma^2)$.

    Usually a part of `combine(local_level(), seasonal(12))`. The scale is learned; the start is diffuse.

    >>> combine(local_level(), seasonal(12)).num_latents
    12
    """
    if period < 2:
        raise ValueError(f"period must be at least 2; got {period}.")
    size, _, dtype = _spread_of(ys)
    p = period - 1
    matrix = np.eye(p, k=-1)
    matrix[0] = -1.0
    return _component(matrix, [0.1 * size, *[0.0] * (p - 1)], np.eye(p)[0], size, dtype)


def autoregressive(order: int, ys: Any = None, *, noisy: bool = False) -> LinearDynamicalSystem:
    r"""$y_s = \sum_j \phi_jy_{s-j} + N(0, \sigma^2)$, coefficients and scale learned, in companion form.

    `noisy` adds observation noise (as does `combine` with another component). The values before the series are taken
    to be independent and as large as the data, not diffuse.

    >>> autoregressive(2).num_latents
    2
    """
    if order < 1:
        raise ValueError(f"order must be at least 1; got {order}.")
    size, level, dtype = _spread_of(ys)
    matrix = np.eye(order, k=-1)
    matrix[0, 0] = 0.5
    free = np.zeros((order, order + 1), bool)
    free[0, :order] = True
    scale = [size, *[0.0] * (order - 1)]
    loading = np.eye(order)[0]
    return _component(
        matrix, scale, loading, 0.5 * size if noisy else 0.0, dtype, free=free, diffuse=False, start=level
    )


def combine(*components: LinearDynamicalSystem) -> LinearDynamicalSystem:
    """The sum of independent components, such as a trend, a season and an autoregression, seen through one noise.

    Components are those of this file: systems of one feature with `LinearNormal` leaves. The observation noise starts
    at the largest of theirs. `model.contributions(y)` tells the parts of a series apart again.

    >>> combine(local_trend(), seasonal(4)).parts
    (2, 3)
    """
    if not components:
        raise ValueError("components is empty: at least one is wanted.")
    moves, looks = [c.dynamics.point() for c in components], [c.emission.point() for c in components]
    if not all(isinstance(member, LinearNormal) for member in (*moves, *looks)):
        raise TypeError("combine wants systems with LinearNormal leaves, such as local_level() and seasonal(12).")
    dtype = moves[0].matrix.dtype
    block = lambda arrays: jax.scipy.linalg.block_diag(*arrays)
    sizes = [c.num_latents for c in components]
    p = sum(sizes)
    learned = block([m.free[:, :-1].astype(dtype) for m in moves]) > 0
    offsets = jnp.concatenate([m.free[:, -1] for m in moves])
    free = jnp.concatenate([learned, offsets[:, None]], axis=1)
    join = lambda arrays: jnp.concatenate(list(arrays))
    dynamics = LinearNormal(
        block([m.matrix for m in moves]), join(m.offset for m in moves), join(m.scale for m in moves), free=free
    )
    loading = jnp.concatenate([m.matrix for m in looks], axis=1)
    scale = jnp.max(jnp.stack([m.scale for m in looks]), axis=0)
    emission = LinearNormal(loading, looks[0].offset, scale, free=np.zeros((1, p + 1), bool))
    starts = [c.initial.point() for c in components]
    start = MultivariateNormal(join(s.loc for s in starts), block([s.covariance for s in starts]))
    unknown = [jnp.zeros(k, bool) if c.diffuse is None else c.diffuse for c, k in zip(components, sizes, strict=True)]
    diffuse = None if all(c.diffuse is None for c in components) else jnp.concatenate(unknown)
    parts = tuple(size for c in components for size in c.parts)
    return LinearDynamicalSystem(Frozen(ML(start)), ML(dynamics), ML(emission), diffuse, parts)


# ---------------------------------------------------------------------------------------------- tracking


def constant_velocity(
    num_dims: int = 2, *, dt: float = 1.0, acceleration: float = 1.0, noise: float = 1.0, dtype: Any = None
) -> LinearDynamicalSystem:
    r"""A point whose velocity is shaken by white noise, its position measured: state (positions, velocities).

    $Q = q^2\begin{pmatrix}dt^3/3 & dt^2/2\\ dt^2/2 & dt\end{pmatrix}$ per dimension. The two scales, `acceleration`
    ($q$) and `noise` of the measurements, are learned; the start is diffuse. Reference: Bar-Shalom, Li and
    Kirubarajan (2001), section 6.2.2.

    >>> constant_velocity(2).system().dynamics.tolist()[0]
    [1.0, 0.0, 1.0, 0.0]
    """
    if num_dims < 1:
        raise ValueError(f"num_dims must be at least 1; got {num_dims}.")
    if not (dt > 0 and acceleration > 0 and noise > 0):
        raise ValueError(f"dt, acceleration and noise must be positive; got {dt}, {acceleration}, {noise}.")
    dtype = jnp.result_type(float) if dtype is None else dtype
    array = lambda a: jnp.asarray(a, dtype)
    eye, p = np.eye(num_dims), 2 * num_dims
    matrix = np.kron([[1.0, dt], [0.0, 1.0]], eye)
    shape = np.linalg.cholesky(np.kron([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]], eye))
    nothing = np.zeros((p, p + 1), bool)
    dynamics = LinearSphericalNormal(
        array(matrix), array(np.zeros(p)), array(acceleration), free=nothing, directions=array(shape)
    )
    reading = np.concatenate([eye, 0 * eye], axis=1)
    emission = LinearSphericalNormal(array(reading), array(np.zeros(num_dims)), array(noise), free=nothing[:num_dims])
    start = Frozen(ML(MultivariateNormal(array(np.zeros(p)), array(np.eye(p)))))
    return LinearDynamicalSystem(start, ML(dynamics), ML(emission), jnp.ones(p, bool))
