"""Algebra of small matrices, written out so that a scan's step is a few fused kernels and not a library call each.

One matrix at a time; many are a `vmap`. Sizes above `SMALL` go to the library.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._linalg import cho_solve, cholesky, matmul

SMALL = 8


def product(a: Array, b: Array) -> Array:
    """`a @ b` of matrices and vectors."""
    size = a.shape[-1]
    if size > SMALL or size == 0:
        return matmul(a, b)
    if a.ndim == 1 and b.ndim == 1:
        terms = [a[j] * b[j] for j in range(size)]
    elif b.ndim == 1:
        terms = [a[:, j] * b[j] for j in range(size)]
    elif a.ndim == 1:
        terms = [a[j] * b[j] for j in range(size)]
    else:
        terms = [a[:, j : j + 1] * b[j : j + 1] for j in range(size)]
    return sum(terms[1:], terms[0])


def outer(a: Float[Array, "m"], b: Float[Array, "n"]) -> Float[Array, "m n"]:
    """`a b'`."""
    return a[:, None] * b[None, :]


def congruence(a: Float[Array, "m n"], p: Float[Array, "n n"]) -> Float[Array, "m m"]:
    """`a p a'`."""
    return product(product(a, p), a.T)


def eliminate(
    a: Float[Array, "n n"], b: Float[Array, "n m"], *, fully: bool
) -> tuple[Float[Array, "n n"], Float[Array, "n m"], Float[Array, "n"]]:
    r"""Gaussian elimination of `[a b]` for a symmetric positive semi-definite `a`; the pivots come third.

    With $a = LDL^\top$: forward only, the rows become $L^\top$ (unit upper) and $D^{-1}L^{-1}b$; `fully`, the identity
    and $a^{-1}b$. A pivot that is zero to working precision is skipped, which solves singular systems that have a
    solution.
    """
    size = a.shape[0]
    least = size * jnp.finfo(a.dtype).eps * jnp.diagonal(a)
    rows, pivots = jnp.arange(size), []
    for j in range(size):
        pivot = a[j, j]
        good = pivot > least[j]
        pivots.append(jnp.where(good, pivot, 0))
        inverse = jnp.where(good, 1 / jnp.where(good, pivot, 1), 0)
        row_a, row_b = a[j] * inverse, b[j] * inverse
        others = rows != j if fully else rows > j
        factor = jnp.where(others, a[:, j], 0)[:, None]
        here = (rows == j)[:, None]
        a = jnp.where(here, row_a[None], a - factor * row_a[None])
        b = jnp.where(here, row_b[None], b - factor * row_b[None])
    return a, b, jnp.stack(pivots)


def solve(a: Float[Array, "n n"], b: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """`a^-1 b` for a symmetric positive (semi-)definite `a`."""
    if a.shape[0] > SMALL:
        return cho_solve(cholesky(a).factor, b)
    return eliminate(a, b, fully=True)[1]


def root(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A lower triangular `f` with `f f' = a`, for a positive semi-definite `a`; singular ones keep their null space."""
    size = a.shape[0]
    if size > SMALL:
        return cholesky(a).factor
    unit, _, pivots = eliminate(a, jnp.zeros((size, 0), a.dtype), fully=False)
    good = pivots > 0
    scale = jnp.where(good, jnp.sqrt(jnp.where(good, pivots, 1)), 0)
    return jnp.triu(unit).T * scale[None, :]
