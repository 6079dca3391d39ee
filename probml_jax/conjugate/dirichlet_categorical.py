"""The Dirichlet prior of a categorical distribution."""

from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._conjugate import AbstractConjugatePrior
from .._constraint import param, positive
from .._special import logsumexp
from .._typing import PRNGKey, Scalar
from .._validate import as_float
from ..distributions.categorical import Categorical
from ..distributions.dirichlet import Dirichlet


class DirichletCategorical(AbstractConjugatePrior):
    r"""$\pi \sim Dir(\alpha)$, labels $x_i \sim Cat(\pi)$; the posterior is $Dir(\alpha + \text{counts})$.

    Laplace smoothing with $\alpha$ is the posterior *mean*, $(\alpha_j + n_j)/\sum_i(\alpha_i + n_i)$, also the
    mode under $Dir(\alpha+1)$. `mode()` clips $\alpha_j - 1$ at zero, and is the mean when no $\alpha_j$ exceeds one.
    Unobserved labels (-1) count nowhere. Concentrations that are not positive raise `ValueError`.

    Cost: O(n + k). Reference: Murphy (2022), section 4.6.3.

    >>> prior = DirichletCategorical(concentration=jnp.ones(3))
    >>> prior.update(jnp.array([0, 0, 0, 1, 1])).mean().probs.tolist()
    [0.5, 0.375, 0.125]
    """

    concentration: Float[Array, "k"] = param(positive)

    def __init__(self, concentration: Any):
        self.concentration = as_float(concentration, "concentration")

    def __check_init__(self):
        Dirichlet(self.concentration)

    @property
    def distribution(self) -> Dirichlet:
        """The prior over `probs`."""
        return Dirichlet(self.concentration)

    def absorb(self, stats: Float[Array, "k"], around: Categorical) -> Self:
        return DirichletCategorical(self.concentration + stats)

    def expected(self) -> tuple[Categorical, Scalar]:
        mean_log = self.distribution.mean_log()
        return Categorical(jax.nn.softmax(mean_log)), logsumexp(mean_log)

    def expected_log_prob(self, x: Int[Array, ""] | int) -> Scalar:
        inside = (jnp.asarray(x) >= 0) & (jnp.asarray(x) < self.concentration.size)
        value = jnp.where(inside, self.distribution.mean_log()[jnp.where(inside, x, 0)], -jnp.inf)
        return jnp.where(jnp.asarray(x) == -1, 0, value)

    def interior(self) -> Categorical:
        return self.mean()

    def mode(self) -> Categorical:
        flat = jnp.all(self.concentration <= 1)
        return Categorical(jnp.where(flat, self.distribution.mean(), self.distribution.mode()))

    def mean(self) -> Categorical:
        return Categorical(self.distribution.mean())

    def sample(self, key: PRNGKey) -> Categorical:
        return Categorical(self.distribution.sample(key))

    def predictive(self) -> Categorical:
        return self.mean()

    def log_prob(self, member: Categorical) -> Scalar:
        return self.distribution.log_prob(member.probs)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
