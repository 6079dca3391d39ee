"""Principal component analysis: the directions in which data vary most."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._linalg import matmul
from .._special import middle
from .._typing import PRNGKey, Scalar
from .._validate import as_data, as_float, as_weights, check_finite, check_rank, check_shape, is_concrete
from ..inference.subspace import leading_rows
from .moments import check_size, weighted_moments

_METHODS = ("auto", "svd", "eigen", "randomized")
_OVERSAMPLES, _ITERATIONS = 10, 7


class PCA(eqx.Module):
    r"""Orthonormal directions $u_1, \dots, u_k$ of largest variance: $z = U(x - \bar x)$, $\hat x = \bar x + U^\top z$.

    `components (k, d)` has orthonormal rows, the largest absolute entry of each positive, by decreasing
    `explained_variance` (divisor $n - 1$); `noise_variance` is the mean variance of the directions left out. A pytree
    with nothing to train: make one by `PCA.from_data`.

    Reference: Bishop (2006), section 12.1; Murphy (2022), section 20.1.

    >>> xs = jnp.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.1]])
    >>> pca = PCA.from_data(xs, num_components=1)
    >>> round(float(pca.explained_variance_ratio[0]), 4)
    1.0
    """

    mean: Float[Array, "d"]
    components: Float[Array, "k d"]
    explained_variance: Float[Array, "k"]
    explained_variance_ratio: Float[Array, "k"]
    singular_values: Float[Array, "k"]
    noise_variance: Float[Array, ""]

    @classmethod
    def from_data(
        cls,
        xs: Any,
        num_components: int,
        *,
        method: str = "auto",
        key: PRNGKey | None = None,
        weights: Any = None,
    ) -> Self:
        r"""The leading components of `xs (n, d)`.

        - `method`: "eigen" of the covariance (of the $n \times n$ products of events when $d > n$): quickest, and exact
          to the square root of resolution in components that are tiny against the first; "svd" of the data: exact in
          all; "randomized" subspace iteration, for a few components of large matrices, wants a `key`. "auto" takes
          "eigen" where one side of `xs` is four times the other and at most half of the components are wanted, and
          "svd" otherwise.
        - `weights`: real sample weights `(n,)`; a whole weight is a repetition.

        NaN entries raise `ValueError`: `PPCA` integrates them out. So do infinities, and `num_components` above
        $\min(n, d)$. Cost: $nd^2 + d^3$ (eigen), $nd\min(n, d)$ (svd), $ndk$ (randomized).
        """
        if method not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(_METHODS)}; got {method!r}.")
        xs = as_float(jnp.asarray(xs) if isinstance(xs, list) else xs, "xs")
        check_rank("xs", xs, 2, "(n, d); one feature is xs[:, None]")
        check_size("num_components", num_components, xs)
        weights = None if weights is None else as_weights(weights, xs.shape[0], xs.dtype)
        if method == "randomized" and key is None:
            raise ValueError("method='randomized' draws random directions: a key is wanted, key=jr.key(0).")
        if method == "auto":
            less, more = sorted(xs.shape)
            method = "eigen" if more >= 4 * less and 2 * num_components <= less else "svd"
        found = _principal(xs, weights, num_components, method, key)
        _check_complete(found.mean, xs)
        return found

    @property
    def num_components(self) -> int:
        """How many directions are kept."""
        return self.components.shape[0]

    def transform(self, xs: Float[Array, "*n d"]) -> Float[Array, "*n k"]:
        """Coordinates of events (one, or any batch) along the components."""
        return _transform(self, xs)

    def inverse_transform(self, zs: Float[Array, "*n k"]) -> Float[Array, "*n d"]:
        """The events with these coordinates, in the subspace."""
        moved = matmul(zs, self.components)
        return moved + self.mean.reshape((1,) * (moved.ndim - 1) + self.mean.shape)

    def reconstruct(self, xs: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """The nearest points of the subspace."""
        return self.inverse_transform(self.transform(xs))

    def reconstruction_error(self, xs: Any, weights: Any = None) -> Scalar:
        r"""Mean of $\|x - \hat x\|^2$. On the training data it is $\frac{n-1}n$ times the variance left out."""
        xs = as_data(xs)
        check_shape("xs", xs, (xs.shape[0], self.mean.size))
        check_finite("xs", xs, nan=False)
        weights = as_weights(weights, xs.shape[0], self.mean.dtype)
        return _reconstruction_error(self, xs, weights)


@eqx.filter_jit
def _transform(pca: PCA, xs: Array) -> Array:
    return matmul(xs - pca.mean.reshape((1,) * (xs.ndim - 1) + pca.mean.shape), pca.components.T)


@eqx.filter_jit
def _reconstruction_error(pca: PCA, xs: Array, weights: Array) -> Scalar:
    return matmul(weights, jnp.sum((xs - pca.reconstruct(xs)) ** 2, axis=1)) / jnp.sum(weights)


def _check_complete(mean: Array, xs: Array) -> None:
    """Afterwards, because the mean tells without another pass over the data."""
    if is_concrete(mean) and not np.isfinite(np.asarray(mean)).all():
        check_finite("xs", xs)
        raise ValueError("xs has NaN entries. PCA wants complete rows; PPCA.from_data integrates missing ones out.")


@eqx.filter_jit
def _principal(xs: Array, weights: Array | None, num_components: int, method: str, key: PRNGKey | None) -> PCA:
    if method == "eigen" and xs.shape[1] <= xs.shape[0]:
        count, mean, scatter = weighted_moments(xs, weights)
        total, (values, components) = jnp.trace(scatter), _by_covariance(scatter, num_components)
    else:
        weights = jnp.ones(xs.shape[0], xs.dtype) if weights is None else weights
        count, mean = jnp.sum(weights), _mean(xs, weights)
        rows = jnp.sqrt(weights)[:, None] * (xs - mean[None, :])
        by = {"eigen": _by_products, "svd": _by_svd, "randomized": _by_chance}[method]
        total, (values, components) = jnp.sum(rows**2), by(rows, num_components, key)
    variance, total = values**2 / (count - 1), total / (count - 1)
    rest = min(xs.shape) - num_components
    noise = jnp.maximum(total - jnp.sum(variance), 0) / rest if rest else jnp.zeros_like(total)
    tallest = jnp.take_along_axis(components, jnp.argmax(jnp.abs(components), axis=1)[:, None], axis=1)
    components = jnp.where(tallest < 0, -components, components)
    ratio = variance / jnp.where(total > 0, total, 1)
    return PCA(mean, components, variance, ratio, values, noise)


def _by_svd(rows: Array, k: int, key: Any) -> tuple[Array, Array]:
    _, values, components = jnp.linalg.svd(rows, full_matrices=False)
    return values[:k], components[:k]


def _mean(xs: Array, weights: Array) -> Array:
    start = middle(xs)
    return start + matmul(weights, xs - start[None, :]) / jnp.sum(weights)


def _by_covariance(scatter: Array, k: int) -> tuple[Array, Array]:
    squares, vectors = jnp.linalg.eigh(scatter)
    return jnp.sqrt(jnp.maximum(squares[::-1][:k], 0)), vectors[:, ::-1][:, :k].T


def _by_products(rows: Array, k: int, key: Any) -> tuple[Array, Array]:
    """Fewer events than features: the products of events have the same nonzero eigenvalues."""
    values, vectors = _by_covariance(matmul(rows, rows.T), k)
    return values, matmul(vectors, rows) / jnp.where(values > 0, values, 1)[:, None]


def _by_chance(rows: Array, k: int, key: Any) -> tuple[Array, Array]:
    size = min(k + _OVERSAMPLES, *rows.shape)
    _, values, components = leading_rows(key, rows, size, _ITERATIONS)
    return values[:k], components[:k]
