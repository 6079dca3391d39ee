"""Elementary functions that keep their promises at the boundary: true `-inf`, never a NaN gradient."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

LOG_2PI = float(np.log(2 * np.pi))


def safe_log(x: Array) -> Array:
    """`log x` with `log 0 = -inf` and a zero (not infinite) gradient there."""
    positive = x > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1)), -jnp.inf)


def xlogy(x: Array, y: Array) -> Array:
    """`x log y` with `0 log 0 = 0`, and `-inf` when `y = 0 < x`; gradients finite at the zeros."""
    positive = y > 0
    value = x * jnp.log(jnp.where(positive, y, 1))
    return jnp.where(positive, value, jnp.where(x == 0, 0.0, -jnp.inf))


def logsumexp(a: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    r"""$\log\sum\exp a$ where an all-impossible slice gives `-inf` with zero gradient."""
    return jax.scipy.special.logsumexp(a, axis=axis, where=a != -jnp.inf)


def pairwise_dot(weights: Float[Array, "n"], values: Float[Array, "n"]) -> Float[Array, ""]:
    """`sum w v` where a unit of zero weight counts for nothing, even when its value is `-inf`."""
    return jnp.sum(jnp.where(weights == 0, 0.0, weights * jnp.where(weights == 0, 0.0, values)))


@custom_vmap
def any_in_batch(flag: Array) -> Array:
    """Whether `flag` holds for *any* member of the batch this code is vmapped over.

    Under `vmap` an ordinary flag becomes one flag per member, and `lax.cond` on it pays for both
    branches. This one stays a single flag, so `lax.cond(any_in_batch(rare), careful, plain, x)`
    runs only the plain branch as long as nobody in the batch needs the careful one. Both branches
    must agree wherever `flag` is false.
    """
    return flag


@any_in_batch.def_vmap
def _(axis_size, in_batched, flag):
    return any_in_batch(jnp.any(flag, axis=0) if in_batched[0] else flag), False


def missing_in_batch(x: Array) -> Array:
    """Whether any event of the batch has a missing (NaN) entry; see `any_in_batch`."""
    # a sum passes on every NaN, and is the quickest way through an array
    return any_in_batch(jnp.isnan(jnp.sum(jax.lax.stop_gradient(x))))


def middle(xs: Float[Array, "n *event"]) -> Float[Array, "*event"]:
    """Roughly the mean event: that of a few hundred of them, spread evenly. Missing (NaN) entries do not count."""
    return jnp.nanmean(xs[:: max(1, xs.shape[0] // 256)], axis=0)


@custom_vmap
def batch_center(x: Array) -> Array:
    """The `middle` of the batch of events this code is vmapped over; the event itself when there is none.

    A coordinate nobody has seen stays NaN.

    A reference point that all events and all members of a stack share. Formulas that use it must not depend on it
    mathematically, only numerically; call it on `stop_gradient(x)`.
    """
    return x


@batch_center.def_vmap
def _(axis_size, in_batched, x):
    return batch_center(middle(x) if in_batched[0] else x), False


@custom_vmap
def is_stacked(x: Array) -> Array:
    """Whether this code is vmapped over `x`: true for the parameters of a stack's members, false for a lone member.

    A constant either way, so `lax.cond` on it costs nothing: it chooses between a form that shares work among members
    and one that is best for a single member.
    """
    return jnp.array(False)


@is_stacked.def_vmap
def _(axis_size, in_batched, x):
    return (jnp.array(True) if in_batched[0] else is_stacked(x)), False


def separately(loc: Array, size: Array) -> Array:
    """Whether Gaussian members should be scored one by one rather than by products that a whole stack shares.

    True for a lone member, and where sharing would cost digits: `size`, in squared standard deviations, is that of the
    terms it adds up, so what it can lose is about that many units of resolution, held below 1e-4 nats in float32 and
    1e-10 in float64.
    """
    limit = 400.0 if jnp.finfo(size.dtype).bits <= 32 else 1e5
    alone = ~is_stacked(jax.lax.stop_gradient(loc))
    return alone | any_in_batch(~(jax.lax.stop_gradient(size) <= limit))
