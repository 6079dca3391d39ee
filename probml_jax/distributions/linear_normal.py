"""The linear conditional distribution with independent noise: one regression per row."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from .._constraint import diagonal_matrix, fixed, only, param, real
from .._event import total_log
from .._special import LOG_2PI
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_shape, common_dtype
from .normal import Normal
from .regression import (
    AbstractLinear,
    RegressionMoments,
    as_mask,
    check_line,
    fill_independent,
    least_squares,
    scale_domain,
    spread_scale,
)


class LinearNormal(AbstractLinear):
    r"""$p(y \mid x) = N(y \mid Ax + b, \mathrm{diag}(\sigma^2))$. A datum is the pair `(x, y)`; `x` is given.

    Rows are independent regressions. `free (m, p + 1)` marks the entries of $[A, b]$ that are learned, by `refit` and
    by gradients alike; the others keep their value exactly (`None`: all are learned). A `scale` of exactly 0 is a row
    without noise, such as the shifting rows of a companion matrix: it stays 0 with its coefficients, scores 0 where it
    holds exactly and `-inf` elsewhere. `floor` is the smallest variance a row may take when it is estimated. NaN
    entries of `y` are integrated out. `sample(key)` raises `TypeError`; use `sample_given(key, x)`.

    Cost: $mp$ per datum; `refit` $p^3 + mp^2$, and $mp^3$ with a mask. Reference: Murphy (2022), section 11.2.

    >>> line = LinearNormal(matrix=[[2.0], [0.0]], offset=[1.0, 0.0], scale=[1.0, 2.0])
    >>> line.given(jnp.array([3.0])).mean().tolist()
    [7.0, 0.0]
    """

    matrix: Float[Array, "m p"] = param(lambda self: only(real, None if self.free is None else self.free[..., :-1]))
    offset: Float[Array, "m"] = param(lambda self: only(real, None if self.free is None else self.free[..., -1]))
    scale: Float[Array, "m"] = param(scale_domain)
    free: Bool[Array, "m p+1"] | None = fixed(default=None)
    floor: Float[Array, "m"] | None = fixed(default=None, converter=as_float)

    def __init__(self, matrix: Any, offset: Any, scale: Any, free: Any = None, floor: Any = None):
        self.matrix, self.offset, scale = common_dtype(matrix=matrix, offset=offset, scale=scale)
        spread = lambda a: jnp.broadcast_to(a, self.offset.shape) if a.ndim == 0 else a
        self.scale = spread(scale)
        self.free = as_mask(free)
        # a row without noise has no floor either
        self.floor = None if floor is None else jnp.where(self.scale == 0, 0, spread(jnp.asarray(floor, scale.dtype)))

    def __check_init__(self):
        check_line(self.matrix, self.offset)
        m, p = self.matrix.shape
        check_shape("scale", self.scale, (m,))
        check(self.scale >= 0, "scale must not be negative.")
        if self.free is not None:
            check_shape("free", self.free, (m, p + 1))
        if self.floor is not None:
            check_shape("floor", self.floor, (m,))
            check(self.floor >= 0, "floor must not be negative.")
            check(self.scale**2 >= (1 - 1e-5) * self.floor, "scale must not be below the square root of floor.")

    @property
    def covariance(self) -> Float[Array, "m m"]:
        """Of the noise, as a matrix."""
        return diagonal_matrix(self.scale**2)

    def given(self, x: Float[Array, "p"]) -> Normal:
        """The distribution of `y` at this `x`; a row without noise has none, and raises `ValueError`."""
        return Normal(self.mean_at(x), self.scale)

    def log_prob(self, x: tuple[Float[Array, "p"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x)$ of the pair `(x, y)`."""
        inputs, y = x
        return independent_log_prob(y, self.mean_at(inputs), self.scale)

    def noise(self, key: PRNGKey) -> Float[Array, "m"]:
        return self.scale * jr.normal(key, self.offset.shape, self.offset.dtype)

    def contract(self, a: Float[Array, "m q"], b: Float[Array, "m q"]) -> Float[Array, "m"]:
        return jnp.sum(a * b, axis=1)

    def fill(self, residual: Float[Array, "n m"], weights: Float[Array, "n"]) -> tuple[Array, Array]:
        return fill_independent(self.scale**2, residual, weights)

    def change(self, stats: RegressionMoments) -> Float[Array, "m q"]:
        return jnp.where(self.scale[:, None] == 0, 0, least_squares(stats, self.free))

    def renewed(self, matrix: Array, offset: Array, spread: Array) -> Self:
        scale = spread_scale(spread, self.scale, self.floor)
        return eqx.tree_at(lambda d: (d.matrix, d.offset, d.scale), self, (matrix, offset, scale))

    def score(self, stats: RegressionMoments) -> Scalar:
        """Rows without noise, which are never in doubt, count for nothing."""
        noisy = self.scale > 0
        variance = jnp.where(noisy, self.scale, 1) ** 2
        each = stats.design[-1, -1] * (LOG_2PI + jnp.log(variance)) + stats.residual / variance
        return -0.5 * jnp.sum(jnp.where(noisy, each, 0))

    def degenerate(self) -> Flag:
        """Some variance sits on its floor, or is zero in a row that is not known as a whole."""
        low = self.scale**2 <= (0 if self.floor is None else 1.001 * self.floor)
        known = (self.scale == 0) & (False if self.free is None else ~jnp.any(self.free, axis=1))
        return jnp.any(low & ~known)


def independent_log_prob(y: Float[Array, "m"], mean: Float[Array, "m"], scale: Float[Array, "m"]) -> Scalar:
    """Sum over the rows that are not missing; a row without noise is met exactly or not at all."""
    noisy, seen = scale > 0, ~jnp.isnan(y)
    safe = jnp.where(noisy, scale, 1)
    residual = jnp.where(seen, jnp.where(seen, y, 0) - mean, 0)
    z = jnp.where(noisy, residual, 0) / safe
    density = -0.5 * (z * z + LOG_2PI) - jnp.log(safe)
    value = jnp.where(noisy, density, jnp.where(residual == 0, 0.0, -jnp.inf))
    return total_log(jnp.where(seen, value, 0))
