"""Markov random fields: log potentials on cliques of named variables, learned through `fit`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._typing import Flag, PRNGKey, Scalar
from .._validate import as_float, float_dtype
from ..inference import elimination
from ..inference.contraction import Scope
from . import separation
from .factor_graph import Factor, make_factors, make_variables
from .field import AbstractField
from .graph import MAX_BYTES
from .posterior import Variable
from .structure import check_data
from .table_graph import AbstractTableGraph


class MarkovField(AbstractTableGraph, AbstractField):
    r"""$p(x) = \frac{1}{Z}\prod_c e^{\theta_c(x_c)}$ over cliques of named variables; a unit is a row, -1 missing.

    `MarkovField(states, tables)` takes the same arguments as `FactorGraph`. `pml.fit(field, rows, pml.LBFGS())` climbs
    the exact likelihood (missing entries summed out); `PseudoLikelihood(field)` and
    `ContrastiveDivergence(field, key=key)` are fitted the same way where the partition function is out of reach.
    `precision` puts a normal prior of that precision on the log potentials, which data determine only up to constants.
    Cost of an exact step: one elimination for Z, and one per row with missing entries.
    Reference: Koller and Friedman (2009), chapters 4 and 20.

    >>> field = MarkovField({"a": 2, "b": 2, "c": 2}, {("a", "b"): jnp.eye(2), ("b", "c"): jnp.eye(2)})
    >>> field.separated("a", "c", given="b"), round(float(field.log_prob({"a": 0, "b": 0, "c": 0})), 4)
    (True, -1.3197)
    """

    variables: tuple[Variable, ...] = eqx.field(static=True)
    factors: tuple[Factor, ...]
    precision: float = eqx.field(static=True)

    def __init__(
        self,
        states: Mapping | Sequence[Variable],
        tables: Mapping | Iterable[tuple[Any, Any]],
        *,
        precision: float = 0.0,
    ):
        self.variables = make_variables(states)
        self.factors = make_factors(self.variables, tables)
        self.precision = precision

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The variables of each potential."""
        return tuple(factor.scope for factor in self.factors)

    def log_potentials(self) -> tuple[Float[Array, "..."], ...]:
        return tuple(factor.log_table for factor in self.factors)

    # -------------------------------------------------------------------------------------- what the graph says

    def neighbors(self, name: str) -> tuple[str, ...]:
        """Variables that share a table with this one: its Markov blanket."""
        around = separation.neighbors_of(self.scopes, len(self.variables))[self.index(name)]
        return tuple(self.names[v] for v in sorted(around))

    def separated(self, a: str | Sequence[str], b: str | Sequence[str], given: str | Sequence[str] = ()) -> bool:
        """Global Markov property: whether every path from a to b passes through the observed variables."""
        pick = lambda names: {self.index(name) for name in ([names] if isinstance(names, str) else names)}
        first, second, seen = pick(a), pick(b), pick(given)
        if first & second:
            raise ValueError(f"a and b share {sorted(self.names[v] for v in first & second)}; sets must be disjoint.")
        around = separation.neighbors_of(self.scopes, len(self.variables))
        return not separation.connected(around, first - seen, seen) & (second - seen)

    def sample(self, key: PRNGKey, num_samples: int) -> Int[Array, "n v"]:
        """Exact samples; where the graph is too large for them, `gibbs`."""
        return self.posterior_sample(key, num_samples)

    # -------------------------------------------------------------------------------------- learning

    @eqx.filter_jit
    def _log_prob(self, row: Int[Array, "v"]) -> Scalar:
        return self._log_mass(self.log_potentials(), row) - self._log_total(-jnp.ones_like(row), self.plan(MAX_BYTES))

    def log_score(self, states: Int[Array, "v"]) -> Scalar:
        unary = self.evidence_potentials(jnp.full(len(self.variables), -1))
        return elimination.score(self.structure, self.log_potentials(), unary, states)

    def log_prior(self) -> Scalar:
        squares = [jnp.sum(jnp.where(jnp.isfinite(t), t, 0) ** 2) for t in self.log_potentials()]
        return -0.5 * self.precision * sum(squares, jnp.zeros((), float_dtype(self)))

    def validate(self, data: Any) -> None:
        check_data(self.variables, data)

    def validate_complete(self, data: Any) -> None:
        check_data(self.variables, data, complete=True)

    def degenerate(self) -> Flag:
        """Never: potentials are real numbers."""
        return jnp.array(False)


def potts_field(
    edges: Sequence[tuple[str, str]],
    num_labels: int,
    coupling: float | Array,
    field: Float[Array, "v k"] | None = None,
    *,
    compatibility: Any = None,
) -> MarkovField:
    r"""The Potts model on any graph: $\log\tilde p(x) = \sum_{ab} J_{ab}[x_a = x_b] + \sum_a u_a(x_a)$.

    Variables are numbered by first appearance in `edges`; `coupling` is one number or one per edge; `field` gives the
    external field $u$ in that order. `compatibility (k, k)` replaces $[x_a = x_b]$.

    >>> round(float(potts_field([("a", "b")], 3, 0.5).log_partition()), 4)
    2.393
    """
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    meet = np.eye(num_labels) if compatibility is None else np.asarray(compatibility)
    coupling = as_float(coupling, "coupling")
    if coupling.shape not in ((), (len(edges),)):
        raise ValueError(f"coupling has shape {coupling.shape}; wanted one number, or one per edge ({len(edges)},).")
    if field is not None and jnp.shape(field) != (len(names), num_labels):
        raise ValueError(f"field has shape {jnp.shape(field)}; wanted {(len(names), num_labels)}.")
    strength = jnp.broadcast_to(coupling, (len(edges),))
    unary = [] if field is None else [((name,), row) for name, row in zip(names, as_float(field, "field"), strict=True)]
    pairs = [(edge, strength[i] * jnp.asarray(meet, strength.dtype)) for i, edge in enumerate(edges)]
    return MarkovField(dict.fromkeys(names, num_labels), [*unary, *pairs])


def ising_field(
    edges: Sequence[tuple[str, str]], coupling: float | Array, field: Float[Array, "v"] | None = None
) -> MarkovField:
    r"""The Ising model on any graph: $\log\tilde p(s) = \sum_{ab} J_{ab} s_a s_b + \sum_a h_a s_a$; state 0 is $s=-1$.

    >>> round(float(ising_field([("a", "b")], 1.0).log_partition()), 4)
    1.8201
    """
    spins = np.array([-1.0, 1.0])
    unary = None if field is None else as_float(field, "field")[:, None] * jnp.asarray(spins)[None, :]
    unary = None if unary is None else unary.astype(as_float(field, "field").dtype)
    return potts_field(edges, 2, coupling, unary, compatibility=np.outer(spins, spins))
