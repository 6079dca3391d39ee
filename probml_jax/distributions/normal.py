"""The normal distribution of independent coordinates: scalar, or vector with a diagonal covariance."""

from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import Constraint, above, fixed, param, positive, real
from .._event import as_event, as_events, check_events, common_event
from .._exponential_family import AbstractExponentialFamily
from .._special import LOG_2PI
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_positive, check_rank
from .coordinates import Moments, log_density, moments


def _scale_domain(dist: "Normal") -> Constraint:
    return positive if dist.floor is None else above(jnp.sqrt(dist.floor))


class Normal(AbstractExponentialFamily):
    r"""Independent $x_j \sim N(\mu_j, \sigma_j^2)$: a scalar normal, or a vector with a diagonal covariance.

    $\log p(x) = \sum_j -\tfrac12 z_j^2 - \log\sigma_j - \tfrac12\log 2\pi$ with $z_j = (x_j-\mu_j)/\sigma_j$. The event
    has the shape of the parameters; a NaN coordinate is missing and scores 0. `floor` is the smallest variance each
    coordinate may take when it is estimated. A scale must be positive, and not below its floor.

    Cost: O(1) per coordinate. Reference: Murphy (2022), section 2.6.

    >>> round(float(Normal(loc=jnp.zeros(3), scale=1.0).log_prob(jnp.array([0.0, 1.0, jnp.nan]))), 4)
    -2.3379
    """

    loc: Float[Array, "*event"] = param(real)
    scale: Float[Array, "*event"] = param(_scale_domain)
    floor: Float[Array, "*event"] | None = fixed(default=None, converter=as_float)

    def __init__(self, loc: Any, scale: Any, floor: Any = None):
        self.loc, self.scale, self.floor = common_event(loc=loc, scale=scale, floor=floor)

    def __check_init__(self):
        check_positive("scale", self.scale)
        if self.floor is not None:
            check(self.floor >= 0, "floor must not be negative.")
            check(self.scale**2 >= (1 - 1e-5) * self.floor, "scale must not be below the square root of floor.")

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return log_density(self.loc, self.scale, as_event(x, self.loc))

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return self.loc + self.scale * jr.normal(key, self.loc.shape, self.loc.dtype)

    def mean(self) -> Float[Array, "*event"]:
        """`loc`."""
        return self.loc

    def mode(self) -> Float[Array, "*event"]:
        """`loc`."""
        return self.loc

    def variance(self) -> Float[Array, "*event"]:
        r"""$\sigma_j^2$."""
        return self.scale**2

    def entropy(self) -> Scalar:
        return jnp.sum(jnp.log(self.scale) + 0.5 * (1 + LOG_2PI))

    def kl(self, other: Self) -> Scalar:
        ratio = 2 * jnp.log(self.scale / other.scale)
        z = (self.loc - other.loc) / other.scale
        return 0.5 * jnp.sum(jnp.expm1(ratio) - ratio + z * z)

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> tuple[Array, Array]:
        x = as_event(x, self.loc)
        return x, x * x

    def natural(self) -> tuple[Array, Array]:
        precision = 1 / self.scale**2
        return precision * self.loc, -0.5 * precision

    def log_normalizer(self) -> Scalar:
        return jnp.sum(0.5 * (self.loc / self.scale) ** 2 + jnp.log(self.scale))

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.loc)
        return jnp.sum(jnp.where(jnp.isnan(x), jnp.zeros_like(x), -0.5 * LOG_2PI))

    @classmethod
    def from_natural(cls, eta: tuple[Array, Array], floor: Array | None = None) -> Self:
        variance = -0.5 / eta[1]
        return cls(variance * eta[0], jnp.sqrt(variance), floor)

    @classmethod
    def from_mean_parameters(cls, m: tuple[Array, Array], floor: Array | None = None) -> Self:
        return cls(m[0], jnp.sqrt(m[1] - m[0] ** 2), floor)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.loc)

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Moments:
        """Moments around `loc`, per coordinate; a missing entry counts nowhere."""
        return moments(self.loc, self.scale, as_events(xs, self.loc), weights)

    def refit(self, stats: Moments) -> Self:
        empty = stats.count == 0
        count = jnp.where(empty, 1, stats.count)
        shift = stats.first / count
        variance = jnp.maximum(stats.second / count - shift**2, 0)
        scale = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)
        scale = scale if self.floor is None else jnp.maximum(scale, jnp.sqrt(self.floor))
        return eqx.tree_at(
            lambda d: (d.loc, d.scale), self, (self.loc + shift * ~empty, jnp.where(empty, self.scale, scale))
        )

    def degenerate(self) -> Flag:
        """Some variance is zero or sits on its floor."""
        return jnp.any(self.scale**2 <= (0 if self.floor is None else 1.001 * self.floor))

    # -------------------------------------------------------------------------------------- Gaussian algebra

    def marginal(self, indices: Sequence[int]) -> Self:
        """Distribution of some coordinates of a vector."""
        check_rank("loc", self.loc, 1, "a vector (d,): only vectors have marginals")
        keep = np.asarray(indices, int)
        return Normal(self.loc[keep], self.scale[keep], None if self.floor is None else self.floor[keep])

    def condition(self, indices: Sequence[int], values: Float[ArrayLike, "m"]) -> Self:
        """Distribution of the other coordinates (in order): coordinates are independent, so `values` do not matter."""
        return self.marginal(np.setdiff1d(np.arange(self.loc.size), np.asarray(indices, int)).tolist())

    def impute(self, x: Float[Array, "d"]) -> tuple[Float[Array, "d"], Float[Array, "d"]]:
        """The event with means in place of missing entries, and their variances (zero where observed)."""
        check_rank("loc", self.loc, 1, "a vector (d,)")
        missing = jnp.isnan(x)
        return jnp.where(missing, self.loc, x), jnp.where(missing, self.scale**2, 0)
