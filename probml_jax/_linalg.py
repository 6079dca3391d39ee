"""Factorizations that report instead of failing in silence."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._lapack import cholesky_factor, factor_tangent, plain_cholesky, solve_triangular
from ._special import any_in_batch

_MAX_TRIES = 12


class Cholesky(NamedTuple):
    """A lower factor and the jitter that was added to the diagonal to obtain it.

    `jitter` is 0 when the matrix was positive definite as given and NaN when no reasonable jitter
    helped (then the factor is NaN too).
    """

    factor: Float[Array, "d d"]
    jitter: Float[Array, ""]

    @property
    def helped(self) -> Array:
        return ~(self.jitter == 0)


@jax.custom_jvp
def _factor(a):
    """Cholesky, retried with a jitter that grows tenfold from the resolution of the matrix's scale."""
    eye = jnp.eye(a.shape[-1], dtype=a.dtype)
    a = 0.5 * (a + a.T)
    smallest = 4 * a.shape[-1] * jnp.finfo(a.dtype).eps * jnp.mean(jnp.abs(jnp.diagonal(a)))

    def failed(carry):
        factor, _, tries = carry
        return ~jnp.all(jnp.isfinite(factor)) & (tries < _MAX_TRIES)

    def retry(carry):
        _, _, tries = carry
        jitter = smallest * 10.0 ** tries.astype(a.dtype)
        # a jitter as large as the matrix itself would be an invention, not a repair
        return plain_cholesky(a + jitter * eye), jitter, tries + 1

    start = (plain_cholesky(a), jnp.zeros((), a.dtype), jnp.zeros((), jnp.int32))
    factor, jitter, _ = jax.lax.while_loop(failed, retry, start)
    hopeless = ~jnp.all(jnp.isfinite(factor)) | (jitter > 0.1 * jnp.mean(jnp.abs(jnp.diagonal(a))))
    nan = jnp.asarray(jnp.nan, a.dtype)
    return jnp.where(hopeless, nan, factor), jnp.where(hopeless, nan, jitter)


@_factor.defjvp
def _factor_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    factor, jitter = _factor(a)
    return (factor, jitter), (factor_tangent(factor, da), jnp.zeros_like(jitter))


def cholesky(a: Float[Array, "d d"]) -> Cholesky:
    r"""Lower Cholesky factor of a symmetric matrix, with a status.

    A matrix that is singular to working precision is helped by the smallest jitter $\epsilon I$
    (relative to its mean diagonal, growing tenfold) that makes it factorizable. The jitter is a
    constant to differentiation. Nothing raises: an indefinite matrix gives NaN.

    Cost: one factorization, $d^3/3$ flops, when no help is needed, also under `vmap`.

    >>> cholesky(jnp.array([[4.0, 2.0], [2.0, 1.0]])).helped
    Array(True, dtype=bool)
    """
    return Cholesky(*_factor(a))


def is_positive_definite(a: Float[Array, "d d"]) -> Array:
    """Whether a symmetric matrix has a Cholesky factor as it stands."""
    return jnp.all(jnp.isfinite(plain_cholesky(jax.lax.stop_gradient(a))))


