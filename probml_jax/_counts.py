"""Gamma-function differences and count masses that keep their digits, in float32 too."""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array

from ._special import LOG_2PI

_POINTS = 512  # of the window that replaces an infinite support
_REACH = 12  # standard deviations on each side: the mass beyond is below 1e-20


def stirling_remainder(z: Array) -> Array:
    r"""$\log\Gamma(z) - (z-\tfrac12)\log z + z - \tfrac12\log 2\pi$ for $z > 0$; about $1/(12z)$."""
    large = z > 10
    r = 1 / jnp.where(large, z, 10)
    s = r * r
    series = r * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * 691 / 360360)))))
    small = jnp.where(large, 1, z)
    return jnp.where(large, series, gammaln(small) - (small - 0.5) * jnp.log(small) + small - 0.5 * LOG_2PI)


def log_factorial(x: Array) -> Array:
    """`log x!`, exactly zero for 0 and 1 (float32's log-gamma is not)."""
    some = x > 1
    return jnp.where(some, gammaln(jnp.where(some, x, 1) + 1), 0)


def log_rising(a: Array, x: Array) -> Array:
    r"""$\log\Gamma(a+x) - \log\Gamma(a)$ for $a > 0$, $x \ge 0$, accurate when $a$ dwarfs $x$."""
    remainders = stirling_remainder(a + x) - stirling_remainder(a)
    return (a - 0.5) * jnp.log1p(x / a) + x * jnp.log(a + x) - x + remainders


def log_beta(a: Array, b: Array) -> Array:
    r"""$\log B(a, b)$, value and gradient to full precision (JAX's `betaln` stops at 1e-9 in float64)."""
    small, large = jnp.minimum(a, b), jnp.maximum(a, b)
    return gammaln(small) - log_rising(large, small)


def log_poisson(x: Array, rate: Array) -> Array:
    r"""$\log(e^{-\lambda}\lambda^x/x!)$ by Loader's saddle-point form: no cancellation near $x = \lambda$.

    Also for real $x \ge 0$; `-inf` for negative $x$ and for $\lambda = 0 < x$.
    """
    interior = (x > 0) & (rate > 0)
    y, lam = jnp.where(interior, x, 1), jnp.where(interior, rate, 1)
    v = (y - lam) / (y + lam)
    close = jnp.abs(v) < 0.1
    t = jnp.where(close, v, 0)
    s = t * t
    series = 1 / 3 + s * (1 / 5 + s * (1 / 7 + s * (1 / 9 + s * (1 / 11 + s * (1 / 13 + s / 15)))))
    near = t * (y - lam) + 2 * y * t * s * series
    deviance = jnp.where(close, near, y * jnp.log(y / lam) + lam - y)
    value = -deviance - stirling_remainder(y) - 0.5 * (LOG_2PI + jnp.log(y))
    return jnp.where(interior, value, jnp.where(x == 0, -rate, -jnp.inf))


def log_binomial(x: Array, count: Array, probs: Array) -> Array:
    """Log mass of a binomial, as two Poisson counts given their sum; also for real `x`."""
    both = log_poisson(x, count * probs) + log_poisson(count - x, count * (1 - probs))
    return both - log_poisson(count, count)


def window(mean: Array, scale: Array) -> tuple[Array, Array]:
    """Points of a whole-number support near the mean, on a new leading axis, and their spacing.

    A narrow distribution gets consecutive whole numbers, so a sum over them is exact. A wide one (standard deviation
    above 21, hence far from the edge of its support) gets a coarser grid of real points: the trapezoid rule on the
    mass's smooth continuation, whose error is far below rounding.
    """
    mean, scale = jax.lax.stop_gradient((mean, scale))
    spacing = jnp.maximum(2 * _REACH * scale / (_POINTS - 1), 1)
    start = jnp.where(spacing > 1, mean - 0.5 * (_POINTS - 1) * spacing, jnp.maximum(jnp.floor(mean) - _POINTS // 2, 0))
    steps = jnp.arange(_POINTS, dtype=mean.dtype).reshape((_POINTS,) + (1,) * mean.ndim)
    return start[None] + steps * spacing[None], spacing
