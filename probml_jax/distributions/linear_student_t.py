"""The linear Student-t conditional distribution: the predictive of Bayesian linear regression."""

from typing import Any, NoReturn

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import param, positive, positive_definite, real
from .._distribution import AbstractDistribution
from .._typing import PRNGKey, Scalar
from .._validate import check_positive, check_positive_definite, check_rank, check_shape, common_dtype
from .multivariate_student_t import MultivariateStudentT


class LinearStudentT(AbstractDistribution):
    r"""$p(y \mid x) = t_\nu(y \mid Ax + b, (1 + \tilde x^\top C\tilde x)\,S)$ with $\tilde x = (x, 1)$. A datum is
    the pair `(x, y)`.

    The spread grows with the distance of `x` from the data that $C$ (the posterior covariance of the coefficients, in
    units of the noise) was learned from. `x` is given, not modelled: `sample(key)` raises `TypeError`; use
    `given(x).sample(key)`. Wrong shapes and values raise `ValueError`.

    Cost: $m^3 + p^2 + mp$ per datum. Reference: Murphy (2023), section 15.2.

    >>> dist = LinearStudentT(5.0, [[2.0]], [1.0], [[1.0]], jnp.eye(2))
    >>> dist.given(jnp.array([3.0])).scale_matrix.tolist()
    [[11.0]]
    """

    df: Float[Array, ""] = param(positive)
    matrix: Float[Array, "m p"] = param(real)
    offset: Float[Array, "m"] = param(real)
    scale_matrix: Float[Array, "m m"] = param(positive_definite)
    input_covariance: Float[Array, "p+1 p+1"]

    def __init__(self, df: Any, matrix: Any, offset: Any, scale_matrix: Any, input_covariance: Any):
        self.df, self.matrix, self.offset, self.scale_matrix, self.input_covariance = common_dtype(
            df=df, matrix=matrix, offset=offset, scale_matrix=scale_matrix, input_covariance=input_covariance
        )

    def __check_init__(self):
        check_rank("matrix", self.matrix, 2, "a matrix (m, p)")
        m, p = self.matrix.shape
        check_shape("df", self.df, ())
        check_positive("df", self.df)
        check_shape("offset", self.offset, (m,))
        check_shape("scale_matrix", self.scale_matrix, (m, m))
        check_positive_definite("scale_matrix", self.scale_matrix)
        check_shape("input_covariance", self.input_covariance, (p + 1, p + 1))
        check_positive_definite("input_covariance", self.input_covariance)

    def given(self, x: Float[Array, "p"]) -> MultivariateStudentT:
        """The distribution of `y` at this `x`."""
        design = jnp.append(x, 1)
        growth = 1 + design @ (self.input_covariance @ design)
        return MultivariateStudentT(self.df, self.matrix @ x + self.offset, growth * self.scale_matrix)

    def log_prob(self, x: tuple[Float[Array, "p"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x)$ of the pair `(x, y)`."""
        inputs, y = x
        return self.given(inputs).log_prob(y)

    def sample(self, key: PRNGKey) -> NoReturn:
        raise TypeError("LinearStudentT does not model x, so no (x, y) can be drawn; use given(x).sample(key).")
