"""Affine recursions of a mean and a covariance: what remains of Gaussian smoothing once its gains are known."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .small import apply, congruence, in_blocks, num_blocks, out_of_blocks, times


def recursion(
    matrix: Float[Array, "t p p"],
    offset: Float[Array, "t p"],
    spread: Float[Array, "t p p"] | None,
    start: tuple[Float[Array, "p"], Float[Array, "p p"] | None],
    *,
    reverse: bool = False,
    parallel: bool = False,
) -> tuple[Float[Array, "t p"], Float[Array, "t p p"] | None]:
    r"""$x_s = M_s x_{s-1} + c_s$ and $P_s = M_s P_{s-1} M_s^\top + D_s$ from `start`; backward in time with `reverse`.

    Without spreads there is no $P$. `parallel` takes $O(\log t)$ rounds of an associative scan instead of t steps.
    """
    if parallel:
        return _by_composition(matrix, offset, spread, start, reverse)

    t, size = offset.shape
    blocks = num_blocks(t, size)
    if blocks > 1:
        return _side_by_side(matrix, offset, spread, start, reverse, blocks)
    return jax.lax.scan(_step, start, (matrix, offset, spread), reverse=reverse)[1]


def _step(carry, inputs):
    x, p = carry
    m, c, d = inputs
    new = apply(m, x) + c, None if d is None else congruence(m, p) + d
    return new, new


def _side_by_side(matrix, offset, spread, start, reverse, blocks) -> Any:
    """The same steps in blocks that run side by side: first what each block does as a whole, then, from where the
    blocks before it lead, its steps. Twice the work on full vector units."""
    t, size = offset.shape
    turn = lambda a: a[::-1] if reverse else a
    fills = jnp.eye(size, dtype=offset.dtype), jnp.zeros_like(offset[0]), jnp.zeros_like(matrix[0])
    cut = lambda a, fill: None if a is None else in_blocks(turn(a), blocks, fill)
    steps = tuple(cut(a, fill) for a, fill in zip((matrix, offset, spread), fills, strict=True))
    wide = lambda a: jnp.broadcast_to(a[..., None], (*a.shape, blocks))

    def whole(carry, step):
        return (times(step[0], carry[0]), *_step(carry[1:], step)[0]), None

    begin = wide(fills[0]), wide(fills[1]), None if spread is None else wide(fills[2])
    (m, c, d), _ = jax.lax.scan(whole, begin, steps)
    first = lambda a: None if a is None else jnp.moveaxis(a, -1, 0)
    lead = lambda carry, block: (_step(carry, block)[0], carry)
    x, p = jax.lax.scan(lead, start, (first(m), first(c), first(d)))[1]
    last = lambda a: None if a is None else jnp.moveaxis(a, 0, -1)
    found = jax.lax.scan(_step, (last(x), last(p)), steps)[1]
    return jax.tree_util.tree_map(lambda a: turn(out_of_blocks(a, t)), found)


def _by_composition(matrix, offset, spread, start, reverse) -> Any:
    def compose(first, second):
        m1, c1, d1 = first
        m2, c2, d2 = second
        added = None if d1 is None else _congruences(m2, d1) + d2
        return m2 @ m1, (m2 @ c1[..., None])[..., 0] + c2, added

    m, c, d = jax.lax.associative_scan(compose, (matrix, offset, spread), reverse=reverse)
    x, p = start
    return (m @ x) + c, None if d is None else _congruences(m, jnp.broadcast_to(p[None], d.shape)) + d


def _congruences(m: Array, p: Array) -> Array:
    return jnp.matmul(jnp.matmul(m, p), jnp.swapaxes(m, -1, -2))
