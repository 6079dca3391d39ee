"""Linear regression with Gaussian noise: what the conditional families of every noise structure share."""

from abc import abstractmethod
from typing import Any, NamedTuple, NoReturn, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._constraint import Constraint, above, diagonal_matrix, only, positive
from .._distribution import AbstractFamily
from .._linalg import cho_solve, cholesky, made_definite, matmul
from .._special import missing_in_batch
from .._typing import PRNGKey, Scalar
from .._validate import check_finite, check_rank, check_shape
from ..inference.blocks import pooled
from .multivariate_normal import impute

# events that hold a conditional covariance each at the same time
_IMPUTED_BLOCK = 512


class RegressionMoments(NamedTuple):
    r"""Weighted moments of $\tilde x = (x, 1)$ and of the residual $r = y - Ax - b$ of the member that accumulated
    them.

    $\sum w\tilde x\tilde x^\top$ (its last entry is $\sum w$), $\sum w\,r\tilde x^\top$, and of $\sum w\,rr^\top$ what
    the noise needs: all of it, its diagonal, or its trace.
    """

    design: Array
    cross: Array
    residual: Array


class UncertainPairs(NamedTuple):
    r"""n pairs $(x, y)$ that are known up to a Gaussian: means, and covariances summed over the pairs.

    Accepted by `statistics` of every linear family in place of the tuple `(x, y)`; the statistics are then expected
    ones. That is all that EM asks when `x`, or `y`, or both, are latent. The covariances are pooled: already weighted
    and summed, $\sum_i w_i\,\mathrm{cov}(x_i)$ and so on, because statistics need no more.
    """

    x: Float[Array, "n p"]
    y: Float[Array, "n m"]
    xx: Float[Array, "p p"]
    yx: Float[Array, "m p"]
    yy: Float[Array, "m m"]


class AbstractLinear(AbstractFamily):
    r"""$p(y \mid x) = N(y \mid Ax + b, \Sigma)$ with some structure of $\Sigma$. A datum is the pair `(x, y)`.

    A structure says which part of $\sum rr^\top$ it needs (`contract`), how missing entries are filled in, and how its
    noise is renewed; least squares and expected statistics are written once, here.
    """

    matrix: eqx.AbstractVar[Array]
    offset: eqx.AbstractVar[Array]

    @abstractmethod
    def given(self, x: Float[Array, "p"]) -> Any:
        """The distribution of `y` at this `x`."""

    @abstractmethod
    def noise(self, key: PRNGKey) -> Float[Array, "m"]:
        """One draw of $y - Ax - b$; exactly zero in rows without noise."""

    @abstractmethod
    def contract(self, a: Float[Array, "m q"], b: Float[Array, "m q"]) -> Array:
        r"""The part of $ab^\top$ that the noise needs: the matrix, its diagonal, or its trace."""

    @abstractmethod
    def fill(self, residual: Float[Array, "n m"], weights: Float[Array, "n"]) -> tuple[Array, Array]:
        """Residuals with their missing (NaN) entries at conditional means, and the pooled covariance of these."""

    @abstractmethod
    def change(self, stats: RegressionMoments) -> Float[Array, "m q"]:
        """What least squares adds to $[A, b]$."""

    @abstractmethod
    def renewed(self, matrix: Array, offset: Array, spread: Array) -> Self:
        """The member with these coefficients, and its noise from the mean (contracted) square of residuals."""

    @abstractmethod
    def score(self, stats: RegressionMoments) -> Scalar:
        """Expected log-likelihood of the events whose statistics this member accumulated."""

    def mean_at(self, x: Float[Array, "p"]) -> Float[Array, "m"]:
        """$Ax + b$."""
        return matmul(self.matrix, x) + self.offset

    def sample_given(self, key: PRNGKey, x: Float[Array, "p"]) -> Float[Array, "m"]:
        """One `y` at this `x`, also where some rows have no noise."""
        return self.mean_at(x) + self.noise(key)

    def sample(self, key: PRNGKey) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"{name} does not model x, so no (x, y) can be drawn; use sample_given(key, x).")

    def validate(self, xs) -> None:
        check_pairs(xs, self.matrix.shape)

    def statistics(
        self, xs: tuple[Float[Array, "n p"], Float[Array, "n m"]] | UncertainPairs, weights: Float[Array, "n"]
    ) -> RegressionMoments:
        """Moments of the residuals around this member's line, expected ones for `UncertainPairs`.

        A missing entry of `y` counts with its conditional mean and covariance under this member: one step of EM. Rows
        with a missing entry of `x` are dropped.
        """
        if isinstance(xs, UncertainPairs):
            known = _moments(self, xs.x, xs.y, weights)
            return jax.tree_util.tree_map(jnp.add, known, _of_covariances(self, xs))
        x, y = xs
        complete = ~jnp.any(jnp.isnan(x), axis=1)
        weights = jnp.where(complete, weights, 0)
        return _moments(self, jnp.where(complete[:, None], x, 0), y, weights)

    def refit(self, stats: RegressionMoments) -> Self:
        """Least squares and the mean square of its residuals: the exact maximum of the expected likelihood."""
        count = stats.design[-1, -1]
        empty = count == 0
        change = self.change(stats)
        # the residuals' scatter around the *new* line, a sum of squares whatever the accuracy of the solve
        cross = self.contract(change, stats.cross) + self.contract(stats.cross, change)
        scatter = stats.residual - cross + self.contract(matmul(change, stats.design), change)
        matrix, offset = self.matrix + change[:, :-1], self.offset + change[:, -1]
        new = self.renewed(matrix, offset, scatter / jnp.where(empty, 1, count))
        return jax.tree_util.tree_map(lambda a, b: jnp.where(empty, b, a), new, self)


