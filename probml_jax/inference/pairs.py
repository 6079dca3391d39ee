"""Sums over all pairs of two sets of points, block by block: memory follows the block, which fits the caches."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._linalg import matmul
from .._special import any_in_batch, safe_log

_ENTRIES = 1 << 20  # pairs at a time; more falls out of the caches, fewer leave cores idle
_LEAST_ROWS = 8


def by_rows(function: Callable[[PyTree], Array], rows: PyTree, block: int) -> Array:
    """`function(rows)` for a function that treats every row by itself, `block` rows at a time.

    One traced block serves any number of rows: the last one starts early enough to be whole. Gradients recompute a
    block instead of storing all of them.
    """
    n = jax.tree_util.tree_leaves(rows)[0].shape[0]
    if block >= n:
        return function(rows)

    @jax.checkpoint
    def one_block(start):
        return function(jax.tree_util.tree_map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, block), rows))

    count = -(-n // block)
    found = jax.lax.map(one_block, jnp.minimum(jnp.arange(count) * block, n - block))
    whole = found[:-1].reshape(-1, *found.shape[2:])
    return jnp.concatenate([whole, found[-1, count * block - n :]])


def rows_at_once(entries: int) -> int:
    """How many rows of so many numbers each make a block."""
    return max(1, _ENTRIES // entries)


def squared_distances(xs: Float[Array, "m d"], points: Float[Array, "n d"]) -> Float[Array, "m n"]:
    r"""$|x_i - p_j|^2$ by one matrix product, for coordinates that are not `far_out`; zero may come out negative, by
    rounding."""
    squares = lambda a: jnp.sum(a * a, axis=1, keepdims=True)
    one = lambda a: jnp.ones_like(a[:, :1])
    # two columns more, and the product is the distance: nothing is left to add to n times m numbers
    left = jnp.concatenate([xs, squares(xs), one(xs)], axis=1)
    right = jnp.concatenate([-2 * points, one(points), squares(points)], axis=1)
    return matmul(left, right.T)


def squared_differences(xs: Float[Array, "m d"], points: Float[Array, "n d"]) -> Float[Array, "m n"]:
    r"""$|x_i - p_j|^2$ by differences: slower, and exact wherever the points are."""
    return jnp.sum((xs[:, None, :] - points[None, :, :]) ** 2, axis=2)


def largest_differences(xs: Float[Array, "m d"], points: Float[Array, "n d"]) -> Float[Array, "m n"]:
    r"""$\max_l |x_{il} - p_{jl}|$."""
    return jnp.max(jnp.abs(xs[:, None, :] - points[None, :, :]), axis=2)


def far_out(*sets: Float[Array, "_ d"]) -> Bool[Array, ""]:
    """Whether squared coordinates are so large that their differences lose more than 1e-4 (1e-10 in float64)."""
    dtype = sets[0].dtype
    bound = (1e-10 if jnp.finfo(dtype).bits >= 64 else 1e-4) / jnp.finfo(dtype).eps
    return any_in_batch(sum(jnp.max(jnp.sum(jax.lax.stop_gradient(a) ** 2, axis=1)) for a in sets) > bound)


def log_kernel_sums(
    xs: Float[Array, "m d"],
    points: Float[Array, "n d"],
    weights: Float[Array, "n"],
    profile: Callable[[Array], Array],
    *,
    in_logs: bool,
    cube: bool = False,
    same: bool = False,
) -> Float[Array, "m"]:
    r"""$\log \sum_j w_j\, k(x_i, p_j)$ for a kernel that is a function of distance.

    `profile` gives the kernel, or its logarithm (`in_logs`, for kernels that underflow), from squared distances, or
    from largest differences (`cube`). `same`: the sets are one and the same, and a point does not count for itself.
    Nothing in reach gives `-inf`. Cost: $mnd$ flops, by one product where points lie around the origin, and $mn$ values
    of the kernel; memory of one block.
    """
    numbers = jnp.arange(points.shape[0])
    block = max(_ENTRIES // points.shape[0], _LEAST_ROWS)

    def over(distances, xs, points):
        def of_block(rows):
            x, index = rows
            own = (index[:, None] == numbers[None, :]) if same else None
            values = lambda x, points: profile(distances(x, points))
            if in_logs:
                return _log_sum_of_exponentials(values, x, points, weights, own)
            return _logs_of_sums(values(x, points), weights, own)

        return by_rows(of_block, (xs, jnp.arange(xs.shape[0])), block)

    if cube:
        return over(largest_differences, xs, points)
    each = [functools.partial(over, distances) for distances in (squared_differences, squared_distances)]
    return jax.lax.cond(far_out(xs, points), *each, xs, points)


def _logs_of_sums(values: Array, weights: Array, own: Array | None) -> Array:
    return safe_log(matmul(values if own is None else jnp.where(own, 0, values), weights))


def _log_sum_of_exponentials(values: Callable, x: Array, points: Array, weights: Array, own: Array | None) -> Array:
    r"""$\log\sum_j w_j e^{v_{ij}}$, in a single pass over the pairs wherever no sum comes near to underflow."""
    scaled = jnp.exp(values(x, points)) * weights[None, :]
    total = jnp.sum(scaled if own is None else jnp.where(own, 0, scaled), axis=1)
    # from here on the largest term, and all that count beside it, are normal numbers
    least = points.shape[0] * jnp.finfo(total.dtype).tiny / jnp.finfo(total.dtype).eps
    sound = jnp.all((total > least) & (total < jnp.inf))
    careful = lambda x, points, weights, _: _about_the_tallest(values(x, points), weights, own)
    plain = lambda x, points, weights, total: jnp.log(total)
    # a branch stores for its gradient what either branch would store: let that be the inputs alone
    given = x, points, weights, total
    return jax.lax.cond(any_in_batch(~sound), jax.checkpoint(careful), jax.checkpoint(plain), *given)


def _about_the_tallest(values: Array, weights: Array, own: Array | None) -> Array:
    values = values + safe_log(weights)[None, :]
    values = values if own is None else jnp.where(own, -jnp.inf, values)
    tallest = jax.lax.stop_gradient(jnp.max(values, axis=1))
    tallest = jnp.where(tallest > -jnp.inf, tallest, 0)
    return tallest + safe_log(jnp.sum(jnp.exp(values - tallest[:, None]), axis=1))
