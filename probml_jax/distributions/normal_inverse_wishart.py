"""The normal-inverse-Wishart distribution over a mean vector and a covariance matrix."""

from typing import Any, Self

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from .._constraint import above, param, positive, positive_definite, real
from .._distribution import AbstractDistribution
from .._lapack import solve_triangular
from .._linalg import cholesky, log_det
from .._special import LOG_2PI
from .._typing import PRNGKey, Scalar
from .._validate import check_positive, check_rank, check_shape, common_dtype
from .inverse_wishart import InverseWishart
from .wishart import check_matrix_prior, support_factor


class NormalInverseWishart(AbstractDistribution):
    r"""$\Sigma \sim IW(\nu, S)$, $\mu \mid \Sigma \sim N(m, \Sigma/\kappa)$. An event is the pair $(\mu, \Sigma)$.

    $p \propto |\Sigma|^{-(\nu+d+2)/2}\exp(-\tfrac12 \mathrm{tr}\,\Sigma^{-1}(S + \kappa(\mu-m)(\mu-m)^\top))$, so the
    joint mode is $(m, S/(\nu+d+2))$. `loc` $m$, `strength` $\kappa > 0$, `scale` $S$, `df` $\nu > d-1$. A covariance
    that is not positive definite is impossible: `-inf`.

    Cost: $d^3$ per event. Reference: Murphy (2007), section 9; Murphy (2022), section 3.3.4.

    >>> niw = NormalInverseWishart(loc=jnp.zeros(2), strength=1.0, scale=6 * jnp.eye(2), df=2.0)
    >>> niw.mode()[1].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    loc: Float[Array, "d"] = param(real)
    strength: Float[Array, ""] = param(positive)
    scale: Float[Array, "d d"] = param(positive_definite)
    df: Float[Array, ""] = param(lambda self: above(self.scale.shape[-1] - 1))

    def __init__(self, loc: Any, strength: Any, scale: Any, df: Any):
        self.loc, self.strength, self.scale, self.df = common_dtype(loc=loc, strength=strength, scale=scale, df=df)

    def __check_init__(self):
        check_normal_inverse_wishart(self.loc, self.strength, self.scale, self.df)

    @property
    def covariance(self) -> InverseWishart:
        r"""The marginal distribution of $\Sigma$."""
        return InverseWishart(self.df, self.scale)

    def log_prob(self, x: tuple[Float[Array, "d"], Float[Array, "d d"]]) -> Scalar:
        mu, sigma = x
        d = self.loc.size
        factor, outside = support_factor(sigma)
        trace = jnp.sum(solve_triangular(factor, cholesky(self.scale).factor, lower=True) ** 2)
        shift = solve_triangular(factor, mu - self.loc, lower=True)
        exponent = -0.5 * (self.df + d + 2) * log_det(factor) - 0.5 * (trace + self.strength * (shift @ shift))
        return exponent - self.log_normalizer() + outside

    def log_normalizer(self) -> Scalar:
        r"""Log of the integral of the kernel above: $\log Z_{IW}(\nu, S) + \tfrac d2 \log(2\pi/\kappa)$."""
        return self.covariance.log_normalizer() + 0.5 * self.loc.size * (LOG_2PI - jnp.log(self.strength))

    def sample(self, key: PRNGKey) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
        first, second = jr.split(key)
        sigma = self.covariance.sample(first)
        noise = cholesky(sigma).factor @ jr.normal(second, self.loc.shape, self.loc.dtype)
        return self.loc + noise / jnp.sqrt(self.strength), sigma

    def mean(self) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
        r"""$(m, S/(\nu-d-1))$; the covariance is NaN when its mean does not exist, $\nu \le d+1$."""
        return self.loc, self.covariance.mean()

    def mode(self) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
        r"""The joint mode $(m, S/(\nu+d+2))$."""
        return self.loc, self.scale / (self.df + self.loc.size + 2)

    def entropy(self) -> Scalar:
        r"""That of $\Sigma$, and the expected one of $\mu$ given $\Sigma$."""
        d = self.loc.size
        given = 0.5 * (d * (1 + LOG_2PI) - d * jnp.log(self.strength) + self.covariance.expected_log_det())
        return self.covariance.entropy() + given

    def kl(self, other: Self) -> Scalar:
        r"""KL(self || other): that of $\Sigma$, and the expected one of $\mu$ given $\Sigma$."""
        shift = solve_triangular(cholesky(self.scale).factor, self.loc - other.loc, lower=True)
        ratio = other.strength / self.strength
        given = 0.5 * (self.loc.size * (ratio - 1 - jnp.log(ratio)) + other.strength * self.df * (shift @ shift))
        return self.covariance.kl(other.covariance) + given


def check_normal_inverse_wishart(loc: Array, strength: Array, scale: Array, df: Array) -> None:
    """Raise `ValueError` naming the hyper-parameter that is wrong."""
    check_rank("loc", loc, 1, "a vector (d,)")
    check_shape("strength", strength, ())
    check_positive("strength", strength)
    check_matrix_prior(df, scale, shape=(loc.size, loc.size))
