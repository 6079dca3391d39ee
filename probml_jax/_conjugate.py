"""What a conjugate prior is: a distribution over members of a family, closed under data."""

from abc import abstractmethod
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp

from ._distribution import AbstractDistribution, AbstractFamily
from ._typing import Event, PRNGKey, Scalar, Statistics
from ._validate import as_data, as_weights, check_units, float_dtype


class AbstractConjugatePrior(eqx.Module):
    r"""A prior $p(\theta)$ over the members of a likelihood family, whose posterior has the same form.

    A posterior is a prior: `prior.update(xs).update(ys)` equals `prior.update(both)`, in any order, and
    `downdate` takes data out again. A subclass says how hyper-parameters absorb statistics; the rest follows.
    """

    @abstractmethod
    def absorb(self, stats: Statistics, around: AbstractFamily) -> Self:
        """The posterior after statistics that were accumulated by (centred on) the member `around`."""

    @abstractmethod
    def expected(self) -> tuple[AbstractFamily, Scalar]:
        r"""The member with natural parameters $E[\eta]$, and the constant $A(E\eta) - E A(\eta)$.

        Their use: $E \log p(x \mid \theta) = \log p(x \mid E\eta) + A(E\eta) - E A(\eta)$, so that
        variational Bayes scores and centres data with an ordinary member of the family.
        """

    @abstractmethod
    def mode(self) -> AbstractFamily:
        """The member at the joint mode of the density of its parameters (MAP)."""

    @abstractmethod
    def mean(self) -> AbstractFamily:
        """The member at the posterior mean of its parameters."""

    @abstractmethod
    def sample(self, key: PRNGKey) -> AbstractFamily:
        """A member drawn from the prior."""

    @abstractmethod
    def predictive(self) -> AbstractDistribution:
        r"""$\int p(x \mid \theta) p(\theta) d\theta$ of one new event."""

    @abstractmethod
    def log_prob(self, member: AbstractFamily) -> Scalar:
        """Log density of a member's parameters."""

    @abstractmethod
    def log_normalizer(self) -> Scalar:
        """Log of the constant that normalizes the prior; evidence is a ratio of two of them."""

    @abstractmethod
    def kl(self, other: Self) -> Scalar:
        """KL(self || other) between two priors of the same form."""

    def update(self, xs, weights=None) -> Self:
        """Posterior after n events `xs` (leading axis), optionally with real weights."""
        return self.absorb(*self._pool(xs, weights))

    def downdate(self, xs, weights=None) -> Self:
        """Take data out again: the inverse of `update`."""
        stats, around = self._pool(xs, weights)
        return self.absorb(jax.tree_util.tree_map(jnp.negative, stats), around)

    def expected_log_prob(self, x: Event) -> Scalar:
        r"""$E_{p(\theta)} \log p(x \mid \theta)$ of one event."""
        member, constant = self.expected()
        return member.log_prob(x) + constant

    def log_evidence(self, xs, weights=None) -> Scalar:
        r"""$\log \int \prod_i p(x_i \mid \theta)^{w_i} p(\theta) d\theta$; differentiable in the hyper-parameters."""
        stats, around = self._pool(xs, weights)
        xs = as_data(xs)
        weights = as_weights(weights, check_units(xs), float_dtype(around))
        base = jnp.sum(weights * jax.vmap(around.log_base_measure)(xs))
        return self.absorb(stats, around).log_normalizer() - self.log_normalizer() + base

    def _pool(self, xs, weights) -> tuple[Statistics, AbstractFamily]:
        """Statistics centred on the data themselves: a first pass finds where they lie."""
        member = jax.lax.stop_gradient(self.expected()[0])
        member.validate(xs)
        xs = as_data(xs)
        weights = as_weights(weights, check_units(xs), float_dtype(member))
        around = jax.lax.stop_gradient(member.refit(member.statistics(xs, weights)))
        return around.statistics(xs, weights), around
