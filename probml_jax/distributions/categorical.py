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
from .._validate import check_labels, check_simplex


class Categorical(AbstractExponentialFamily):
    r"""$p(x = j) = \pi_j$ for labels $j = 0..k-1$; the label -1 is unobserved and scores 0.

    `probs (k,)` gives one label; `probs (d, k)` a vector of d independent labels. The exponential form has $k-1$
    free parameters $\eta_j = \log(\pi_j/\pi_{k-1})$ and $A = \log(1 + \sum_{j<k-1} e^{\eta_j})$. A label outside
    the range is impossible: `-inf`.

    Cost: O(1) per label. Reference: Murphy (2022), sections 2.5 and 3.4.

    >>> round(float(Categorical(probs=[0.5, 0.25, 0.25]).log_prob(1)), 4)
    -1.3863
    """

    probs: Float[Array, "*event k"] = param(simplex)

    def __check_init__(self):
        if self.probs.ndim < 1:
            raise ValueError("probs is a scalar; wanted a vector (k,) of probabilities.")
        check_simplex("probs", self.probs)

    @classmethod
    def from_logits(cls, logits: Float[Array, "*event k"]) -> Self:
        """From unnormalized log-probabilities."""
        return cls(jax.nn.softmax(jnp.asarray(logits), axis=-1))

    @property
    def log_probs(self) -> Float[Array, "*event k"]:
        """Logarithms of `probs`, `-inf` for the impossible."""
        return safe_log(self.probs)

    @property
    def num_categories(self) -> int:
        """k."""
        return self.probs.shape[-1]

    def log_prob(self, x: Int[Array, "*event"] | int) -> Scalar:
        x = jnp.asarray(x)
        inside = (x >= 0) & (x < self.num_categories)
        index = jnp.where(inside, x, 0)[..., None]
        value = jnp.where(inside, jnp.take_along_axis(self.log_probs, index, axis=-1)[..., 0], -jnp.inf)
        return jnp.sum(jnp.where(x == -1, 0.0, value))

    def sample(self, key: PRNGKey) -> Int[Array, "*event"]:
        return jr.categorical(key, self.log_probs)

    def mode(self) -> Int[Array, "*event"]:
        """The most probable label; the first of equals."""
        return jnp.argmax(self.probs, axis=-1)

    def entropy(self) -> Scalar:
        return -jnp.sum(xlogy(self.probs, self.probs))

    def kl(self, other: Self) -> Scalar:
        return jnp.sum(xlogy(self.probs, self.probs) - xlogy(self.probs, other.probs))

    def suffstats(self, x: Int[Array, "*event"] | int) -> Float[Array, "*event free"]:
        return jax.nn.one_hot(x, self.num_categories, dtype=self.probs.dtype)[..., :-1]

    def natural(self) -> Float[Array, "*event free"]:
        log_probs = self.log_probs
        return log_probs[..., :-1] - log_probs[..., -1:]

    def log_normalizer(self) -> Scalar:
        return -jnp.sum(self.log_probs[..., -1])

    def log_base_measure(self, x: Int[Array, "*event"] | int) -> Scalar:
        return jnp.zeros((), self.probs.dtype)

    @classmethod
    def from_natural(cls, eta: Float[Array, "*event free"]) -> Self:
        logits = jnp.concatenate([eta, jnp.zeros((*eta.shape[:-1], 1), eta.dtype)], axis=-1)
        return cls(jnp.exp(logits - logsumexp(logits, axis=-1)[..., None]))

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "*event free"]) -> Self:
        return cls(jnp.concatenate([m, 1 - jnp.sum(m, axis=-1, keepdims=True)], axis=-1))

    def validate(self, xs) -> None:
        event = self.probs.shape[:-1]
        if tuple(xs.shape[1:]) != tuple(event) or xs.ndim == 0:
            raise ValueError(f"data has shape {tuple(xs.shape)}; wanted labels of shape {('n', *event)}.")
        check_labels("data", xs, self.num_categories)

    def statistics(self, xs: Int[Array, "n *event"], weights: Float[Array, "n"]) -> Float[Array, "*event k"]:
        """Weighted counts; unobserved labels count nowhere."""
        labels = jnp.arange(self.num_categories, dtype=xs.dtype).reshape(-1, *[1] * xs.ndim)
        spread = weights.reshape(-1, *[1] * (xs.ndim - 1))
        return jnp.moveaxis(jnp.sum(jnp.where(xs[None] == labels, spread[None], 0), axis=1), 0, -1)

    def refit(self, stats: Float[Array, "*event k"]) -> Self:
        total = jnp.sum(stats, axis=-1, keepdims=True)
        return Categorical(jnp.where(total == 0, self.probs, stats / jnp.where(total == 0, 1, total)))

    def degenerate(self) -> Flag:
        """Never: a zero probability is a fair estimate."""
        return jnp.array(False)
