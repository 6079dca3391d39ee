"""Points and log-weights that turn an expectation into a finite sum: enumeration, or a double-exponential rule."""

import itertools

import jax.numpy as jnp
import numpy as np


def counts(high: int, dims: int = 0):
    """All (vectors of) whole numbers below `high`."""
    grid = np.arange(high, dtype=float)
    return _product([(grid, np.zeros(high))] * max(dims, 1), dims)


def line(loc, scale, *, points: int = 81, dims: int = 0, reach: float = 2.6):
    """The real line (per coordinate): x = loc + scale sinh(pi/2 sinh t)."""
    t = np.linspace(-reach, reach, points)
    x = np.sinh(np.pi / 2 * np.sinh(t))
    log_w = np.log(np.pi / 2 * np.cosh(t) * np.cosh(np.pi / 2 * np.sinh(t)) * (t[1] - t[0]))
    locs, scales = np.broadcast_to(loc, max(dims, 1)), np.broadcast_to(scale, max(dims, 1))
    return _product([(m + s * x, log_w + np.log(s)) for m, s in zip(locs, scales, strict=True)], dims)


def half_line(scale, *, points: int = 121, dims: int = 0, low: float = -5.0, high: float = 2.2):
    """The positive half line: x = scale exp(pi/2 sinh t)."""
    t = np.linspace(low, high, points)
    x = np.exp(np.pi / 2 * np.sinh(t))
    log_w = np.log(np.pi / 2 * np.cosh(t) * x * (t[1] - t[0]))
    keep = x > 1e-300
    scales = np.broadcast_to(scale, max(dims, 1))
    return _product([(s * x[keep], log_w[keep] + np.log(s)) for s in scales], dims)


def interval(low, high, *, points: int = 101, dims: int = 0, reach: float = 3.2):
    """A bounded interval: x = 1/2 + 1/2 tanh(pi/2 sinh t), scaled."""
    t = np.linspace(-reach, reach, points)
    x = 1 / (1 + np.exp(-np.pi * np.sinh(t)))
    log_w = np.log(np.pi * np.cosh(t) * x * (1 / (1 + np.exp(np.pi * np.sinh(t)))) * (t[1] - t[0]))
    keep = (x > 0) & (x < 1)
    lows, highs = np.broadcast_to(low, max(dims, 1)), np.broadcast_to(high, max(dims, 1))
    return _product(
        [(a + (b - a) * x[keep], log_w[keep] + np.log(b - a)) for a, b in zip(lows, highs, strict=True)], dims
    )


def plane(loc, factor, **kwargs):
    """Two dimensions, sheared by a lower factor."""
    x, log_w = line(0.0, 1.0, dims=2, **kwargs)
    return x @ np.asarray(factor, float).T + np.asarray(loc, float), log_w + np.log(np.abs(np.linalg.det(factor)))


def triangle(**kwargs):
    """The simplex of three, by breaking a stick twice."""
    u, log_w = interval(0.0, 1.0, dims=2, **kwargs)
    x = np.stack([u[:, 0], (1 - u[:, 0]) * u[:, 1], (1 - u[:, 0]) * (1 - u[:, 1])], axis=1)
    return x, log_w + np.log1p(-u[:, 0])


def compositions(total: int, k: int):
    """All ways to share `total` among k."""
    rows = [x for x in itertools.product(range(total + 1), repeat=k) if sum(x) == total]
    return np.array(rows, float), np.zeros(len(rows))


def labels(k: int):
    return jnp.arange(k), np.zeros(k)


def _product(rules, dims):
    if dims == 0:
        return rules[0]
    x = np.stack([g.ravel() for g in np.meshgrid(*(x for x, _ in rules), indexing="ij")], axis=1)
    log_w = sum(g.ravel() for g in np.meshgrid(*(w for _, w in rules), indexing="ij"))
    return x, log_w
