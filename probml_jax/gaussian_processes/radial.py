"""Functions of the distance between inputs, with derivatives that are right where inputs coincide."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_FEW = 16


def squared_distances(xs: Float[Array, "n d"], zs: Float[Array, "m d"]) -> Float[Array, "n m"]:
    r"""$|x_i - z_j|^2$, from differences: no digits cancel, and equal inputs are at distance zero.

    Above sixteen dimensions by a matrix product about a common centre, clipped at zero: then $d$ of them at distance
    $r$ from the centre lose about $r^2$ units of resolution.
    """
    if xs.shape[1] <= _FEW:
        terms = [(xs[:, j, None] - zs[None, :, j]) ** 2 for j in range(xs.shape[1])]
        return sum(terms[1:], terms[0])
    center = jax.lax.stop_gradient(jnp.mean(xs, axis=0))[None]
    a, b = xs - center, zs - center
    squares = lambda v: jnp.sum(v**2, axis=1)
    product = jnp.matmul(a, b.T, precision=jax.lax.Precision.HIGHEST)
    raw = squares(a)[:, None] + squares(b)[None, :] - 2 * product
    if xs is zs:
        raw = jnp.where(jnp.eye(len(raw), dtype=bool), 0, 0.5 * (raw + raw.T))
    return jnp.where(raw > 0, raw, 0)


def distance(squared: Array) -> Array:
    """The square root, with gradient zero (not infinite) at zero."""
    apart = squared > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1)), 0)


def matern12(squared: Array) -> Array:
    r"""$\exp(-r)$. It has a kink at zero; the derivative by the squared distance is taken as zero there."""
    return jnp.exp(-distance(squared))


@jax.custom_jvp
def matern32(squared: Array) -> Array:
    r"""$(1 + \sqrt3r)\exp(-\sqrt3r)$."""
    r = jnp.sqrt(3 * squared)
    return (1 + r) * jnp.exp(-r)


@matern32.defjvp
def _(primals, tangents):
    # d/dr^2 is finite at zero, which the chain rule through a square root does not see
    return matern32(*primals), -1.5 * matern12(3 * primals[0]) * tangents[0]


@jax.custom_jvp
def matern52(squared: Array) -> Array:
    r"""$(1 + \sqrt5r + \tfrac53r^2)\exp(-\sqrt5r)$."""
    r = jnp.sqrt(5 * squared)
    return (1 + r + r**2 / 3) * jnp.exp(-r)


@matern52.defjvp
def _(primals, tangents):
    return matern52(*primals), -(5 / 6) * matern32((5 / 3) * primals[0]) * tangents[0]
