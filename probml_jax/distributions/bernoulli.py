"""The Bernoulli distribution of independent binary coordinates."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import param, unit_interval
from .._event import Tally, as_event, as_events, check_events, common_event, dot, pool, safe_ratio
from .._exponential_family import AbstractExponentialFamily
from .._special import any_in_batch, safe_log, xlogy
from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, check, check_probabilities, is_concrete


class Bernoulli(AbstractExponentialFamily):
    r"""Independent binary coordinates, $p(x) = \prod_j p_j^{x_j}(1-p_j)^{1-x_j}$.

    The event has the shape of `probs`; booleans, integers and floats are taken, and a NaN coordinate is missing and
    scores 0. Anything but 0 and 1 scores `-inf`, and so does what a probability of exactly 0 or 1 rules out.
    Probabilities outside $[0, 1]$ raise `ValueError`.

    Cost: O(1) per coordinate; over n events and k members one matrix product. Reference: Murphy (2022), section 2.4.

    >>> round(float(Bernoulli(probs=[0.5, 0.25]).log_prob(jnp.array([1, 0]))), 4)
    -0.9808
    """

    probs: Float[Array, "*event"] = param(unit_interval)

    def __init__(self, probs: Any):
        (self.probs,) = common_event(probs=probs)

    def __check_init__(self):
        check_probabilities("probs", self.probs)

    @classmethod
    def from_logits(cls, logits: Float[ArrayLike, "*event"]) -> Self:
        """From log-odds."""
        return cls(jax.nn.sigmoid(as_float(logits, "logits")))

    # -------------------------------------------------------------------------------------- one event

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.probs)
        certain = (self.probs == 0) | (self.probs == 1)
        p = jnp.where(certain, 0.5, self.probs)
        log_p, log_q = (jnp.where(certain, 0, logs) for logs in (jnp.log(p), jnp.log1p(-p)))
        ones, zeros = (x == 1).astype(x.dtype), (x == 0).astype(x.dtype)
        # both products do not mix events with members: under vmap over both they are matrix products
        value = dot(ones, log_p) + dot(zeros, log_q)

        def ruled_out(probs, ones, zeros):
            no, yes = ((probs == edge).astype(x.dtype) for edge in (0, 1))
            return dot(ones, no) + dot(zeros, yes) > 0

        never = lambda probs, ones, zeros: jnp.zeros((), bool)
        clash = jax.lax.cond(any_in_batch(jnp.any(certain)), ruled_out, never, self.probs, ones, zeros)
        binary = jnp.all((x == 0) | (x == 1) | jnp.isnan(x))
        return jnp.where(clash | ~binary, -jnp.inf, value)

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return jr.bernoulli(key, self.probs, self.probs.shape).astype(self.probs.dtype)

    def mean(self) -> Float[Array, "*event"]:
        """$p_j$."""
        return self.probs

    def mode(self) -> Float[Array, "*event"]:
        r"""1 where $p_j > \tfrac12$, else 0."""
        return (self.probs > 0.5).astype(self.probs.dtype)

    def variance(self) -> Float[Array, "*event"]:
        """$p_j(1-p_j)$."""
        return self.probs * (1 - self.probs)

    def entropy(self) -> Scalar:
        p, q = self.probs, 1 - self.probs
        return -jnp.sum(xlogy(p, p) + xlogy(q, q))

    def kl(self, other: Self) -> Scalar:
        p, q = self.probs, 1 - self.probs
        yes = xlogy(p, p) - xlogy(p, other.probs)
        return jnp.sum(yes + xlogy(q, q) - xlogy(q, 1 - other.probs))

    # -------------------------------------------------------------------------------------- exponential family

    def suffstats(self, x: Shaped[ArrayLike, "*event"]) -> Float[Array, "*event"]:
        return as_event(x, self.probs)

    def natural(self) -> Float[Array, "*event"]:
        return safe_log(self.probs) - safe_log(1 - self.probs)

    def log_normalizer(self) -> Scalar:
        return -jnp.sum(safe_log(1 - self.probs))

    def log_base_measure(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        return jnp.zeros((), self.probs.dtype)

    @classmethod
    def from_natural(cls, eta: Float[Array, "*event"]) -> Self:
        return cls(jax.nn.sigmoid(eta))

    @classmethod
    def from_mean_parameters(cls, m: Float[Array, "*event"]) -> Self:
        return cls(m)

    # -------------------------------------------------------------------------------------- many events

    def validate(self, xs) -> None:
        check_events(xs, self.probs)
        if is_concrete(xs):
            check((xs == 0) | (xs == 1) | (xs != xs), "data must be 0 or 1 (NaN for missing).")

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> Tally:
        """Weight seen and weight of ones, per coordinate."""
        xs = as_events(xs, self.probs)
        ones = pool(weights, (xs == 1).astype(weights.dtype))
        return Tally(ones + pool(weights, (xs == 0).astype(weights.dtype)), ones)

    def refit(self, stats: Tally) -> Self:
        return eqx.tree_at(lambda d: d.probs, self, safe_ratio(stats.total, stats.count, self.probs))

    def degenerate(self) -> Flag:
        """Never: a probability of zero or one is a fair estimate."""
        return jnp.array(False)
