"""Data that lie on many devices, and sums over all of them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree

from ._buckets import Buckets
from ._typing import Data

# the one axis of the library's meshes: exchangeable units, or members of a batch of experiments
AXIS = "units"


class Placed(eqx.Module):
    """Data cut along the axis of units over the devices of a mesh, padded with units of no weight.

    Made by `pml.sharding.place`; accepted by `fit` wherever arrays are. `num_units` is the number of true units.
    """

    parts: tuple[Data, ...]
    weights: Float[Array, "n"]
    bucketed: bool = eqx.field(static=True)
    num_units: int = eqx.field(static=True)
    mesh: Mesh = eqx.field(static=True)

    def head(self, num: int) -> Data:
        """Up to `num` units from all over the data, as NumPy arrays that are the same on every host: to build a
        starting model from. Of buckets, units of the first one."""
        size = jax.tree_util.tree_leaves(self.parts[0])[0].shape[0]
        chosen = np.unique(np.linspace(0, size - 1, min(num, size)).astype(int))
        everywhere = NamedSharding(self.mesh, PartitionSpec())
        take = jax.jit(lambda tree: jax.tree_util.tree_map(lambda a: a[chosen], tree), out_shardings=everywhere)
        return jax.tree_util.tree_map(np.asarray, take(self.parts[0]))

    def local(self) -> list[Data]:
        """The parts as far as they lie on this host, for checks."""
        if jax.process_count() == 1:
            return list(self.parts)
        here = lambda a: np.concatenate([np.asarray(s.data) for s in a.addressable_shards])
        return [jax.tree_util.tree_map(here, part) for part in self.parts]


def replicated(tree: PyTree, mesh: Mesh) -> PyTree:
    """The arrays of a tree on every device of a mesh; of several hosts, each has them already."""
    everywhere = NamedSharding(mesh, PartitionSpec())

    def one(a):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(one(jax.random.key_data(a)), impl=jax.random.key_impl(a))
        if jax.process_count() == 1:
            return jax.device_put(a, everywhere)
        # `device_put` would compare the hosts' values, and finds that NaN is not NaN
        here = np.asarray(a)
        return jax.make_array_from_callback(here.shape, everywhere, lambda index: here[index])

    return jax.tree_util.tree_map(lambda a: one(a) if eqx.is_array(a) else a, tree)


def across(function: Callable[[Any, Data, Array], PyTree], given: PyTree, data: Data, weights: Array) -> PyTree:
    """`function(given, data, weights)` of all units, for a function that is additive over units.

    Data of one device are handed on as they are. Of placed data every device sees its own units, and what they give is
    added up by one all-reduce: data never travel. Whatever `function` needs besides the units comes as `given`.
    """
    if not isinstance(data, Placed):
        return function(given, data, weights)
    dynamic, static = eqx.partition(given, eqx.is_array)

    def on_one_device(dynamic, parts, share):
        found = function(eqx.combine(dynamic, static), _together(parts, data.bucketed), share)
        flat, unravel = ravel_pytree(found)
        return unravel(jax.lax.psum(flat, AXIS))

    cut = PartitionSpec(AXIS)
    specs = PartitionSpec(), cut, cut
    # replication is by construction (everything that leaves was summed over all devices), and not tracked by JAX
    summed = jax.shard_map(on_one_device, mesh=data.mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False)
    return summed(dynamic, data.parts, weights)


def _together(parts: tuple[Data, ...], bucketed: bool) -> Data:
    """One device's units as the data they were cut from: weights of one part follow those of the part before."""
    if not bucketed:
        return parts[0]
    sizes = [jax.tree_util.tree_leaves(part)[0].shape[0] for part in parts]
    ends = np.cumsum(sizes)
    return Buckets(parts, tuple(jnp.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)))


def device_key(data: Data, key: Array) -> Array:
    """Inside `across`: a key of this device's own. Elsewhere the key itself."""
    return jax.random.fold_in(key, jax.lax.axis_index(AXIS)) if isinstance(data, Placed) else key


def num_devices(data: Data) -> int:
    """Among how many devices the units are divided."""
    return data.mesh.size if isinstance(data, Placed) else 1
