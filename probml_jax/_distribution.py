"""What a distribution is: one event, a log-probability and a sample."""

import functools
from abc import abstractmethod
from typing import Self

import equinox as eqx

from ._typing import Event, Flag, PRNGKey, Scalar, Statistics


class AbstractDistribution(eqx.Module):
    """A distribution over one event. A batch of events is `jax.vmap(dist.log_prob)(xs)`.

    Families of independent coordinates (`Normal`, `Bernoulli`, `Poisson`, ...) take the *event's* shape
    from their parameters: `Normal(loc=jnp.zeros(3), scale=jnp.ones(3))` is one distribution over
    vectors of three, and its `log_prob` is one number. Many distributions are a `vmap` of the class.
    """

    @abstractmethod
    def log_prob(self, x: Event) -> Scalar:
        """Log density or mass of one event; `-inf` for an impossible one, NaN entries integrated out."""

    @abstractmethod
    def sample(self, key: PRNGKey) -> Event:
        """One event."""


class AbstractFamily(AbstractDistribution):
    """A distribution whose parameters can be estimated from pooled, weighted, additive statistics."""

    @abstractmethod
    def validate(self, xs) -> None:
        """Raise `ValueError` naming what is wrong with `xs` (n events); silent for tracers."""

    @abstractmethod
    def statistics(self, xs, weights) -> Statistics:
        """Pooled statistics of n weighted events: additive over events, centred on this member."""

    @abstractmethod
    def refit(self, stats: Statistics) -> Self:
        """The member of the family with the highest likelihood of `stats` (which were centred on `self`).

        With no weight at all there is nothing to learn from, and `self` comes back.
        """

    @abstractmethod
    def degenerate(self) -> Flag:
        """Whether this member sits on the edge of its domain (a variance on its floor)."""


@functools.singledispatch
def recenter(old: AbstractFamily, stats: Statistics, new: AbstractFamily) -> Statistics:
    """Statistics that were taken around `old` as they would be around `new`: what keeps the past of an online method.

    Most families take theirs around nothing; those that center register here.
    """
    return stats
