"""What a conjugate prior is: a distribution over members of a family, closed under data."""

from abc import abstractmethod
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from ._distribution import AbstractDistribution, AbstractFamily
from ._special import pairwise_dot
from ._typing import Array, Event, PRNGKey, Scalar, Statistics
from ._validate import as_data, as_weights, check, check_units, float_dtype


class AbstractConjugatePrior(eqx.Module):
    r"""A prior $p(\theta)$ over the members of a likelihood family, whose posterior has the same form.

    A posterior is a prior: `prior.update(xs).update(ys)` equals `prior.update(both)`, in any order, and
    `downdate` takes data out again. A subclass says how hyper-parameters absorb statistics; the rest follows.
    `complete_events_only` is set by priors whose posterior has no closed form when entries are missing.
    """

    complete_events_only: ClassVar[bool] = False

    @abstractmethod
    def absorb(self, stats: Statistics, around: AbstractFamily) -> Self:
        """The posterior after statistics that were accumulated by (centred on) the member `around`."""

    @abstractmethod
    def expected(self) -> tuple[AbstractFamily, Array]:
        r"""The member with natural parameters $E[\eta]$, and the constant $A(E\eta) - E A(\eta)$.

        Their use: $E \log p(x \mid \theta) = \log p(x \mid E\eta) + A(E\eta) - E A(\eta)$, so that
        variational Bayes scores and centres data with an ordinary member of the family. Where coordinates are
        independent there is one constant per coordinate, and only observed coordinates pay it.
        """

    @abstractmethod
    def expected_log_prob(self, x: Event) -> Scalar:
        r"""$E_{p(\theta)} \log p(x \mid \theta)$ of one event."""

    @abstractmethod
    def interior(self) -> AbstractFamily:
        """A member strictly inside the domain, in the bulk of the density: where the evidence is evaluated."""

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
    def kl(self, other: Self) -> Scalar:
        """KL(self || other) between two priors of the same form."""

    def update(self, xs, weights=None) -> Self:
        """Posterior after n events `xs` (leading axis), optionally with real weights."""
        return _absorb(self, *self._checked(xs, weights), 1)

    def downdate(self, xs, weights=None) -> Self:
        """Take data out again: the inverse of `update`."""
        return _absorb(self, *self._checked(xs, weights), -1)

    def log_evidence(self, xs, weights=None) -> Scalar:
        r"""$\log \int \prod_i p(x_i \mid \theta)^{w_i} p(\theta) d\theta$; differentiable in the hyper-parameters.

        By Bayes' rule at any one member, $\log p(X \mid \theta) + \log p(\theta) - \log p(\theta \mid X)$
        (the candidate's formula, Besag 1989): unlike a ratio of normalizers it needs no raw moments of the data.
        """
        return _log_evidence(self, *self._checked(xs, weights))

    def _checked(self, xs, weights):
        """Data and weights as arrays, after every check that can be made on the host."""
        jax.lax.stop_gradient(self.expected()[0]).validate(xs)
        xs = as_data(xs)
        weights = as_weights(weights, check_units(xs), float_dtype(self))
        return _complete(xs, weights, type(self).__name__) if self.complete_events_only else (xs, weights)


class AbstractLocationPrior(AbstractConjugatePrior):
    r"""A prior of location families: a spread, and a location given the spread.

    The extra methods serve k members that share their spread (`Tied`): locations $\mu_k$ are independent given one
    $\Sigma$, so that a stack of k posteriors has stacked locations and strengths, and one spread.
    """

    @abstractmethod
    def tie(self, posteriors: Self) -> Self:
        """k stacked posteriors of this prior, their evidence about the spread pooled into one."""

    @abstractmethod
    def shared_mode(self, num_members: int) -> AbstractFamily:
        """The member at the joint mode when `num_members` of them share the spread."""

    @abstractmethod
    def spread_log_prob(self, member: AbstractFamily) -> Scalar:
        """Log density of the member's spread alone."""

    @abstractmethod
    def spread_kl(self, other: Self) -> Scalar:
        """KL(self || other) between the distributions of the spread alone."""


# Compiled: one program per shape, and no domain is checked on the way.


@eqx.filter_jit
def _absorb(prior: AbstractConjugatePrior, xs, weights, sign) -> AbstractConjugatePrior:
    stats, around = _centred(prior, xs, weights)
    return prior.absorb(jax.tree_util.tree_map(lambda a: sign * a, stats), around)


@eqx.filter_jit
def _log_evidence(prior: AbstractConjugatePrior, xs, weights) -> Scalar:
    posterior = _absorb(prior, xs, weights, 1)
    member = posterior.interior()
    likelihood = pairwise_dot(weights, jax.vmap(member.log_prob)(xs))
    return likelihood + prior.log_prob(member) - posterior.log_prob(member)


def _centred(prior: AbstractConjugatePrior, xs, weights) -> tuple[Statistics, AbstractFamily]:
    """Statistics around the data's own location, which a first look at some of them finds: it need not be exact."""
    member = jax.lax.stop_gradient(prior.expected()[0])
    stride = max(1, weights.shape[0] // 256)
    some = jax.tree_util.tree_map(lambda a: a[::stride], xs)
    around = jax.lax.stop_gradient(member.refit(member.statistics(some, weights[::stride])))
    return around.statistics(xs, weights), around


def _complete(xs, weights: Array, name: str):
    """Refuse incomplete rows: eagerly with an error, in compiled code by a NaN weight. Padding (weight 0) passes."""
    rows = lambda x: jnp.any(jnp.isnan(x).reshape(x.shape[0], -1), axis=1)
    missing = jnp.any(jnp.stack([rows(x) for x in jax.tree_util.tree_leaves(xs)]), axis=0)
    check(
        ~missing | (weights == 0),
        f"data has NaN entries: {name} wants complete rows. The exact posterior given incomplete rows has another "
        "form; drop those rows, use a prior of independent coordinates, or fit with EM.",
    )
    blank = lambda x: jnp.where(missing.reshape(-1, *[1] * (x.ndim - 1)), 0, x)
    return jax.tree_util.tree_map(blank, xs), jnp.where(missing & (weights != 0), jnp.nan, weights)


def expected_score(expected: tuple[AbstractFamily, Array], x: Event) -> Scalar:
    r"""$\log p(x \mid E\eta)$ plus the constant: one of the whole event, or one per coordinate.

    A coordinate that is missing (NaN, or a label of -1) counts for nothing. A constant of the whole event is paid in
    full: then the missing entries of `x` are latent variables at their variational optimum, as imputed by the member.
    """
    member, constant = expected
    x = jnp.asarray(x)
    if constant.shape == x.shape:
        seen = ~jnp.isnan(x) if jnp.issubdtype(x.dtype, jnp.floating) else x != -1
        constant = jnp.sum(jnp.where(seen, constant, 0))
    return member.log_prob(x) + constant
