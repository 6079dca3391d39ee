"""Roots of scalar equations by Newton's method, differentiable by the implicit function theorem."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, polygamma
from jaxtyping import Array, Float, PyTree


def newton(step: Callable[[Array, PyTree], Array], start: Array, args: PyTree, *, max_steps: int = 60) -> Array:
    r"""The fixed point of `x = step(x, args)`, where `step` is one Newton step of $f(x, a) = 0$.

    Iterates until no entry moves by more than its rounding error. The loop is hidden from differentiation; one
    last step at the solution carries the derivative $-f_x^{-1} f_a$, which is the implicit function theorem
    (right to first order). An equation without a root gives NaN or a value at infinity, never an error.

    Cost: a handful of steps; under `vmap` the slowest member decides.

    >>> root = lambda a: newton(lambda x, a: 0.5 * (x + a / x), jnp.ones(()), a)
    >>> float(root(jnp.asarray(9.0))), float(jax.grad(root)(jnp.asarray(9.0)))
    (3.0, 0.1666...)
    """
    start, frozen = jax.lax.stop_gradient((start, args))
    tolerance = 4 * jnp.finfo(start.dtype).eps

    def moving(carry):
        x, previous, steps = carry
        return (steps < max_steps) & jnp.any(jnp.abs(x - previous) > tolerance * jnp.abs(x))

    def advance(carry):
        x, _, steps = carry
        return step(x, frozen), x, steps + 1

    first = (step(start, frozen), start, jnp.zeros((), jnp.int32))
    solution, _, _ = jax.lax.while_loop(moving, advance, first)
    return step(jax.lax.stop_gradient(solution), args)


def trigamma(x: Array) -> Array:
    r"""$\psi'(x)$."""
    return polygamma(1, x)


def log_minus_digamma(x: Array) -> Array:
    r"""$\log x - \psi(x) > 0$, without cancellation: a series in $1/x$ for large $x$."""
    large = x > 16
    r = 1 / jnp.where(large, x, 16)
    s = r * r
    tail = 1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * 691 / 32760))))
    series = r * (1 / 2 + r * tail)
    small = jnp.where(large, 1, x)
    return jnp.where(large, series, jnp.log(small) - digamma(small))


def inverse_digamma(y: Array) -> Array:
    r"""The $x > 0$ with $\psi(x) = y$ (Minka's start, five Newton steps: full precision everywhere)."""
    far = y < -2.22
    x = jnp.where(far, -1 / (jnp.where(far, y, -3) - digamma(jnp.ones_like(y))), jnp.exp(jnp.where(far, 0, y)) + 0.5)
    x = jax.lax.stop_gradient(x)
    for _ in range(5):
        x = jax.lax.stop_gradient(x)
        x = x - (digamma(x) - y) / trigamma(x)
    return x


def gamma_shape(s: Array) -> Array:
    r"""The $a > 0$ with $\log a - \psi(a) = s$, elementwise: the maximum-likelihood shape of a Gamma, where
    $s = \log \bar x - \overline{\log x}$. Zero spread, $s \le 0$, gives infinity.
    """
    proper = s > 0
    s = jnp.where(proper, s, 1)

    def step(a, s):
        # Newton in 1/a, nearly linear (Minka, 2002)
        return 1 / (1 / a + (log_minus_digamma(a) - s) / (a * a * (1 / a - trigamma(a))))

    start = (3 - s + jnp.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    return jnp.where(proper, newton(step, start, s), jnp.inf)


def dirichlet_concentration(m: Float[Array, "k"]) -> Float[Array, "k"]:
    r"""The $\alpha$ with $\psi(\alpha_j) - \psi(\sum_i \alpha_i) = m_j$: the maximum-likelihood Dirichlet, with
    $m_j = \overline{\log x_j}$.

    One scalar equation in $v = 1/\sum\alpha$, namely $v\sum_j\psi^{-1}(\psi(1/v) + m_j) = 1$, which is nearly linear
    in $v$. There is a solution iff $\sum_j e^{m_j} < 1$ (not all data equal); otherwise infinity comes back.
    """
    slack = -jnp.expm1(jax.nn.logsumexp(m))
    proper = slack > 0
    m = jnp.where(proper, m, -jnp.log(jnp.asarray(2.0 * m.size, m.dtype)))
    slack = jnp.where(proper, slack, 0.5)

    def step(v, m):
        alpha = inverse_digamma(digamma(1 / v) + m)
        slope = jnp.sum(alpha) - trigamma(1 / v) / v * jnp.sum(1 / trigamma(alpha))
        new = v - (v * jnp.sum(alpha) - 1) / slope
        return jnp.where(new > 0, new, 0.5 * v)

    v = newton(step, 2 * slack / max(m.size - 1, 1), m)
    return jnp.where(proper, inverse_digamma(digamma(1 / v) + m), jnp.inf)
