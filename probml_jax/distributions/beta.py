"""The beta distribution."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import param, positive
from .._counts import log_beta
from .._event import Tally, as_event, as_events, check_events, common_event, pool, power_log, safe_ratio, total_log
from .._exponential_family import AbstractExponentialFamily
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check, check_positive, is_concrete
from ..inference.root import dirichlet_concentration


class Beta(AbstractExponentialFamily):
    r"""Independent proportions $x \in (0, 1)$ with density $x^{\alpha-1}(1-x)^{\beta-1}/B(\alpha,\beta)$.

    The event has the shape of the parameters; a NaN coordinate is missing and scores 0. At the edges the density
    has its limit (0, a number or infinity); outside $[0, 1]$ the score is `-inf`. Parameters must be positive.

    Cost: O(1) per coordinate. Reference: Murphy (2022), section 2.7.4.

    >>> round(float(Beta(alpha=2.0, beta=2.0).log_prob(0.5)), 4)
    0.4055
    """

    alpha: Float[Array, "*event"] = param(positive)
    beta: Float[Array, "*event"] = param(positive)

    def __init__(self, alpha: Any, beta: Any):
        self.alpha, self.beta = common_event(alpha=alpha, beta=beta)

    def __check_init__(self):
        check_positive("alpha", self.alpha)
        check_positive("beta", self.beta)

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.alpha)
        inside = (x >= 0) & (x <= 1)
        y = jnp.where(inside, x, 0.5)
        below_one = y < 1
        far = jnp.where(below_one, jnp.log1p(-jnp.where(below_one, y, 0)), 0)
        right = jnp.where(below_one, (self.beta - 1) * far, power_log(self.beta - 1, 1 - y))
        left = power_log(self.alpha - 1, y)
        value = left + right - log_beta(self.alpha, self.beta)
        return total_log(jnp.where(inside, value, jnp.where(jnp.isnan(x), 0, -jnp.inf)))

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return jr.beta(key, self.alpha, self.beta, self.alpha.shape, self.alpha.dtype)

    def mean(self) -> Float[Array, "*event"]:
        r"""$\alpha/(\alpha+\beta)$."""
        return self.alpha / (self.alpha + self.beta)

    def mode(self) -> Float[Array, "*event"]:
        """The highest point: inside when both parameters exceed one, else on an edge (the middle of a flat density)."""
        a, b = self.alpha, self.beta
        interior = (a > 1) & (b > 1)
        edge = jnp.where(a == b, 0.5, jnp.where(a > b, 1.0, 0.0)).astype(a.dtype)
        return jnp.where(interior, (a - 1) / jnp.where(interior, a + b - 2, 1), edge)

    def variance(self) -> Float[Array, "*event"]:
        r"""$\alpha\beta/\big((\alpha+\beta)^2(\alpha+\beta+1)\big)$."""
        total = self.alpha + self.beta
        return self.alpha * self.beta / (total * total * (total + 1))

    def entropy(self) -> Scalar:
        a, b = self.alpha, self.beta
        mean_log = (a - 1) * digamma(a) + (b - 1) * digamma(b) - (a + b - 2) * digamma(a + b)
        return jnp.sum(log_beta(a, b) - mean_log)

    def kl(self, other: Self) -> Scalar:
        a, b = self.alpha, self.beta
        da, db = a - other.alpha, b - other.beta
        normalizers = log_beta(other.alpha, other.beta) - log_beta(a, b)
        return jnp.sum(normalizers + da * digamma(a) + db * digamma(b) - (da + db) * digamma(a + b))

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> tuple[Array, Array]:
        x = as_event(x, self.alpha)
        return jnp.log(x), jnp.log1p(-x)

    def natural(self) -> tuple[Array, Array]:
        return self.alpha - 1, self.beta - 1

    def log_normalizer(self) -> Scalar:
        return jnp.sum(log_beta(self.alpha, self.beta))

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return jnp.zeros((), self.alpha.dtype)

    @classmethod
    def from_natural(cls, eta: tuple[Array, Array]) -> Self:
        return cls(eta[0] + 1, eta[1] + 1)

    @classmethod
    def from_mean_parameters(cls, m: tuple[Array, Array]) -> Self:
        r"""The member with $E\log x = m_0$ and $E\log(1-x) = m_1$, by a scalar Newton iteration per coordinate."""
        pairs = jnp.stack([m[0].ravel(), m[1].ravel()], axis=-1)
        alpha, beta = jax.vmap(dirichlet_concentration, out_axes=1)(pairs)
        return cls(alpha.reshape(m[0].shape), beta.reshape(m[0].shape))

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.alpha)
        if is_concrete(xs):
            check(jnp.isnan(xs) | ((xs > 0) & (xs < 1)), "data must lie strictly between 0 and 1.")

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Tally:
        """Weight seen, and weighted sums of `log x` and `log(1-x)`, per coordinate."""
        xs = as_events(xs, self.alpha)
        inside = (xs > 0) & (xs < 1)
        ys = jnp.where(inside, xs, 0.5)
        totals = [pool(weights, jnp.where(inside, t, 0)) for t in (jnp.log(ys), jnp.log1p(-ys))]
        return Tally(pool(weights, inside.astype(weights.dtype)), tuple(totals))

    def refit(self, stats: Tally) -> Self:
        """Maximum likelihood; identical values in a coordinate give infinite parameters (see `degenerate`)."""
        mean_parameters = (digamma(p) - digamma(self.alpha + self.beta) for p in (self.alpha, self.beta))
        pairs = zip(stats.total, mean_parameters, strict=True)
        new = Beta.from_mean_parameters(tuple(safe_ratio(total, stats.count, now) for total, now in pairs))
        seen = stats.count > 0
        pair = (jnp.where(seen, new.alpha, self.alpha), jnp.where(seen, new.beta, self.beta))
        return eqx.tree_at(lambda d: (d.alpha, d.beta), self, pair)

    def degenerate(self) -> Flag:
        """Some coordinate has an infinite concentration: a point mass."""
        return jnp.any(~jnp.isfinite(self.alpha + self.beta))
