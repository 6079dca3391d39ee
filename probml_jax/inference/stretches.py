"""Arrays with a leading axis of time, cut into stretches of equal length."""

import jax
import jax.numpy as jnp
from jaxtyping import PyTree


def even_length(steps: int, longest: int) -> int:
    """The length of stretches that are (nearly) equal, as few as can be, and none longer than this."""
    return -(-steps // -(-steps // longest))


def in_stretches(tree: PyTree, length: int) -> PyTree:
    """Every array `(t, ...)` as `(count, length, ...)`; what is missing at the end is zero."""

    def cut(a):
        count = -(-a.shape[0] // length)
        short = count * length - a.shape[0]
        whole = jnp.pad(a, [(0, short)] + [(0, 0)] * (a.ndim - 1)) if short else a
        return whole.reshape(count, length, *a.shape[1:])

    return jax.tree_util.tree_map(cut, tree)


def joined(tree: PyTree, steps: int) -> PyTree:
    """The first `steps` of what was cut."""
    return jax.tree_util.tree_map(lambda a: a.reshape(-1, *a.shape[2:])[:steps], tree)
