r"""Weights that make belief propagation an upper bound: how often each table occurs in random forests of tables.

For any distribution over forests in which table f occurs with probability $\rho_f > 0$, convexity of $\log Z$ gives
$\log Z(\theta) \le \sum_T \mu(T) \log Z(\theta_T)$ with $\theta_f/\rho_f$ in the forests that have f. The best split
of parameters is where tree-reweighted messages rest. Reference: Wainwright, Jaakkola and Willsky (2005).
"""

import functools

import numpy as np

from .contraction import Structure

_FORESTS = 64


def _forest(structure: Structure, order: np.ndarray) -> list[int]:
    """Tables taken in turn as long as they close no cycle: all their variables are in different components."""
    leader = list(range(len(structure.cardinalities)))

    def find(v: int) -> int:
        while leader[v] != v:
            leader[v] = leader[leader[v]]
            v = leader[v]
        return v

    taken = []
    for i in order:
        roots = {find(v) for v in structure.scopes[i]}
        if len(roots) == len(structure.scopes[i]):
            first = min(roots)
            for root in roots:
                leader[root] = first
            taken.append(int(i))
    return taken


@functools.lru_cache(maxsize=64)
def occurrence(structure: Structure) -> tuple[float, ...]:
    """$\\rho_f$ of every table: its frequency in forests grown in random orders, each table first where it was missing.

    One for tables that are in every forest (all of them, if the graph is a tree).
    """
    rng = np.random.default_rng(0)
    count = np.zeros(len(structure.scopes))
    num, most = 0, _FORESTS + len(structure.scopes)
    while num < most and (num < _FORESTS or (count == 0).any()):
        order = rng.permutation(len(structure.scopes))
        # those that were never taken come first: every table must occur
        order = np.concatenate([order[count[order] == 0], order[count[order] > 0]])
        count[_forest(structure, order)] += 1
        num += 1
    return tuple((count / num).tolist())
