"""Independent linear Student-t conditionals: the predictive of Bayesian regression with independent noise."""

from typing import Any, NoReturn

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import param, positive, real
from .._distribution import AbstractDistribution
from .._typing import PRNGKey, Scalar
from .._validate import check_positive, check_positive_definite, check_shape, common_dtype
from .regression import check_line
from .student_t import StudentT


class LinearIndependentStudentT(AbstractDistribution):
    r"""$p(y \mid x) = \prod_j t_{\nu_j}(y_j \mid a_j^\top x + b_j, (1 + \tilde x^\top C\tilde x)\,\sigma_j^2)$ with
    $\tilde x = (x, 1)$. A datum is the pair `(x, y)`.

    The spread grows with the distance of `x` from the data that $C$ (the posterior covariance of the coefficients, in
    units of the noise) was learned from. NaN entries of `y` score 0. `x` is given, not modelled: `sample(key)` raises
    `TypeError`; use `given(x).sample(key)`. Wrong shapes and values raise `ValueError`.

    Cost: $p^2 + mp$ per datum. Reference: Murphy (2022), section 11.7.

    >>> dist = LinearIndependentStudentT([5.0], [[2.0]], [1.0], [1.0], jnp.eye(2))
    >>> dist.given(jnp.array([7.0])).loc.tolist()
    [15.0]
    """

    df: Float[Array, "m"] = param(positive)
    matrix: Float[Array, "m p"] = param(real)
    offset: Float[Array, "m"] = param(real)
    scale: Float[Array, "m"] = param(positive)
    input_covariance: Float[Array, "p+1 p+1"]

    def __init__(self, df: Any, matrix: Any, offset: Any, scale: Any, input_covariance: Any):
        self.df, self.matrix, self.offset, self.scale, self.input_covariance = common_dtype(
            df=df, matrix=matrix, offset=offset, scale=scale, input_covariance=input_covariance
        )

    def __check_init__(self):
        check_line(self.matrix, self.offset)
        m, p = self.matrix.shape
        for name, value in (("df", self.df), ("scale", self.scale)):
            check_shape(name, value, (m,))
            check_positive(name, value)
        check_shape("input_covariance", self.input_covariance, (p + 1, p + 1))
        check_positive_definite("input_covariance", self.input_covariance)

    def given(self, x: Float[Array, "p"]) -> StudentT:
        """The distribution of `y` at this `x`."""
        design = jnp.append(x, 1)
        growth = 1 + design @ (self.input_covariance @ design)
        return StudentT(self.df, self.matrix @ x + self.offset, jnp.sqrt(growth) * self.scale)

    def log_prob(self, x: tuple[Float[Array, "p"], Float[Array, "m"]]) -> Scalar:
        r"""$\log p(y \mid x)$ of the pair `(x, y)`."""
        inputs, y = x
        return self.given(inputs).log_prob(y)

    def sample(self, key: PRNGKey) -> NoReturn:
        raise TypeError("LinearIndependentStudentT does not model x; use given(x).sample(key).")
