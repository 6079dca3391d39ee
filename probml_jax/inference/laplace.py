"""Laplace's approximation to the posterior of Gaussian latent values under any log-concave likelihood.

The mode is found by Newton's method. It is then taken through one more step, whose derivative at the mode is that of
the implicit function theorem, so gradients of the approximate evidence need no unrolling.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._lapack import solve_triangular
from .._linalg import cho_solve, cholesky, matmul
from .evidence import log_determinant

_MAX_STEPS = 60


def _root(x: Array) -> Array:
    """The square root, with gradient zero at zero."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), 0)


def _climb(step: Callable, value: Callable, start: Array) -> tuple[Array, Array]:
    """Newton's method with the best of a few step lengths, until the objective no longer rises."""
    lengths = jnp.asarray([1.0, 0.5, 0.25, 0.0625, 0.0], start.dtype)
    tolerance = 4 * jnp.finfo(start.dtype).eps

    def turn(carry):
        weights, best, _, count = carry
        aim = step(weights) - weights
        tried = jax.vmap(lambda s: weights + s * aim)(lengths)
        values = jax.vmap(value)(tried)
        values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
        i = jnp.argmax(values)
        rising = values[i] - best > tolerance * jnp.maximum(jnp.abs(best), 1)
        return tried[i], values[i], rising, count + 1

    going = lambda carry: carry[2] & (carry[3] < _MAX_STEPS)
    begin = start, value(start), jnp.array(True), jnp.zeros((), jnp.int32)
    found = jax.lax.while_loop(going, turn, begin)
    return found[0], ~found[2] & jnp.isfinite(found[1])


# ---------------------------------------------------------------------------------------------- one function


class Binary(NamedTuple):
    r"""At the mode $f = Ka$: weights $a$, $f$ itself, $W^{1/2}$, the factor of $I + W^{1/2}KW^{1/2}$, the evidence."""

    weights: Float[Array, "n"]
    mode: Float[Array, "n"]
    root: Float[Array, "n"]
    factor: Float[Array, "n n"]
    log_evidence: Float[Array, ""]
    converged: Array


def binary(covariance: Float[Array, "n n"], log_likelihood: Callable[[Array], Array]) -> Binary:
    r"""Laplace's approximation where every latent value has an observation of its own.

    `log_likelihood(f)` gives $\log p(y_i \mid f_i)$ for each i; it may close over arrays that are not differentiated.
    Cost: $n^3/3$ flops per Newton step. Reference: Rasmussen and Williams (2006), algorithms 3.1 and 5.1.
    """
    slope = jax.grad(lambda f: jnp.sum(log_likelihood(f)))
    curvature = lambda f: jnp.maximum(-jax.jvp(slope, (f,), (jnp.ones_like(f),))[1], 0)
    eye = jnp.eye(covariance.shape[0], dtype=covariance.dtype)
    inner = lambda k, root: eye + root[:, None] * k * root[None, :]

    def newton(k, f):
        root = _root(curvature(f))
        target = curvature(f) * f + slope(f)
        return target - root * cho_solve(cholesky(inner(k, root)).factor, root * matmul(k, target))

    def value(k, a):
        f = matmul(k, a)
        return jnp.sum(log_likelihood(f)) - 0.5 * jnp.sum(a * f)

    still = jax.lax.stop_gradient(covariance)
    start = jnp.zeros(covariance.shape[0], covariance.dtype)
    found, converged = _climb(lambda a: newton(still, matmul(still, a)), lambda a: value(still, a), start)
    weights = newton(covariance, jax.lax.stop_gradient(matmul(still, found)))
    mode = matmul(covariance, weights)
    root = _root(curvature(mode))
    spread = inner(covariance, root)
    evidence = value(covariance, weights) - 0.5 * log_determinant(spread)
    # weights are the slope at the mode, but the Newton step's have fewer digits to lose
    return Binary(weights, mode, root, cholesky(spread).factor, evidence, converged)


def binary_moments(found: Binary, cross: Float[Array, "n m"], diagonal: Float[Array, "m"]) -> tuple[Array, Array]:
    """Latent means and variances at new inputs, from their covariances with the old ones."""
    white = solve_triangular(found.factor, found.root[:, None] * cross, lower=True)
    return matmul(found.weights, cross), jnp.maximum(diagonal - jnp.sum(white**2, axis=0), 0)


