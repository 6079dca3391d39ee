"""Stacks of leaves: the only place where a leaf carries a batch axis."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._distribution import AbstractFamily
from ._estimate import MAP, ML, AbstractEstimate, Bayes, with_constants_of
from ._typing import Array, Flag, Float, Int, Scalar, Statistics
from ._validate import is_concrete


class AbstractStack(eqx.Module):
    """k leaves of one kind, indexed by a component, a state or a class."""

    @property
    @abstractmethod
    def size(self) -> int:
        """k."""

    @abstractmethod
    def expected_log_probs(self, xs, axis: int = 0) -> Float[Array, "..."]:
        """Score of n events under each leaf, `(k, n)`; `axis=1` gives `(n, k)`, the natural layout of sequences."""

    @abstractmethod
    def statistics(self, xs, weights: Float[Array, "..."], axis: int = 0) -> Statistics:
        """Statistics of n events for each leaf; `weights` is `(k, n)`, or `(n, k)` with `axis=1`."""

    @abstractmethod
    def refit(self, stats: Statistics) -> Self:
        """M-step of every leaf."""

    @abstractmethod
    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        """Statistics taken around these leaves as they would be around those of `new`."""

    @abstractmethod
    def log_prior(self) -> Scalar:
        """Summed over leaves."""

    @abstractmethod
    def map(self, function: Callable[[Any], Any]) -> Any:
        """`function(leaf)` for every leaf, stacked."""

    @abstractmethod
    def member(self, index: Int[Array, ""] | int) -> AbstractEstimate:
        """One leaf."""

    @abstractmethod
    def indistinct(self) -> bool:
        """Whether all leaves are known to be equal (never, for tracers or a single leaf)."""

    @abstractmethod
    def validate(self, xs) -> None:
        """Raise `ValueError` naming what is wrong with `xs`; silent for tracers."""

    @abstractmethod
    def degenerate(self) -> Flag:
        """Whether any leaf is degenerate."""


def _scores(stack: AbstractStack, xs, axis: int) -> Float[Array, "..."]:
    """What varies slowest is vmapped last: a branch's answer comes out in that order, and turning it is a pass more."""
    if axis == 0:
        return stack.map(lambda leaf: jax.vmap(leaf.expected_log_prob)(xs))
    return jax.vmap(lambda x: stack.map(lambda leaf: leaf.expected_log_prob(x)))(xs)


def _length(tree) -> int:
    return next(leaf.shape[0] for leaf in jax.tree_util.tree_leaves(tree) if eqx.is_array(leaf))


def _all_equal(tree) -> bool:
    """Whether every array of a tree is constant along its leading axis."""
    if not is_concrete(tree):
        return False
    arrays = [np.asarray(a) for a in jax.tree_util.tree_leaves(tree) if eqx.is_array(a)]
    return len(arrays[0]) > 1 and all((a == a[:1]).all() for a in arrays)


class Stacked(AbstractStack):
    """k separate leaves. Build one by `Stacked(eqx.filter_vmap(make_leaf)(parameters))`.

    >>> from probml_jax.distributions import Normal
    >>> stack = Stacked(ML(jax.vmap(Normal)(jnp.array([-1.0, 0.0, 1.0]), jnp.ones(3))))
    >>> stack.size, stack.expected_log_probs(jnp.zeros(5)).shape
    (3, (3, 5))
    """

    each: AbstractEstimate

    @property
    def size(self) -> int:
        return _length(self.each)

    def expected_log_probs(self, xs, axis: int = 0) -> Float[Array, "..."]:
        return _scores(self, xs, axis)

    def statistics(self, xs, weights: Float[Array, "..."], axis: int = 0) -> Statistics:
        stats = lambda leaf, w: leaf.statistics(xs, w)
        return eqx.filter_vmap(stats, in_axes=(eqx.if_array(0), axis))(self.each, weights)

    def refit(self, stats: Statistics) -> Self:
        return Stacked(eqx.filter_vmap(lambda leaf, s: leaf.refit(s))(self.each, stats))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return eqx.filter_vmap(lambda old, s, leaf: old.recenter(s, leaf))(self.each, stats, new.each)

    def log_prior(self) -> Scalar:
        return jnp.sum(self.map(lambda leaf: leaf.log_prior()))

    def map(self, function: Callable[[Any], Any]) -> Any:
        return eqx.filter_vmap(function)(self.each)

    def member(self, index: Int[Array, ""] | int) -> AbstractEstimate:
        return jax.tree_util.tree_map(lambda a: a[index] if eqx.is_array(a) else a, self.each)

    def indistinct(self) -> bool:
        return _all_equal(self.each)

    def validate(self, xs) -> None:
        # on the host, where taking one member compiles nothing
        first = lambda a: jnp.asarray(np.asarray(a)[0]) if is_concrete(a) else a[0]
        one = jax.tree_util.tree_map(lambda a: first(a) if eqx.is_array(a) else a, self.each)
        one.validate(xs)

    def degenerate(self) -> Flag:
        return jnp.any(self.map(lambda leaf: leaf.degenerate()))


