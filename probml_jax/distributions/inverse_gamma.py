"""The inverse gamma distribution."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import param, positive
from .._event import Tally, as_event, as_events, check_events, common_event, pool, safe_ratio, total_log
from .._exponential_family import AbstractExponentialFamily
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check, check_positive, is_concrete
from ..inference.root import gamma_shape


class InverseGamma(AbstractExponentialFamily):
    r"""Independent positive values with density $\frac{b^a}{\Gamma(a)} x^{-a-1} e^{-b/x}$: `shape` $a$, `scale` $b$.

    $1/x$ is `Gamma(shape=a, rate=b)`. The event has the shape of the parameters; a NaN coordinate is missing and
    scores 0; zero and negative values score `-inf`. Parameters must be positive.

    Cost: O(1) per coordinate. Reference: Murphy (2022), section 2.7.5.

    >>> round(float(InverseGamma(shape=1.0, scale=1.0).log_prob(1.0)), 4)
    -1.0
    """

    shape: Float[Array, "*event"] = param(positive)
    scale: Float[Array, "*event"] = param(positive)

    def __init__(self, shape: Any, scale: Any):
        self.shape, self.scale = common_event(shape=shape, scale=scale)

    def __check_init__(self):
        check_positive("shape", self.shape)
        check_positive("scale", self.scale)

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.shape)
        inside = (x > 0) & (x < jnp.inf)
        scaled = self.scale / jnp.where(inside, x, self.scale)
        value = (self.shape + 1) * jnp.log(scaled) - scaled - gammaln(self.shape) - jnp.log(self.scale)
        return total_log(jnp.where(inside, value, jnp.where(jnp.isnan(x), 0, -jnp.inf)))

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        # exp(-log gamma) cannot overflow to infinity before the value itself does
        return self.scale * jnp.exp(-jr.loggamma(key, self.shape, self.shape.shape, self.shape.dtype))

    def mean(self) -> Float[Array, "*event"]:
        """Infinite for shapes up to one."""
        proper = self.shape > 1
        return jnp.where(proper, self.scale / jnp.where(proper, self.shape - 1, 1), jnp.inf)

    def mode(self) -> Float[Array, "*event"]:
        """$b/(a+1)$ of shape $a$ and scale $b$."""
        return self.scale / (self.shape + 1)

    def variance(self) -> Float[Array, "*event"]:
        """Infinite for shapes up to two."""
        proper = self.shape > 2
        a = jnp.where(proper, self.shape, 3)
        return jnp.where(proper, (self.scale / (a - 1)) ** 2 / (a - 2), jnp.inf)

    def entropy(self) -> Scalar:
        a = self.shape
        return jnp.sum(a + jnp.log(self.scale) + gammaln(a) - (1 + a) * digamma(a))

    def kl(self, other: Self) -> Scalar:
        a, b = self.shape, self.scale
        excess = (other.scale - b) / b
        shapes = (a - other.shape) * digamma(a) + gammaln(other.shape) - gammaln(a)
        return jnp.sum(shapes - other.shape * jnp.log1p(excess) + a * excess)

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> tuple[Array, Array]:
        x = as_event(x, self.shape)
        return jnp.log(x), 1 / x

    def natural(self) -> tuple[Array, Array]:
        return -self.shape - 1, -self.scale

    def log_normalizer(self) -> Scalar:
        return jnp.sum(gammaln(self.shape) - self.shape * jnp.log(self.scale))

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return jnp.zeros((), self.shape.dtype)

    @classmethod
    def from_natural(cls, eta: tuple[Array, Array]) -> Self:
        return cls(-eta[0] - 1, -eta[1])

    @classmethod
    def from_mean_parameters(cls, m: tuple[Array, Array]) -> Self:
        r"""The member with $E\log x = m_0$ and $E[1/x] = m_1$, by a scalar Newton iteration per coordinate."""
        shape = gamma_shape(jnp.log(m[1]) + m[0])
        return cls(shape, shape / m[1])

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.shape)
        if is_concrete(xs):
            check(jnp.isnan(xs) | (xs > 0), "data must be positive.")

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Tally:
        r"""Weight seen, and weighted sums of $r$ and $\log(1+r) - r$, $r = 1/(xm) - 1$ around $m = E[1/x] = a/b$."""
        xs = as_events(xs, self.shape)
        typical = (self.scale / self.shape)[None]
        inside = xs > 0
        y = jnp.where(inside, xs, typical)
        r = (typical - y) / y
        totals = (pool(weights, r), pool(weights, jnp.log1p(r) - r))
        return Tally(pool(weights, inside.astype(weights.dtype)), totals)

    def refit(self, stats: Tally) -> Self:
        """Maximum likelihood: that of a Gamma for `1/x`. Identical values give an infinite shape (see `degenerate`)."""
        r = safe_ratio(stats.total[0], stats.count, jnp.zeros_like(self.scale))
        curvature = safe_ratio(stats.total[1], stats.count, -jnp.ones_like(self.scale))
        shape = gamma_shape(jnp.log1p(r) - r - curvature)
        seen = stats.count > 0
        scale = jnp.where(seen, shape * self.scale / (self.shape * (1 + r)), self.scale)
        return eqx.tree_at(lambda d: (d.shape, d.scale), self, (jnp.where(seen, shape, self.shape), scale))

    def degenerate(self) -> Flag:
        """Some coordinate has an infinite shape: a point mass."""
        return jnp.any(~jnp.isfinite(self.shape))
