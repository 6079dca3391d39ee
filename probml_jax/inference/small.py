"""Algebra of small matrices, written out so that a scan's step is a few fused kernels and not a library call each.

Matrices stand on the leading axes; whatever axes follow are a batch. A batch that comes last (all steps of a series)
runs through the vector units, a batch that comes first does not: see `over_time`. Sizes above `SMALL` go to the
library and take no trailing batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._linalg import cho_solve, cholesky, matmul

SMALL = 8


def _sum(terms: list) -> Array:
    return sum(terms[1:], terms[0])


def times(a: Array, b: Array) -> Array:
    """Matrix times matrix."""
    size = a.shape[1]
    if size > SMALL or size == 0:
        return matmul(a, b)
    return _sum([a[:, j : j + 1] * b[j : j + 1] for j in range(size)])


def apply(a: Array, v: Array) -> Array:
    """Matrix times vector."""
    size = a.shape[1]
    return matmul(a, v) if size > SMALL else _sum([a[:, j] * v[j][None] for j in range(size)])


def inner(u: Array, v: Array) -> Array:
    """Vector times vector."""
    size = u.shape[0]
    return matmul(u, v) if size > SMALL else _sum([u[j] * v[j] for j in range(size)])


def outer(u: Array, v: Array) -> Array:
    """`u v'`."""
    return u[:, None] * v[None]


def turned(a: Array) -> Array:
    """The transpose."""
    return jnp.swapaxes(a, 0, 1)


def congruence(a: Array, p: Array) -> Array:
    """`a p a'`."""
    return times(times(a, p), turned(a))


def identity(size: int, like: Array) -> Array:
    """The identity, to be combined with matrices that have the batch of `like`."""
    return jnp.eye(size, dtype=like.dtype).reshape(size, size, *[1] * (like.ndim - 2))


def diagonal(v: Array) -> Array:
    """The diagonal matrix of a vector."""
    return jnp.eye(v.shape[0], dtype=v.dtype).reshape(*[v.shape[0]] * 2, *[1] * (v.ndim - 1)) * v[None]


def eliminate(a: Array, b: Array, *, fully: bool) -> tuple[Array, Array, Array]:
    r"""Gaussian elimination of `[a b]` for a symmetric positive semi-definite `a`; the pivots come third.

    With $a = LDL^\top$: forward only, the rows become $L^\top$ (unit upper) and $D^{-1}L^{-1}b$; `fully`, the identity
    and $a^{-1}b$. A pivot that is zero to working precision is skipped, which solves singular systems that have a
    solution.
    """
    size = a.shape[0]
    resolution = size * jnp.finfo(a.dtype).eps
    left, right, pivots = [a[i] for i in range(size)], [b[i] for i in range(size)], []
    for j in range(size):
        pivot = left[j][j]
        good = pivot > resolution * a[j, j]
        pivots.append(jnp.where(good, pivot, 0))
        inverse = jnp.where(good, 1 / jnp.where(good, pivot, 1), 0)[None]
        left[j], right[j] = left[j] * inverse, right[j] * inverse
        for i in range(size):
            if i > j or (fully and i != j):
                factor = left[i][j][None]
                left[i], right[i] = left[i] - factor * left[j], right[i] - factor * right[j]
    return jnp.stack(left), jnp.stack(right), jnp.stack(pivots)


def solve(a: Array, b: Array) -> Array:
    """`a^-1 b` for a symmetric positive (semi-)definite `a`."""
    if a.shape[0] > SMALL:
        return cho_solve(_library_factor(a)[0], b)
    return eliminate(a, b, fully=True)[1]


def _library_factor(a: Array) -> tuple[Array, Array]:
    """The Cholesky factor, and whether there is anything to factorize; the identity stands in for nothing."""
    nothing = jnp.all(a == 0)
    return cholesky(jnp.where(nothing, jnp.eye(a.shape[0], dtype=a.dtype), a)).factor, ~nothing


def factors(a: Array) -> tuple[Array, Array]:
    r"""The unit lower $L$ and the pivots $D$ of $a = LDL^\top$, for a positive semi-definite `a`."""
    size = a.shape[0]
    if size > SMALL:
        factor, there = _library_factor(a)
        scale = jnp.diagonal(factor)
        return factor / scale[None, :], jnp.where(there, scale**2, 0)
    unit, _, pivots = eliminate(a, a[:, :0], fully=False)
    upper = jnp.triu(jnp.ones((size, size), bool)).reshape(size, size, *[1] * (a.ndim - 2))
    return turned(jnp.where(upper, unit, 0)), pivots


def root(a: Array) -> Array:
    """A lower triangular `f` with `f f' = a`, for a positive semi-definite `a`; singular ones keep their null space."""
    unit, pivots = factors(a)
    good = pivots > 0
    return unit * jnp.where(good, jnp.sqrt(jnp.where(good, pivots, 1)), 0)[None]


def over_time(function: Callable, size: int, constants: Any, *sequences: Any) -> Any:
    """`function(constants, *items)` for every step, where sequences (and results) have time as their leading axis.

    Small matrices are worked on with time as the last axis, all steps at once; large ones step by step under `vmap`.
    """
    if size > SMALL:
        return jax.vmap(lambda *items: function(constants, *items))(*sequences)
    last = lambda a: jnp.moveaxis(a, 0, -1)
    items = jax.tree_util.tree_map(last, sequences)
    spread = jax.tree_util.tree_map(lambda a: a[..., None], constants)
    t = jax.tree_util.tree_leaves(sequences)[0].shape[0]
    first = lambda a: jnp.broadcast_to(jnp.moveaxis(a, -1, 0), (t, *a.shape[:-1]))
    return jax.tree_util.tree_map(first, function(spread, *items))


def num_blocks(t: int, size: int) -> int:
    """Into how many blocks a scan over t steps of small matrices is cut to fill the vector units; 1 for none."""
    return 1 if size > SMALL or t < 64 else 2 ** int(np.log2(np.sqrt(t)))


def in_blocks(a: Array, blocks: int, fill: Array) -> Array:
    """Steps `(t, ...)` as `(t / blocks, ..., blocks)`: a scan over the first axis runs all blocks side by side.

    The end is padded with copies of `fill`.
    """
    length = -(-a.shape[0] // blocks)
    extra = length * blocks - a.shape[0]
    a = jnp.concatenate([a, jnp.broadcast_to(fill[None], (extra, *a.shape[1:])).astype(a.dtype)]) if extra else a
    return jnp.moveaxis(a.reshape(blocks, length, *a.shape[1:]), 0, -1)


def out_of_blocks(a: Array, t: int) -> Array:
    """The inverse of `in_blocks`."""
    a = jnp.moveaxis(a, -1, 0)
    return a.reshape(-1, *a.shape[2:])[:t]
