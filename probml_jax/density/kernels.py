"""Smoothing kernels: bumps of volume one around zero, as functions of the distance in bandwidths."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._special import LOG_2PI
from .._typing import PRNGKey


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel up to its constant, the constant, and how to draw from it.

    `profile` maps squared distances (largest differences, for a `cube`) to the kernel or, `in_logs`, to its logarithm.
    `log_volume(d)` is the logarithm of its integral over d dimensions; `radius(key, d, dtype)` draws the distance from
    zero (`None`: `draw` draws the vector itself).
    """

    name: str
    profile: Callable[[Array], Array]
    log_volume: Callable[[int], float]
    in_logs: bool = False
    cube: bool = False
    radius: Callable[[PRNGKey, int, Any], Array] | None = None
    draw: Callable[[PRNGKey, int, Any], Array] | None = None

    def sample(self, key: PRNGKey, d: int, dtype: Any) -> Float[Array, "d"]:
        """One draw: a direction at random, as far as the kernel says."""
        if self.draw is not None:
            return self.draw(key, d, dtype)
        assert self.radius is not None, "a kernel has a radius or draws the vector itself"
        where, how_far = jr.split(key)
        direction = jr.normal(where, (d,), dtype)
        return direction / jnp.sqrt(jnp.sum(direction**2)) * self.radius(how_far, d, dtype)


def log_ball(d: int) -> float:
    r"""Logarithm of the volume of the unit ball, $\pi^{d/2}/\Gamma(d/2 + 1)$."""
    return 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1)


def _distance(squared: Array) -> Array:
    """The root, with a zero gradient at zero."""
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1)), 0)


def _cosine_moment(d: int) -> float:
    r"""$d\int_0^1 \cos(\pi r/2)\, r^{d-1} dr$, by Gauss quadrature: exact to rounding.

    (scikit-learn's constant is this one for odd d only: its sum leaves out the last term of an even one.)
    """
    nodes, weights = np.polynomial.legendre.leggauss(64 + d)
    r = 0.5 * (nodes + 1)
    return float(d * 0.5 * np.sum(weights * np.cos(0.5 * np.pi * r) * r ** (d - 1)))


def _cosine_radius(key: PRNGKey, d: int, dtype: Any) -> Array:
    """By the inverse of a tabulated distribution function, right to about six digits."""
    r = np.linspace(0, 1, 4097)
    density = np.cos(0.5 * np.pi * r) * r ** (d - 1)
    heap = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return jnp.interp(jr.uniform(key, (), dtype), jnp.asarray(heap / heap[-1], dtype), jnp.asarray(r, dtype))


_inside = lambda squared, value: jnp.where(squared < 1, value, 0)

KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "gaussian",
            lambda s: -0.5 * s,
            lambda d: 0.5 * d * LOG_2PI,
            in_logs=True,
            draw=lambda key, d, dtype: jr.normal(key, (d,), dtype),
        ),
        Kernel(
            "exponential",
            lambda s: -_distance(s),
            lambda d: math.log(d) + log_ball(d) + math.lgamma(d),
            in_logs=True,
            radius=lambda key, d, dtype: jr.gamma(key, d, (), dtype),
        ),
        Kernel(
            "tophat",
            lambda s: _inside(s, jnp.ones_like(s)),
            log_ball,
            radius=lambda key, d, dtype: jr.uniform(key, (), dtype) ** (1 / d),
        ),
        Kernel(
            "epanechnikov",
            lambda s: _inside(s, 1 - s),
            lambda d: log_ball(d) + math.log(2 / (d + 2)),
            radius=lambda key, d, dtype: jnp.sqrt(jr.beta(key, 0.5 * d, 2.0, (), dtype)),
        ),
        Kernel(
            "triangular",
            lambda s: _inside(s, 1 - _distance(s)),
            lambda d: log_ball(d) - math.log(d + 1),
            radius=lambda key, d, dtype: jr.beta(key, float(d), 2.0, (), dtype),
        ),
        Kernel(
            "cosine",
            lambda s: _inside(s, jnp.cos(0.5 * math.pi * _distance(s))),
            lambda d: log_ball(d) + math.log(_cosine_moment(d)),
            radius=_cosine_radius,
        ),
        Kernel(
            "box",
            lambda u: jnp.where(u <= 0.5, 1.0, 0.0).astype(u.dtype),
            lambda d: 0.0,
            cube=True,
            draw=lambda key, d, dtype: jr.uniform(key, (d,), dtype, -0.5, 0.5),
        ),
    )
}