class Tied(AbstractStack):
    r"""k members of a location family that share their spread: $\mu_k$ differ, $\Sigma$ is one.

    `each` is an `ML`, `MAP` or `Bayes` leaf in which locations (for `Bayes` also strengths) are stacked, `loc (k, d)`,
    and everything else stands once; the prior of `MAP` and `Bayes` is an `AbstractLocationPrior` and is not stacked.
    The M-step pools the scatter of all members around their own new locations.

    >>> from probml_jax.distributions import MultivariateNormal
    >>> stack = Tied(ML(eqx.tree_at(lambda d: d.loc, MultivariateNormal(jnp.zeros(2), jnp.eye(2)), jnp.zeros((3, 2)))))
    >>> stack.size, stack.member(1).distribution.covariance.shape
    (3, (2, 2))
    """

    each: AbstractEstimate

    @property
    def size(self) -> int:
        return _stacked_fields(self.each)[0].shape[0]

    def _vmap(self, function, *rest, in_axis: int = 0):
        nothing = jax.tree_util.tree_map(lambda _: None, self.each)
        fields = _stacked_fields(self.each)
        axes = eqx.tree_at(_stacked_fields, nothing, (0,) * len(fields), is_leaf=lambda x: x is None)
        into = (axes, *[in_axis] * len(rest))
        return eqx.filter_vmap(function, in_axes=into)(self.each, *rest)

    def expected_log_probs(self, xs, axis: int = 0) -> Float[Array, "..."]:
        return _scores(self, xs, axis)

    def statistics(self, xs, weights: Float[Array, "..."], axis: int = 0) -> Statistics:
        return self._vmap(lambda leaf, w: leaf.statistics(xs, w), weights, in_axis=axis)

    def refit(self, stats: Statistics) -> Self:
        leaf: Any = self.each
        one: Any = self.member(0)
        if isinstance(self.each, ML):
            return Tied(ML(_pool_spread(one.distribution, leaf.distribution.loc, stats)))
        posteriors = self._vmap(lambda leaf, s: leaf.prior.absorb(s, _center(leaf)), stats)
        shared = Tied(Bayes(leaf.prior.tie(posteriors), leaf.prior))
        if isinstance(self.each, Bayes):
            return shared
        modes = shared.map(lambda leaf: leaf.posterior.shared_mode(self.size))
        mode = with_constants_of(jax.tree_util.tree_map(lambda a: a[0], modes), one.distribution)
        return Tied(MAP(eqx.tree_at(lambda d: d.loc, mode, modes.loc), leaf.prior))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        one = lambda k, s: self.member(k).recenter(s, new.member(k))
        return jax.vmap(one)(jnp.arange(self.size), stats)

    def log_prior(self) -> Scalar:
        """Each member's own, less the shared spread's part that it counts again."""
        total = jnp.sum(self.map(lambda leaf: leaf.log_prior()))
        one: Any = self.member(0)
        if isinstance(self.each, MAP):
            return total - (self.size - 1) * one.prior.spread_log_prob(one.distribution)
        if isinstance(self.each, Bayes):
            return total + (self.size - 1) * one.posterior.spread_kl(one.prior)
        return total

    def map(self, function: Callable[[Any], Any]) -> Any:
        return self._vmap(function)

    def member(self, index: Int[Array, ""] | int) -> AbstractEstimate:
        chosen = tuple(a[index] for a in _stacked_fields(self.each))
        return eqx.tree_at(_stacked_fields, self.each, chosen)

    def indistinct(self) -> bool:
        return _all_equal(_stacked_fields(self.each)[0])

    def validate(self, xs) -> None:
        self.member(0).validate(xs)

    def degenerate(self) -> Flag:
        return self.member(0).degenerate()


def _stacked_fields(leaf: Any) -> tuple:
    """The arrays of a tied leaf that differ from member to member."""
    own: Any = leaf.posterior if isinstance(leaf, Bayes) else leaf.distribution
    return (own.loc, own.strength) if isinstance(leaf, Bayes) else (own.loc,)


def _center(leaf: Any) -> AbstractFamily:
    return leaf.posterior.expected()[0] if isinstance(leaf, Bayes) else leaf.distribution


def _pool_spread(one: AbstractFamily, locs: Float[Array, "k d"], stats: Statistics) -> AbstractFamily:
    """Maximum likelihood: new locations, and one spread from the scatter around them."""
    count, first, second = stats
    around = jax.vmap(lambda c: jnp.broadcast_to(c, first.shape[1:]))(count)
    shift = first / jnp.where(around == 0, 1, around)
    outer = jax.vmap(jnp.outer)(shift, first) if second.ndim > first.ndim else shift * first
    residual = type(stats)(jnp.sum(count, 0), jnp.zeros_like(first[0]), jnp.sum(second - outer, 0))
    # the residual has mean zero, so the location of `one` does not move
    return eqx.tree_at(lambda d: d.loc, one.refit(residual), locs + shift)
