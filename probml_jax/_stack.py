"""Stacks of leaves: the only place where a leaf carries a batch axis."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._distribution import AbstractFamily
from ._estimate import ML, AbstractEstimate
from ._typing import Array, Flag, Float, Int, Scalar, Statistics
from ._validate import float_dtype, is_concrete


class AbstractStack(eqx.Module):
    """k leaves of one kind, indexed by a component, a state or a class."""

    @property
    @abstractmethod
    def size(self) -> int:
        """k."""

    @abstractmethod
    def expected_log_probs(self, xs) -> Float[Array, "k n"]:
        """Score of n events under each leaf."""

    @abstractmethod
    def statistics(self, xs, weights: Float[Array, "k n"]) -> Statistics:
        """Statistics of n events for each leaf; `weights` has one row per leaf."""

    @abstractmethod
    def refit(self, stats: Statistics) -> Self:
        """M-step of every leaf."""

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


def _length(tree) -> int:
    return next(leaf.shape[0] for leaf in jax.tree_util.tree_leaves(tree) if eqx.is_array(leaf))


def _all_equal(tree) -> bool:
    """Whether every array of a tree is constant along its leading axis."""
    if not is_concrete(tree):
        return False
    arrays = [np.asarray(a) for a in jax.tree_util.tree_leaves(tree) if eqx.is_array(a)]
    return len(arrays[0]) > 1 and all((a == a[:1]).all() for a in arrays)


class Stacked(AbstractStack):
    """k separate leaves. Build one by `Stacked(eqx.filter_vmap(make_leaf)(parameters))`."""

    each: AbstractEstimate

    @property
    def size(self) -> int:
        return _length(self.each)

    def expected_log_probs(self, xs) -> Float[Array, "k n"]:
        return self.map(lambda leaf: jax.vmap(leaf.expected_log_prob)(xs))

    def statistics(self, xs, weights: Float[Array, "k n"]) -> Statistics:
        return eqx.filter_vmap(lambda leaf, w: leaf.statistics(xs, w))(self.each, weights)

    def refit(self, stats: Statistics) -> Self:
        return Stacked(eqx.filter_vmap(lambda leaf, s: leaf.refit(s))(self.each, stats))

    def log_prior(self) -> Scalar:
        return jnp.sum(self.map(lambda leaf: leaf.log_prior()))

    def map(self, function: Callable[[Any], Any]) -> Any:
        return eqx.filter_vmap(function)(self.each)

    def member(self, index: Int[Array, ""] | int) -> AbstractEstimate:
        return jax.tree_util.tree_map(lambda a: a[index] if eqx.is_array(a) else a, self.each)

    def indistinct(self) -> bool:
        return _all_equal(self.each)

    def validate(self, xs) -> None:
        self.member(0).validate(xs)

    def degenerate(self) -> Flag:
        return jnp.any(self.map(lambda leaf: leaf.degenerate()))


class Tied(AbstractStack):
    r"""k members of a location family that share their spread: $\mu_k$ differ, $\Sigma$ is one.

    `distribution` holds the locations stacked, `loc (k, d)`, and everything else once. The M-step pools the
    scatter of all members around their own new locations.
    """

    distribution: AbstractFamily

    @property
    def size(self) -> int:
        return self.distribution.loc.shape[0]

    def _axes(self):
        nothing = jax.tree_util.tree_map(lambda _: None, self.distribution)
        return eqx.tree_at(lambda d: d.loc, nothing, 0, is_leaf=lambda x: x is None)

    def _vmap(self, function, *rest):
        return eqx.filter_vmap(function, in_axes=(self._axes(), *[0] * len(rest)))(self.distribution, *rest)

    def expected_log_probs(self, xs) -> Float[Array, "k n"]:
        return self.map(lambda leaf: jax.vmap(leaf.expected_log_prob)(xs))

    def statistics(self, xs, weights: Float[Array, "k n"]) -> Statistics:
        return self._vmap(lambda member, w: member.statistics(xs, w), weights)

    def refit(self, stats: Statistics) -> Self:
        count, first, second = stats
        around = jax.vmap(lambda c: jnp.broadcast_to(c, first.shape[1:]))(count)
        shift = first / jnp.where(around == 0, 1, around)
        outer = jax.vmap(jnp.outer)(shift, first) if second.ndim > first.ndim else shift * first
        residual = type(stats)(jnp.sum(count, 0), jnp.zeros_like(first[0]), jnp.sum(second - outer, 0))
        spread = self.member(0).distribution.refit(residual)  # its location does not move: the residual has mean zero
        return Tied(eqx.tree_at(lambda d: d.loc, spread, self.distribution.loc + shift))

    def log_prior(self) -> Scalar:
        return jnp.zeros((), float_dtype(self.distribution))

    def map(self, function: Callable[[Any], Any]) -> Any:
        return self._vmap(lambda member: function(ML(member)))

    def member(self, index: Int[Array, ""] | int) -> AbstractEstimate:
        return ML(eqx.tree_at(lambda d: d.loc, self.distribution, self.distribution.loc[index]))

    def indistinct(self) -> bool:
        return _all_equal(self.distribution.loc)

    def validate(self, xs) -> None:
        self.member(0).validate(xs)

    def degenerate(self) -> Flag:
        return self.member(0).degenerate()