def _moments(member: AbstractLinear, x: Array, y: Array, weights: Array) -> RegressionMoments:
    residual = y - matmul(x, member.matrix.T) - member.offset[None, :]
    residual, spread = member.fill(residual, weights)
    design = jnp.concatenate([x, jnp.ones((x.shape[0], 1), x.dtype)], axis=1)
    weighted = weights[:, None] * design
    squares = member.contract((weights[:, None] * residual).T, residual.T) + member.contract(spread, _eye(spread))
    return RegressionMoments(matmul(weighted.T, design), matmul(residual.T, weighted), squares)


def _of_covariances(member: AbstractLinear, pairs: UncertainPairs) -> RegressionMoments:
    """What uncertainty adds: the moments of $(x, r)$ by way of $r = y - Ax$."""
    a = member.matrix
    moved = matmul(a, pairs.xx)
    both = matmul(a, pairs.yx.T)
    spread = pairs.yy - both - both.T + matmul(moved, a.T)
    side = ((0, 0), (0, 1))
    return RegressionMoments(
        jnp.pad(pairs.xx, ((0, 1), (0, 1))),
        jnp.pad(pairs.yx - moved, side),
        member.contract(spread, _eye(spread)),
    )


def _eye(a: Array) -> Array:
    return jnp.eye(a.shape[0], dtype=a.dtype)


def least_squares(stats: RegressionMoments, free: Bool[Array, "m q"] | None = None) -> Float[Array, "m q"]:
    """The change of $[A, b]$ that minimizes the squared residuals; entries that are not `free` stay (row by row)."""
    design, cross = stats.design, stats.cross
    eye = jnp.eye(design.shape[0], dtype=design.dtype)
    design = jnp.where(design[-1, -1] == 0, eye, design)
    if free is None:
        return cho_solve(cholesky(design).factor, cross.T).T

    def row(design, cross, free):
        inner = jnp.where(free[:, None] & free[None, :], design, eye)
        return jnp.where(free, cho_solve(cholesky(inner).factor, jnp.where(free, cross, 0)), 0)

    return jax.vmap(row, in_axes=(None, 0, 0))(design, cross, free)


def fill_independent(variance: Float[Array, "m"], residual: Float[Array, "n m"], weights: Float[Array, "n"]):
    """`fill` for independent rows: a missing residual has mean zero and the noise's own variance."""
    missing = jnp.isnan(residual)
    unseen = matmul(weights, missing.astype(weights.dtype))
    return jnp.where(missing, 0, residual), diagonal_matrix(unseen * variance)


def fill_dense(covariance: Float[Array, "m m"], residual: Float[Array, "n m"], weights: Float[Array, "n"]):
    """`fill` for correlated rows: missing residuals given the others of the same event."""

    def careful(covariance, residual, weights):
        covariance = made_definite(covariance)
        zero = jnp.zeros_like(covariance[0])
        one = jax.vmap(lambda r: impute(zero, covariance, r))
        spread = pooled(lambda r, w: jnp.tensordot(w, one(r)[1], 1), residual, weights, _IMPUTED_BLOCK)
        return jax.vmap(lambda r: impute(zero, covariance, r)[0])(residual), spread

    plain = lambda covariance, residual, weights: (residual, jnp.zeros_like(covariance))
    return jax.lax.cond(missing_in_batch(residual), careful, plain, covariance, residual, weights)


def spread_scale(spread: Array, old: Array, floor: Array | None) -> Array:
    """A standard deviation from a mean square, above its floor; one that was exactly zero stays so."""
    positive = spread > 0
    scale = jnp.where(positive, jnp.sqrt(jnp.where(positive, spread, 1)), 0)
    scale = scale if floor is None else jnp.maximum(scale, jnp.sqrt(floor))
    return jnp.where(old == 0, 0, scale)


def scale_domain(member: Any) -> Constraint:
    """Where a standard deviation may move: above its floor; one that is exactly zero may not."""
    domain = positive if member.floor is None else above(jnp.sqrt(member.floor))
    return only(domain, member.scale != 0)


def check_line(matrix: Array, offset: Array) -> None:
    """Raise `ValueError` unless the coefficients are a matrix (m, p) and a vector (m,)."""
    check_rank("matrix", matrix, 2, "a matrix (m, p)")
    check_shape("offset", offset, (matrix.shape[0],))


def as_mask(free: Any) -> Array | None:
    """A mask of coefficients as a boolean array; anything else is refused."""
    if free is None:
        return None
    free = jnp.asarray(free)
    if free.dtype != bool:
        raise TypeError(f"free must be a boolean mask; got {free.dtype}.")
    return free


def check_pairs(xs, shape: tuple[int, int]) -> None:
    """Raise `ValueError` unless `xs` is a pair of arrays (n, p) and (n, m); NaN is allowed in the second only."""
    m, p = shape
    if not isinstance(xs, tuple) or len(xs) != 2:
        raise ValueError(f"data must be a tuple (x, y); got {type(xs).__name__}.")
    for name, value, size in (("x", xs[0], p), ("y", xs[1], m)):
        check_rank(name, value, 2, f"(n, {size})")
        check_shape(name, value, (value.shape[0], size))
    check_finite("x", xs[0], nan=False)
    check_finite("y", xs[1])
