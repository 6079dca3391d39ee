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
    loadings: Float[Array, "d p"], *, normalize: bool = True, max_steps: int = 200, tol: float | None = None
) -> Rotation:
    r"""The rotation that maximizes $\sum_k \mathrm{var}_j(\ell_{jk}^2)$: every factor loads on few features.

    Iterates $R \leftarrow UV^\top$ with $U\Sigma V^\top = A^\top(L^3 - L\,\mathrm{diag}(\bar{L^2}))$, $L = AR$, until
    the criterion gains less than `tol` of itself (default: eight units of resolution). With `normalize` features
    count equally whatever their communality (Kaiser's rule). Columns come back ordered by the variance they carry,
    the largest absolute loading of each positive. The fit of the model does not change: $AR(AR)^\top = AA^\top$.

    Cost: $dp^2 + p^3$ per step. Reference: Kaiser (1958); Jolliffe (2002), section 11.1.

    >>> mixed = jnp.array([[0.7, 0.7], [0.7, -0.7]])
    >>> jnp.abs(varimax(mixed).loadings).round(2).tolist()
    [[0.99..., 0.0], [0.0, 0.99...]]
    """
    length = jnp.sqrt(jnp.sum(loadings**2, axis=1, keepdims=True))
    unit = jnp.where(length > 0, length, 1) if normalize else jnp.ones_like(length)
    scaled = loadings / unit
    rtol = 8 * jnp.finfo(loadings.dtype).eps if tol is None else tol

    def ascend(search: _Search) -> _Search:
        turned = matmul(scaled, search.matrix)
        mean_square = jnp.mean(turned**2, axis=0)
        left, values, right = jnp.linalg.svd(matmul(scaled.T, turned**3 - turned * mean_square[None, :]))
        value = jnp.sum(values)
        return _Search(matmul(left, right), value, value - search.value, search.steps + 1)

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
