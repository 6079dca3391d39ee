"""Conjugate updates against NumPy: a thousand posteriors at once, and one over many points."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import probml_jax as pml
from benchmarks.timing import Row, measure


def _numpy_niw(m0, k0, s0, v0, xs):
    n, mean = len(xs), xs.mean(0)
    centred = xs - mean
    delta = mean - m0
    kn = k0 + n
    return m0 + delta * n / kn, kn, s0 + centred.T @ centred + (k0 * n / kn) * np.outer(delta, delta), v0 + n


def _prior(d: int) -> pml.conjugate.NormalInverseWishart:
    f = lambda x: jnp.asarray(x, jnp.float32)
    return pml.conjugate.NormalInverseWishart(f(np.zeros(d)), f(0.1), f(np.eye(d)), f(d + 2))


def one_large(n: int = 200_000, d: int = 16) -> Row:
    data = np.random.default_rng(0).normal(size=(n, d)).astype("float32")
    xs = jnp.asarray(data)
    prior = _prior(d)
    update = jax.jit(lambda x: prior.update(x))
    ours = measure(lambda: update(xs))
    theirs = measure(lambda: _numpy_niw(np.zeros(d, "f4"), 0.1, np.eye(d, dtype="f4"), d + 2, data))
    return Row(f"NIW update, N={n:,} D={d}, float32", "NumPy", theirs.run, ours.run, ours.first)


def many_small(batch: int = 1000, n: int = 50, d: int = 4) -> Row:
    data = np.random.default_rng(0).normal(size=(batch, n, d)).astype("float32")
    xs = jnp.asarray(data)
    prior = _prior(d)
    update = jax.jit(jax.vmap(lambda x: prior.update(x)))
    ours = measure(lambda: update(xs))
    start = (np.zeros(d, "f4"), 0.1, np.eye(d, dtype="f4"), d + 2)
    theirs = measure(lambda: [_numpy_niw(*start, x) for x in data])
    return Row(f"{batch:,} NIW updates, N={n} D={d}, one vmap", "NumPy loop", theirs.run, ours.run, ours.first)


def counts(batch: int = 1000, n: int = 1000, k: int = 20) -> Row:
    labels = jr.randint(jr.key(0), (batch, n), 0, k)
    host = np.asarray(labels)
    prior = pml.conjugate.DirichletCategorical(jnp.ones(k, jnp.float32))
    update = jax.jit(jax.vmap(lambda x: prior.update(x).concentration))
    ours = measure(lambda: update(labels))
    theirs = measure(lambda: [1 + np.bincount(x, minlength=k) for x in host])
    return Row(f"{batch:,} Dirichlet updates, N={n:,} K={k}", "NumPy loop", theirs.run, ours.run, ours.first)


def rows(data_dir=None) -> list[Row]:
    return [one_large(), many_small(), counts()]
