"""Eager host checks at the public doors. Each error names the argument, what came and what is wanted.

Checks of *values* are skipped for tracers: inside compiled code nothing raises, a status or NaN travels.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._buckets import Buckets


def is_concrete(*trees: Any) -> bool:
    """Whether every array can be read on the host now."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(trees))


def check_not_narrowed(name: str, x: Any) -> None:
    """Raise `TypeError` for a float64 NumPy array when JAX would make float32 of it."""
    if isinstance(x, np.ndarray) and x.ndim > 0 and x.dtype == np.float64 and not jax.config.jax_enable_x64:
        raise TypeError(
            f"{name} is a float64 array but 64-bit mode is off, so it would be narrowed to float32. "
            f"Pass {name}.astype('float32'), or call jax.config.update('jax_enable_x64', True) first."
        )


def as_float(x: Any, name: str = "array") -> Any:
    """A floating JAX array; refuses to narrow a float64 array in silence."""
    if x is None or not (np.isscalar(x) or isinstance(x, (np.ndarray, jax.Array, list, tuple, np.generic))):
        return x
    check_not_narrowed(name, x)
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))


def from_list(x: list, name: str = "array") -> Array:
    """A list of numbers, of lists or of arrays as one array; float64 arrays in it are not narrowed."""
    for part in x:
        check_not_narrowed(name, part)
    try:
        return jnp.asarray(np.asarray(x) if is_concrete(x) else x)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is a list that makes no array of numbers; sequences of unequal length become (xs, lengths) by "
            "pml.sequences.pad_sequences."
        ) from error


def common_dtype(**arrays: Any) -> tuple[Any, ...]:
    """Arguments as floating arrays of one dtype: Python numbers take that of the arrays."""
    converted = [as_float(value, name) for name, value in arrays.items()]
    dtype = jnp.result_type(*converted)
    return tuple(value.astype(dtype) for value in converted)


def check(condition: Any, message: str) -> None:
    """Raise `ValueError(message)` if a concrete condition fails; a traced one passes."""
    if is_concrete(condition) and not bool(np.all(condition)):
        raise ValueError(message)


def check_rank(name: str, x: Array, rank: int, wanted: str) -> None:
    if x.ndim != rank:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; wanted {wanted}.")


def check_shape(name: str, x: Array, shape: tuple[int, ...]) -> None:
    if tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(x.shape)}; wanted {tuple(shape)}.")


def check_positive(name: str, x: Any) -> None:
    if is_concrete(x):
        values = np.asarray(x)
        if not np.all(values > 0):
            raise ValueError(f"{name} must be positive; got {_worst(values, values > 0)}.")


def check_above(name: str, x: Any, bound: float | int) -> None:
    if is_concrete(x):
        values = np.asarray(x)
        if not np.all(values > bound):
            raise ValueError(f"{name} must be greater than {bound}; got {_worst(values, values > bound)}.")


def check_probabilities(name: str, x: Any) -> None:
    if is_concrete(x):
        values = np.asarray(x)
        good = (values >= 0) & (values <= 1)
        if not np.all(good):
            raise ValueError(f"{name} must lie in [0, 1]; got {_worst(values, good)}.")


def check_simplex(name: str, x: Any) -> None:
    check_probabilities(name, x)
    if is_concrete(x):
        total = np.asarray(x).sum(-1)
        if not np.allclose(total, 1, atol=1e-3 if np.asarray(x).dtype == np.float32 else 1e-6):
            worst = np.ravel(total)[np.argmax(np.abs(np.ravel(total) - 1))]
            raise ValueError(f"{name} must sum to one; the sum is {worst:.6g}.")


def check_positive_definite(name: str, x: Any) -> None:
    """Symmetric with a Cholesky factor. Singular to working precision passes; indefinite does not."""
    if is_concrete(x):
        a = np.asarray(x, np.float64)
        scale = max(float(np.abs(a).max(initial=0.0)), np.finfo(np.float64).tiny)
        if not np.all(np.isfinite(a)):
            raise ValueError(f"{name} must be finite; it has NaN or infinite entries.")
        if np.abs(a - np.swapaxes(a, -1, -2)).max(initial=0.0) > 1e-4 * scale:
            raise ValueError(f"{name} must be symmetric.")
        least = float(np.linalg.eigvalsh(a).min(initial=np.inf))
        if least < -1e-5 * scale:
            raise ValueError(f"{name} must be positive definite; its smallest eigenvalue is {least:.3g}.")


