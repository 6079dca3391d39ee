"""The Dirichlet prior of a categorical distribution."""

from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._conjugate import AbstractConjugatePrior
from .._constraint import param, positive
from .._special import logsumexp
from .._typing import PRNGKey, Scalar
from .._validate import as_float, check_positive
from ..distributions.categorical import Categorical
from ..distributions.dirichlet import Dirichlet


class DirichletCategorical(AbstractConjugatePrior):
    r"""$\pi \sim Dir(\alpha)$, labels $x_i \sim Cat(\pi)$; the posterior is $Dir(\alpha + \text{counts})$.

    Laplace smoothing with $\alpha$ is the posterior *mean*, $(\alpha_j + n_j)/\sum_i(\alpha_i + n_i)$, also the
    mode under $Dir(\alpha+1)$. `mode()` clips $\alpha_j - 1$ at zero, and is the mean when no $\alpha_j$ exceeds one.
    `concentration (d, k)` is the prior of a vector of d independent labels. Unobserved labels (-1) count nowhere.
    Concentrations that are not positive raise `ValueError`.

    Cost: O(n + k). Reference: Murphy (2022), section 4.6.3.

    >>> prior = DirichletCategorical(concentration=jnp.ones(3))
    >>> prior.update(jnp.array([0, 0, 0, 1, 1])).mean().probs.tolist()
    [0.5, 0.375, 0.125]
    """

    concentration: Float[Array, "*event k"] = param(positive)

    def __init__(self, concentration: Any):
        self.concentration = as_float(concentration, "concentration")

    def __check_init__(self):
        if self.concentration.ndim < 1:
            raise ValueError("concentration is a scalar; wanted a vector (k,), or (d, k) for d labels.")
        check_positive("concentration", self.concentration)

    def _rows(self, function: Callable, *others: Array) -> Array:
        """`function(Dirichlet, ...)` for the label of each coordinate of the event."""
        each = lambda concentration, *rest: function(Dirichlet(concentration), *rest)
        for _ in range(self.concentration.ndim - 1):
            each = jax.vmap(each)
        return each(self.concentration, *others)

    def absorb(self, stats: Float[Array, "*event k"], around: Categorical) -> Self:
        return DirichletCategorical(self.concentration + stats)

    def expected(self) -> tuple[Categorical, Float[Array, "*event"]]:
        mean_log = self._rows(Dirichlet.mean_log)
        return Categorical(jax.nn.softmax(mean_log, axis=-1)), logsumexp(mean_log, axis=-1)

    def expected_log_prob(self, x: Int[Array, "*event"] | int) -> Scalar:
        # straight from E log pi: the member of `expected` would lose what underflows in its softmax
        x = jnp.asarray(x)
        inside = (x >= 0) & (x < self.concentration.shape[-1])
        index = jnp.where(inside, x, 0)[..., None]
        value = jnp.where(inside, jnp.take_along_axis(self._rows(Dirichlet.mean_log), index, axis=-1)[..., 0], -jnp.inf)
        return jnp.sum(jnp.where(x == -1, 0, value))

    def interior(self) -> Categorical:
        return self.mean()

    def mode(self) -> Categorical:
        flat = jnp.all(self.concentration <= 1, axis=-1, keepdims=True)
        return Categorical(jnp.where(flat, self._rows(Dirichlet.mean), self._rows(Dirichlet.mode)))

    def mean(self) -> Categorical:
        return Categorical(self._rows(Dirichlet.mean))

    def sample(self, key: PRNGKey) -> Categorical:
        keys = jr.split(key, self.concentration.shape[:-1])
        return Categorical(self._rows(lambda dist, key: dist.sample(key), keys))

    def predictive(self) -> Categorical:
        return self.mean()

    def log_prob(self, member: Categorical) -> Scalar:
        return jnp.sum(self._rows(lambda dist, probs: dist.log_prob(probs), member.probs))

    def kl(self, other: Self) -> Scalar:
        return jnp.sum(self._rows(lambda dist, b: dist.kl(Dirichlet(b)), other.concentration))
