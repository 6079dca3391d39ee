"""The Dirichlet prior of a multinomial distribution."""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .._conjugate import AbstractConjugatePrior
from .._constraint import fixed, param, positive
from .._special import logsumexp
from .._typing import PRNGKey, Scalar
from .._validate import as_float, check_counts, check_rank
from ..distributions.dirichlet import Dirichlet
from ..distributions.dirichlet_multinomial import DirichletMultinomial as Predictive
from ..distributions.multinomial import Multinomial


class DirichletMultinomial(AbstractConjugatePrior):
    r"""$\pi \sim Dir(\alpha)$, count vectors $x_i \sim Mult(N, \pi)$ of `total_count` $N$ draws each.

    `total_count=None` takes each event's own total as given (documents of different lengths).

    The posterior is $Dir(\alpha + \sum_i x_i)$. `mode()` clips $\alpha_j - 1$ at zero, and is the mean when no
    $\alpha_j$ exceeds one. Rows with NaN raise `ValueError` in `update` and `log_evidence`: lumped categories are not
    conjugate.

    Cost: O(k) per event. Reference: Murphy (2022), section 4.6.3.

    >>> prior = DirichletMultinomial(concentration=jnp.ones(2), total_count=3)
    >>> prior.update(jnp.array([[2, 1], [3, 0]])).mean().probs.tolist()
    [0.75, 0.25]
    """

    complete_events_only: ClassVar[bool] = True

    concentration: Float[Array, "k"] = param(positive)
    total_count: Float[Array, ""] | None = fixed(default=None)

    def __init__(self, concentration: Any, total_count: Any = None):
        self.concentration = as_float(concentration, "concentration")
        total_count = as_float(total_count, "total_count")
        self.total_count = None if total_count is None else total_count.astype(self.concentration.dtype)

    def __check_init__(self):
        Dirichlet(self.concentration)
        if self.total_count is not None:
            check_rank("total_count", self.total_count, 0, "a scalar")
            check_counts("total_count", self.total_count)

    @property
    def distribution(self) -> Dirichlet:
        """The prior over `probs`."""
        return Dirichlet(self.concentration)

    def absorb(self, stats: Float[Array, "k"], around: Multinomial) -> Self:
        return DirichletMultinomial(self.concentration + stats, self.total_count)

    def expected(self) -> tuple[Multinomial, Scalar]:
        """The member, and the constant of *one draw*: an event pays it once per count."""
        mean_log = self.distribution.mean_log()
        return Multinomial(jax.nn.softmax(mean_log), self.total_count), logsumexp(mean_log)

    def expected_log_prob(self, x: Shaped[Array, "k"]) -> Scalar:
        member, per_draw = self.expected()
        draws = jnp.nansum(x) if self.total_count is None else self.total_count
        return member.log_prob(x) + draws * per_draw

    def interior(self) -> Multinomial:
        return self.mean()

    def mode(self) -> Multinomial:
        flat = jnp.all(self.concentration <= 1)
        probs = jnp.where(flat, self.distribution.mean(), self.distribution.mode())
        return Multinomial(probs, self.total_count)

    def mean(self) -> Multinomial:
        return Multinomial(self.distribution.mean(), self.total_count)

    def sample(self, key: PRNGKey) -> Multinomial:
        return Multinomial(self.distribution.sample(key), self.total_count)

    def predictive(self) -> Predictive:
        return Predictive(self.concentration, self.total_count)

    def log_prob(self, member: Multinomial) -> Scalar:
        return self.distribution.log_prob(member.probs)

    def kl(self, other: Self) -> Scalar:
        return self.distribution.kl(other.distribution)
