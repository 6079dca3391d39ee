"""Expected class probabilities under Gaussian latent values."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

_NARROW = np.linspace(-8.5, 8.5, 129)
_WIDE = np.linspace(-40.0, 40.0, 321)


def expected_sigmoid(mean: Float[Array, "m"], variance: Float[Array, "m"]) -> Float[Array, "m"]:
    r"""$\int \sigma(f)\,N(f; m, v)\,df$, to about twelve digits.

    A probit of matching width has a closed form; what is left is smooth and short, and the trapezoidal rule integrates
    it with an error that falls exponentially: on the Gaussian's own scale when that is narrow, else on that of the
    sigmoid.
    """
    slope = float(np.sqrt(np.pi / 8))
    width = jnp.sqrt(variance)
    closed = jax.scipy.stats.norm.cdf(slope * mean / jnp.sqrt(1 + slope**2 * variance))
    left = lambda f: jax.nn.sigmoid(f) - jax.scipy.stats.norm.cdf(slope * f)
    narrow, wide = jnp.asarray(_NARROW, mean.dtype), jnp.asarray(_WIDE, mean.dtype)
    near = jnp.sum(left(mean[:, None] + width[:, None] * narrow[None]) * jnp.exp(-0.5 * narrow**2)[None], axis=1)
    near = near * (narrow[1] - narrow[0])
    broad = jnp.maximum(width, 1)[:, None]
    far = jnp.sum(left(wide)[None] * jnp.exp(-0.5 * ((wide[None] - mean[:, None]) / broad) ** 2) / broad, axis=1)
    far = far * (wide[1] - wide[0])
    return closed + jnp.where(width < 1, near, far) / jnp.sqrt(2 * jnp.pi).astype(mean.dtype)


def expected_softmax(
    mean: Float[Array, "m c"], covariance: Float[Array, "m c c"], num_points: int
) -> Float[Array, "m c"]:
    """The softmax averaged over evenly spread (quasi-random, always the same) points of the Gaussian."""
    c = mean.shape[1]
    normals = jnp.asarray(_spread_normals(num_points, c), mean.dtype)
    values, vectors = jnp.linalg.eigh(covariance)
    factor = vectors * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]

    def one(mean, factor):
        latent = mean[None] + jnp.matmul(normals, factor.T, precision="highest")
        return jnp.mean(jax.nn.softmax(latent, axis=1), axis=0)

    return jax.vmap(one)(mean, factor)


def _spread_normals(num_points: int, dimension: int) -> np.ndarray:
    """Points of a Kronecker sequence with their mirror images, as normal deviates."""
    root = 2.0
    for _ in range(60):  # the positive root of x^(d+1) = x + 1
        root = (1 + root) ** (1 / (dimension + 1))
    steps = root ** -np.arange(1.0, dimension + 1)
    points = (0.5 + np.outer(np.arange(1, num_points // 2 + 1), steps)) % 1
    normals = ndtri(points)
    return np.concatenate([normals, -normals])
