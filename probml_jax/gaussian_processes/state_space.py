"""Kernels of one input as linear-Gaussian state-space models: exact regression in O(n) on the Kalman engine."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._linalg import matmul
from .._special import any_in_batch
from .composition import AbstractKernel, Constant, Frozen, Product, Scaled, Sum
from .kernels import Matern12, Matern32, Matern52, Periodic, White


class Markov(NamedTuple):
    r"""A stationary process $f(t) = h^\top z(t)$ plus independent noise of variance `nugget` at every input.

    `move(dt)` gives the transition matrix and the noise covariance over a step: small matrices on the leading axes,
    whatever shape `dt` has behind them. `exact` tells whether the kernel is this process or close to it.
    """

    stationary: Float[Array, "p p"]
    emission: Float[Array, "p"]
    move: Callable[[Array], tuple[Array, Array]]
    nugget: Float[Array, ""]
    exact: bool = True


@functools.singledispatch
def markov(kernel: AbstractKernel) -> Markov | None:
    """The state-space form of a kernel of one input, or `None`; register your own with `markov.register`.

    >>> from probml_jax.gaussian_processes import kernels
    >>> markov(kernels.Matern32(1.0)) is not None, markov(kernels.RBF(1.0)) is None
    (True, True)
    """
    return None


# ---------------------------------------------------------------------------------------------- Matern


_NEAR = 2.0  # below a series, above its complement, which there loses at most two digits


@functools.cache
def _polynomial(count: int, bits: int) -> list[float]:
    r"""Coefficients, in $v - 1$, of $a!\,v^{-a}e^v P(a, v) = \sum_m v^m\,a!/(a+m)!$ for $v$ below 2, to working
    precision: half as many as the series has."""
    terms = [math.factorial(count) / math.factorial(count + m) for m in range(28)]
    # everything is positive up to here: nothing has cancelled
    about_one = [sum(math.comb(m, k) * terms[m] for m in range(k, 28)) for k in range(28)]
    chebyshev = np.polynomial.chebyshev.poly2cheb(about_one)[: 15 if bits > 32 else 9]
    return np.polynomial.chebyshev.cheb2poly(chebyshev).tolist()


def _decay_and_share(count: int, u: Array) -> tuple[Array, Array]:
    r"""$e^{-u}$, and $P(a, 2u)$ for a = `count`: by its series, or, for long steps, by its complement.

    A branch, for long series mostly have short steps only; and because what comes out of a branch is computed once,
    where a compiler would else compute it again for every entry of the matrices it enters.
    """
    v = 2 * u
    *lower, highest = _polynomial(count, jnp.finfo(u.dtype).bits)

    def by_series(decay, v):
        series = highest
        for coefficient in reversed(lower):
            series = series * (v - 1) + coefficient
        return decay**2 * (v**count / math.factorial(count) * series)

    def either(u, v):
        near, once = v < _NEAR, jnp.exp(-u)
        large = jnp.where(near, _NEAR, v)
        rest = sum(large**m / math.factorial(m) for m in range(count))
        return once, jnp.where(near, by_series(once, jnp.where(near, v, 1)), 1 - once**2 * rest)

    def short(u, v):
        once = jnp.exp(-u)
        return once, by_series(once, v)

    long = any_in_batch(jnp.any(jax.lax.stop_gradient(v) >= _NEAR))
    return jax.lax.cond(long, either, short, u, v)


def _gamma_integrals(count: int, u: Array) -> tuple[Array, list[Array]]:
    r"""$e^{-u}$, and $\int_0^u s^k e^{-2s}\,ds = k!/2^{k+1}\,P(k+1, 2u)$ for k below `count`, to full relative
    precision for small steps too: all but the highest by $P(a, v) = P(a+1, v) + v^a e^{-v}/a!$, which only adds."""
    once, share = _decay_and_share(count, u)
    shares = [share]
    for a in range(count - 1, 0, -1):
        share = share + (2 * u) ** a * once**2 / math.factorial(a)
        shares.append(share)
    return once, [math.factorial(k) / 2 ** (k + 1) * share for k, share in enumerate(reversed(shares))]


def _stacked(entry: Callable[[int, int], Array], p: int) -> Array:
    return jnp.stack([jnp.stack([entry(i, j) for j in range(p)]) for i in range(p)])


def _matern(rate: Array, response: np.ndarray, drift: np.ndarray, power: float) -> Markov:
    r"""A process with impulse response $e^{-s}\sum_a G_{ia}s^a$ in its i-th derivative, $s$ in units of 1/`rate`.

    Derivatives are scaled by the rate, so that all states have variances of order one.
    """
    p = len(drift)
    dtype = rate.dtype
    powers = [np.linalg.matrix_power(drift + np.eye(p), m) / math.factorial(m) for m in range(p)]
    # how the integrals of s^k e^{-2s} enter the covariance of the i-th and j-th derivative
    shares = np.zeros((p, p, 2 * p - 1))
    for a in range(p):
        for b in range(p):
            shares[:, :, a + b] += power * np.outer(response[:, a], response[:, b])
    weighted = lambda weights, parts: sum(float(w) * part for w, part in zip(weights, parts, strict=True) if w)

    def move(dt):
        u = rate * dt
        once, integrals = _gamma_integrals(2 * p - 1, u)
        rises = [once * u**m for m in range(p)]
        matrix = _stacked(lambda i, j: weighted([m[i, j] for m in powers], rises) + jnp.zeros_like(u), p)
        return matrix, _stacked(lambda i, j: weighted(shares[i, j], integrals), p)

    whole = [math.factorial(k) / 2 ** (k + 1) for k in range(2 * p - 1)]
    return Markov(jnp.asarray(shares @ whole, dtype), jnp.eye(p, dtype=dtype)[0], move, jnp.zeros((), dtype))


def _rate(kernel: Matern12 | Matern32 | Matern52, root: float) -> Array:
    scale = kernel.length_scale
    return jnp.sqrt(jnp.asarray(root, scale.dtype)) / jnp.reshape(scale, ())


@markov.register
def _(kernel: Matern12) -> Markov:
    return _matern(_rate(kernel, 1.0), np.array([[1.0]]), np.array([[-1.0]]), 2.0)


@markov.register
def _(kernel: Matern32) -> Markov:
    return _matern(_rate(kernel, 3.0), np.array([[0.0, 1], [1, -1]]), np.array([[0.0, 1], [-1, -2]]), 4.0)


@markov.register
def _(kernel: Matern52) -> Markov:
    response = np.array([[0, 0, 0.5], [0, 1, -0.5], [1, -2, 0.5]])
    return _matern(_rate(kernel, 5.0), response, np.array([[0.0, 1, 0], [0, 0, 1], [-1, -3, -3]]), 16 / 3)


# ---------------------------------------------------------------------------------------------- others


@markov.register
def _(kernel: Constant) -> Markov:
    one = jnp.ones((1, 1), kernel.variance.dtype)
    stay = lambda dt: (jnp.ones_like(dt)[None, None], jnp.zeros_like(dt)[None, None])
    return Markov(one, jnp.sqrt(kernel.variance)[None], stay, jnp.zeros_like(kernel.variance))


@markov.register
def _(kernel: White) -> Markov:
    empty = lambda dt: (jnp.zeros((0, 0, *dt.shape), dt.dtype), jnp.zeros((0, 0, *dt.shape), dt.dtype))
    nothing = jnp.zeros((0, 0), kernel.variance.dtype)
    return Markov(nothing, nothing[0:0].reshape(0), empty, kernel.variance)


_HARMONICS, _NODES = 7, 64


@markov.register
def _(kernel: Periodic) -> Markov:
    """The first seven harmonics of its Fourier series: oscillators without noise. Solin and Särkkä (2014)."""
    dtype = kernel.length_scale.dtype
    angle = jnp.asarray(2 * np.pi * np.arange(_NODES) / _NODES, dtype)
    values = jnp.exp(-(1 - jnp.cos(angle)) / kernel.length_scale**2)
    orders = np.arange(_HARMONICS + 1)
    waves = jnp.asarray(np.cos(2 * np.pi * np.outer(orders, np.arange(_NODES)) / _NODES), dtype)
    power = jnp.maximum(matmul(waves, values) * jnp.asarray(np.where(orders == 0, 1, 2) / _NODES, dtype), 0)
    p = 2 * _HARMONICS + 1

    def move(dt):
        turn = 2 * jnp.pi / kernel.period * dt
        rows = [[jnp.zeros_like(dt)] * p for _ in range(p)]
        rows[0][0] = jnp.ones_like(dt)
        for k in range(1, _HARMONICS + 1):
            i, cos, sin = 2 * k - 1, jnp.cos(k * turn), jnp.sin(k * turn)
            rows[i][i], rows[i][i + 1], rows[i + 1][i], rows[i + 1][i + 1] = cos, -sin, sin, cos
        matrix = jnp.stack([jnp.stack(row) for row in rows])
        return matrix, jnp.zeros_like(matrix)

    spread = jnp.concatenate([power[:1], jnp.repeat(power[1:], 2)])
    seen = jnp.asarray([1.0] + [1.0, 0.0] * _HARMONICS, dtype)
    return Markov(jnp.diag(spread), seen, move, jnp.zeros((), dtype), exact=False)


@markov.register
def _(kernel: Scaled) -> Markov | None:
    inner = markov(kernel.kernel)
    if inner is None:
        return None
    return inner._replace(emission=jnp.sqrt(kernel.variance) * inner.emission, nugget=kernel.variance * inner.nugget)


@markov.register
def _(kernel: Frozen) -> Markov | None:
    return markov(kernel.kernel)


def _block_diagonal(a: Array, b: Array) -> Array:
    above = jnp.concatenate([a, jnp.zeros((a.shape[0], b.shape[1], *a.shape[2:]), a.dtype)], axis=1)
    below = jnp.concatenate([jnp.zeros((b.shape[0], a.shape[1], *a.shape[2:]), a.dtype), b], axis=1)
    return jnp.concatenate([above, below])


@markov.register
def _(kernel: Sum) -> Markov | None:
    first, second = markov(kernel.first), markov(kernel.second)
    if first is None or second is None:
        return None

    def move(dt):
        (a, q), (b, r) = first.move(dt), second.move(dt)
        return _block_diagonal(a, b), _block_diagonal(q, r)

    return Markov(
        _block_diagonal(first.stationary, second.stationary),
        jnp.concatenate([first.emission, second.emission]),
        move,
        first.nugget + second.nugget,
        first.exact and second.exact,
    )


def _kron(a: Array, b: Array) -> Array:
    size = a.shape[0] * b.shape[0]
    product = a[:, None, :, None] * b[None, :, None, :]
    return product.reshape(size, size, *product.shape[4:])


@markov.register
def _(kernel: Product) -> Markov | None:
    """States multiply. Noise times noise is nothing new to the state, so kernels with a nugget have no such form."""
    first, second = markov(kernel.first), markov(kernel.second)
    if first is None or second is None or any(_has_white(k) for k in (kernel.first, kernel.second)):
        return None

    def move(dt):
        (a, q), (b, r) = first.move(dt), second.move(dt)
        wide = lambda m: jnp.broadcast_to(m.reshape(*m.shape, *[1] * dt.ndim), (*m.shape, *dt.shape))
        moved = wide(first.stationary) - q  # A P A'
        return _kron(a, b), _kron(q, wide(second.stationary)) + _kron(moved, r)

    emission = (first.emission[:, None] * second.emission[None, :]).reshape(-1)
    whole = _kron(first.stationary, second.stationary)
    return Markov(whole, emission, move, jnp.zeros_like(whole[0, 0]), first.exact and second.exact)


def _has_white(kernel: AbstractKernel) -> bool:
    parts = jax.tree_util.tree_leaves(kernel, is_leaf=lambda node: isinstance(node, White))
    return any(isinstance(part, White) for part in parts)
