"""The linear conditional distribution whose noise is known up to one scale."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float

from .._constraint import fixed, only, param, real
from .._linalg import matmul
from .._special import LOG_2PI
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_rank, check_shape, common_dtype, is_concrete
from .linear_normal import independent_log_prob
from .multivariate_normal import MultivariateNormal
from .regression import (
    AbstractLinear,
    RegressionMoments,
    as_mask,
    check_line,
    fill_dense,
    fill_independent,
    least_squares,
    scale_domain,
    spread_scale,
)
from .spherical_normal import SphericalNormal


class LinearSphericalNormal(AbstractLinear):
    r"""$p(y \mid x) = N(y \mid Ax + b, \sigma^2 GG^\top)$: noise known up to its scale. A datum is the pair `(x, y)`.

    `directions` $G$ is an invertible matrix, the identity when it is `None`; it serves tracking models whose process
    noise has a known shape. `free (m, p + 1)` marks the entries of $[A, b]$ that are learned, by `refit` and by
    gradients alike (`None`: all); with `directions` rows share their noise, and `free` must then be `None` or all
    `False`. A `scale` of exactly 0 stays 0. `floor` is the smallest variance $\sigma^2$ may take when estimated. NaN
    entries of `y` are integrated out. `sample(key)` raises `TypeError`; use `sample_given(key, x)`.

    Cost: $mp$ per datum, $m^2$ more and $m^3$ once with `directions`; `refit` $p^3 + mp^2$, $mp^3$ with a mask.
    Reference: Bishop (2006), section 12.2 (as the noise of probabilistic PCA).

    >>> line = LinearSphericalNormal(matrix=[[2.0], [0.0]], offset=[1.0, 0.0], scale=3.0)
    >>> line.covariance.tolist()
    [[9.0, 0.0], [0.0, 9.0]]
    """

    matrix: Float[Array, "m p"] = param(lambda self: only(real, None if self.free is None else self.free[..., :-1]))
    offset: Float[Array, "m"] = param(lambda self: only(real, None if self.free is None else self.free[..., -1]))
    scale: Float[Array, ""] = param(scale_domain)
    free: Bool[Array, "m p+1"] | None = fixed(default=None)
    directions: Float[Array, "m m"] | None = fixed(default=None, converter=as_float)
    floor: Float[Array, ""] | None = fixed(default=None, converter=as_float)

    def __init__(
        self, matrix: Any, offset: Any, scale: Any, free: Any = None, directions: Any = None, floor: Any = None
    ):
        self.matrix, self.offset, self.scale = common_dtype(matrix=matrix, offset=offset, scale=scale)
        dtype = self.scale.dtype
        self.free = as_mask(free)
        self.directions = None if directions is None else as_float(directions, "directions").astype(dtype)
        self.floor = None if floor is None else jnp.where(self.scale == 0, 0, jnp.asarray(floor, dtype))

    def __check_init__(self):
        check_line(self.matrix, self.offset)
        m, p = self.matrix.shape
        check_rank("scale", self.scale, 0, "a scalar: one standard deviation for all rows")
        check(self.scale >= 0, "scale must not be negative.")
        if self.free is not None:
            check_shape("free", self.free, (m, p + 1))
        if self.directions is not None:
            check_shape("directions", self.directions, (m, m))
            _check_directions(self.directions, self.free)
        if self.floor is not None:
            check_rank("floor", self.floor, 0, "a scalar")
            check(self.floor >= 0, "floor must not be negative.")
            check(self.scale**2 >= (1 - 1e-5) * self.floor, "scale must not be below the square root of floor.")

    @property
    def covariance(self) -> Float[Array, "m m"]:
        """Of the noise, as a matrix."""
        return self.scale**2 * self._shape()

    def _shape(self) -> Float[Array, "m m"]:
        if self.directions is None:
            return jnp.eye(self.offset.size, dtype=self.offset.dtype)
        return matmul(self.directions, self.directions.T)

    def given(self, x: Float[Array, "p"]) -> SphericalNormal | MultivariateNormal:
        """The distribution of `y` at this `x`; without noise there is none, and `ValueError` is raised."""
        if self.directions is None:
            return SphericalNormal(self.mean_at(x), self.scale)
        return MultivariateNormal(self.mean_at(x), self.covariance)

    def log_prob(self, x: tuple[Float[Array, "p"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x)$ of the pair `(x, y)`."""
        inputs, y = x
        mean = self.mean_at(inputs)
        if self.directions is None:
            return independent_log_prob(y, mean, jnp.broadcast_to(self.scale, mean.shape))
        exactly = independent_log_prob(y, mean, jnp.zeros_like(mean))
        noisy = self.scale > 0
        covariance = jnp.where(noisy, self.scale, 1) ** 2 * self._shape()
        return jnp.where(noisy, MultivariateNormal(mean, covariance).log_prob(y), exactly)

    def noise(self, key: PRNGKey) -> Float[Array, "m"]:
        white = self.scale * jr.normal(key, self.offset.shape, self.offset.dtype)
        return white if self.directions is None else matmul(self.directions, white)

    def contract(self, a: Float[Array, "m q"], b: Float[Array, "m q"]) -> Scalar:
        if self.directions is None:
            return jnp.sum(a * b)
        return jnp.sum(jnp.linalg.solve(self.directions, a) * jnp.linalg.solve(self.directions, b))

    def fill(self, residual: Float[Array, "n m"], weights: Float[Array, "n"]) -> tuple[Array, Array]:
        if self.directions is None:
            return fill_independent(jnp.broadcast_to(self.scale**2, self.offset.shape), residual, weights)
        # conditional means do not depend on the scale, conditional covariances are proportional to its square
        filled, spread = fill_dense(self._shape(), residual, weights)
        return filled, self.scale**2 * spread

    def change(self, stats: RegressionMoments) -> Float[Array, "m q"]:
        return jnp.where(self.scale == 0, 0, least_squares(stats, self.free))

    def renewed(self, matrix: Array, offset: Array, spread: Array) -> Self:
        scale = spread_scale(spread / self.offset.size, self.scale, self.floor)
        return eqx.tree_at(lambda d: (d.matrix, d.offset, d.scale), self, (matrix, offset, scale))

    def score(self, stats: RegressionMoments) -> Scalar:
        """Zero without noise: then nothing is in doubt."""
        noisy = self.scale > 0
        variance = jnp.where(noisy, self.scale, 1) ** 2
        shape = 0.0 if self.directions is None else 2 * jnp.linalg.slogdet(self.directions)[1]
        logs = self.offset.size * (LOG_2PI + jnp.log(variance)) + shape
        return jnp.where(noisy, -0.5 * (stats.design[-1, -1] * logs + stats.residual / variance), 0)

    def degenerate(self) -> Flag:
        """The variance sits on its floor, or is zero although there are coefficients to learn."""
        low = self.scale**2 <= (0 if self.floor is None else 1.001 * self.floor)
        known = (self.scale == 0) & (False if self.free is None else ~jnp.any(self.free))
        return low & ~known


def _check_directions(directions: Array, free: Array | None) -> None:
    if is_concrete(directions):
        values = np.linalg.svd(np.asarray(directions, np.float64), compute_uv=False)
        if not values.min() > 1e-7 * values.max():
            raise ValueError("directions must be an invertible matrix; it is singular.")
    if free is not None:
        check(~np.any(free) if is_concrete(free) else True, "with directions, free must be None or all False.")