def made_definite(a: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The matrix with the jitter that `cholesky` would give it: its principal submatrices then have factors too."""
    return a + cholesky(a).jitter * jnp.eye(a.shape[-1], dtype=a.dtype)


def observed_factor(a: Float[Array, "d d"], seen: Array) -> Float[Array, "d d"]:
    """Cholesky factor of the block of observed coordinates, with ones on the diagonal elsewhere."""
    both = seen[:, None] & seen[None, :]
    return cholesky_factor(jnp.where(both, a, jnp.eye(a.shape[-1], dtype=a.dtype)))


def inverse_factor(a: Float[Array, "d d"]) -> Float[Array, "d d"]:
    r"""$L^{-1}$ with $a = LL^\top$: whitens with one matrix product per event."""
    return inverse_triangular(cholesky(a).factor)


def log_det(factor: Float[Array, "d d"]) -> Float[Array, ""]:
    r"""$\log|LL^\top|$ from the factor."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))


def cho_solve(factor: Float[Array, "d d"], b: Array) -> Array:
    r"""$(LL^\top)^{-1} b$."""
    return solve_triangular(factor, solve_triangular(factor, b, lower=True), lower=True, trans=1)


def inv_psd(a: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Inverse of a symmetric positive-definite matrix, exactly symmetric."""
    whiten = inverse_factor(a)
    return whiten.T @ whiten


def clip_eigenvalues(a: Float[Array, "d d"], floor: Float[Array, "d"]) -> Float[Array, "d d"]:
    r"""The nearest matrix with $a \succeq \mathrm{diag}(f)$, by clipping in units of the floor.

    It is the maximizer of the Gaussian likelihood under that constraint, so EM stays monotone.
    Where the matrix is above its floor already it is returned untouched, gradients included.
    """
    above = is_positive_definite(a - jnp.diag(floor))
    # rare: under vmap the eigenvalues are computed only if some member of the batch needs them
    return jax.lax.cond(any_in_batch(~above), _clip, lambda a, floor: a, a, floor)


def _clip(a, floor):
    root = jnp.sqrt(floor)
    scaled = jax.lax.stop_gradient(a / (root[:, None] * root[None, :]))
    values, vectors = jnp.linalg.eigh(0.5 * (scaled + scaled.T))
    clipped = (vectors * jnp.maximum(values, 1.0)[None, :]) @ vectors.T
    clipped = 0.5 * (clipped + clipped.T) * root[:, None] * root[None, :]
    return jnp.where(jnp.all(values >= 1.0), a, clipped)


def symmetric(a: Float[Array, "d d"]) -> Float[Array, "d d"]:
    return 0.5 * (a + a.T)


def matmul(a: Array, b: Array) -> Array:
    """Matrix product at full precision on every device (accelerators default to less)."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


_LEAF, _GRAM_LEAF = 32, 256


@jax.custom_jvp
def inverse_triangular(factor: Float[Array, "d d"]) -> Float[Array, "d d"]:
    r"""$L^{-1}$ of a lower triangular matrix: small diagonal blocks by substitution, all at once, then pairs of
    neighbors joined by matrix products until one is left.

    No LAPACK: its library runs threads of its own, which on a busy machine wait for those of XLA; a product does not.
    Cost: about $d^3/3$ multiplications.
    """
    d = factor.shape[0]
    if d <= _LEAF:
        return _substituted(factor[None])[0]
    size = _LEAF
    while size < d:
        size *= 2
    eye = jnp.eye(size, dtype=factor.dtype)
    whole = eye.at[:d, :d].set(jnp.tril(factor))
    # blocks on the diagonal of a matrix cut into squares
    diagonal = lambda b: jax.vmap(lambda i: jax.lax.dynamic_slice(whole, (i, i), (b, b)))(jnp.arange(0, size, b))
    found, b = _substituted(diagonal(_LEAF)), _LEAF
    while b < size:
        first, last = found[0::2], found[1::2]
        below = -matmul(last, matmul(diagonal(2 * b)[:, b:, :b], first))
        above = jnp.zeros_like(below)
        found = jnp.concatenate([jnp.concatenate([first, above], 2), jnp.concatenate([below, last], 2)], 1)
        b *= 2
    return found[0, :d, :d]


@inverse_triangular.defjvp
def _inverse_triangular_jvp(primals, tangents):
    inverse = inverse_triangular(primals[0])
    return inverse, -matmul(matmul(inverse, jnp.tril(tangents[0])), inverse)


def _substituted(blocks: Float[Array, "m b b"]) -> Float[Array, "m b b"]:
    """Inverses of small lower triangular matrices, row by row."""
    size = blocks.shape[1]
    eye = jnp.eye(size, dtype=blocks.dtype)

    def row(i, found):
        # rows that are still to come are zero, so what is above the diagonal does not matter
        known = jnp.einsum("mj,mjk->mk", blocks[:, i], found, precision="highest")
        return found.at[:, i].set((eye[i][None] - known) / blocks[:, i, i][:, None])

    return jax.lax.fori_loop(0, size, row, jnp.zeros_like(blocks))


def gram_of_triangular(lower: Float[Array, "d d"]) -> Float[Array, "d d"]:
    r"""$X^\top X$ of a lower triangular matrix, exactly symmetric; with $X = L^{-1}$ it is $(LL^\top)^{-1}$."""
    d = lower.shape[0]
    if d <= _GRAM_LEAF:
        return symmetric(matmul(lower.T, lower))
    h = d // 2
    below, last = lower[h:, :h], lower[h:, h:]
    across = matmul(last.T, below)
    return _quarters(
        gram_of_triangular(lower[:h, :h]) + symmetric(matmul(below.T, below)),
        across.T,
        across,
        gram_of_triangular(last),
    )


def _quarters(a: Array, b: Array, c: Array, d: Array) -> Array:
    return jnp.concatenate([jnp.concatenate([a, b], axis=1), jnp.concatenate([c, d], axis=1)])
