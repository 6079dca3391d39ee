"""Factor graphs: named variables and tables of log potentials, whatever they came from."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._constraint import param, real
from .._typing import Scalar
from .._validate import as_float, is_concrete
from ..inference.contraction import Scope
from .graph import MAX_BYTES, AbstractGraph
from .posterior import Variable, position
from .table_graph import AbstractTableGraph


class Factor(eqx.Module):
    """A table of log potentials over a few variables; `-inf` forbids and stays forbidden when the table is learned.

    >>> alike = Factor([[1.0, 0.0], [0.0, 1.0]], scope=(0, 1))
    >>> alike.log_table.shape
    (2, 2)
    """

    log_table: Float[Array, "..."] = param(real)
    scope: Scope = eqx.field(static=True)


def make_variables(states: Mapping[str, int | Sequence[str]] | Sequence[Variable]) -> tuple[Variable, ...]:
    """Variables from a mapping of names to numbers, or names, of states."""
    if not isinstance(states, Mapping):
        made = tuple(states)
    else:
        numbered = lambda k: tuple(map(str, range(k))) if isinstance(k, (int, np.integer)) else tuple(k)
        made = tuple(Variable(str(name), numbered(k)) for name, k in states.items())
    if not made:
        raise ValueError("a graph needs at least one variable.")
    for variable in made:
        if variable.cardinality < 1 or len(set(variable.states)) < variable.cardinality:
            raise ValueError(f"variable {variable.name!r} needs one or more different states; got {variable.states}.")
    if len({variable.name for variable in made}) < len(made):
        raise ValueError("two variables have the same name.")
    return made


def make_factors(variables: tuple[Variable, ...], tables: Mapping | Iterable[tuple[Any, Any]]) -> tuple[Factor, ...]:
    """Factors from tables by scope, each checked: known variables, the right shape, no NaN and no `+inf`."""
    pairs = tables.items() if isinstance(tables, Mapping) else tables
    made = []
    for names, table in pairs:
        names = (names,) if isinstance(names, str) else tuple(names)
        scope = tuple(position(variables, name) for name in names)
        table = as_float(table, f"the table of {names}")
        wanted = tuple(variables[v].cardinality for v in scope)
        if not scope or len(set(scope)) < len(scope):
            raise ValueError(f"a table needs one or more different variables; got {names}.")
        if tuple(table.shape) != wanted:
            raise ValueError(f"the table of {names} has shape {tuple(table.shape)}; its variables want {wanted}.")
        if is_concrete(table) and (np.isnan(table).any() or (np.asarray(table) == np.inf).any()):
            raise ValueError(f"the table of {names} has NaN or +inf entries; log potentials are finite or -inf.")
        made.append(Factor(table, scope))
    return tuple(made)


class FactorGraph(AbstractTableGraph):
    r"""$p(x) = \frac{1}{Z}\prod_f e^{\theta_f(x_f)}$ over named discrete variables.

    `FactorGraph(states, tables)`: `states` maps names to numbers of states (or to names of states); `tables` maps
    tuples of names to log tables, one axis per variable, or is a list of such pairs. Unknown variables, wrong shapes,
    NaN and `+inf` raise `ValueError`. Exact queries cost what `cost()` says; `belief_propagation`, `mean_field`,
    `tree_reweighted` and `gibbs` cost a multiple of the tables' entries.
    Reference: Kschischang, Frey and Loeliger (2001); Koller and Friedman (2009), chapter 4.

    >>> graph = FactorGraph({"a": 2, "b": 3}, {("a", "b"): jnp.log(jnp.arange(1.0, 7.0).reshape(2, 3))})
    >>> round(float(jnp.exp(graph.log_partition())), 4), [round(float(p), 4) for p in graph.marginals()["a"]]
    (21.0, [0.2857, 0.7143])
    """

    variables: tuple[Variable, ...] = eqx.field(static=True)
    factors: tuple[Factor, ...]

    def __init__(self, states: Mapping | Sequence[Variable], tables: Mapping | Iterable[tuple[Any, Any]]):
        self.variables = make_variables(states)
        self.factors = make_factors(self.variables, tables)

    @classmethod
    def from_graph(cls, graph: AbstractGraph) -> Self:
        """The factor graph of a Bayesian network, a Markov field or a grid."""
        names = graph.names
        scopes = [tuple(names[v] for v in scope) for scope in graph.scopes]
        return cls(graph.variables, zip(scopes, graph.log_potentials(), strict=True))

    @classmethod
    def from_chain(
        cls,
        log_initial: Float[Array, "k"],
        log_transition: Float[Array, "*steps k k"],
        log_likelihood: Float[Array, "t k"],
    ) -> Self:
        """The chain of `pml.inference.chain`, with variables `z0`, `z1`, and so on."""
        t, k = log_likelihood.shape
        moves = jnp.broadcast_to(log_transition, (t - 1, k, k))
        first = [(("z0",), log_initial + log_likelihood[0])]
        later = [((f"z{s}",), log_likelihood[s]) for s in range(1, t)]
        pairs = [((f"z{s}", f"z{s + 1}"), moves[s]) for s in range(t - 1)]
        return cls({f"z{s}": k for s in range(t)}, [*first, *later, *pairs])

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The variables of each factor."""
        return tuple(factor.scope for factor in self.factors)

    def log_potentials(self) -> tuple[Float[Array, "..."], ...]:
        return tuple(factor.log_table for factor in self.factors)

    @eqx.filter_jit
    def _log_prob(self, row: Int[Array, "v"]) -> Scalar:
        return self._log_mass(self.log_potentials(), row) - self._log_total(-jnp.ones_like(row), self.plan(MAX_BYTES))
