"""The categorical distribution over labels 0..k-1."""

from typing import Self

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._constraint import param, simplex
from .._exponential_family import AbstractExponentialFamily
from .._special import logsumexp, safe_log, xlogy
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check_labels, check_rank, check_simplex


class Categorical(AbstractExponentialFamily):
    r"""$p(x = j) = \pi_j$ for labels $j = 0..k-1$; the label -1 is unobserved and scores 0.

    The exponential form has $k-1$ free parameters $\eta_j = \log(\pi_j/\pi_{k-1})$ and
    $A = \log(1 + \sum_{j<k-1} e^{\eta_j})$. A label outside the range is impossible: `-inf`.

    Cost: O(1) per event. Reference: Murphy (2022), sections 2.5 and 3.4.

    >>> float(Categorical(probs=[0.5, 0.25, 0.25]).log_prob(1).round(4))
    -1.3863
    """

    probs: Float[Array, "k"] = param(simplex)

    def __check_init__(self):
        check_rank("probs", self.probs, 1, "a vector (k,)")
        check_simplex("probs", self.probs)

    @classmethod
    def from_logits(cls, logits: Float[Array, "k"]) -> Self:
        """From unnormalized log-probabilities."""
        return cls(jax.nn.softmax(jnp.asarray(logits)))

    @property
    def log_probs(self) -> Float[Array, "k"]:
        return safe_log(self.probs)

    def log_prob(self, x: Int[Array, ""] | int) -> Scalar:
        k = self.probs.size
        x = jnp.asarray(x)
        inside = (x >= 0) & (x < k)
        value = jnp.where(inside, self.log_probs[jnp.where(inside, x, 0)], -jnp.inf)
        return jnp.where(x == -1, 0.0, value)

    def sample(self, key: PRNGKey) -> Int[Array, ""]:
        return jr.categorical(key, self.log_probs)

    def mode(self) -> Int[Array, ""]:
        return jnp.argmax(self.probs)

    def entropy(self) -> Scalar:
        return -jnp.sum(xlogy(self.probs, self.probs))

    def kl(self, other: Self) -> Scalar:
        return jnp.sum(xlogy(self.probs, self.probs) - xlogy(self.probs, other.probs))

    def suffstats(self, x: Int[Array, ""] | int) -> Float[Array, "k-1"]:
        return jax.nn.one_hot(x, self.probs.size, dtype=self.probs.dtype)[:-1]

    def natural(self) -> Float[Array, "k-1"]:
        log_probs = self.log_probs
        return log_probs[:-1] - log_probs[-1]

    def log_normalizer(self) -> Scalar:
        return -self.log_probs[-1]

    def log_base_measure(self, x: Int[Array, ""] | int) -> Scalar:
        return jnp.zeros((), self.probs.dtype)

    @classmethod
    def from_natural(cls, eta: Float[Array, "k-1"]) -> Self:
        logits = jnp.concatenate([eta, jnp.zeros(1, eta.dtype)])
        return cls(jnp.exp(logits - logsumexp(logits)))

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "k-1"]) -> Self:
        return cls(jnp.concatenate([m, 1 - m.sum(keepdims=True)]))

    def validate(self, xs) -> None:
        check_rank("data", xs, 1, "(n,) labels")
        check_labels("data", xs, self.probs.size)

    def statistics(self, xs: Int[Array, "n"], weights: Float[Array, "n"]) -> Float[Array, "k"]:
        """Weighted counts; unobserved labels count nowhere."""
        return weights @ jax.nn.one_hot(xs, self.probs.size, dtype=weights.dtype)

    def refit(self, stats: Float[Array, "k"]) -> Self:
        total = stats.sum()
        return Categorical(jnp.where(total == 0, self.probs, stats / jnp.where(total == 0, 1, total)))

    def degenerate(self) -> Flag:
        """Never: a zero probability is a fair estimate."""
        return jnp.array(False)
