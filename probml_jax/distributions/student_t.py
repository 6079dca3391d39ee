"""Student's t distribution of independent coordinates."""

from typing import Any, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import digamma
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._constraint import param, positive, real
from .._counts import log_rising
from .._distribution import AbstractFamily
from .._event import as_event, as_events, check_events, common_event, pool
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check_positive
from ..inference.root import gamma_shape, log_minus_digamma

MIN_DF, MAX_DF = 0.1, 1e4


class ScaleMixtureMoments(NamedTuple):
    r"""Expected statistics of a Gaussian scale mixture around the member that accumulated them.

    $\sum w$, $\sum w u$, $\sum w u\delta$, $\sum w u\delta\delta^\top$, $\sum w (E\log u - E u + 1)$, where $u$ is the
    latent precision's posterior mean.
    """

    count: Array
    weight: Array
    first: Array
    second: Array
    tail: Array


def latent_precision(df: Array, dims: Array | float, squared: Array) -> tuple[Array, Array]:
    r"""$E u = (\nu + d)/(\nu + \Delta^2)$ and $E\log u - E u + 1$, given a squared distance in d dimensions."""
    excess = (dims - squared) / (df + squared)
    return 1 + excess, jnp.log1p(excess) - excess - log_minus_digamma(0.5 * (df + dims))


def refit_df(df: Array, count: Array, tail: Array) -> Array:
    r"""The maximizer of EM's bound in the degrees of freedom: $\log\frac\nu2 - \psi(\frac\nu2) = -\mathrm{tail}$.

    The bound is concave in $\nu$, so clipping to the range keeps EM monotone.
    """
    mean = tail / jnp.where(count == 0, 1, count)
    new = jnp.clip(2 * gamma_shape(-mean), jnp.minimum(df, MIN_DF), jnp.maximum(df, MAX_DF))
    return jnp.where(count == 0, df, new)


class StudentT(AbstractFamily):
    r"""Independent $x_j \sim t_{\nu_j}(\mu_j, \sigma_j)$, density proportional to $(1 + z_j^2/\nu_j)^{-(\nu_j+1)/2}$.

    A normal whose precision is scaled by $u \sim \mathrm{Gamma}(\nu/2, \nu/2)$, which is what `statistics` (one E-step)
    and `refit` (its M-step: location, scale and degrees of freedom) use; `refit` keeps `df` in [0.1, 1e4]. The event
    has the shape of the parameters; a NaN coordinate is missing and scores 0. `df` and `scale` must be positive.

    Cost: O(1) per coordinate. Reference: Murphy (2022), section 2.7.1; Bishop (2006), section 2.3.7.

    >>> round(float(StudentT(df=1.0, loc=0.0, scale=1.0).log_prob(0.0)), 4)
    -1.1447
    """

    df: Float[Array, "*event"] = param(positive)
    loc: Float[Array, "*event"] = param(real)
    scale: Float[Array, "*event"] = param(positive)

    def __init__(self, df: Any, loc: Any, scale: Any):
        self.df, self.loc, self.scale = common_event(df=df, loc=loc, scale=scale)

    def __check_init__(self):
        check_positive("df", self.df)
        check_positive("scale", self.scale)

    def log_prob(self, x: Shaped[ArrayLike, "*event"]) -> Scalar:
        x = as_event(x, self.loc)
        seen = ~jnp.isnan(x)
        z = (jnp.where(seen, x, self.loc) - self.loc) / self.scale
        constant = log_rising(0.5 * self.df, jnp.full_like(self.df, 0.5)) - 0.5 * jnp.log(jnp.pi * self.df)
        value = constant - jnp.log(self.scale) - 0.5 * (self.df + 1) * jnp.log1p(z * z / self.df)
        return jnp.sum(jnp.where(seen, value, 0))

    def sample(self, key: PRNGKey) -> Float[Array, "*event"]:
        return self.loc + self.scale * jr.t(key, self.df, self.loc.shape, self.loc.dtype)

    def mean(self) -> Float[Array, "*event"]:
        """NaN where there is none: `df` up to one."""
        return jnp.where(self.df > 1, self.loc, jnp.nan)

    def mode(self) -> Float[Array, "*event"]:
        """`loc`."""
        return self.loc

    def variance(self) -> Float[Array, "*event"]:
        """Infinite for `df` up to two, NaN up to one."""
        proper = self.df > 2
        value = self.scale**2 * self.df / jnp.where(proper, self.df - 2, 1)
        return jnp.where(proper, value, jnp.where(self.df > 1, jnp.inf, jnp.nan))

    def entropy(self) -> Scalar:
        r"""$\sum_j \tfrac{\nu_j+1}2\big(\psi(\tfrac{\nu_j+1}2)-\psi(\tfrac{\nu_j}2)\big) + \log\sigma_j$ and the
        log-normalizer.
        """
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        constant = log_rising(half, jnp.full_like(half, 0.5)) - 0.5 * jnp.log(jnp.pi * self.df)
        return jnp.sum(more * (digamma(more) - digamma(half)) - constant + jnp.log(self.scale))

    def validate(self, xs) -> None:
        check_events(xs, self.loc)

    def statistics(self, xs: Shaped[Array, "n *event"], weights: Float[Array, "n"]) -> ScaleMixtureMoments:
        """One E-step: expected statistics around `loc`, per coordinate; a missing entry counts nowhere."""
        xs = as_events(xs, self.loc)
        seen = ~jnp.isnan(xs)
        delta = jnp.where(seen, jnp.where(seen, xs, 0) - self.loc[None], 0)
        u, tail = latent_precision(self.df[None], 1.0, (delta / self.scale[None]) ** 2)
        values = (jnp.ones_like(u), u, u * delta, u * delta * delta, tail)
        return ScaleMixtureMoments(*(pool(weights, jnp.where(seen, v, 0)) for v in values))

    def refit(self, stats: ScaleMixtureMoments) -> Self:
        empty = stats.count == 0
        shift = stats.first / jnp.where(empty, 1, stats.weight)
        variance = jnp.maximum((stats.second - stats.first * shift) / jnp.where(empty, 1, stats.count), 0)
        scale = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)
        new = (
            refit_df(self.df, stats.count, stats.tail),
            self.loc + jnp.where(empty, 0, shift),
            jnp.where(empty, self.scale, scale),
        )
        return eqx.tree_at(lambda d: (d.df, d.loc, d.scale), self, new)

    def degenerate(self) -> Flag:
        """Some scale is zero."""
        return jnp.any(self.scale <= 0)
