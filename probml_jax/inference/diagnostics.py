"""Have the chains of a sampler mixed? Effective sample size and split R-hat."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._typing import Scalar


def effective_sample_size(traces: Float[Array, "chains n"]) -> Scalar:
    r"""How many independent draws the chains of one quantity are worth, $mn / (1 + 2\sum_t \rho_t)$.

    Autocorrelations are pooled over chains, summed in pairs while the pairs are positive and made to fall (Geyer).
    A constant trace counts in full. Cost: $O(m n \log n)$. Reference: Gelman et al. (2013), section 11.5.

    >>> import jax.random as jr
    >>> bool(effective_sample_size(jr.normal(jr.key(0), (4, 500))) > 1000)
    True
    """
    m, n = traces.shape
    centered = traces - jnp.mean(traces, axis=1, keepdims=True)
    spectrum = jnp.abs(jnp.fft.rfft(centered, 2 * n, axis=1)) ** 2
    covariance = jnp.fft.irfft(spectrum, 2 * n, axis=1)[:, :n] / n
    within = jnp.mean(covariance[:, 0]) * n / max(n - 1, 1)
    between = jnp.var(jnp.mean(traces, axis=1), ddof=1) if m > 1 else jnp.zeros((), traces.dtype)
    total = within * (n - 1) / n + between
    still = total <= 0
    rho = 1 - (within - jnp.mean(covariance, axis=0)) / jnp.where(still, 1, total)
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    alive = jnp.cumprod(pairs > 0)
    falling = jnp.where(alive, jnp.minimum.accumulate(jnp.where(alive, pairs, jnp.inf)), 0)
    time = jnp.maximum(2 * jnp.sum(falling) - 1, 1 / jnp.log10(max(m * n, 10)))
    return jnp.where(still, m * n, m * n / time).astype(traces.dtype)


def rhat_of_means(means: Float[Array, "chains *shape"], num: int) -> Float[Array, "*shape"]:
    r"""$\hat R$ of indicators from each chain's frequencies over `num` draws: near one when chains agree.

    Pass half-chains for the split form. A state that no chain ever left or entered has 1; chains stuck in different
    states have infinity.
    """
    within = jnp.mean(means * (1 - means), axis=0) * num / max(num - 1, 1)
    between = jnp.var(means, axis=0, ddof=1)
    pooled = within * (num - 1) / num + between
    ratio = pooled / jnp.where(within > 0, within, 1)
    return jnp.sqrt(jnp.where(within > 0, ratio, jnp.where(between > 0, jnp.inf, 1.0)))
