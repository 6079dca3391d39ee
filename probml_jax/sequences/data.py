"""Sequences of unequal length: padding, lengths, known states, lagged inputs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._buckets import Buckets, bucketed
from .._validate import as_float, check_not_narrowed, check_shape, from_list, is_concrete


class Sequences(NamedTuple):
    """Observations with what is known about them. Plain `xs`, `(xs, lengths)` and this are all accepted as data.

    - `xs`: arrays `(n, t, ...)`, padded to one length; NaN (or -1 for labels) is missing.
    - `lengths (n,)`: true lengths; `None` when all sequences are full.
    - `states (n, t)`: known states, -1 where unknown; `None` when all are.

    One sequence is the same without the leading axis.
    """

    xs: PyTree
    lengths: Int[Array, "*n"] | None = None
    states: Any = None


def as_sequences(data: Any, batched: bool) -> Sequences:
    """Any accepted form of data as `Sequences` of arrays; a tuple is `(xs, lengths[, states])` if its second part has
    one number for every sequence."""
    rank = 1 if batched else 0
    if isinstance(data, Sequences):
        parts = data
    elif isinstance(data, tuple) and len(data) in (2, 3) and _is_lengths(data[1], rank):
        parts = Sequences(*data)
    else:
        parts = Sequences(data)
    states = None if parts.states is None else _as_arrays(parts.states, "states")
    return Sequences(_as_arrays(parts.xs, "xs"), _as_lengths(parts.lengths), states)


def _is_lengths(second: Any, rank: int) -> bool:
    """Whether the second part of a tuple is lengths: there is one number for every sequence."""
    if second is None or isinstance(second, tuple):
        return False
    return np.ndim(from_list(second, "xs") if isinstance(second, list) else second) == rank


def _as_lengths(lengths: Any) -> Int[Array, "*n"] | None:
    if lengths is None:
        return None
    lengths = from_list(lengths, "lengths") if isinstance(lengths, list) else lengths
    dtype = jnp.result_type(lengths)
    if not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(f"lengths must be whole numbers; got {dtype}.")
    return jnp.asarray(lengths, jnp.int32)


def _as_arrays(xs: PyTree, name: str) -> PyTree:
    """A tree of arrays, lists among them read as such; float64 is not narrowed."""

    def convert(a):
        if isinstance(a, list):
            return from_list(a, name)
        check_not_narrowed(name, a)
        return jnp.asarray(a)

    return jax.tree_util.tree_map(convert, xs, is_leaf=lambda a: isinstance(a, list))


def num_steps(xs: PyTree, axis: int) -> int:
    """The common length of the (padded) time axis."""
    return jax.tree_util.tree_leaves(xs)[0].shape[axis]


def exists(length: Int[Array, ""] | None, t: int) -> Bool[Array, "t"]:
    """Which steps of one sequence exist."""
    return jnp.ones(t, bool) if length is None else jnp.arange(t) < length


def seen(events: PyTree, *, whole: bool) -> Bool[Array, "t"]:
    """Which events of one sequence have been observed: some entry of them, or (`whole`) every entry."""

    def of_array(a):
        present = ~jnp.isnan(a) if jnp.issubdtype(a.dtype, jnp.floating) else a != -1
        axes = tuple(range(1, a.ndim))
        return jnp.all(present, axis=axes) if whole else jnp.any(present, axis=axes)

    flags = [of_array(a) for a in jax.tree_util.tree_leaves(events)]
    return jnp.stack(flags).all(axis=0) if whole else jnp.stack(flags).any(axis=0)


def keep(events: PyTree, where: Bool[Array, "t"]) -> PyTree:
    """Events with those outside `where` replaced by a harmless copy of one inside: padding may hold anything."""
    first = jnp.argmax(where)

    def of_array(a):
        spread = where.reshape(-1, *[1] * (a.ndim - 1))
        return jnp.where(spread, a, jnp.take(a, first, axis=0)[None])

    return jax.tree_util.tree_map(of_array, events)


def lagged(xs: Float[Array, "t d"], lags: int) -> tuple[Float[Array, "t p"], Float[Array, "t d"]]:
    """Each observation with the `lags` before it, latest first; NaN where the sequence has not begun."""
    t, d = xs.shape
    before = lambda lag: jnp.concatenate([jnp.full((min(lag, t), d), jnp.nan, xs.dtype), xs[: max(t - lag, 0)]])
    return jnp.concatenate([before(lag) for lag in range(1, lags + 1)], axis=1), xs


def check_lengths(lengths: Any, n: int, t: int) -> None:
    """Raise `ValueError` unless lengths are `(n,)` whole numbers in 1..t."""
    if lengths is None:
        return
    if jnp.shape(lengths) != (n,):
        raise ValueError(f"lengths has shape {jnp.shape(lengths)}; {n} sequences want ({n},).")
    _check_range(lengths, t)


def _check_range(lengths: Any, t: int) -> None:
    if is_concrete(lengths):
        values = np.asarray(lengths)
        if values.max(initial=0) > t:
            raise ValueError(f"lengths holds {values.max()}, longer than the {t} steps of the array.")
        if values.min(initial=t) < 1:
            raise ValueError(f"lengths holds {values.min()}: a sequence needs at least one step.")


def check_steps(xs: PyTree, axis: int) -> int:
    """The number of steps; `ValueError` for none, or if the parts of the observations have different ones."""
    leaves = jax.tree_util.tree_leaves(xs)
    if not leaves or any(a.ndim <= axis for a in leaves):
        wanted = "(n, t, ...): one sequence is xs[None]" if axis else "one sequence (t, ...)"
        came = f"shape {tuple(leaves[0].shape)}" if leaves else "no arrays"
        raise ValueError(f"xs has {came}; wanted {wanted}.")
    steps = sorted({a.shape[axis] for a in leaves})
    if len(steps) > 1:
        raise ValueError(f"the parts of xs have different numbers of steps: {steps}.")
    if steps == [0]:
        raise ValueError("xs has no steps: a sequence needs at least one step.")
    return steps[0]


def check_sequence(one: Sequences) -> None:
    """Raise `ValueError` for one sequence that is none: no steps, a length that is not in 1..t, states of another t."""
    t = check_steps(one.xs, 0)
    if one.lengths is not None:
        check_shape("length", one.lengths, ())
        _check_range(one.lengths, t)
    if one.states is not None:
        check_shape("states", one.states, (t,))


def pad_sequences(sequences: Sequence[Any], *, length: int | None = None) -> tuple[Array, Int[Array, "n"]]:
    """Sequences `(t_i, ...)` of unequal length as one array `(n, t, ...)` and their lengths `(n,)`.

    `length` sets a larger common length (say, to reuse a compilation). What stands in the padding does not matter.

    >>> xs, lengths = pad_sequences([[1, 2, 3], [4]])
    >>> xs.tolist(), lengths.tolist()
    ([[1, 2, 3], [4, 0, 0]], [3, 1])
    """
    arrays = [np.asarray(s) for s in sequences]
    if not arrays:
        raise ValueError("sequences is empty: at least one sequence is wanted.")
    if any(a.ndim == 0 or a.shape[0] == 0 for a in arrays):
        raise ValueError("every sequence needs at least one step.")
    if len({a.shape[1:] for a in arrays}) > 1:
        raise ValueError(f"sequences have events of different shapes: {sorted({a.shape[1:] for a in arrays})}.")
    longest = max(a.shape[0] for a in arrays)
    if length is not None and length < longest:
        raise ValueError(f"length is {length}, but the longest sequence has {longest} steps.")
    out = np.zeros((len(arrays), length or longest, *arrays[0].shape[1:]), np.result_type(*arrays))
    for row, a in zip(out, arrays, strict=True):
        row[: len(a)] = a
    floating = np.issubdtype(out.dtype, np.floating)
    xs = as_float(out, "sequences") if floating else jnp.asarray(out)
    return xs, jnp.asarray([len(a) for a in arrays], jnp.int32)


def as_tagged(data: Any, batched: bool) -> Sequences:
    """Inputs with labels as `Sequences`: `(x, y)`, `(x, lengths)`, `(x, lengths, y)` or inputs alone.

    Labels are whole numbers with one more axis than lengths, or (as bool) the set of labels each step may have.
    """
    if type(data) is not tuple or len(data) not in (2, 3):
        return data if isinstance(data, Sequences) else Sequences(data)
    rank = 1 if batched else 0
    rest = [jnp.asarray(a) for a in data[1:] if a is not None]
    lengths = [a for a in rest if a.ndim == rank]
    labels = [a for a in rest if a.ndim > rank]
    if len(lengths) > 1 or len(labels) > 1:
        shapes = ", ".join(str(a.shape) for a in rest)
        raise ValueError(f"data after the inputs have shapes {shapes}; wanted lengths, labels, or both in this order.")
    return Sequences(data[0], *(lengths or [None]), *labels)


def blank(xs: PyTree, where: Bool[Array, "t"]) -> PyTree:
    """Inputs with padding made harmless: 0 for numbers, -1 (nothing) for labels and feature lists."""

    def of_array(a):
        nothing = jnp.asarray(0 if jnp.issubdtype(a.dtype, jnp.floating) else -1, a.dtype)
        return jnp.where(where.reshape(-1, *[1] * (a.ndim - 1)), a, nothing)

    return jax.tree_util.tree_map(of_array, xs)


def bucket(data: Any, max_buckets: int = 8) -> Buckets:
    """Padded sequences in a few groups of similar length, each cut to its longest, by the cuts that pad least.

    For `fit` and `Buckets.map`: the answers are those of the padded array, the work is that of the true lengths.

    >>> xs, lengths = pad_sequences([[1, 2, 3, 4, 5], [4], [5, 6]])
    >>> [part.xs.shape for part in bucket((xs, lengths), max_buckets=2).parts]
    [(2, 2), (1, 5)]
    """
    many = as_tagged(data, batched=True)
    n, t = jax.tree_util.tree_leaves(many.xs)[0].shape[:2]
    lengths = np.full(n, t) if many.lengths is None else np.asarray(many.lengths)
    check_lengths(lengths, n, t)

    def part(rows: np.ndarray) -> Sequences:
        longest = int(lengths[rows].max())
        cut = lambda a: jnp.asarray(np.asarray(a)[rows, :longest])
        xs, states = jax.tree_util.tree_map(cut, (many.xs, many.states))
        return Sequences(xs, jnp.asarray(lengths[rows], jnp.int32), states)

    groups = bucketed(lengths, max_buckets)
    return Buckets(tuple(part(rows) for rows in groups), tuple(jnp.asarray(rows) for rows in groups))
