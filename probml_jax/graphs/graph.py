"""The base of all graphs: exact queries, answered by elimination. Structure is static, tables are data."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._special import any_in_batch, logsumexp
from .._typing import PRNGKey, Scalar
from .._validate import float_dtype, is_concrete
from ..inference import elimination, slicing
from ..inference.contraction import Cost, Plan, Scope, Structure, make_plan
from ..inference.slicing import SlicedPlan
from .posterior import (
    Approximation,
    Assignment,
    Bounds,
    Marginals,
    Variable,
    check_states,
    exact_status,
    position,
    state_position,
)

MAX_BYTES = 1 << 32
"""Exact queries that would keep more than this (4 GiB) refuse to run unless told otherwise."""

Evidence = Mapping[str, Any]


class AbstractGraph(eqx.Module):
    r"""A joint distribution of named discrete variables, $p(x) \propto \prod_f e^{\theta_f(x_f)}$.

    Evidence is a mapping from names to states (numbers, or names of states), or, in `..._from_array`, a row of whole
    numbers with -1 for unobserved: data, so that one compiled program serves every pattern and thousands of rows are
    one `vmap`. Exact queries know their cost beforehand (`cost()`) and raise `ValueError` above `max_bytes`.
    """

    variables: eqx.AbstractVar[tuple[Variable, ...]]
    scopes: eqx.AbstractVar[tuple[Scope, ...]]

    @abstractmethod
    def log_potentials(self) -> tuple[Float[Array, "..."], ...]:
        """One log table per scope, in its shape."""

    @abstractmethod
    def _log_prob(self, row: Int[Array, "v"]) -> Scalar:
        """Log-probability of a row of states; -1 entries are summed out."""

    @abstractmethod
    def belief_propagation(self, *, num_sweeps: int = 100) -> Approximation:
        """Loopy belief propagation."""

    @abstractmethod
    def mean_field(self, *, num_sweeps: int = 100) -> Approximation:
        """Naive mean field."""

    @abstractmethod
    def tree_reweighted(self, *, num_sweeps: int = 1000) -> Approximation:
        """The tree-reweighted upper bound."""

    # -------------------------------------------------------------------------------------- structure

    @property
    def names(self) -> tuple[str, ...]:
        """Of the variables, in order."""
        return tuple(variable.name for variable in self.variables)

    @property
    def structure(self) -> Structure:
        """What a plan needs to know: how many states each variable has, and who meets whom."""
        return Structure(tuple(variable.cardinality for variable in self.variables), self.scopes)

    def index(self, name: str) -> int:
        """The number of a variable; `ValueError` for an unknown name."""
        return position(self.variables, name)

    def evidence_row(self, evidence: Evidence | None) -> Int[Array, "v"]:
        """Evidence by name as a row of states; -1 where there is none. Unknown names and states raise `ValueError`."""
        row: list[Any] = [-1] * len(self.variables)
        for name, state in (evidence or {}).items():
            v = self.index(name)
            row[v] = state_position(self.variables[v], state) if is_concrete(state) else state
        if is_concrete(row):
            return jnp.asarray(np.array(row, np.int32))
        return jnp.stack([jnp.asarray(state, jnp.int32) for state in row])

    def as_row(self, assignment: Any) -> Int[Array, "v"]:
        """A mapping, an `Assignment` or an array of states as a row; states out of range raise `ValueError`."""
        if isinstance(assignment, Assignment):
            return assignment.states
        if isinstance(assignment, Mapping):
            return self.evidence_row(assignment)
        row = jnp.asarray(assignment)
        if row.size != len(self.variables) or not jnp.issubdtype(row.dtype, jnp.integer):
            raise ValueError(
                f"an assignment has shape {row.shape} of {row.dtype}; wanted {len(self.variables)} whole states."
            )
        row = row.reshape(-1)
        if is_concrete(row):
            check_states(self.variables, np.asarray(row)[None])
        return row

    def evidence_potentials(self, row: Int[Array, "v"]) -> tuple[Float[Array, "_"], ...]:
        """Per variable 0 for states that agree with the row, `-inf` for others: a state out of range is impossible."""
        sizes = self.structure.cardinalities
        agrees = (row[:, None] == -1) | (row[:, None] == jnp.arange(max(sizes), dtype=row.dtype)[None, :])
        padded = jnp.where(agrees, 0, -jnp.inf).astype(float_dtype(self))
        return tuple(padded[v, :size] for v, size in enumerate(sizes))

    # -------------------------------------------------------------------------------------- cost

    def _itemsize(self) -> int:
        return float_dtype(self).itemsize

    def cost(self, *, order: Sequence[str] | None = None, keep: Sequence[str] = ()) -> Cost:
        """What exact inference would take, before anything runs: treewidth, largest table, operations, bytes.

        `order` names the variables in the order to eliminate them; by default several heuristics are tried and the
        cheapest is kept.
        """
        chosen = None if order is None else tuple(self.index(name) for name in order)
        return make_plan(self.structure, tuple(map(self.index, keep)), chosen, self._itemsize()).cost

    def plan(self, max_bytes: int, keep: Scope = (), order: Scope | None = None) -> Plan:
        """The elimination of everything but `keep`; `ValueError` with the numbers if it would exceed the budget."""
        plan = make_plan(self.structure, keep, order, self._itemsize())
        if plan.cost.bytes > max_bytes:
            raise ValueError(
                f"exact inference is too large: treewidth {plan.cost.treewidth}, largest table "
                f"{plan.cost.largest_table:,} entries, {plan.cost.bytes:,} bytes in all, and max_bytes={max_bytes:,}. "
                "Raise max_bytes, pass slices=True (log_partition and marginals), or approximate: "
                "belief_propagation(), mean_field(), gibbs(key), log_partition_bounds()."
            )
        return plan

    def _plan_or_slices(self, max_bytes: int, slices: bool) -> Plan | SlicedPlan:
        if not slices:
            return self.plan(max_bytes)
        plan = make_plan(self.structure, itemsize=self._itemsize())
        if plan.cost.bytes <= max_bytes:
            return plan
        sliced = slicing.make_sliced_plan(self.structure, max_bytes, self._itemsize())
        return self.plan(max_bytes) if sliced is None else sliced

    # -------------------------------------------------------------------------------------- sums

    @eqx.filter_jit
    def _log_total(self, row: Int[Array, "v"], plan: Plan | SlicedPlan) -> Scalar:
        run = slicing.log_partition if isinstance(plan, SlicedPlan) else elimination.log_partition
        return run(plan, self.log_potentials(), self.evidence_potentials(row))

    def log_partition(
        self,
        evidence: Evidence | None = None,
        *,
        order: Sequence[str] | None = None,
        max_bytes: int = MAX_BYTES,
        slices: bool = False,
    ) -> Scalar:
        r"""$\log Z(e) = \log\sum_{x \sim e}\prod_f e^{\theta_f(x_f)}$; `-inf` for contradictory evidence.

        `order` names the variables in the order to eliminate them. With `slices=True` a graph above the budget is
        eliminated in slices. Differentiable: the gradient with respect to a table is its marginal.
        """
        if order is not None:
            plan = self.plan(max_bytes, order=tuple(self.index(name) for name in order))
        else:
            plan = self._plan_or_slices(max_bytes, slices)
        return self._log_total(self.evidence_row(evidence), plan)

    @eqx.filter_jit
    def _beliefs(self, row: Int[Array, "v"], plan: Plan | SlicedPlan) -> elimination.Beliefs:
        run = slicing.log_partition if isinstance(plan, SlicedPlan) else elimination.log_partition
        both = jax.value_and_grad(lambda tables, unary: run(plan, tables, unary), argnums=(0, 1))
        value, (joint, single) = both(self.log_potentials(), self.evidence_potentials(row))
        return elimination.Beliefs(value, single, joint)

    def marginals_from_array(self, row: Any, *, max_bytes: int = MAX_BYTES, slices: bool = False) -> Marginals:
        """Posterior marginals of all variables given a row of states, -1 for unobserved. Rows are a `vmap`.

        A state out of range raises `ValueError`, or is impossible evidence inside compiled code. Memory: `cost().bytes`
        for each row.
        """
        log_evidence, single, _ = self._beliefs(self.as_row(row), self._plan_or_slices(max_bytes, slices))
        possible = log_evidence > -jnp.inf
        probs = tuple(jnp.where(possible, p, jnp.nan) for p in single)
        return Marginals(probs, log_evidence, exact_status(log_evidence), self.variables)

    def marginals(
        self, evidence: Evidence | None = None, *, max_bytes: int = MAX_BYTES, slices: bool = False
    ) -> Marginals:
        """Posterior marginals of all variables given evidence, in one forward and one backward pass."""
        return self.marginals_from_array(self.evidence_row(evidence), max_bytes=max_bytes, slices=slices)

    def factor_marginals(
        self, evidence: Evidence | None = None, *, max_bytes: int = MAX_BYTES
    ) -> tuple[Float[Array, "..."], ...]:
        """The joint posterior of the variables of each table, in the order of `scopes`; zero if impossible."""
        return self._beliefs(self.evidence_row(evidence), self.plan(max_bytes)).joint

    @eqx.filter_jit
    def _log_query(self, row: Int[Array, "v"], plan: Plan) -> Float[Array, "..."]:
        return elimination.log_marginal(plan, self.log_potentials(), self.evidence_potentials(row))

    def query(
        self, names: Sequence[str], evidence: Evidence | None = None, *, max_bytes: int = MAX_BYTES
    ) -> Float[Array, "..."]:
        """The joint posterior of a few variables, one axis each in the order given; NaN if impossible."""
        if isinstance(names, str):
            raise ValueError(f"names is the string {names!r}; wanted a list of names, [{names!r}].")
        keep = tuple(self.index(name) for name in names)
        if len(set(keep)) < len(keep):
            raise ValueError(f"a variable is named twice in {list(names)}.")
        table = self._log_query(self.evidence_row(evidence), self.plan(max_bytes, keep))
        total = logsumexp(table)
        return jnp.where(total > -jnp.inf, jnp.exp(table - total), jnp.nan)

    @eqx.filter_jit
    def _entropy(self, row: Int[Array, "v"], plan: Plan) -> Scalar:
        return elimination.entropy(plan, self.log_potentials(), self.evidence_potentials(row))

    def entropy(self, evidence: Evidence | None = None, *, max_bytes: int = MAX_BYTES) -> Scalar:
        """Entropy in nats of the posterior over all variables, by the chain rule (no cancellation)."""
        return self._entropy(self.evidence_row(evidence), self.plan(max_bytes))

    # -------------------------------------------------------------------------------------- assignments

    @eqx.filter_jit
    def _best(self, row: Int[Array, "v"], plan: Plan) -> tuple[Array, Array]:
        return elimination.best(plan, self.log_potentials(), self.evidence_potentials(row))

    def map_from_array(self, row: Any, *, max_bytes: int = MAX_BYTES) -> Assignment:
        """The most probable assignment given a row of states, -1 for unobserved."""
        states, score = self._best(self.as_row(row), self.plan(max_bytes))
        return Assignment(states, score, exact_status(score), self.variables)

    def map_assignment(self, evidence: Evidence | None = None, *, max_bytes: int = MAX_BYTES) -> Assignment:
        """The jointly most probable states of all variables given evidence; ties give one consistent assignment."""
        return self.map_from_array(self.evidence_row(evidence), max_bytes=max_bytes)

    @eqx.filter_jit
    def _k_best(self, row: Int[Array, "v"], plan: Plan, k: int) -> tuple[Array, Array]:
        return elimination.k_best(plan, self.log_potentials(), self.evidence_potentials(row), k)

    def k_best(self, k: int, evidence: Evidence | None = None, *, max_bytes: int = MAX_BYTES) -> Assignment:
        """The k most probable assignments, best first, with a leading axis; -1 and `-inf` where there are fewer."""
        if k < 1:
            raise ValueError(f"k must be at least 1; got {k}.")
        states, scores = self._k_best(self.evidence_row(evidence), self.plan(max_bytes // k), k)
        return Assignment(states, scores, exact_status(scores), self.variables)

    @eqx.filter_jit
    def _draw(self, key: PRNGKey, row: Int[Array, "v"], plan: Plan, num: int) -> Int[Array, "num v"]:
        return elimination.sample(key, plan, self.log_potentials(), self.evidence_potentials(row), num)

    def posterior_sample(
        self, key: PRNGKey, num_samples: int, evidence: Evidence | None = None, *, max_bytes: int = MAX_BYTES
    ) -> Int[Array, "num v"]:
        """Exact independent samples of all variables given evidence; -1 if it is contradictory."""
        return self._draw(key, self.evidence_row(evidence), self.plan(max_bytes), num_samples)

    def _summed(self, tables: tuple[Array, ...], row: Int[Array, "v"]) -> Scalar:
        """The log of the sum of all products of tables that agree with a row."""
        return elimination.log_partition(self.plan(MAX_BYTES), tables, self.evidence_potentials(row))

    def _looked_up(self, tables: tuple[Array, ...], row: Int[Array, "v"]) -> Scalar:
        """The same for a row without unknown entries; NaN for others."""
        score = elimination.score(self.structure, tables, self.evidence_potentials(row), jnp.maximum(row, 0))
        return jnp.where(jnp.any(row == -1), jnp.nan, score)

    def _log_mass(self, tables: tuple[Array, ...], row: Int[Array, "v"]) -> Scalar:
        """A lookup, unless some row of the batch has an unknown entry."""
        if not self.is_affordable():  # complete rows need no elimination; others are refused where they can be seen
            return self._looked_up(tables, row)
        unknown = any_in_batch(jnp.any(row == -1))
        return jax.lax.cond(unknown, lambda: self._summed(tables, row), lambda: self._looked_up(tables, row))

    def is_affordable(self) -> bool:
        """Whether exact inference stays within the default budget."""
        return make_plan(self.structure, itemsize=self._itemsize()).cost.bytes <= MAX_BYTES

    def check_affordable(self, rows: Any) -> None:
        """Raise the refusal of `plan` for rows, read on the host, that have unknown entries."""
        if is_concrete(rows) and bool(np.any(np.asarray(rows) == -1)):
            self.plan(MAX_BYTES)

    def log_prob(self, assignment: Any) -> Scalar:
        """Log-probability of an assignment: an array of states, a mapping from names, or an `Assignment`.

        Variables that are -1 or not named are summed out. States out of range raise `ValueError`, or score `-inf`
        inside compiled code.
        """
        row = self.as_row(assignment)
        self.check_affordable(row)
        return self._log_prob(row)

    # -------------------------------------------------------------------------------------- bounds

    def log_partition_bounds(self) -> Bounds:
        r"""Mean field's lower bound, the Bethe estimate and the tree-reweighted upper bound of $\log Z$.

        Each grows linearly with the graph, so they exist where exact inference refuses.
        """
        parts = self.mean_field(num_sweeps=1000), self.belief_propagation(num_sweeps=1000), self.tree_reweighted()
        lower, bethe, upper = (part.log_partition for part in parts)
        return Bounds(lower, bethe, upper, jnp.stack([part.status for part in parts]))
