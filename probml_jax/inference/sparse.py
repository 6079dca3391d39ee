"""Products with a matrix of few nonzero entries a row, given as lists of column numbers."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

# columns of the list that are worked off at once: each is a fused gather, far faster than one gather of all
_COLUMNS = 32


def row_sums(
    table: Float[Array, "r k"], index: Int[Array, "n m"], values: Float[Array, "n m"] | None = None
) -> Float[Array, "n k"]:
    r"""$\sum_j v_{nj}\, T_{i_{nj}}$: for each list of row numbers the sum of these rows of a table (values: 1).

    A number of -1 adds nothing: it reads the last row, which must be zero. One gather, and for its gradient one
    scatter, per column of the lists, in place; cost O(n m k), memory O(n k). Do not `vmap` its gradient over lists:
    pool them instead.
    """
    index = jnp.where(index < 0, table.shape[0] - 1, index)
    index = _whole(index, table.shape[0] - 1)
    values = None if values is None else _whole(values, 0)
    return _row_sums(table, index, values)


def _groups(index: Array, values: Array | None):
    """Columns in groups of `_COLUMNS`, each `(groups, n, columns)`."""
    n, m = index.shape
    size = min(m, _COLUMNS)
    cut = lambda a: None if a is None else a.reshape(n, m // size, size).transpose(1, 0, 2)
    return cut(index), cut(values)


def _columns(index: Array, values: Array | None):
    for j in range(index.shape[1]):
        yield index[:, j], None if values is None else values[:, j : j + 1]


def _sum_rows(table, index, values):
    """The sums themselves; every number of `index` is a row of the table."""
    take = lambda rows: table.at[rows].get(mode="promise_in_bounds")

    def group(inputs):
        terms = [take(rows) if scale is None else take(rows) * scale for rows, scale in _columns(*inputs)]
        return functools.reduce(jnp.add, terms)

    def whole(index, values):
        groups = _groups(index, values)
        first = group(jax.tree_util.tree_map(lambda a: a[0], groups))
        if index.shape[1] <= _COLUMNS:
            return first
        rest = jax.tree_util.tree_map(lambda a: a[1:], groups)
        return jax.lax.scan(lambda total, more: (total + group(more), None), first, rest)[0]

    # The gathers are one fused loop, ten times faster than one by one, as long as no user of their sum pulls it apart.
    # A condition (that always holds, which the compiler cannot know) keeps users out.
    nothing = lambda index, values: jnp.zeros((index.shape[0], table.shape[1]), table.dtype)
    return jax.lax.cond(index[0, 0] < table.shape[0], whole, nothing, index, values)


_row_sums = jax.custom_vjp(_sum_rows)


def _forward(table, index, values):
    return _sum_rows(table, index, values), (table, index, values)


def _backward(saved, slope):
    table, index, values = saved

    def spread(total, inputs):
        for rows, scale in _columns(*inputs):
            total = total.at[rows].add(slope if scale is None else slope * scale, mode="promise_in_bounds")
        return total, None

    given = jax.lax.scan(spread, jnp.zeros_like(table), _groups(index, values))[0]
    if values is None:
        return given, None, None
    each = lambda j: jnp.sum(table.at[index[:, j]].get(mode="promise_in_bounds") * slope, axis=1)
    return given, None, jnp.stack([each(j) for j in range(index.shape[1])], axis=1)


_row_sums.defvjp(_forward, _backward)


# ------------------------------------------------------------------ a matrix that is used many times


class SparseMatrix(NamedTuple):
    """Lists of row numbers prepared for many products: with its transpose, so that both directions are gathers.

    The transpose is lists too: for each row of the table the places that name it, in pieces of `_PIECES` lengths;
    `owner` says whose pieces they are.
    """

    index: Int[Array, "n m"]
    pieces: tuple[Int[Array, "_ _"], ...]
    owner: Int[Array, "_"]


_PIECES = (1, 2, 4, 16, 64)


def sparse_matrix(index: np.ndarray, num_rows: int) -> SparseMatrix:
    """Prepare lists `(n, m)` of row numbers, -1 for none, of a table of `num_rows` and a last row of zeros (host)."""
    m = index.shape[1]
    fill = ((0, 0), (0, -m % _COLUMNS if m > _COLUMNS else 0))
    flat = np.where(index < 0, num_rows, index).astype(np.int32)
    n = len(flat)
    ones, ends = np.ones(flat.size, np.int8), np.arange(n + 1) * m
    columns = scipy.sparse.csr_matrix((ones, flat.ravel(), ends), shape=(n, num_rows + 1)).tocsc()
    places, starts = columns.indices, columns.indptr[: num_rows + 1]
    counts = np.diff(starts)
    pieces, owners, below = [], [], 0
    for size in _PIECES:
        last = size == _PIECES[-1]
        rows = np.flatnonzero((counts > below) & ((counts <= size) | last))
        repeats = -(-counts[rows] // size)
        owner = np.repeat(rows, repeats)
        nth = np.arange(owner.size) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        where = starts[owner][:, None] + nth[:, None] * size + np.arange(size)[None, :]
        inside = where < starts[owner + 1][:, None]
        pieces.append(np.where(inside, places[np.where(inside, where, 0)], n).astype(np.int32))
        owners.append(owner.astype(np.int32))
        below = size
    keep = [i for i, piece in enumerate(pieces) if piece.size]
    return SparseMatrix(
        jnp.asarray(np.pad(flat, fill, constant_values=num_rows)),
        tuple(jnp.asarray(pieces[i]) for i in keep),
        jnp.asarray(np.concatenate(owners)),
    )


@jax.custom_vjp
def prepared_row_sums(table: Float[Array, "r k"], matrix: SparseMatrix) -> Float[Array, "n k"]:
    """`row_sums` of lists that were prepared by `sparse_matrix`, with a faster gradient."""
    return _sum_rows(table, matrix.index, None)


def _prepared_forward(table, matrix):
    return _sum_rows(table, matrix.index, None), (matrix, table.shape[0])


def _prepared_backward(saved, slope):
    matrix, num_rows = saved
    slopes = jnp.concatenate([slope, jnp.zeros_like(slope[:1])])
    sums = [_sum_rows(slopes, _whole(piece, slope.shape[0]), None) for piece in matrix.pieces]
    empty = jnp.zeros((num_rows, slope.shape[1]), slope.dtype)
    given = empty.at[matrix.owner].add(jnp.concatenate(sums), mode="promise_in_bounds")
    return given, jax.tree_util.tree_map(lambda _: None, matrix)


def _whole(lists: Array, nothing: int) -> Array:
    """Lists filled up to a whole number of groups of columns."""
    short = -lists.shape[1] % _COLUMNS if lists.shape[1] > _COLUMNS else 0
    return jnp.pad(lists, ((0, 0), (0, short)), constant_values=nothing)


prepared_row_sums.defvjp(_prepared_forward, _prepared_backward)
