"""Weights of a mixture under a Dirichlet process, truncated."""

from typing import Any, Self

import jax.numpy as jnp
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, Float

from .._constraint import fixed, param, positive
from .._estimate import AbstractEstimate
from .._typing import Event, Flag, Scalar, Statistics
from ..distributions import Categorical


class StickBreaking(AbstractEstimate):
    r"""A variational posterior of weights $\pi_k = v_k\prod_{j<k}(1 - v_j)$ with $v_k \sim Beta(1, \gamma)$.

    $q(v_k) = Beta(a_k, b_k)$ for the first k pieces of the stick; what is left of it belongs to nobody, so that the
    bound is one on the evidence of the whole process. An M-step is $a_k = 1 + n_k$, $b_k = \gamma + \sum_{j>k} n_j$.
    Reference: Blei and Jordan (2006), "Variational inference for Dirichlet process mixtures".

    >>> leaf = StickBreaking(jnp.ones(2), jnp.ones(2), jnp.array(1.0)).refit(jnp.array([3.0, 1.0]))
    >>> leaf.first.tolist(), leaf.rest.tolist()
    ([4.0, 2.0], [2.0, 1.0])
    """

    first: Float[Array, "k"] = param(positive)
    rest: Float[Array, "k"] = param(positive)
    concentration: Float[Array, ""] = fixed()

    def _mean_logs(self) -> tuple[Float[Array, "k"], Float[Array, "k"]]:
        r"""$E\log v_k$ and $E\log(1 - v_k)$."""
        both = digamma(self.first + self.rest)
        return digamma(self.first) - both, digamma(self.rest) - both

    def expected_log_prob(self, x: Event) -> Scalar:
        own, others = self._mean_logs()
        inside = (x >= 0) & (x < own.size)
        value = (own + jnp.cumsum(others) - others)[jnp.where(inside, x, 0)]
        return jnp.where(inside, value, jnp.where(x == -1, 0, -jnp.inf))

    def statistics(self, xs: Any, weights: Any) -> Statistics:
        return (xs[None, :] == jnp.arange(self.first.size)[:, None]).astype(self.first.dtype) @ weights

    def refit(self, stats: Statistics) -> Self:
        later = jnp.cumsum(stats[::-1])[::-1] - stats
        return StickBreaking(1 + stats, self.concentration + jnp.maximum(later, 0), self.concentration)

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return stats

    def log_prior(self) -> Scalar:
        own, others = self._mean_logs()
        ratio = betaln(self.first, self.rest) - betaln(jnp.ones_like(self.first), self.concentration)
        return jnp.sum(ratio - (self.first - 1) * own - (self.rest - self.concentration) * others)

    def point(self) -> Categorical:
        share = self.first / (self.first + self.rest)
        left = jnp.concatenate([jnp.ones_like(share[:1]), jnp.cumprod(1 - share)[:-1]])
        return Categorical(share * left / jnp.sum(share * left))

    def predictive(self) -> Categorical:
        return self.point()

    def validate(self, xs: Any) -> None:
        self.point().validate(xs)

    def degenerate(self) -> Flag:
        return jnp.array(False)
