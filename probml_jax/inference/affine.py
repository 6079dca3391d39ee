"""Affine recursions of a mean and a covariance: what remains of Gaussian smoothing once its gains are known."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .small import apply, congruence


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

    def step(carry, inputs):
        x, p = carry
        m, c, d = inputs
        new = apply(m, x) + c, None if d is None else congruence(m, p) + d
        return new, new

    return jax.lax.scan(step, start, (matrix, offset, spread), reverse=reverse)[1]


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
