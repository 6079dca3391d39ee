r"""Squared lengths of whitened differences, $|W(x - m)|^2$: what Gaussians score events by.

XLA fuses the matrix product of many events with one member's $W$, the square and the sum into one pass that holds a few
events at a time, so that whitened events never leave the caches. It does so for plain matrices only, which is why a
stack's members are taken one after the other when events are many.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from .._linalg import matmul
from .._typing import Scalar

# with fewer events than this a member's product is not worth a turn of the loop
_MANY = 256


@jax.custom_jvp
def squared_length(whiten: Float[Array, "d d"], loc: Float[Array, "d"], x: Float[Array, "d"]) -> Scalar:
    r"""$|W(x - m)|^2$: under `vmap` over events, over members (W and m) and over both, one product for each member."""
    return _one(whiten, loc, x)


@squared_length.defjvp
def _(primals, tangents):
    whiten, loc, x = primals
    d_whiten, d_loc, d_x = tangents
    y = matmul(x - loc, whiten.T)
    return squared_length(*primals), 2 * jnp.sum(y * (matmul(x - loc, d_whiten.T) + matmul(d_x - d_loc, whiten.T)))


def _lengths(whiten: Float[Array, "d d"], loc: Float[Array, "d"], xs: Float[Array, "n d"]) -> Float[Array, "n"]:
    y = matmul(xs - loc[None], whiten.T)
    return jnp.sum(y * y, axis=1)


def _length(whiten: Array, loc: Array, x: Array) -> Array:
    y = matmul(x - loc, whiten.T)
    return jnp.sum(y * y)


def _axes(batched: list) -> list:
    return [0 if b else None for b in batched]


def _members_lengths(whiten: Array, locs: Array, xs: Float[Array, "n d"]) -> Float[Array, "k n"]:
    if xs.shape[0] < _MANY:
        return jax.vmap(_lengths, (0, 0, None))(whiten, locs, xs)
    return jax.lax.map(lambda member: _lengths(member[0], member[1], xs), (whiten, locs))


_MEMBERS, _EVENTS = [True, True, False], [False, False, True]


@custom_vmap
def _one(whiten, loc, x):
    return _length(whiten, loc, x)


@_one.def_vmap
def _(axis_size, in_batched, whiten, loc, x):
    ways = {tuple(_EVENTS): _of_events, tuple(_MEMBERS): _of_members}
    plain = jax.vmap(_length, _axes(in_batched))
    return ways.get(tuple(in_batched), plain)(whiten, loc, x), True


@custom_vmap
def _of_events(whiten, loc, xs):
    return _lengths(whiten, loc, xs)


@_of_events.def_vmap
def _(axis_size, in_batched, whiten, loc, xs):
    many = _members_lengths if in_batched == _MEMBERS else jax.vmap(_lengths, _axes(in_batched))
    return many(whiten, loc, xs), True


@custom_vmap
def _of_members(whiten, locs, x):
    return jax.vmap(_length, (0, 0, None))(whiten, locs, x)


@_of_members.def_vmap
def _(axis_size, in_batched, whiten, locs, x):
    if in_batched == _EVENTS:
        return _members_lengths(whiten, locs, x).T, True
    return jax.vmap(jax.vmap(_length, (0, 0, None)), _axes(in_batched))(whiten, locs, x), True
