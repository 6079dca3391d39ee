"""Bayesian networks: a directed acyclic graph with one conditional table per variable."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._estimate import MAP, ML, AbstractEstimate, Bayes, Frozen
from .._model import AbstractLatentModel
from .._special import any_in_batch, pairwise_dot, safe_log
from .._stack import AbstractStack, Stacked
from .._typing import Flag, PRNGKey, Scalar, Statistics
from .._validate import check_positive
from ..conjugate.dirichlet_categorical import DirichletCategorical
from ..distributions.categorical import Categorical
from ..inference import ancestral
from ..inference.blocks import pooled
from ..inference.contraction import Scope, make_plan
from . import separation
from .graph import MAX_BYTES
from .posterior import Variable, state_position
from .structure import Independence, check_data, check_table, node_table, ordered_parents
from .table_graph import AbstractTableGraph

_BLOCK_BYTES = 1 << 26


class BayesNet(AbstractTableGraph, AbstractLatentModel):
    r"""$p(x) = \prod_v p(x_v \mid x_{pa(v)})$ over named discrete variables; a unit is a row of states, -1 missing.

    `BayesNet(parents, tables)`: `parents` maps every variable to its parents; `tables` maps it to the probabilities
    $p(x_v \mid pa)$, one axis per parent in that order and its own last. Names of states are optional. A table may also
    be a `Stacked` leaf over the parents' joint states (row-major), so that learning is by maximum likelihood, MAP or
    variational Bayes (see `with_prior`); under `Bayes` leaves `log_prob` is a bound and queries use posterior means.

    Learning is `pml.fit(net, rows)`: counting when rows are complete, EM when some states are missing or hidden;
    expected counts are gradients of $\log p$. Cycles (named), tables of the wrong shape or that do not sum to one
    (named), and unknown parents raise `ValueError`. Cost of queries: `cost()`.
    Reference: Koller and Friedman (2009), chapters 3 and 17 to 19.

    >>> tables = {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]}
    >>> net = BayesNet({"rain": (), "wet": ("rain",)}, tables)
    >>> [round(float(p), 4) for p in net.marginals(evidence={"wet": 1})["rain"]]
    [0.3333, 0.6667]
    """

    variables: tuple[Variable, ...] = eqx.field(static=True)
    parents: tuple[Scope, ...] = eqx.field(static=True)
    tables: tuple[AbstractStack, ...]

    def __init__(
        self,
        parents: Mapping[str, Sequence[str]],
        tables: Mapping[str, Any],
        states: Mapping[str, Sequence[str]] | None = None,
    ):
        stacks = {name: node_table(name, parents, tables) for name in parents}
        self.variables, self.parents = ordered_parents(parents, {n: s[1] for n, s in stacks.items()}, states or {})
        self.tables = tuple(stacks[name][0] for name in parents)
        for variable, above, stack in zip(self.variables, self.parents, self.tables, strict=True):
            check_table(variable, tuple(self.variables[p] for p in above), tables[variable.name], stack)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Of each table: the parents, then the variable itself."""
        return tuple((*above, v) for v, above in enumerate(self.parents))

    def _shaped(self, v: int, table: Float[Array, "q k"]) -> Float[Array, "..."]:
        return table.reshape(tuple(self.variables[u].cardinality for u in self.scopes[v]))

    def log_potentials(self) -> tuple[Float[Array, "..."], ...]:
        """Log conditional tables (of the posterior mean under `Bayes` leaves)."""
        rows = [stack.map(lambda leaf: safe_log(leaf.predictive().probs)) for stack in self.tables]
        return tuple(self._shaped(v, table) for v, table in enumerate(rows))

    def expected_log_tables(self) -> tuple[Float[Array, "..."], ...]:
        """Log conditional tables, or their expectations under `Bayes` leaves: what learning scores with."""
        sizes = [variable.cardinality for variable in self.variables]
        rows = [stack.expected_log_probs(jnp.arange(k)) for stack, k in zip(self.tables, sizes, strict=True)]
        return tuple(self._shaped(v, table) for v, table in enumerate(rows))

    def table(self, name: str) -> Float[Array, "..."]:
        """The conditional probabilities of one variable, its parents' axes first."""
        v = self.index(name)
        return self._shaped(v, self.tables[v].map(lambda leaf: leaf.predictive().probs))

    # -------------------------------------------------------------------------------------- what the graph says

    def factorization(self) -> str:
        """The joint as a product: 'p(rain) p(wet | rain)'."""
        names = self.names
        given = lambda above: " | " + ", ".join(names[p] for p in above) if above else ""
        return " ".join(f"p({name}{given(above)})" for name, above in zip(names, self.parents, strict=True))

    def num_parameters(self) -> int:
        """Free parameters of all tables; the full joint would have the product of cardinalities less one."""
        structure = self.structure
        return sum(structure.size(above) * (structure.cardinalities[v] - 1) for v, above in enumerate(self.parents))

    def _indices(self, names: str | Sequence[str]) -> list[int]:
        return [self.index(name) for name in ([names] if isinstance(names, str) else names)]

    def d_separated(self, a: str | Sequence[str], b: str | Sequence[str], given: str | Sequence[str] = ()) -> bool:
        """Whether the graph alone makes a and b independent given the observed: no active trail joins them.

        Cost: linear in the number of arrows. Reference: Koller and Friedman (2009), section 3.3.

        >>> collider = {"a": (), "b": (), "c": ("a", "b")}
        >>> net = BayesNet(collider, {"a": [0.5, 0.5], "b": [0.5, 0.5], "c": jnp.full((2, 2, 2), 0.5)})
        >>> net.d_separated("a", "b"), net.d_separated("a", "b", given=["c"])
        (True, False)
        """
        first, second, seen = set(self._indices(a)), set(self._indices(b)), set(self._indices(given))
        if first & second:
            raise ValueError(f"a and b share {sorted(self.names[v] for v in first & second)}; sets must be disjoint.")
        reached = separation.d_connected(self.parents, first - seen, seen)
        return not reached & (second - seen)

    def markov_blanket(self, name: str) -> tuple[str, ...]:
        """Parents, children and the children's other parents."""
        return tuple(self.names[v] for v in sorted(separation.markov_blanket(self.parents, self.index(name))))

    def local_independencies(self) -> tuple[Independence, ...]:
        """The local Markov property: every variable is independent of its non-descendants given its parents."""
        found = []
        for v, above in enumerate(self.parents):
            others = set(range(len(self.parents))) - separation.descendants(self.parents, v) - {v, *above}
            names = lambda nodes: tuple(self.names[u] for u in sorted(nodes))
            if others:
                found.append(Independence(self.names[v], names(others), tuple(self.names[p] for p in above)))
        return tuple(found)

    def is_independent(
        self, a: str, b: str, given: str | Sequence[str] = (), *, atol: float = 1e-6, max_bytes: int = MAX_BYTES
    ) -> bool:
        """Whether the *distribution* makes a and b independent given the observed, by exact inference.

        d-separation implies it; the converse fails only for special tables.
        """
        seen = [given] if isinstance(given, str) else list(given)
        joint = self.query([a, b, *seen], max_bytes=max_bytes)
        total = jnp.sum(joint, axis=(0, 1), keepdims=True)
        product = jnp.sum(joint, axis=1, keepdims=True) * jnp.sum(joint, axis=0, keepdims=True)
        return bool(jnp.max(jnp.abs(joint * total - product)) <= atol)

    def satisfies_local_markov(self, *, atol: float = 1e-6) -> bool:
        """Whether every local independence holds in the joint distribution, variable by variable."""
        each = [(s.variable, other, s.given) for s in self.local_independencies() for other in s.others]
        return all(self.is_independent(a, b, given, atol=atol) for a, b, given in each)

    # -------------------------------------------------------------------------------------- samples, interventions

    @eqx.filter_jit
    def sample(self, key: PRNGKey, num_samples: int) -> Int[Array, "n v"]:
        """Ancestral samples: parents first, every variable given its parents. Given evidence: `posterior_sample`."""
        order = separation.topological_order(self.parents)
        return ancestral.sample(key, self.log_potentials(), self.parents, order, num_samples)

    def do(self, intervention: Mapping[str, int | str]) -> Self:
        """The network in which variables are set from outside: they lose their parents, everything else is as it was.

        Reference: Pearl (2009), section 3.2.
        """
        parents, tables = list(self.parents), list(self.tables)
        for name, state in intervention.items():
            v = self.index(name)
            point = np.zeros((1, self.variables[v].cardinality))
            point[0, state_position(self.variables[v], state)] = 1
            dtype = self.log_potentials()[v].dtype
            parents[v] = ()
            tables[v] = Stacked(Frozen(ML(jax.vmap(Categorical)(jnp.asarray(point, dtype)))))
        return self._replaced(tuple(parents), tuple(tables))

    def _replaced(self, parents: tuple[Scope, ...], tables: tuple[AbstractStack, ...]) -> Self:
        names = self.names
        by_name = {name: tuple(names[p] for p in above) for name, above in zip(names, parents, strict=True)}
        states = {variable.name: variable.states for variable in self.variables}
        return BayesNet(by_name, dict(zip(names, tables, strict=True)), states)

    def with_prior(self, concentration: float | Array = 1.0, estimate: str = "map") -> Self:
        """A network to start from whose tables are learned under a symmetric Dirichlet prior.

        The tables there are count as one observation per row, so that zeros do not contradict the prior.
        `estimate="map"` looks for the mode of the posterior (smoothing by `concentration - 1` counts per state);
        `"bayes"` keeps the posterior: `fit` is then variational Bayes and queries use posterior means.
        """
        if estimate not in ("map", "bayes"):
            raise ValueError(f"estimate must be 'map' or 'bayes'; got {estimate!r}.")
        check_positive("concentration", concentration)
        return self._replaced(self.parents, _believing(self.tables, concentration, estimate == "bayes"))

    # -------------------------------------------------------------------------------------- learning

    @eqx.filter_jit
    def _log_prob(self, row: Int[Array, "v"]) -> Scalar:
        return self._log_mass(self.expected_log_tables(), row)

    def e_step(self, data: Int[Array, "n v"], weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        tables = self.expected_log_tables()

        def expected(rows: Array, share: Array) -> tuple[tuple[Array, ...], Array]:
            total = lambda tables: pairwise_dot(share, jax.vmap(lambda row: self._summed(tables, row))(rows))
            value, counts = jax.value_and_grad(total)(tables)
            return counts, value

        def counted(rows: Array, share: Array) -> tuple[tuple[Array, ...], Array]:
            found = [ancestral.counts(rows, share, s, t.shape) for s, t in zip(self.scopes, tables, strict=True)]
            return tuple(found), pairwise_dot(share, jax.vmap(lambda row: self._looked_up(tables, row))(rows))

        def one_block(rows: Array, share: Array) -> tuple[tuple[Array, ...], Array]:
            if not self.is_affordable():
                return counted(rows, share)
            return jax.lax.cond(any_in_batch(jnp.any(rows == -1)), expected, counted, rows, share)

        # a row takes the memory of one elimination: few rows at a time where that is much
        at_once = max(1, _BLOCK_BYTES // make_plan(self.structure, itemsize=self._itemsize()).cost.bytes)
        counts, bound = pooled(one_block, data, weights, at_once)
        return tuple(c.reshape(-1, c.shape[-1]) for c in counts), bound

    def m_step(self, stats: Statistics) -> Self:
        new = tuple(stack.refit(counts) for stack, counts in zip(self.tables, stats, strict=True))
        return eqx.tree_at(lambda net: net.tables, self, new)

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        triples = zip(self.tables, stats, new.tables, strict=True)
        return tuple(stack.recenter(counts, other) for stack, counts, other in triples)

    def log_prior(self) -> Scalar:
        return sum((stack.log_prior() for stack in self.tables[1:]), self.tables[0].log_prior())

    def surrogate(self, data: Int[Array, "n v"], weights: Float[Array, "n"], reference: Self) -> Scalar:
        counts, _ = jax.lax.stop_gradient(reference.e_step(data, weights))
        inner = lambda mass, score: jnp.sum(jnp.where(mass > 0, mass * jnp.where(mass > 0, score, 0), 0))
        pairs = zip(counts, self.expected_log_tables(), strict=True)
        return sum(inner(c, t.reshape(c.shape)) for c, t in pairs)

    def validate(self, data: Any) -> None:
        check_data(self.variables, data)
        self.check_affordable(data)

    def degenerate(self) -> Flag:
        """Never: a zero probability is a fair estimate."""
        return jnp.array(False)


@eqx.filter_jit
def _believing(
    tables: tuple[AbstractStack, ...], concentration: float | Array, keep_posterior: bool
) -> tuple[AbstractStack, ...]:
    """Every row of every table under a symmetric Dirichlet prior."""

    def believe(leaf: AbstractEstimate) -> AbstractEstimate:
        now = leaf.predictive()
        prior = DirichletCategorical(jnp.full_like(now.probs, concentration))
        after = prior.absorb(now.probs, now)
        return Bayes(after, prior) if keep_posterior else MAP(after.mode(), prior)

    return tuple(Stacked(stack.map(believe)) for stack in tables)
