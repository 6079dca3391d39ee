"""The gamma distribution."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import param, positive
from .._event import Tally, as_event, as_events, check_events, common_event, pool, power_log, safe_ratio, total_log
from .._exponential_family import AbstractExponentialFamily
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check, check_positive, is_concrete
from ..inference.root import gamma_shape


class Gamma(AbstractExponentialFamily):
    r"""Independent positive values with density $\frac{b^a}{\Gamma(a)} x^{a-1} e^{-bx}$: `shape` $a$, `rate` $b$.

    The event has the shape of the parameters; a NaN coordinate is missing and scores 0. At $x = 0$ the density has
    its limit; a negative value scores `-inf`. Parameters must be positive.

    Cost: O(1) per coordinate. Reference: Murphy (2022), section 2.7.5.

    >>> round(float(Gamma(shape=1.0, rate=2.0).log_prob(0.5)), 4)
    -0.3069
    """

    shape: Float[Array, "*event"] = param(positive)
    rate: Float[Array, "*event"] = param(positive)

    def __init__(self, shape: Any, rate: Any):
        self.shape, self.rate = common_event(shape=shape, rate=rate)

    def __check_init__(self):
        check_positive("shape", self.shape)
        check_positive("rate", self.rate)

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.shape)
        inside = (x >= 0) & (x < jnp.inf)
        scaled = self.rate * jnp.where(inside, x, 1)
        value = power_log(self.shape - 1, scaled) - scaled - gammaln(self.shape) + jnp.log(self.rate)
        return total_log(jnp.where(inside, value, jnp.where(jnp.isnan(x), 0, -jnp.inf)))

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return jr.gamma(key, self.shape, self.shape.shape, self.shape.dtype) / self.rate

    def mean(self) -> Float[Array, "*event"]:
        """$a/b$ of shape $a$ and rate $b$."""
        return self.shape / self.rate

    def mode(self) -> Float[Array, "*event"]:
        """$(a-1)/b$; 0 for a shape below 1, where the density has no maximum inside."""
        return jnp.maximum(self.shape - 1, 0) / self.rate

    def variance(self) -> Float[Array, "*event"]:
        """$a/b^2$."""
        return self.shape / self.rate**2

    def entropy(self) -> Scalar:
        a = self.shape
        return jnp.sum(a - jnp.log(self.rate) + gammaln(a) + (1 - a) * digamma(a))

    def kl(self, other: Self) -> Scalar:
        a, b = self.shape, self.rate
        excess = (other.rate - b) / b
        shapes = (a - other.shape) * digamma(a) + gammaln(other.shape) - gammaln(a)
        return jnp.sum(shapes - other.shape * jnp.log1p(excess) + a * excess)

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> tuple[Array, Array]:
        x = as_event(x, self.shape)
        return jnp.log(x), x

    def natural(self) -> tuple[Array, Array]:
        return self.shape - 1, -self.rate

    def log_normalizer(self) -> Scalar:
        return jnp.sum(gammaln(self.shape) - self.shape * jnp.log(self.rate))

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return jnp.zeros((), self.shape.dtype)

    @classmethod
    def from_natural(cls, eta: tuple[Array, Array]) -> Self:
        return cls(eta[0] + 1, -eta[1])

    @classmethod
    def from_mean_parameters(cls, m: tuple[Array, Array]) -> Self:
        r"""The member with $E\log x = m_0$ and $Ex = m_1$, by a scalar Newton iteration per coordinate."""
        shape = gamma_shape(jnp.log(m[1]) - m[0])
        return cls(shape, shape / m[1])

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.shape)
        if is_concrete(xs):
            check(jnp.isnan(xs) | (xs > 0), "data must be positive.")

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Tally:
        r"""Weight seen, and weighted sums of $r$ and $\log(1+r) - r$ with $r = x/m - 1$ around this mean $m$."""
        xs = as_events(xs, self.shape)
        mean = self.mean()[None]
        inside = xs > 0
        r = (jnp.where(inside, xs, mean) - mean) / mean
        totals = (pool(weights, r), pool(weights, jnp.log1p(r) - r))
        return Tally(pool(weights, inside.astype(weights.dtype)), totals)

    def refit(self, stats: Tally) -> Self:
        r"""Maximum likelihood, $\log a - \psi(a) = \log\bar x - \overline{\log x}$ and $b = a/\bar x$.

        Identical values in a coordinate give an infinite shape (see `degenerate`).
        """
        r = safe_ratio(stats.total[0], stats.count, jnp.zeros_like(self.rate))
        curvature = safe_ratio(stats.total[1], stats.count, -jnp.ones_like(self.rate))
        shape = gamma_shape(jnp.log1p(r) - r - curvature)
        seen = stats.count > 0
        rate = jnp.where(seen, shape / (self.mean() * (1 + r)), self.rate)
        return eqx.tree_at(lambda d: (d.shape, d.rate), self, (jnp.where(seen, shape, self.shape), rate))

    def degenerate(self) -> Flag:
        """Some coordinate has an infinite shape: a point mass."""
        return jnp.any(~jnp.isfinite(self.shape))
