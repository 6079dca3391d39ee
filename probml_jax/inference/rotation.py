"""Rotations of factor loadings towards simple structure."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._linalg import matmul


class Rotation(NamedTuple):
    """Loadings after a rotation, and the orthogonal matrix that takes the old ones there."""

    loadings: Float[Array, "d p"]
    matrix: Float[Array, "p p"]


class _Search(NamedTuple):
    matrix: Array
    value: Array
    gain: Array
    steps: Array


def varimax(
    loadings: Float[Array, "d p"], *, normalize: bool = True, max_steps: int = 1000, tol: float | None = None
) -> Rotation:
    r"""The rotation that maximizes $\sum_k \mathrm{var}_j(\ell_{jk}^2)$: every factor loads on few features.

    Iterates $R \leftarrow UV^\top$, $U\Sigma V^\top = A^\top(L^3 - L\,\mathrm{diag}(\bar{L^2}) + \alpha L)$, $L = AR$,
    until the criterion gains less than `tol` of itself (default: eight units of resolution). The shift $\alpha =
    3\|A\|^2/d$, which no rotation feels, makes the criterion convex, so that every step climbs: without it the
    iteration can leap from one side of the optimum to the other. With `normalize` features
    count equally whatever their communality (Kaiser's rule). Columns come back ordered by the variance they carry,
    the largest absolute loading of each positive. The fit of the model does not change: $AR(AR)^\top = AA^\top$.

    Cost: $dp^2 + p^3$ per step. Reference: Kaiser (1958); Jolliffe (2002), section 11.1.

    >>> mixed = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]) @ jnp.array([[0.6, 0.8], [-0.8, 0.6]])
    >>> (varimax(mixed).loadings > 0.5).astype(int).tolist()
    [[1, 0], [1, 0], [0, 1]]
    """
    length = jnp.sqrt(jnp.sum(loadings**2, axis=1, keepdims=True))
    unit = jnp.where(length > 0, length, 1) if normalize else jnp.ones_like(length)
    scaled = loadings / unit
    rtol = 8 * jnp.finfo(loadings.dtype).eps if tol is None else tol

    shift = 3 * jnp.linalg.norm(scaled, ord=2) ** 2 / scaled.shape[0]

    def ascend(search: _Search) -> _Search:
        turned = matmul(scaled, search.matrix)
        weight = turned**2 - jnp.mean(turned**2, axis=0)[None, :] + shift
        left, _, right = jnp.linalg.svd(matmul(scaled.T, turned * weight))
        found = matmul(left, right)
        value = jnp.sum(jnp.var(matmul(scaled, found) ** 2, axis=0))
        return _Search(found, value, value - search.value, search.steps + 1)

    def climbing(search: _Search):
        return (search.steps < max_steps) & (search.gain > rtol * search.value)

    zero = jnp.zeros((), loadings.dtype)
    start = _Search(jnp.eye(loadings.shape[1], dtype=loadings.dtype), zero, zero, jnp.zeros((), jnp.int32))
    found = jax.lax.while_loop(climbing, ascend, ascend(start)).matrix
    return _ordered(matmul(loadings, found), found)


def _ordered(loadings: Array, matrix: Array) -> Rotation:
    order = jnp.argsort(-jnp.sum(loadings**2, axis=0))
    loadings, matrix = loadings[:, order], matrix[:, order]
    tallest = jnp.take_along_axis(loadings, jnp.argmax(jnp.abs(loadings), axis=0)[None, :], axis=0)
    sign = jnp.where(tallest < 0, -1, 1).astype(loadings.dtype)
    return Rotation(loadings * sign, matrix * sign)
