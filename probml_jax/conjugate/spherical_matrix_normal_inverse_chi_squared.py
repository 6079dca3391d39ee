"""The prior of a linear regression with one noise variance for all rows."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from .._constraint import param, positive, positive_definite, real
from .._typing import PRNGKey, Scalar
from .._validate import check_above, check_positive, check_shape, common_dtype
from ..distributions.inverse_gamma import InverseGamma
from ..distributions.linear_spherical_normal import LinearSphericalNormal
from ..distributions.linear_student_t import LinearStudentT
from ..distributions.regression import RegressionMoments
from .matrix_normal_inverse_chi_squared import draw_line
from .regression import AbstractRegressionPrior, all_free, check_line_prior


class SphericalMatrixNormalInverseChiSquared(AbstractRegressionPrior):
    r"""Bayesian linear regression with one noise variance: $y_i \sim N(Ax_i, vI)$, $v \sim
    \text{Scaled-Inv-}\chi^2(\nu, \sigma^2)$, rows $a_j \mid v \sim N(m_j, vK^{-1})$.

    Like `MatrixNormalInverseChiSquared`, but every one of the $m$ coordinates of an event tells of the same $v$:
    $\nu_n = \nu + nm$. `scale` is the *squared* scale $\sigma^2$. The joint mode is $(M, \nu\sigma^2/(\nu+mp+2))$;
    `mean()` exists for $\nu > 2$: below it raises `ValueError`, and the scale is infinite in compiled code. Incomplete
    rows raise in `update` and `log_evidence`; a member with a mask of free coefficients, or with `directions`, raises
    `ValueError`.

    Cost: $n(mp + p^2) + p^3$. Reference: Murphy (2022), section 11.7.

    >>> prior = SphericalMatrixNormalInverseChiSquared(jnp.zeros((1, 1)), jnp.eye(1), df=3.0, scale=1.0)
    >>> prior.update((jnp.array([[1.0], [2.0]]), jnp.array([[3.0], [6.0]]))).mean().matrix.tolist()
    [[2.5]]
    """

    loc: Float[Array, "m p"] = param(real)
    column_precision: Float[Array, "p p"] = param(positive_definite)
    df: Float[Array, ""] = param(positive)
    scale: Float[Array, ""] = param(positive)
    intercept: bool = eqx.field(static=True, default=False)

    def __init__(self, loc: Any, column_precision: Any, df: Any, scale: Any, intercept: bool = False):
        self.loc, self.column_precision, self.df, self.scale = common_dtype(
            loc=loc, column_precision=column_precision, df=df, scale=scale
        )
        self.intercept = intercept

    def __check_init__(self):
        check_line_prior(self.loc, self.column_precision)
        check_shape("df", self.df, ())
        check_shape("scale", self.scale, ())
        check_positive("df", self.df)
        check_positive("scale", self.scale)

    @property
    def variance(self) -> InverseGamma:
        """The prior over the variance."""
        return InverseGamma(0.5 * self.df, 0.5 * self.df * self.scale)

    def member(self, matrix: Array, noise: Array) -> LinearSphericalNormal:
        return LinearSphericalNormal(*self.line(matrix), jnp.sqrt(noise))

    def absorb(self, stats: RegressionMoments, around: LinearSphericalNormal) -> Self:
        line = self.learned(stats, _plain(around))
        df = self.df + self.loc.shape[0] * stats.design[-1, -1]
        scale = (self.df * self.scale + line.scatter) / df
        return SphericalMatrixNormalInverseChiSquared(line.loc, line.column_precision, df, scale, self.intercept)

    def expected(self) -> tuple[LinearSphericalNormal, Scalar]:
        """The member at the expected natural parameters, and the constant at $x = 0$: see `expected_log_prob`."""
        constant = digamma(0.5 * self.df) - jnp.log(0.5 * self.df)
        return self.interior(), 0.5 * self.loc.shape[0] * constant

    def expected_log_prob(self, x: tuple[Float[Array, "q"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x, E\eta)$ plus the constant, less $\tfrac m2 x^\top K^{-1}x$.

        Missing entries of `y` are latent variables at their variational optimum: they pay the constant too.
        """
        member, constant = self.expected()
        return member.log_prob(x) + constant - 0.5 * self.loc.shape[0] * self.spread_at(x[0])

    def interior(self) -> LinearSphericalNormal:
        return self.member(self.loc, self.scale)

    def mode(self) -> LinearSphericalNormal:
        return self.member(self.loc, self.df * self.scale / (self.df + self.loc.size + 2))

    def mean(self) -> LinearSphericalNormal:
        check_above("df", self.df, 2)
        return self.member(self.loc, self.variance.mean())

    def sample(self, key: PRNGKey) -> LinearSphericalNormal:
        first, second = jr.split(key)
        v = self.variance.sample(first)
        return self.member(self.loc + draw_line(second, self, v), v)

    def predictive(self) -> LinearStudentT:
        """A conditional Student-t: `predictive().given(x)` is the distribution of `y`, `log_prob((x, y))` its score."""
        line = self.interior()
        return LinearStudentT(self.df, line.matrix, line.offset, line.covariance, self.input_covariance())

    def log_prob(self, member: LinearSphericalNormal) -> Scalar:
        """Log density; without an intercept the member's offset is taken to be zero, as `mode` and `sample` give it."""
        v = _plain(member).scale ** 2
        return self.variance.log_prob(v) + self.line_log_prob(member, v)

    def kl(self, other: Self) -> Scalar:
        each = jnp.broadcast_to(1 / self.scale, self.loc.shape[:1])
        return self.variance.kl(other.variance) + self.line_kl(other, each)


def _plain(member: LinearSphericalNormal) -> LinearSphericalNormal:
    if member.directions is not None:
        raise ValueError("a prior of a regression whose noise has directions is not of this form; use an ML leaf.")
    return all_free(member)
