"""Small graphs by brute force: every assignment, one by one. What the exact and the approximate queries are held to."""

import itertools

import jax.numpy as jnp
import numpy as np

import probml_jax as pml


class Enumeration:
    """All assignments of a graph, their scores in float64, and anything that follows by adding them up."""

    def __init__(self, graph, evidence=None):
        self.sizes = [v.cardinality for v in graph.variables]
        self.states = np.array([*itertools.product(*map(range, self.sizes))])
        tables = [np.asarray(t, np.float64) for t in graph.log_potentials()]
        parts = [t[tuple(self.states[:, list(s)].T)] for t, s in zip(tables, graph.scopes, strict=True)]
        self.scores = np.sum(parts, axis=0)
        for name, state in (evidence or {}).items():
            self.scores = np.where(self.states[:, graph.names.index(name)] == state, self.scores, -np.inf)
        self.log_partition = np.logaddexp.reduce(self.scores)
        self.probs = np.exp(self.scores - self.log_partition)

    def marginal(self, *variables):
        table = np.zeros([self.sizes[v] for v in variables])
        np.add.at(table, tuple(self.states[:, list(variables)].T), self.probs)
        return table

    @property
    def entropy(self):
        p = self.probs[self.probs > 0]
        return -np.sum(p * np.log(p))

    def best(self, k):
        order = np.argsort(-self.scores, kind="stable")[:k]
        return self.states[order], self.scores[order]


def random_graph(dtype="float64", kind=pml.graphs.FactorGraph, seed=0, forbidden=True):
    """Two components, a loop, a table of three variables, a variable of one state, one without tables."""
    rng = np.random.default_rng(seed)
    sizes = {"a": 2, "b": 3, "c": 1, "d": 2, "e": 4, "f": 2, "g": 3, "h": 2}
    scopes = ["ab", "bcd", "da", "e", "fg", "gf", "abd", "ea"]
    tables = [jnp.asarray(rng.normal(size=[sizes[n] for n in s]), dtype) for s in scopes]
    if forbidden:
        tables[0] = tables[0].at[0, 1].set(-jnp.inf)
        tables[4] = tables[4].at[1].set(-jnp.inf)
    return kind(sizes, [(tuple(s), t) for s, t in zip(scopes, tables, strict=True)])


def random_network(num=6, seed=0, dtype="float64", most_parents=2):
    """A random DAG with random tables of two and three states."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 4, num)
    names = [f"v{i}" for i in range(num)]
    above = {i: sorted(rng.choice(i, min(i, rng.integers(0, most_parents + 1)), replace=False)) for i in range(num)}
    table = lambda i: rng.dirichlet(np.ones(sizes[i]), [sizes[p] for p in above[i]])
    parents = {names[i]: tuple(names[p] for p in above[i]) for i in range(num)}
    return pml.graphs.BayesNet(parents, {names[i]: jnp.asarray(table(i), dtype) for i in range(num)})


def random_tree(num, k=3, seed=0, dtype="float64"):
    """A random tree of pairwise tables."""
    rng = np.random.default_rng(seed)
    edges = [(f"x{rng.integers(0, i)}", f"x{i}") for i in range(1, num)]
    tables = [(edge, jnp.asarray(rng.normal(size=(k, k)), dtype)) for edge in edges]
    return pml.graphs.MarkovField({f"x{i}": k for i in range(num)}, tables)
