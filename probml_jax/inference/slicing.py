"""Elimination in slices: fix a few variables, eliminate the rest for each of their joint states, one after another.

Memory falls to that of the remaining graph; time is that times the number of slices. Because the slices are added by
the same log-sum, derivatives (marginals) follow without further thought.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._special import logsumexp
from .._typing import Scalar
from . import elimination
from .contraction import Cost, Plan, Scope, Structure, make_plan

_MOST_SLICES = 1 << 20


@dataclasses.dataclass(frozen=True)
class SlicedPlan:
    """A plan for the graph without the `fixed` variables, to be run once for each of their joint states."""

    structure: Structure
    fixed: Scope
    inner: Plan

    @property
    def num_slices(self) -> int:
        """Settings of the variables that are held."""
        return self.structure.size(self.fixed)

    @property
    def cost(self) -> Cost:
        """Of all slices together; memory is that of one."""
        return self.inner.cost._replace(operations=self.inner.cost.operations * self.num_slices)


def _without(structure: Structure, fixed: Scope) -> Structure:
    """The same variables, of which the fixed ones have one state."""
    sizes = tuple(1 if v in fixed else k for v, k in enumerate(structure.cardinalities))
    return Structure(sizes, structure.scopes)


def make_sliced_plan(structure: Structure, max_bytes: int, itemsize: int) -> SlicedPlan | None:
    """Fix, one at a time, the variable that most of the largest products contain, until the rest fits the budget.

    `None` when that would take more than about a million slices.
    """
    fixed: Scope = ()
    while structure.size(fixed) <= _MOST_SLICES:
        plan = make_plan(_without(structure, fixed), itemsize=itemsize)
        if plan.cost.bytes <= max_bytes:
            return SlicedPlan(structure, fixed, plan)
        sizes = plan.structure
        weight = dict.fromkeys(range(len(structure.cardinalities)), 0)
        for step in plan.steps:
            product = (*step.eliminated, *step.scope)
            for v in product:
                weight[v] += sizes.size(product) if sizes.cardinalities[v] > 1 else 0
        heaviest = max(weight, key=lambda v: (weight[v], -v))
        fixed = (*fixed, heaviest)
    return None


def log_partition(plan: SlicedPlan, tables: Sequence[Array], unary: Sequence[Array]) -> Scalar:
    """The log-partition of the whole graph, slice by slice; the backward pass recomputes a slice."""
    scopes = [*plan.structure.scopes, *[(v,) for v in range(len(plan.structure.cardinalities))]]
    sizes = [plan.structure.cardinalities[v] for v in plan.fixed]
    states = jnp.asarray(np.array([*itertools.product(*map(range, sizes))], np.int32).reshape(-1, len(sizes)))

    @jax.checkpoint
    def one(state: Array) -> Array:
        at = dict(zip(plan.fixed, state, strict=True))

        def cut(table, scope):
            for axis, v in enumerate(scope):
                table = jax.lax.dynamic_slice_in_dim(table, at[v], 1, axis) if v in at else table
            return table

        parts = [cut(table, scope) for table, scope in zip([*tables, *unary], scopes, strict=True)]
        return elimination.log_partition(plan.inner, parts[: len(tables)], parts[len(tables) :])

    return logsumexp(jax.lax.map(one, states))
