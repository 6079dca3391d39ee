"""The normal-inverse-chi-squared distribution over means and variances of independent coordinates."""

from typing import Any, Self

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from .._constraint import param, positive, real
from .._distribution import AbstractDistribution
from .._event import common_event
from .._special import LOG_2PI
from .._typing import PRNGKey, Scalar
from .._validate import check_positive
from .inverse_gamma import InverseGamma
from .normal import Normal


class NormalInverseChiSquared(AbstractDistribution):
    r"""$v_j \sim \text{Scaled-Inv-}\chi^2(\nu_j, \sigma_j^2)$, $\mu_j \mid v_j \sim N(m_j, v_j/\kappa_j)$. An event
    is $(\mu, v)$.

    $p \propto v^{-(\nu+3)/2}\exp(-(\nu\sigma^2 + \kappa(\mu-m)^2)/(2v))$ for each coordinate. `scale` is the
    *squared* scale $\sigma^2$, a guess of the variance, and `df` $\nu$ how many observations it is worth; `strength`
    is $\kappa$. The variance is `InverseGamma(df / 2, df * scale / 2)`. Variances that are not positive are
    impossible: `-inf`.

    Cost: O(1) per coordinate. Reference: Murphy (2007), section 5; Gelman et al. (2013), section 3.3.

    >>> dist = NormalInverseChiSquared(loc=0.0, strength=1.0, df=5.0, scale=8.0)
    >>> dist.mode()[1].tolist()
    5.0
    """

    loc: Float[Array, "*event"] = param(real)
    strength: Float[Array, "*event"] = param(positive)
    df: Float[Array, "*event"] = param(positive)
    scale: Float[Array, "*event"] = param(positive)

    def __init__(self, loc: Any, strength: Any, df: Any, scale: Any):
        self.loc, self.strength, self.df, self.scale = common_event(loc=loc, strength=strength, df=df, scale=scale)

    def __check_init__(self):
        check_positive("strength", self.strength)
        check_positive("df", self.df)
        check_positive("scale", self.scale)

    @property
    def variance(self) -> InverseGamma:
        """The marginal distribution of the variances."""
        return InverseGamma(0.5 * self.df, 0.5 * self.df * self.scale)

    def given(self, v: Float[Array, "*event"]) -> Normal:
        """The distribution of the means given the variances."""
        return Normal(self.loc, jnp.sqrt(v / self.strength))

    def log_prob(self, x: tuple[Float[Array, "*event"], Float[Array, "*event"]]) -> Scalar:
        mu, v = x
        return self.variance.log_prob(v) + self.given(jnp.where(v > 0, v, 1)).log_prob(mu)

    def sample(self, key: PRNGKey) -> tuple[Float[Array, "*event"], Float[Array, "*event"]]:
        first, second = jr.split(key)
        v = self.variance.sample(first)
        return self.given(v).sample(second), v

    def mean(self) -> tuple[Float[Array, "*event"], Float[Array, "*event"]]:
        r"""$(m, \nu\sigma^2/(\nu-2))$; an infinite variance for $\nu \le 2$."""
        return self.loc, self.variance.mean()

    def mode(self) -> tuple[Float[Array, "*event"], Float[Array, "*event"]]:
        r"""The joint mode $(m, \nu\sigma^2/(\nu+3))$."""
        return self.loc, self.df * self.scale / (self.df + 3)

    def entropy(self) -> Scalar:
        r"""That of $\sigma^2$, and the expected one of $\mu$ given $\sigma^2$."""
        mean_log = self.variance.mean_parameters()[0]
        return self.variance.entropy() + 0.5 * jnp.sum(1 + LOG_2PI + mean_log - jnp.log(self.strength))

    def kl(self, other: Self) -> Scalar:
        r"""KL(self || other): that of $\sigma^2$, and the expected one of $\mu$ given $\sigma^2$."""
        ratio = other.strength / self.strength
        shift = other.strength * (self.loc - other.loc) ** 2 / self.scale
        return self.variance.kl(other.variance) + 0.5 * jnp.sum(ratio - 1 - jnp.log(ratio) + shift)