# ---------------------------------------------------------------------------------------------- several functions


class Softmax(NamedTuple):
    r"""At the mode: weights $a_c$, $f_c = Ka_c$, $E_c = (K + D_c^{-1})^{-1}$, the factor of their sum, the evidence."""

    weights: Float[Array, "c n"]
    mode: Float[Array, "c n"]
    inverses: Float[Array, "c n n"]
    factor: Float[Array, "n n"]
    log_evidence: Float[Array, ""]
    converged: Array


def softmax(covariance: Float[Array, "n n"], labels: Float[Array, "c n"], counts: Float[Array, "n"]) -> Softmax:
    r"""Laplace's approximation for c functions with one covariance and $p(y_i = c) \propto e^{f_c(x_i)}$.

    `labels` are one-hot, `counts` say how often each observation counts (0: not at all). Cost: $(c+1)n^3/3$ flops per
    Newton step. Reference: Rasmussen and Williams (2006), algorithms 3.3 and 3.4.
    """
    eye = jnp.eye(covariance.shape[0], dtype=covariance.dtype)
    absent = counts == 0

    def inverses(k, probs):
        def one(p):
            root = _root(counts * p)
            factor = cholesky(eye + root[:, None] * k * root[None, :]).factor
            return root[:, None] * cho_solve(factor, jnp.diag(root))

        each = jax.vmap(one)(probs)
        return each, jnp.sum(each, axis=0) + jnp.diag(absent.astype(k.dtype))

    def newton(k, f):
        probs = jax.nn.softmax(f, axis=0)
        each, total = inverses(k, probs)
        shared = jnp.sum(probs * f, axis=0)[None]
        target = counts[None] * (probs * (f - shared) + labels - probs)
        pulled = jnp.einsum("cij,cj->ci", each, matmul(target, k), precision="highest")
        common = cho_solve(cholesky(total).factor, jnp.sum(pulled, axis=0))
        return target - pulled + jnp.einsum("cij,j->ci", each, common, precision="highest")

    def value(k, a):
        f = matmul(a, k)
        fitted = jnp.sum(labels * f, axis=0) - jax.scipy.special.logsumexp(f, axis=0)
        return jnp.sum(counts * fitted) - 0.5 * jnp.sum(a * f)

    still = jax.lax.stop_gradient(covariance)
    start = jnp.zeros(labels.shape, covariance.dtype)
    found, converged = _climb(lambda a: newton(still, matmul(a, still)), lambda a: value(still, a), start)
    weights = newton(covariance, jax.lax.stop_gradient(matmul(found, still)))
    mode = matmul(weights, covariance)
    probs = jax.nn.softmax(mode, axis=0)
    each, total = inverses(covariance, probs)
    volume = lambda p: log_determinant(eye + _root(counts * p)[:, None] * covariance * _root(counts * p)[None, :])
    size = jnp.sum(jax.vmap(volume)(probs)) + log_determinant(total) - jnp.sum(jnp.log(jnp.where(absent, 1, counts)))
    evidence = value(covariance, weights) - 0.5 * size
    return Softmax(weights, mode, each, cholesky(total).factor, evidence, converged)


def softmax_moments(
    found: Softmax, cross: Float[Array, "n m"], diagonal: Float[Array, "m"]
) -> tuple[Float[Array, "m c"], Float[Array, "m c c"]]:
    """Latent means and covariances (between classes) at new inputs."""
    pulled = jnp.einsum("cij,jm->cim", found.inverses, cross, precision="highest")
    white = jax.vmap(lambda p: solve_triangular(found.factor, p, lower=True))(pulled)
    shared = jnp.einsum("cim,dim->mcd", white, white, precision="highest")
    own = diagonal[:, None] - jnp.einsum("jm,cjm->mc", cross, pulled, precision="highest")
    classes = found.weights.shape[0]
    return matmul(found.weights, cross).T, shared + own[:, :, None] * jnp.eye(classes, dtype=own.dtype)[None]
