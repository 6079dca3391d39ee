"""Events of several independent parts: their distribution, and a leaf that learns each part in its own way."""

from typing import Any, Self

import jax.numpy as jnp
import jax.random as jr

from ._distribution import AbstractDistribution
from ._estimate import AbstractEstimate
from ._typing import Event, Flag, PRNGKey, Scalar, Statistics


class Independent(AbstractDistribution):
    r"""$p(x_1, \dots, x_m) = \prod_j p_j(x_j)$ over a tuple of parts, each with its own distribution.

    >>> from probml_jax.distributions import Normal, Poisson
    >>> both = Independent((Normal(loc=0.0, scale=1.0), Poisson(rate=2.0)))
    >>> round(float(both.log_prob((0.0, 1.0))), 4)
    -2.2258
    """

    parts: tuple[AbstractDistribution, ...]

    def log_prob(self, x: Event) -> Scalar:
        scores = [part.log_prob(value) for part, value in zip(self.parts, x, strict=True)]
        return jnp.sum(jnp.stack(scores))

    def sample(self, key: PRNGKey) -> Event:
        keys = jr.split(key, len(self.parts))
        return tuple(part.sample(k) for part, k in zip(self.parts, keys, strict=True))

    def mean(self) -> tuple[Any, ...]:
        """The mean of each part."""
        return tuple(part.mean() for part in self.parts)


class Product(AbstractEstimate):
    r"""Independent leaves over the parts of a tuple: $\prod_j p_j(x_j)$. Parts may be missing one by one.

    >>> import jax.numpy as jnp
    >>> from probml_jax import ML
    >>> from probml_jax.distributions import Categorical, Normal
    >>> leaf = Product((ML(Normal(loc=0.0, scale=1.0)), ML(Categorical([0.5, 0.5]))))
    >>> round(float(leaf.expected_log_prob((jnp.array(0.0), jnp.array(1)))), 4)
    -1.6121
    """

    leaves: tuple[AbstractEstimate, ...]

    def expected_log_prob(self, x: Event) -> Scalar:
        return jnp.sum(jnp.stack([leaf.expected_log_prob(part) for leaf, part in self._pairs(x)]))

    def _pairs(self, x: Event):
        return zip(self.leaves, x, strict=True)

    def statistics(self, xs, weights) -> Statistics:
        return tuple(leaf.statistics(part, weights) for leaf, part in self._pairs(xs))

    def refit(self, stats: Statistics) -> Self:
        return Product(tuple(leaf.refit(part) for leaf, part in self._pairs(stats)))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return tuple(old.recenter(s, leaf) for old, s, leaf in zip(self.leaves, stats, new.leaves, strict=True))

    def log_prior(self) -> Scalar:
        return jnp.sum(jnp.stack([leaf.log_prior() for leaf in self.leaves]))

    def point(self) -> Any:
        return Independent(tuple(leaf.point() for leaf in self.leaves))

    def predictive(self) -> Any:
        return Independent(tuple(leaf.predictive() for leaf in self.leaves))

    def validate(self, xs) -> None:
        if not isinstance(xs, tuple) or len(xs) != len(self.leaves):
            raise ValueError(f"data must be a tuple of {len(self.leaves)} arrays, one per leaf of the product.")
        for leaf, part in self._pairs(xs):
            leaf.validate(part)

    def degenerate(self) -> Flag:
        return jnp.any(jnp.stack([leaf.degenerate() for leaf in self.leaves]))
