"""Factorizations and triangular solves of many matrices at once that cannot block each other.

On CPU jaxlib (seen in 0.10.2) cuts a large batch of matrices into tasks for XLA's thread pool and waits for them *on* a
thread of that pool. As many such calls side by side in one program as there are threads wait for each other for ever:
four independent batches of three triangular solves of size 150 hang on two cores. Batches below a certain amount of
work are done on the spot. So a large batch goes through here in stretches below that amount, one after the other;
nothing changes for single matrices, small batches and other devices.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

# multiplications of a batch that are done on the spot: half of the number from which on jaxlib makes tasks of it
_ON_THE_SPOT = 100_000


def _in_stretches(kernel: Callable, work: int, *stacks: Array) -> Array:
    """`kernel` of all members of some stacks, few enough at a time; it is vmapped over single members here."""
    size = max(1, _ON_THE_SPOT // work)
    one = lambda members: kernel(*[m[None] for m in members])[0]
    return jax.lax.map(one, stacks, batch_size=size) if size > 1 else jax.lax.map(one, stacks)


def _protected(plain: Callable, work: Callable[..., int]) -> Callable:
    """A function of stacks of matrices `(b, ., .)`, by `plain` on the spot or in stretches; `vmap` joins the stacks."""

    @custom_vmap
    def function(*stacks):
        each = work(*stacks)
        if stacks[0].shape[0] == 1 or stacks[0].shape[0] * each <= _ON_THE_SPOT:
            return plain(*stacks)
        return jax.lax.platform_dependent(
            *stacks, cpu=lambda *stacks: _in_stretches(function, each, *stacks), default=plain
        )

    @function.def_vmap
    def _(axis_size, in_batched, *stacks):
        whole = lambda a, batched: a if batched else jnp.broadcast_to(a, (axis_size, *a.shape))
        stacks = [whole(a, batched) for a, batched in zip(stacks, in_batched, strict=True)]
        members = stacks[0].shape[1]
        joined = function(*[a.reshape(axis_size * members, *a.shape[2:]) for a in stacks])
        return joined.reshape(axis_size, members, *joined.shape[1:]), True

    return function


_cholesky = _protected(
    lambda a: jax.lax.linalg.cholesky(a, symmetrize_input=False), lambda a: a.shape[-1] ** 3 // 3 + 1
)


def plain_cholesky(a: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The lower factor from the lower triangle, NaN if there is none. It has no derivative of its own."""
    return _cholesky(a[None])[0]


def factor_tangent(factor: Float[Array, "d d"], da: Float[Array, "d d"]) -> Float[Array, "d d"]:
    r"""$dL = L\,\Phi(L^{-1}\,dA\,L^{-\top})$, with $\Phi$ the lower triangle and half of the diagonal."""
    da = 0.5 * (da + da.T)
    inner = solve_triangular(factor, solve_triangular(factor, da).T)
    half = jnp.tril(inner) - 0.5 * jnp.diag(jnp.diagonal(inner))
    return jnp.matmul(factor, half, precision=jax.lax.Precision.HIGHEST)


@jax.custom_jvp
def cholesky_factor(a: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The lower factor of a symmetric matrix as it stands, NaN if there is none; derivatives of all orders."""
    return plain_cholesky(0.5 * (a + a.T))


@cholesky_factor.defjvp
def _(primals, tangents):
    factor = cholesky_factor(primals[0])
    return factor, factor_tangent(factor, tangents[0])


def _solver(trans: bool, unit_diagonal: bool) -> Callable:
    plain = lambda a, b: jax.lax.linalg.triangular_solve(
        a, b, left_side=True, lower=True, transpose_a=trans, unit_diagonal=unit_diagonal
    )
    return _protected(plain, lambda a, b: a.shape[-1] ** 2 * b.shape[-1])


_SOLVERS = {(trans, unit): _solver(trans, unit) for trans in (False, True) for unit in (False, True)}


def solve_triangular(
    factor: Float[Array, "d d"], b: Array, lower: bool = True, trans: int = 0, unit_diagonal: bool = False
) -> Array:
    r"""$L^{-1}b$, or $L^{-\top}b$ with `trans=1`, of a lower triangular matrix and a vector or the columns of a matrix.

    Derivatives of all orders are those of the linear system; what is above the diagonal does not matter.
    """
    if not lower:
        raise ValueError("lower must be True: pass the transposed matrix and trans=1 for an upper one.")
    b = jnp.asarray(b)
    if b.ndim == 1:
        return solve_triangular(factor, b[:, None], lower, trans, unit_diagonal)[:, 0]
    strict = jnp.tril(factor, -1 if unit_diagonal else 0)
    fixed = jax.lax.stop_gradient(factor)

    def product(x):
        full = strict.T if trans else strict
        return jnp.matmul(full, x, precision=jax.lax.Precision.HIGHEST) + (x if unit_diagonal else 0)

    solve = lambda flip: lambda _, y: _SOLVERS[bool(trans) ^ flip, unit_diagonal](fixed[None], y[None])[0]
    return jax.lax.custom_linear_solve(product, b, solve(False), solve(True))
