"""Mini-batches: units drawn at random, weighted so that what they give is expected to be that of all."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._buckets import parts_of
from .._model import AbstractModel
from .._placed import across, device_key, num_devices
from .._typing import Data, PRNGKey


def check_drawing(name: str, batch_size: int | None, key: PRNGKey | None) -> None:
    """Raise `ValueError` for a batch of no units, or one to be drawn without a key."""
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    if batch_size is not None and key is None:
        raise ValueError(f"batch_size draws units at random: a key is wanted, {name}(..., key=jr.key(0)).")


def draw(function: Callable, model: AbstractModel, data: Data, weights: Float[Array, "n"], key: Array, size: int):
    """`function(model, batch, weights)`, additive over units, of `size` units drawn at random.

    From buckets, all units of a batch come from one of them (chosen by its share of the units), so a batch is only as
    long as its bucket. From many devices each draws its share among its own units.
    """
    each = max(1, size // num_devices(data))

    def local(given, part, share):
        model, key = given
        return _drawn(function, model, part, share, device_key(data, key), each)

    return across(local, (model, key), data, weights)


def _drawn(function: Callable, model: AbstractModel, data: Data, weights: Array, key: Array, size: int) -> PyTree:
    which, within = jax.random.split(key)
    parts = parts_of(data, weights)

    def from_part(part, share):
        chosen = jax.random.choice(within, share.shape[0], (size,))
        batch = jax.tree_util.tree_map(lambda a: a[chosen], part)
        return function(model, batch, share[chosen] * (weights.shape[0] / size))

    if len(parts) == 1:
        return from_part(*parts[0])
    sizes = jnp.asarray([share.shape[0] for _, share in parts], weights.dtype)
    index = jax.random.categorical(which, jnp.log(sizes))
    branches = [lambda part=part, share=share: from_part(part, share) for part, share in parts]
    return jax.lax.switch(index, branches)
