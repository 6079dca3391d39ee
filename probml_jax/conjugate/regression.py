"""What the priors of linear regression share: the line, its posterior, and what is uncertain at an input."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._conjugate import AbstractConjugatePrior
from .._lapack import solve_triangular
from .._linalg import cho_solve, cholesky, inv_psd, log_det, matmul, symmetric
from .._special import LOG_2PI
from .._typing import Scalar
from .._validate import check_positive_definite, check_rank, check_shape
from ..distributions.regression import AbstractLinear, RegressionMoments


class Line(NamedTuple):
    """What data say of a line: its posterior mean and precision, and the scatter around it and the prior's line."""

    loc: Array
    column_precision: Array
    scatter: Array


class AbstractRegressionPrior(AbstractConjugatePrior):
    r"""A prior of $[A]$, or of $[A, b]$ with an `intercept`, whose rows have the precision $K$ in units of the noise.

    A subclass says what the noise is.
    """

    complete_events_only: ClassVar[bool] = True

    loc: eqx.AbstractVar[Array]
    column_precision: eqx.AbstractVar[Array]
    intercept: eqx.AbstractVar[bool]

    @abstractmethod
    def member(self, matrix: Array, noise: Array) -> AbstractLinear:
        """The member with these coefficients (the last column is the offset, with an intercept) and this noise."""

    def line(self, matrix: Array) -> tuple[Array, Array]:
        """Coefficients as a matrix and an offset, which is zero without an intercept."""
        return (matrix[:, :-1], matrix[:, -1]) if self.intercept else (matrix, jnp.zeros_like(matrix[:, 0]))

    def coefficients(self, member: AbstractLinear) -> Array:
        """The inverse of `line`; without an intercept the member's offset is taken to be zero."""
        return jnp.concatenate([member.matrix, member.offset[:, None]], axis=1) if self.intercept else member.matrix

    def spread_at(self, x: Float[Array, "q"]) -> Scalar:
        r"""$\tilde x^\top K^{-1}\tilde x$: how uncertain the line is at an input, in units of the noise variance."""
        inputs = jnp.append(x, 1) if self.intercept else x
        root = solve_triangular(cholesky(self.column_precision).factor, inputs, lower=True)
        return jnp.sum(root * root)

    def input_covariance(self) -> Array:
        r"""$K^{-1}$ of $(x, 1)$, with zeros for an offset that is known to be zero."""
        spread = inv_psd(self.column_precision)
        return spread if self.intercept else jnp.pad(spread, ((0, 1), (0, 1)))

    def learned(self, stats: RegressionMoments, around: AbstractLinear) -> Line:
        """The posterior of the line. The scatter is contracted as the member's noise asks."""
        design, cross, residual = stats if self.intercept else _without_offset(stats, around)
        line = self.coefficients(around)
        prior = self.loc - line
        precision = symmetric(self.column_precision + design)
        change = cho_solve(cholesky(precision).factor, (matmul(prior, self.column_precision) + cross).T).T
        # sums of squares around the new line and of its distance from the prior's: nothing large cancels
        both = around.contract(change, cross) + around.contract(cross, change)
        scatter = residual - both + around.contract(matmul(change, design), change)
        pull = around.contract(matmul(change - prior, self.column_precision), change - prior)
        return Line(line + change, precision, scatter + pull)

    def line_log_prob(self, member: AbstractLinear, variance: Array) -> Scalar:
        r"""$\log p(A \mid v)$ for rows with noise variances $v$ (one for all, or one each)."""
        m, p = self.loc.shape
        away = self.coefficients(member) - self.loc
        squares = member.contract(matmul(away, self.column_precision), away)
        logs = jnp.sum(jnp.broadcast_to(LOG_2PI + jnp.log(variance), (m,)))
        return 0.5 * (m * log_det(cholesky(self.column_precision).factor) - p * logs - jnp.sum(squares / variance))

    def line_kl(self, other: Any, squares: Array) -> Scalar:
        r"""$E\,KL$ of the lines given the noise; `squares` is $E[1/v]$ of each row."""
        m, p = self.loc.shape
        ours, theirs = cholesky(self.column_precision).factor, cholesky(other.column_precision).factor
        spread = m * (jnp.sum(solve_triangular(ours, theirs, lower=True) ** 2) - p + log_det(ours) - log_det(theirs))
        shift = matmul(self.loc - other.loc, theirs)
        return 0.5 * (spread + jnp.sum(squares * jnp.sum(shift**2, axis=1)))


def _without_offset(stats: RegressionMoments, around: AbstractLinear) -> RegressionMoments:
    """The same statistics as if they had been accumulated by a member whose offset is zero."""
    total, count, offset = stats.cross[:, -1:], stats.design[-1, -1], around.offset[:, None]
    both = around.contract(total, offset) + around.contract(offset, total)
    return RegressionMoments(
        stats.design[:-1, :-1],
        stats.cross[:, :-1] + matmul(offset, stats.design[-1:, :-1]),
        stats.residual + both + count * around.contract(offset, offset),
    )


def check_line_prior(loc: Array, column_precision: Array) -> None:
    """Raise `ValueError` naming the hyper-parameter of the line that is wrong."""
    check_rank("loc", loc, 2, "a matrix (m, p)")
    check_shape("column_precision", column_precision, (loc.shape[1], loc.shape[1]))
    check_positive_definite("column_precision", column_precision)


def all_free(member: Any) -> Any:
    """The member, unless some of its coefficients are known: these priors are of all of them."""
    if member.free is not None:
        raise ValueError(
            "MAP and Bayes learn every coefficient: a prior of the others given those that are known is not of this "
            "form. Use free=None, or an ML leaf."
        )
    return member
