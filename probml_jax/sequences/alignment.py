"""Comparing fits: states have no names, so match them first."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .._validate import check_labels, check_shape
from .hmm import HMM


def align_states(reference: Any, states: Any, num_states: int) -> Int[Array, "k"]:
    """The renaming of `states` that agrees best with `reference`: state j is called `permutation[j]` there.

    Both are arrays of labels of one shape; -1 is ignored. The assignment problem on the table of co-occurrences,
    solved exactly on the host by augmenting paths in $O(k^3)$.

    >>> align_states([0, 0, 1, 2], [2, 2, 0, 1], num_states=3).tolist()
    [1, 2, 0]
    """
    reference, states = np.asarray(reference), np.asarray(states)
    check_shape("states", jnp.asarray(states), reference.shape)
    check_labels("reference", reference, num_states)
    check_labels("states", states, num_states)
    both = (reference >= 0) & (states >= 0)
    table = np.zeros((num_states, num_states))
    np.add.at(table, (states[both], reference[both]), 1)
    return jnp.asarray(_assign(-table), jnp.int32)


def _assign(cost: np.ndarray) -> np.ndarray:
    """Row j's column in the cheapest one-to-one assignment (Kuhn's method with potentials)."""
    n = cost.shape[0]
    row_price, column_price = np.zeros(n + 1), np.zeros(n + 1)
    owner = np.full(n + 1, -1)  # owner[c]: the row assigned to column c; column n is the root of the search
    for row in range(n):
        owner[n], column = row, n
        slack, came_from, done = np.full(n + 1, np.inf), np.full(n + 1, -1), np.zeros(n + 1, bool)
        while owner[column] >= 0:
            done[column] = True
            here = owner[column]
            reduced = cost[here] - row_price[here] - column_price[:n]
            better = ~done[:n] & (reduced < slack[:n])
            slack[:n][better], came_from[:n][better] = reduced[better], column
            nearest = int(np.argmin(np.where(done[:n], np.inf, slack[:n])))
            step = slack[nearest]
            row_price[owner[done]] += step
            column_price[done] -= step
            slack[:n][~done[:n]] -= step
            column = nearest
        while column != n:
            owner[column] = owner[came_from[column]]
            column = came_from[column]
    assignment = np.empty(n, int)
    assignment[owner[:n]] = np.arange(n)
    return assignment


def permute_states(model: HMM, permutation: Int[Array, "k"]) -> HMM:
    """The same HMM with state j renamed `permutation[j]`."""
    order = jnp.argsort(jnp.asarray(permutation))
    take = lambda tree: jax.tree_util.tree_map(lambda a: a[order] if eqx.is_array(a) else a, tree)
    columns = lambda tree: jax.tree_util.tree_map(lambda a: a[..., order] if eqx.is_array(a) else a, tree)
    allowed = None if model.allowed is None else model.allowed[order][:, order]
    return HMM(columns(model.initial), columns(take(model.transition)), take(model.emission), allowed, model.lags)