def check_counts(name: str, x: Any) -> None:
    """Non-negative whole numbers; NaN passes as missing."""
    if is_concrete(x):
        values = np.asarray(x, np.float64)
        values = values[~np.isnan(values)]
        good = (values >= 0) & (values == np.floor(values)) & np.isfinite(values)
        if not np.all(good):
            raise ValueError(f"{name} must be non-negative whole numbers; got {_worst(values, good)}.")


def check_labels(name: str, x: Any, num_classes: int) -> None:
    """Whole labels 0..num_classes-1; -1 passes as unobserved."""
    if is_concrete(x):
        values = np.asarray(x)
        good = (values >= -1) & (values < num_classes) & (values == np.floor(values))
        if not np.all(good):
            raise ValueError(
                f"{name} must be labels 0..{num_classes - 1} (-1 for unobserved); got {_worst(values, good)}."
            )


def check_finite(name: str, x: Any, *, nan: bool = True) -> None:
    """No infinities; NaN passes as missing unless `nan=False`."""
    if is_concrete(x):
        values = np.asarray(x)
        if np.issubdtype(values.dtype, np.floating):
            if np.isinf(values).any():
                raise ValueError(f"{name} has infinite entries; use NaN for what is missing.")
            if not nan and np.isnan(values).any():
                raise ValueError(f"{name} has NaN entries; complete rows are wanted here.")


def check_units(data: Any) -> int:
    """The number of exchangeable units: the common leading axis of all arrays of `data` (or of each bucket)."""
    if isinstance(data, Buckets):
        return sum(check_units(part) for part in data.parts)
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(data) if hasattr(leaf, "shape")]
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise ValueError("data must be arrays with a leading axis of units; got a scalar or nothing.")
    lengths = {leaf.shape[0] for leaf in leaves}
    if len(lengths) > 1:
        raise ValueError(
            f"the arrays of data have different numbers of units: {sorted(lengths)}. Sequences of unequal length "
            "become (xs, lengths) by pml.sequences.pad_sequences."
        )
    if lengths == {0}:
        raise ValueError("data is empty: at least one unit is wanted.")
    return lengths.pop()


def as_weights(weights: Any, num_units: int, dtype: Any, *, some: bool = True) -> Array:
    """Sample weights as an array (ones when `None`), checked: non-negative, finite and, with `some`, not all zero."""
    if weights is None:
        return jnp.asarray(np.ones(num_units, dtype))  # by way of NumPy: nothing to compile
    weights = jnp.asarray(as_float(weights, "weights"), dtype)
    check_shape("weights", weights, (num_units,))
    if is_concrete(weights):
        values = np.asarray(weights)
        if not np.all(np.isfinite(values) & (values >= 0)):
            raise ValueError(f"weights must be finite and non-negative; got {_worst(values, values >= 0)}.")
        if some and not values.any():
            raise ValueError("weights are all zero: there is nothing to learn from.")
    return weights


def _is_one_array(x: Any) -> bool:
    """A list is a pair of things, such as inputs and labels, only if it holds arrays that do not stack to more axes."""
    if not isinstance(x, list) or not x:
        return isinstance(x, list)
    shapes = {tuple(a.shape) if isinstance(a, (np.ndarray, jax.Array)) else None for a in x}
    return shapes == {None} or (len(shapes) == 1 and None not in shapes and len(min(shapes)) > 1)


def as_data(data: Any) -> Any:
    """Data to learn from: arrays of units, none of them infinite."""
    converted = as_units(data)
    for leaf in jax.tree_util.tree_leaves(converted):
        check_finite("data", leaf)
    return converted


def as_units(data: Any) -> Any:
    """Arrays of a data tree as JAX arrays, a list of numbers or of equal tables (sequences) as one of them; float64 is
    refused when it would be narrowed."""

    def convert(leaf):
        if _is_one_array(leaf):
            return from_list(leaf, "data")
        if isinstance(leaf, np.ndarray) and np.issubdtype(leaf.dtype, np.floating):
            return as_float(leaf, "data")
        return jnp.asarray(leaf)

    converted = jax.tree_util.tree_map(convert, data, is_leaf=_is_one_array)
    check_units(converted)
    return converted


def float_dtype(tree: Any) -> Any:
    """The floating dtype of a tree of arrays (the default float where it has none)."""
    dtypes = [x.dtype for x in jax.tree_util.tree_leaves(tree) if hasattr(x, "dtype")]
    floats = [d for d in dtypes if jnp.issubdtype(d, jnp.floating)]
    return jnp.result_type(*floats) if floats else jnp.result_type(float)


def _worst(values: Any, good: Any) -> Any:
    bad = np.ravel(values[~good]) if np.ndim(values) else np.ravel(values)
    return bad[0] if bad.size else "an empty array"
