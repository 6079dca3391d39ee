r"""Forward and backward messages as numbers with an exponent of their own, $m \cdot 2^e$, one for every state.

A message may hold states that are thousands of nats apart and change places later: as left-to-right chains do.
Probabilities with one scale lose those that are behind. Their logarithms keep them, but with an absolute error of
$\epsilon |\log p|$ at every step, which adds up. A mantissa is wrong by $\epsilon$ of itself, however far behind it is;
and there is no exponential and no logarithm in the scan.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# log 2 in two parts: the first has few digits, so that its products with exponents are exact
_LOG_2 = float(np.log(2))
_HIGH = 0.693359375
_LOW = _LOG_2 - _HIGH


class Wide(NamedTuple):
    """Numbers $m \\cdot 2^e$; the exponents are whole, in floating point, and `-inf` for zero."""

    mantissa: Float[Array, "*shape"]
    exponent: Float[Array, "*shape"]


def from_log(log: Float[Array, "*shape"]) -> Wide:
    """$e^x$ of any x. The exponent is a constant to derivatives: they are those of the mantissa."""
    possible = log != -jnp.inf
    safe = jnp.where(possible, log, 0)
    exponent = jnp.floor(jax.lax.stop_gradient(safe) / _LOG_2)
    # clipped where the exponent itself has no digits left
    mantissa = jnp.exp(jnp.clip((safe - exponent * _HIGH) - exponent * _LOW, -1, 2))
    return Wide(jnp.where(possible, mantissa, 0), jnp.where(possible, exponent, -jnp.inf))


def to_log(x: Wide) -> Float[Array, "*shape"]:
    """The logarithm, `-inf` for zero."""
    zero = x.mantissa == 0
    log = jnp.log(jnp.where(zero, 1, x.mantissa)) + jnp.where(zero, 0, x.exponent) * _LOG_2
    return jnp.where(zero, -jnp.inf, log)


def times(*factors: Wide) -> Wide:
    """The product."""
    return Wide(functools.reduce(jnp.multiply, [x.mantissa for x in factors]), sum(x.exponent for x in factors))


def power_of_two(exponent: Array) -> Array:
    """$2^e$ of whole e by its bits, exactly; zero below the range."""
    info = jnp.finfo(exponent.dtype)
    whole = jnp.dtype(f"int{info.bits}")
    bits = (jnp.clip(exponent, info.minexp, info.maxexp - 1).astype(whole) + (info.maxexp - 1)) << info.nmant
    return jnp.where(exponent < info.minexp, 0, jax.lax.bitcast_convert_type(bits, exponent.dtype))


def _exponent_of(x: Array) -> Array:
    """The whole e with $2^e \\le x < 2^{e+1}$ of a normal number, from its bits."""
    info = jnp.finfo(x.dtype)
    bits = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(x), jnp.dtype(f"int{info.bits}"))
    return ((bits >> info.nmant) - (info.maxexp - 1)).astype(x.dtype)


def total(x: Wide, axis: int = 0) -> Wide:
    """The sum over an axis; its exponent is the largest there (0 where all is zero)."""
    top = jnp.max(x.exponent, axis=axis, keepdims=True)
    top = jnp.where(top == -jnp.inf, 0, top)
    return Wide(jnp.sum(x.mantissa * power_of_two(x.exponent - top), axis=axis), jnp.squeeze(top, axis))


def _pushed(message: Wide, matrix: Wide) -> Wide:
    """The message after one transition."""
    found = total(times(Wide(message.mantissa[:, None], message.exponent[:, None]), matrix))
    own, zero = _exponent_of(found.mantissa), found.mantissa == 0
    return Wide(
        jnp.where(zero, 0, found.mantissa * power_of_two(-own)), jnp.where(zero, -jnp.inf, found.exponent + own)
    )


def along(log_transition: Float[Array, "*steps k k"], backward: bool = False) -> Float[Array, "*t k k"]:
    """Transitions as a message meets them: one matrix, or that which leads out of each step (on the way back,
    transposed, into it); out of the last step, and into the first, nothing does."""
    turned = jnp.swapaxes(log_transition, -1, -2) if backward else log_transition
    if turned.ndim == 2:
        return turned
    nowhere = jnp.full_like(turned, -jnp.inf, shape=(1, *turned.shape[1:]))
    return jnp.concatenate([nowhere, turned] if backward else [turned, nowhere])


def wide_sweep(
    start: Wide,
    moves: Float[Array, "*t k k"],
    potentials: Float[Array, "t k"],
    exists: Bool[Array, "t"],
    backward: bool = False,
) -> tuple[Wide, Wide, Wide, Float[Array, "t"]]:
    """`messages.sweep` of logarithms: the message that goes on from here, those before and (normalized) after evidence,
    and their log-normalizers. `moves` are transitions `along` the way."""
    varying = moves.ndim == 3
    matrices = from_log(moves)

    def advance(incoming, inputs):
        potential, here, matrix = inputs
        message = times(incoming, potential)
        own = total(message)
        message = Wide(
            message.mantissa / jnp.where(own.mantissa == 0, 1, own.mantissa), message.exponent - own.exponent
        )
        outgoing = _pushed(message, matrix if varying else matrices)
        if here is not None:
            outgoing = Wide(*(jnp.where(here, new, old) for new, old in zip(outgoing, incoming, strict=True)))
        return outgoing, (incoming, message, own)

    inputs = from_log(potentials), exists if backward else None, matrices if varying else None
    end, (incoming, message, own) = jax.lax.scan(advance, start, inputs, reverse=backward)
    return end, incoming, message, to_log(own)
