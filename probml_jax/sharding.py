"""Many devices, on one host or several: a mesh, data placed on it, experiments spread over it.

The engine is JAX's own (`jax.sharding`, `jax.shard_map`, `jax.distributed`); `fit` is called as always.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ._buckets import Buckets
from ._placed import AXIS
from ._placed import Placed as Placed
from ._validate import as_weights, check_finite, check_not_narrowed, check_units


def mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """One row of devices: all of them, on all hosts, unless some are named.

    Several hosts first call `jax.distributed.initialize(...)`, as JAX's own documentation says.

    >>> mesh().axis_names
    ('units',)
    """
    chosen = jax.devices() if devices is None else list(devices)
    if not chosen:
        raise ValueError("devices is empty: at least one is wanted.")
    # by host, so that what a host holds is one stretch of the units
    chosen = sorted(chosen, key=lambda d: (d.process_index, d.id))
    return Mesh(np.array(chosen), (AXIS,), axis_types=(AxisType.Auto,))


def place(data: Any, mesh: Any = None, *, weights: Any = None) -> Placed:
    r"""Cut data along the axis of units over the devices of a mesh (all devices by default).

    `data` are arrays with a leading axis of units, trees of such, or `Buckets`. Each device gets as many units as any
    other: what lacks is filled with copies of the first unit that have no weight, so
    $\sum_i w_i \log p(x_i)$ stays what it was. On several hosts every process hands in the units that it
    holds, all of them at the same time; they may be unequally many. `weights` are those of the handed units.

    Returns a `Placed`, which `fit` takes as it takes arrays (weights are in it). A float64 array that would be
    narrowed, infinities, empty data and bad weights raise.

    >>> placed = place(np.arange(10.0, dtype=np.float32))
    >>> placed.num_units, float(placed.weights.sum())
    (10, 10.0)
    """
    over = _default(mesh)
    if isinstance(data, Placed):
        raise ValueError("data is placed already.")
    parts, shares = _parts(data, weights)
    placed, layouts = [], []
    for part, share in zip(parts, shares, strict=True):
        size = _units_per_device(share.shape[0], over)
        here = size * len(_local_devices(over))
        placed.append(jax.tree_util.tree_map(lambda a, here=here: _spread(_padded(a, here), over), part))
        layouts.append(np.concatenate([share, np.zeros(here - share.shape[0], share.dtype)]).reshape(-1, size))
    # one device's weights lie together: those of its first part, then those of its second, ...
    joined = _spread(np.concatenate(layouts, axis=1).reshape(-1), over)
    count = sum(share.shape[0] for share in shares)
    everywhere = count if jax.process_count() == 1 else int(np.sum(_of_all_hosts(count)))
    return Placed(tuple(placed), joined, isinstance(data, Buckets), everywhere, over)


def vmap(function: Callable, mesh: Any = None) -> Callable:
    """`jax.vmap(function)` over the leading axis of all arguments, each device mapping its share.

    For restarts and batches of experiments, `sharding.vmap(restart)(keys)`: loops end on each device when its own
    members have ended. Any number of members: what is missing to a multiple of the devices is filled up and cut.

    >>> vmap(lambda x: x**2)(jnp.arange(5.0)).tolist()
    [0.0, 1.0, 4.0, 9.0, 16.0]
    """
    over = _default(mesh)
    cut = PartitionSpec(AXIS)

    def mapped(*args: Any) -> Any:
        count = check_units(args)
        # keys are given their share as they are; `jnp.take` knows them
        index = np.minimum(np.arange(-(-count // over.size) * over.size), count - 1)
        filled = jax.tree_util.tree_map(lambda a: jnp.asarray(a)[index], args)
        each = jax.shard_map(
            lambda *own: jax.vmap(function)(*own), mesh=over, in_specs=cut, out_specs=cut, check_vma=False
        )
        return jax.tree_util.tree_map(lambda a: a[:count], jax.jit(each)(*filled))

    return mapped


def _default(over: Any) -> Mesh:
    if over is None:
        return mesh()
    if not isinstance(over, Mesh):
        raise TypeError(f"mesh must come from pml.sharding.mesh(); got {type(over).__name__}.")
    if over.axis_names != (AXIS,):
        raise ValueError(
            f"mesh must have the one axis {AXIS!r}, as pml.sharding.mesh() makes it; got {over.axis_names}."
        )
    return over


def _parts(data: Any, weights: Any) -> tuple[list[Any], list[np.ndarray]]:
    """Parts as NumPy trees, and the weights of each."""
    count = check_units(data)
    kinds = {np.dtype(a.dtype) for a in jax.tree_util.tree_leaves(data) if jnp.issubdtype(a.dtype, jnp.floating)}
    dtype = kinds.pop() if len(kinds) == 1 else jnp.result_type(float)
    shares = np.asarray(as_weights(weights, count, dtype))
    trees = list(data.parts) if isinstance(data, Buckets) else [data]
    cut = [shares[np.asarray(p)] for p in data.positions] if isinstance(data, Buckets) else [shares]
    return [jax.tree_util.tree_map(_checked, tree) for tree in trees], cut


def _checked(leaf: Any) -> np.ndarray:
    check_not_narrowed("data", leaf)
    leaf = np.asarray(leaf)
    check_finite("data", leaf)
    return leaf


def _local_devices(over: Mesh) -> list[Any]:
    here = [d for d in over.devices.flat if d.process_index == jax.process_index()]
    if not here:
        raise ValueError("mesh has no device of this host: every process must take part.")
    return here


def _units_per_device(count: int, over: Mesh) -> int:
    """As many units as the fullest device of any host has."""
    own = -(-count // len(_local_devices(over)))
    return own if jax.process_count() == 1 else int(np.max(_of_all_hosts(own)))


def _of_all_hosts(value: int) -> np.ndarray:
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.array([value])))


def _padded(a: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([a, np.repeat(a[:1], size - a.shape[0], axis=0)]) if a.shape[0] < size else a


def _spread(a: np.ndarray, over: Mesh) -> jax.Array:
    return jax.make_array_from_process_local_data(NamedSharding(over, PartitionSpec(AXIS)), a)
