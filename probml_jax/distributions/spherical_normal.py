"""The normal distribution with one variance for all coordinates."""

from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._constraint import Constraint, above, fixed, param, positive, real
from .._event import as_event, as_events, check_events
from .._exponential_family import AbstractExponentialFamily
from .._special import LOG_2PI
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_positive, check_rank
from .coordinates import Moments, log_density, moments


def _scale_domain(dist: "SphericalNormal") -> Constraint:
    return positive if dist.floor is None else above(jnp.sqrt(dist.floor))


class SphericalNormal(AbstractExponentialFamily):
    r"""$N(x \mid \mu, \sigma^2 I)$: a vector whose coordinates share one variance.

    $\log p(x) = -\tfrac12\sum_j (x_j-\mu_j)^2/\sigma^2 - d\log\sigma - \tfrac d2\log 2\pi$. A NaN coordinate is missing
    and scores 0. `floor` is the smallest variance an estimate may take. `scale` must be positive, and not below it.

    Cost: O(d) per event. Reference: Murphy (2022), section 3.2.

    >>> round(float(SphericalNormal(loc=jnp.zeros(2), scale=1.0).log_prob(jnp.array([1.0, jnp.nan]))), 4)
    -1.4189
    """

    loc: Float[Array, "d"] = param(real)
    scale: Float[Array, ""] = param(_scale_domain)
    floor: Float[Array, ""] | None = fixed(default=None, converter=as_float)

    def __init__(self, loc: Any, scale: Any, floor: Any = None):
        loc, scale, floor = as_float(loc, "loc"), as_float(scale, "scale"), as_float(floor, "floor")
        check_rank("loc", loc, 1, "a vector (d,)")
        check_rank("scale", scale, 0, "a scalar: one standard deviation for all coordinates")
        dtype = jnp.result_type(loc, scale)
        self.loc, self.scale = loc.astype(dtype), scale.astype(dtype)
        self.floor = None if floor is None else floor.astype(dtype)

    def __check_init__(self):
        check_positive("scale", self.scale)
        if self.floor is not None:
            check_rank("floor", self.floor, 0, "a scalar")
            check(self.floor >= 0, "floor must not be negative.")
            check(self.scale**2 >= (1 - 1e-5) * self.floor, "scale must not be below the square root of floor.")

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Float[Array, "d"]) -> Scalar:
        return log_density(self.loc, jnp.full_like(self.loc, self.scale), as_event(x, self.loc))

    def sample(self, key: PRNGKey) -> Float[Array, "d"]:
        return self.loc + self.scale * jr.normal(key, self.loc.shape, self.loc.dtype)

    def mean(self) -> Float[Array, "d"]:
        """`loc`."""
        return self.loc

    def mode(self) -> Float[Array, "d"]:
        """`loc`."""
        return self.loc

    def variance(self) -> Float[Array, "d"]:
        r"""$\sigma^2$ for every coordinate."""
        return jnp.full_like(self.loc, self.scale**2)

    def covariance(self) -> Float[Array, "d d"]:
        r"""$\sigma^2 I$ as a matrix."""
        return self.scale**2 * jnp.eye(self.loc.size, dtype=self.loc.dtype)

    def entropy(self) -> Scalar:
        return self.loc.size * (jnp.log(self.scale) + 0.5 * (1 + LOG_2PI))

    def kl(self, other: Self) -> Scalar:
        ratio = 2 * jnp.log(self.scale / other.scale)
        z = (self.loc - other.loc) / other.scale
        return 0.5 * (self.loc.size * (jnp.expm1(ratio) - ratio) + jnp.sum(z * z))

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Float[Array, "d"]) -> tuple[Array, Array]:
        return x, jnp.sum(x * x)

    def natural(self) -> tuple[Array, Array]:
        precision = 1 / self.scale**2
        return precision * self.loc, -0.5 * precision

    def log_normalizer(self) -> Scalar:
        return jnp.sum(0.5 * (self.loc / self.scale) ** 2) + self.loc.size * jnp.log(self.scale)

    def log_base_measure(self, x: Float[Array, "d"]) -> Scalar:
        return -0.5 * LOG_2PI * jnp.sum(~jnp.isnan(x)).astype(self.loc.dtype)

    @classmethod
    def from_natural(cls, eta: tuple[Array, Array], floor: Array | None = None) -> Self:
        variance = -0.5 / eta[1]
        return cls(variance * eta[0], jnp.sqrt(variance), floor)

    @classmethod
    def from_mean_parameters(cls, m: tuple[Array, Array], floor: Array | None = None) -> Self:
        return cls(m[0], jnp.sqrt((m[1] - jnp.sum(m[0] ** 2)) / m[0].size), floor)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.loc)

    def statistics(self, xs: Float[Array, "n d"], weights: Float[Array, "n"]) -> Moments:
        """Moments around `loc`, per coordinate; a missing entry counts nowhere."""
        return moments(self.loc, jnp.full_like(self.loc, self.scale), as_events(xs, self.loc), weights)

    def refit(self, stats: Moments) -> Self:
        """Maximum likelihood, the variance pooled over all observed coordinates."""
        empty = stats.count == 0
        shift = stats.first / jnp.where(empty, 1, stats.count)
        total = jnp.sum(stats.count)
        variance = jnp.maximum(jnp.sum(stats.second - stats.first * shift) / jnp.where(total == 0, 1, total), 0)
        scale = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)
        scale = scale if self.floor is None else jnp.maximum(scale, jnp.sqrt(self.floor))
        return eqx.tree_at(
            lambda d: (d.loc, d.scale), self, (self.loc + shift * ~empty, jnp.where(total == 0, self.scale, scale))
        )

    def degenerate(self) -> Flag:
        """The variance is zero or sits on its floor."""
        return self.scale**2 <= (0 if self.floor is None else 1.001 * self.floor)

    # -------------------------------------------------------------------------------------- Gaussian algebra

    def marginal(self, indices: Sequence[int]) -> Self:
        """Distribution of some coordinates."""
        return SphericalNormal(self.loc[np.asarray(indices, int)], self.scale, self.floor)

    def condition(self, indices: Sequence[int], values: Float[ArrayLike, "m"]) -> Self:
        """Distribution of the other coordinates (in order): coordinates are independent, so `values` do not matter."""
        return self.marginal(np.setdiff1d(np.arange(self.loc.size), np.asarray(indices, int)).tolist())

    def impute(self, x: Float[Array, "d"]) -> tuple[Float[Array, "d"], Float[Array, "d"]]:
        """The event with means in place of missing entries, and their variances (zero where observed)."""
        missing = jnp.isnan(x)
        return jnp.where(missing, self.loc, x), jnp.where(missing, self.scale**2, 0)
