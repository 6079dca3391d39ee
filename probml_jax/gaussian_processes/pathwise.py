"""Functions drawn whole: a prior draw by random features, corrected by the observations it does not meet."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._linalg import cho_solve, matmul
from .._typing import PRNGKey
from .composition import AbstractKernel, Constant, Frozen, Product, Scaled, Sum, Warped, as_inputs
from .evidence import Factorized
from .kernels import RBF, Linear, Matern12, Matern32, Matern52, Periodic, RationalQuadratic, White
from .regression import GaussianProcess


@functools.singledispatch
def frequencies(kernel: AbstractKernel, key: PRNGKey, num: int, dim: int) -> Float[Array, "f d"] | None:
    """Draws from the spectral density of a stationary kernel of unit variance; `None` for others."""
    return None


def _scaled(kernel, waves: Array) -> Array:
    return waves / (kernel.length_scale[None] if kernel.length_scale.ndim else kernel.length_scale)


@frequencies.register
def _(kernel: RBF, key: PRNGKey, num: int, dim: int) -> Array:
    return _scaled(kernel, jr.normal(key, (num, dim), kernel.length_scale.dtype))


def _student(kernel, key: PRNGKey, num: int, dim: int, df: float) -> Array:
    normal, chi = jr.split(key)
    dtype = kernel.length_scale.dtype
    spread = jr.gamma(chi, df / 2, (num, 1), dtype) * (2 / df)
    return _scaled(kernel, jr.normal(normal, (num, dim), dtype) / jnp.sqrt(spread))


@frequencies.register
def _(kernel: Matern12, key: PRNGKey, num: int, dim: int) -> Array:
    return _student(kernel, key, num, dim, 1.0)


@frequencies.register
def _(kernel: Matern32, key: PRNGKey, num: int, dim: int) -> Array:
    return _student(kernel, key, num, dim, 3.0)


@frequencies.register
def _(kernel: Matern52, key: PRNGKey, num: int, dim: int) -> Array:
    return _student(kernel, key, num, dim, 5.0)


@frequencies.register
def _(kernel: RationalQuadratic, key: PRNGKey, num: int, dim: int) -> Array:
    normal, mix = jr.split(key)
    dtype = kernel.length_scale.dtype
    spread = jr.gamma(mix, kernel.alpha, (num, 1), dtype) / kernel.alpha
    return _scaled(kernel, jr.normal(normal, (num, dim), dtype) * jnp.sqrt(spread))


@frequencies.register
def _(kernel: Periodic, key: PRNGKey, num: int, dim: int) -> Array | None:
    """Whole multiples of the base frequency, as often as its Fourier series has them; one input only."""
    if dim != 1:
        return None
    nodes = 128
    angle = jnp.asarray(2 * np.pi * np.arange(nodes) / nodes, kernel.length_scale.dtype)
    power = jnp.fft.rfft(jnp.exp(-(1 - jnp.cos(angle)) / kernel.length_scale**2)).real
    power = jnp.maximum(power * jnp.asarray([1.0] + [2.0] * (nodes // 2 - 1) + [1.0], angle.dtype), 0)
    order = jr.categorical(key, jnp.log(power), shape=(num, 1))
    return 2 * jnp.pi / kernel.period * order.astype(angle.dtype)


@frequencies.register
def _(kernel: Product, key: PRNGKey, num: int, dim: int) -> Array | None:
    first, second = jr.split(key)
    a, b = frequencies(kernel.first, first, num, dim), frequencies(kernel.second, second, num, dim)
    return None if a is None or b is None else a + b


@functools.singledispatch
def features(kernel: AbstractKernel, key: PRNGKey, num: int, dim: int) -> Callable[[Array], Array] | None:
    r"""A random map with $E\,\phi(x)^\top\phi(z) = k(x, z)$, exact for kernels of finite rank; `None` if there is none.

    Reference: Rahimi and Recht (2007).
    """
    turn, shift = jr.split(key)
    waves = frequencies(kernel, turn, num, dim)
    if waves is None:
        return None
    phase = jr.uniform(shift, (num,), waves.dtype, 0, 2 * np.pi)
    return lambda xs: jnp.sqrt(2 / num).astype(waves.dtype) * jnp.cos(matmul(xs, waves.T) + phase[None])


@features.register
def _(kernel: Constant, key: PRNGKey, num: int, dim: int) -> Callable:
    return lambda xs: jnp.broadcast_to(jnp.sqrt(kernel.variance), (xs.shape[0], 1))


@features.register
def _(kernel: Linear, key: PRNGKey, num: int, dim: int) -> Callable:
    scale = jnp.sqrt(kernel.variance)
    return lambda xs: xs * (scale[None] if scale.ndim else scale)


@features.register
def _(kernel: White, key: PRNGKey, num: int, dim: int) -> Callable:
    """Noise is not part of the function."""
    return lambda xs: jnp.zeros((xs.shape[0], 0), kernel.variance.dtype)


@features.register
def _(kernel: Scaled, key: PRNGKey, num: int, dim: int) -> Callable | None:
    inner = features(kernel.kernel, key, num, dim)
    return None if inner is None else lambda xs: jnp.sqrt(kernel.variance) * inner(xs)


@features.register
def _(kernel: Frozen, key: PRNGKey, num: int, dim: int) -> Callable | None:
    return features(kernel.kernel, key, num, dim)


@features.register
def _(kernel: Sum, key: PRNGKey, num: int, dim: int) -> Callable | None:
    one, other = jr.split(key)
    a, b = features(kernel.first, one, num, dim), features(kernel.second, other, num, dim)
    return None if a is None or b is None else lambda xs: jnp.concatenate([a(xs), b(xs)], axis=1)


@features.register
def _(kernel: Warped, key: PRNGKey, num: int, dim: int) -> Callable | None:
    shape = jax.eval_shape(kernel.network, jax.ShapeDtypeStruct((dim,), jnp.result_type(float))).shape
    inner = features(kernel.kernel, key, num, shape[0])
    return None if inner is None else lambda xs: inner(jax.vmap(kernel.network)(xs))


def sample_function(
    key: PRNGKey, gp: GaussianProcess, num_features: int = 1024, *, dim: int = 1
) -> Callable[[Array], Array]:
    r"""A function drawn from the process, to be evaluated anywhere, any number of times, in $O(n)$ per input.

    A prior draw $\phi(x)^\top w$ from random features, moved by
    $k(x, X)(K + \Sigma)^{-1}(y - \phi(X)w - \epsilon)$ to meet the observations (pathwise conditioning). Exact at the
    observations; elsewhere the features err by about $1/\sqrt{F}$. `dim` is the dimension of inputs, read from the
    observations where there are any; white noise is not part of the function.

    `ValueError` for kernels without features (polynomials, kernels of your own), and for processes conditioned by the
    state-space or the sparse solver: use `gp.sample(key, x)`.
    Reference: Wilson et al. (2020), "Efficiently sampling functions from Gaussian process posteriors".

    >>> from probml_jax.gaussian_processes import kernels
    >>> post = GaussianProcess(kernels.RBF(0.3), noise=1e-4).condition(jnp.array([0.0, 1.0]), jnp.array([1.0, -1.0]))
    >>> sample_function(jr.key(0), post)(jnp.array([0.0, 1.0])).round(1)
    Array([ 1., -1.], dtype=...)
    """
    evidence = gp.evidence
    if evidence is not None and not isinstance(evidence, Factorized):
        raise ValueError("sample_function needs solver='cholesky'; use gp.sample(key, x) with the others.")
    dim = dim if evidence is None else evidence.xs.shape[1]
    which, weigh, shake = jr.split(key, 3)
    phi = features(gp.kernel, which, num_features, dim)
    if phi is None:
        raise ValueError(f"{type(gp.kernel).__name__} has no random features; use gp.sample(key, x).")
    probe = jnp.zeros((1, dim), gp.noise.dtype)
    weights = jr.normal(weigh, (phi(probe).shape[1],), gp.noise.dtype)
    prior = lambda xs: matmul(phi(xs), weights)
    if evidence is None:
        return lambda x: _at(gp, prior, x)
    # what the observations' variance has besides the function's: their noise, and white parts of the kernel
    own = jax.vmap(lambda x: gp.kernel.cross(x[None], x[None])[0, 0])(evidence.xs)
    noise = jnp.maximum(jnp.sum(evidence.factor**2, axis=1) - own, 0)
    missed = evidence.residual - prior(evidence.xs) - jnp.sqrt(noise) * jr.normal(shake, noise.shape, noise.dtype)
    pull = cho_solve(evidence.factor, jnp.where(evidence.seen, missed, 0))
    return lambda x: _at(gp, lambda xs: prior(xs) + matmul(gp.kernel.cross(xs, evidence.xs), pull), x)


def _at(gp: GaussianProcess, function: Callable, x: Array) -> Array:
    xs = as_inputs(x)
    return gp._prior_mean(xs) + function(xs)
