"""The Dirichlet distribution on the simplex."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from .._constraint import param, positive
from .._event import Tally, as_event, as_events, check_events, common_event, pool, power_log, safe_ratio, total_log
from .._exponential_family import AbstractExponentialFamily
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check, check_positive, check_rank, is_concrete
from ..inference.root import dirichlet_concentration


class Dirichlet(AbstractExponentialFamily):
    r"""Points of the simplex with density $\Gamma(\sum_j\alpha_j)\prod_j x_j^{\alpha_j-1}/\Gamma(\alpha_j)$.

    A point off the simplex (negative entries, a sum off one by more than 1e-6, or 1e-3 in float32) scores `-inf`; on
    the boundary the density has its limit. NaN entries are integrated out: the rest of the mass is their sum, and the
    value is the density of the observed entries. Concentrations must be positive.

    Cost: O(k) per event. Reference: Murphy (2022), section 4.6.3; Bishop (2006), section 2.2.1.

    >>> round(float(Dirichlet(concentration=[1.0, 1.0, 1.0]).log_prob(jnp.array([0.2, 0.3, 0.5]))), 4)
    0.6931
    """

    concentration: Float[Array, "k"] = param(positive)

    def __init__(self, concentration: Any):
        (self.concentration,) = common_event(concentration=concentration)

    def __check_init__(self):
        check_rank("concentration", self.concentration, 1, "a vector (k,)")
        check_positive("concentration", self.concentration)

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Float[Array, "k"]) -> Scalar:
        x = as_event(x, self.concentration)
        seen, rest, rest_concentration = self._lump(x)
        y = jnp.where(seen, x, 1)
        tolerance = 1e-3 if x.dtype == jnp.float32 else 1e-6
        closed = jnp.where(jnp.all(seen), jnp.abs(rest) <= tolerance, rest >= -tolerance)
        possible = closed & jnp.all(y >= 0)
        terms = power_log(self.concentration - 1, jnp.maximum(y, 0)) - gammaln(self.concentration)
        lumped = power_log(rest_concentration - 1, jnp.maximum(rest, 0)) - gammaln(rest_concentration)
        terms = jnp.where(seen, terms, 0)
        lumped = jnp.where(jnp.all(seen), 0, lumped)
        value = total_log(jnp.append(terms, lumped)) + gammaln(jnp.sum(self.concentration))
        return jnp.where(possible, value, -jnp.inf)

    def _lump(self, x):
        """Which entries are seen; the mass left for the others and their concentration (1 when there are none)."""
        seen = ~jnp.isnan(x)
        rest = 1 - jnp.sum(jnp.where(seen, x, 0))
        hidden = jnp.sum(jnp.where(seen, 0, self.concentration))
        return seen, rest, jnp.where(jnp.all(seen), 1, hidden)

    def sample(self, key: PRNGKey) -> Float[Array, "k"]:
        return jr.dirichlet(key, self.concentration, dtype=self.concentration.dtype)

    def mean(self) -> Float[Array, "k"]:
        r"""$\alpha_k / \sum_j \alpha_j$."""
        return self.concentration / jnp.sum(self.concentration)

    def mode(self) -> Float[Array, "k"]:
        """The highest point when all concentrations are at least one; else the boundary point left by clipping."""
        excess = jnp.maximum(self.concentration - 1, 0)
        total = jnp.sum(excess)
        flat = jnp.full_like(excess, 1 / excess.size)
        return jnp.where(total > 0, excess / jnp.where(total > 0, total, 1), flat)

    def variance(self) -> Float[Array, "k"]:
        r"""$m_k(1-m_k)/(\alpha_0+1)$ with the mean $m$ and $\alpha_0 = \sum_k\alpha_k$."""
        mean = self.mean()
        return mean * (1 - mean) / (jnp.sum(self.concentration) + 1)

    def covariance(self) -> Float[Array, "k k"]:
        r"""$(\mathrm{diag}(m) - m m^\top)/(\alpha_0+1)$ with the mean $m$ and $\alpha_0 = \sum_k\alpha_k$."""
        mean = self.mean()
        return (jnp.diag(mean) - jnp.outer(mean, mean)) / (jnp.sum(self.concentration) + 1)

    def mean_log(self) -> Float[Array, "k"]:
        r"""$E\log x_j = \psi(\alpha_j) - \psi(\sum\alpha)$."""
        return digamma(self.concentration) - digamma(jnp.sum(self.concentration))

    def entropy(self) -> Scalar:
        return self.log_normalizer() - jnp.sum((self.concentration - 1) * self.mean_log())

    def kl(self, other: Self) -> Scalar:
        shift = jnp.sum((self.concentration - other.concentration) * self.mean_log())
        return other.log_normalizer() - self.log_normalizer() + shift

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Float[Array, "k"]) -> Float[Array, "k"]:
        return jnp.log(x)

    def natural(self) -> Float[Array, "k"]:
        return self.concentration - 1

    def log_normalizer(self) -> Scalar:
        return jnp.sum(gammaln(self.concentration)) - gammaln(jnp.sum(self.concentration))

    def log_base_measure(self, x: Float[Array, "k"]) -> Scalar:
        return jnp.zeros((), self.concentration.dtype)

    @classmethod
    def from_natural(cls, eta: Float[Array, "k"]) -> Self:
        return cls(eta + 1)

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "k"]) -> Self:
        r"""The member with $E\log x = m$, by a scalar Newton iteration."""
        return cls(dirichlet_concentration(m))

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.concentration)
        if is_concrete(xs):
            missing = jnp.any(jnp.isnan(xs), axis=-1)
            check(jnp.isnan(xs) | ((xs > 0) & (xs < 1)), "data must lie strictly inside the simplex.")
            check(missing | (jnp.abs(jnp.sum(xs, axis=-1) - 1) < 1e-3), "rows of data must sum to one.")

    def statistics(self, xs: Float[Array, "n k"], weights: Float[Array, "n"]) -> Tally:
        """Weight seen, and weighted sums of `log x`; missing entries count with their conditional expectation."""
        xs = as_events(xs, self.concentration)
        seen = ~jnp.isnan(xs)
        some = jnp.any(seen, axis=-1)
        inside = some & jnp.all(jnp.where(seen, xs, 0.5) > 0, axis=-1)
        left = 1 - jnp.sum(jnp.where(seen, xs, 0), axis=-1)
        hidden = jnp.sum(jnp.where(seen, 0, self.concentration[None, :]), axis=-1)
        log_left = jnp.log(jnp.where(left > 0, left, 1)) - digamma(jnp.where(hidden > 0, hidden, 1))
        imputed = digamma(self.concentration)[None, :] + log_left[:, None]
        logs = jnp.where(seen, jnp.log(jnp.where(seen & (xs > 0), xs, 1)), imputed)
        logs = jnp.where(inside[:, None], logs, 0)
        return Tally(pool(weights, inside.astype(weights.dtype)), pool(weights, logs))

    def refit(self, stats: Tally) -> Self:
        """Maximum likelihood; identical events give infinite concentrations (see `degenerate`)."""
        concentration = dirichlet_concentration(safe_ratio(stats.total, stats.count, self.mean_log()))
        kept = jnp.where(stats.count > 0, concentration, self.concentration)
        return eqx.tree_at(lambda d: d.concentration, self, kept)

    def degenerate(self) -> Flag:
        """The concentration is infinite: a point mass."""
        return jnp.any(~jnp.isfinite(self.concentration))
