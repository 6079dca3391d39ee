"""Linear regression as a model: a linear leaf, learned from pairs."""

from typing import Self

import jax
from jaxtyping import Array, Float

from .._estimate import AbstractEstimate
from .._model import AbstractLatentModel
from .._special import pairwise_dot
from .._typing import Flag, Scalar, Statistics


class LinearRegression(AbstractLatentModel):
    r"""$p(y \mid x)$ by a linear leaf; a unit is the pair `(x, y)`, and `x` is given, not modelled.

    `observation` is an `ML`, `MAP` or `Bayes` leaf of `LinearGaussian`, `LinearNormal` or `LinearSphericalNormal`.
    Complete pairs are learned in one step, masked coefficients included. Missing (NaN) entries of `y` are the latent
    variables: EM integrates them out exactly. With a `Bayes` leaf the fit is Bayesian linear regression: for complete
    data the objective is the log evidence, and `predictive()` is a Student-t that widens away from the data.

    Cost of a step: $n(p^2 + mp) + p^3$. Reference: Murphy (2022), chapter 11; Murphy (2023), section 15.2.

    >>> import jax.numpy as jnp, probml_jax as pml
    >>> x = jnp.linspace(0.0, 1.0, 20)[:, None]
    >>> line = pml.distributions.LinearNormal([[0.0]], [0.0], [1.0], floor=1e-6)
    >>> fitted = pml.fit(LinearRegression(pml.ML(line)), (x, 2 * x + 1)).model
    >>> round(float(fitted.observation.point().matrix[0, 0]), 3)
    2.0
    """

    observation: AbstractEstimate

    def log_prob(self, datum: tuple[Float[Array, "p"], Float[Array, "m"]]) -> Scalar:
        return self.observation.expected_log_prob(datum)

    def e_step(self, data, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        return self.observation.statistics(data, weights), pairwise_dot(weights, jax.vmap(self.log_prob)(data))

    def m_step(self, stats: Statistics) -> Self:
        return LinearRegression(self.observation.refit(stats))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        return self.observation.recenter(stats, new.observation)

    def log_prior(self) -> Scalar:
        return self.observation.log_prior()

    def surrogate(self, data, weights: Float[Array, "n"], reference: Self) -> Scalar:
        """What is seen has no latent part, so the likelihood itself is the tightest surrogate."""
        return pairwise_dot(weights, jax.vmap(self.log_prob)(data))

    def given(self, x: Float[Array, "p"]):
        """The distribution of `y` at this `x`, averaged over the posterior of a `Bayes` leaf."""
        return self.observation.predictive().given(x)

    def predict(self, x: Float[Array, "p"]) -> Float[Array, "m"]:
        """The mean of `y` at this `x`."""
        return self.given(x).mean()

    def validate(self, data) -> None:
        self.observation.validate(data)

    def degenerate(self) -> Flag:
        return self.observation.degenerate()
