"""Gaussian processes against scikit-learn and, where installed, tinygp.

Our factorizations run with one thread of OpenBLAS, as the README advises; peers run as they are.
"""

import importlib.util
import time
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as theirs

import probml_jax as pml
from benchmarks.timing import Row, measure
from probml_jax.gaussian_processes import GaussianProcess, kernels


def _data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = 3 * rng.uniform(size=(n, d))
    return x, np.sin(x.sum(1)) + 0.2 * rng.normal(size=n)


def _has_tinygp() -> bool:
    return importlib.util.find_spec("tinygp") is not None


def value_and_gradient(n: int = 2_000, d: int = 3) -> list[Row]:
    x, y = _data(n, d)
    data = jnp.asarray(x), jnp.asarray(y)
    gp = GaussianProcess(1.0 * kernels.RBF(jnp.ones(d)), noise=0.05)
    slope = jax.jit(jax.value_and_grad(lambda gp, data: gp.log_prob(data)))
    mine = measure(lambda: slope(gp, data), 7, blas_threads=1)
    memory = slope.lower(gp, data).compile().memory_analysis().temp_size_in_bytes / 8 / n**2
    kernel = theirs.ConstantKernel(1.0) * theirs.RBF([1.0] * d) + theirs.WhiteKernel(0.05)
    peer = GaussianProcessRegressor(kernel, alpha=0, optimizer=None).fit(x, y)
    other = measure(lambda: peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True), 3)
    off = abs(float(slope(gp, data)[0]) / peer.log_marginal_likelihood_value_ - 1)
    note = f"values agree to {off:.0e}; {memory:.1f} n^2 numbers of working memory"
    name = f"GP evidence and gradient, N={n:,} D={d} ARD, float64"
    rows = [Row(name, "scikit-learn", other.run, mine.run, mine.first, 1.3, note)]
    if _has_tinygp():
        import tinygp

        def evidence(raw, data):
            kernel = raw[0] * tinygp.transforms.Linear(1 / raw[1 : d + 1], tinygp.kernels.ExpSquared())
            return tinygp.GaussianProcess(kernel, data[0], diag=raw[-1]).log_probability(data[1])

        their_slope, raw = jax.jit(jax.value_and_grad(evidence)), jnp.asarray([1.0] * (d + 1) + [0.05])
        other = measure(lambda: their_slope(raw, data), 5)
        rows.append(Row(name, "tinygp", other.run, mine.run, mine.first, 1.3))
    return rows


def restarts(n: int = 500, d: int = 3, count: int = 8) -> list[Row]:
    """The best of several starts: by a race, as the library advises, and with every start fitted to all data."""
    x, y = _data(n, d)
    data = jnp.asarray(x), jnp.asarray(y)
    gp = GaussianProcess(1.0 * kernels.RBF(jnp.ones(d)), noise=0.05)
    starts = jax.vmap(lambda key: pml.perturbed(key, gp))(jr.split(jr.key(0), count))
    kernel = theirs.ConstantKernel(1.0) * theirs.RBF([1.0] * d) + theirs.WhiteKernel(0.05)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer = GaussianProcessRegressor(kernel, alpha=0, n_restarts_optimizer=count - 1, random_state=0).fit(x, y)
    seconds = time.perf_counter() - started
    rows = []
    ways = {"in a race": {}, "each to its end": {"fraction": 1.0}}
    for (way, options), target in zip(ways.items(), (10, None), strict=True):
        run = lambda options=options: pml.race(starts, data, pml.LBFGS(), **options)
        mine = measure(run, 3, blas_threads=1)
        note = f"best evidence {float(run().final_objective):.3f}, theirs {peer.log_marginal_likelihood_value_:.3f}"
        name = f"GP fit with {count} restarts {way}, N={n} D={d}, float64"
        rows.append(Row(name, "scikit-learn", seconds, mine.run, mine.first, target, note))
    return rows


def long_series(n: int = 100_000, m: int = 1_000) -> list[Row]:
    """Few new inputs: the peer forms a matrix of n by m."""
    if not _has_tinygp():
        return []
    import tinygp

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 1000, n))
    y, new = np.sin(x) + 0.3 * rng.normal(size=n), jnp.asarray(np.sort(rng.uniform(0, 1000, m)))
    data = jnp.asarray(x), jnp.asarray(y)
    gp = GaussianProcess(1.0 * kernels.Matern32(2.0), noise=0.1)
    score = jax.jit(lambda gp, data: gp.log_prob(data))
    mine = measure(lambda: score(gp, data), 5)
    process = lambda x: tinygp.GaussianProcess(tinygp.kernels.quasisep.Matern32(2.0), x, diag=0.1)
    evidence = jax.jit(lambda x, y: process(x).log_probability(y))
    other = measure(lambda: evidence(*data), 5)
    off = abs(float(score(gp, data)) / float(evidence(*data)) - 1)
    name = f"GP by state space, N={n:,}, float64"
    rows = [Row(f"{name}: evidence", "tinygp", other.run, mine.run, mine.first, 1, f"values agree to {off:.0e}")]
    answer = jax.jit(lambda gp, data, new: (lambda post: (post.mean(new), post.variance(new)))(gp.condition(*data)))
    mine = measure(lambda: answer(gp, data, new), 3)

    def theirs(x, y, new):
        found = process(x).condition(y, new).gp
        return found.loc, found.variance

    theirs = jax.jit(theirs)
    other = measure(lambda: theirs(*data, new), 3)
    return [*rows, Row(f"{name}: condition, predict {m:,}", "tinygp", other.run, mine.run, mine.first, 1)]


def million() -> list[Row]:
    """One million points: evidence alone."""
    if not _has_tinygp():
        return []
    import tinygp

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 10_000, 1_000_000))
    data = jnp.asarray(x), jnp.asarray(np.sin(x) + 0.3 * rng.normal(size=x.size))
    gp = GaussianProcess(1.0 * kernels.Matern32(2.0), noise=0.1)
    score = jax.jit(lambda gp, data: gp.log_prob(data))
    mine = measure(lambda: score(gp, data), 3)
    process = lambda x: tinygp.GaussianProcess(tinygp.kernels.quasisep.Matern32(2.0), x, diag=0.1)
    evidence = jax.jit(lambda x, y: process(x).log_probability(y))
    other = measure(lambda: evidence(*data), 3)
    off = abs(float(score(gp, data)) / float(evidence(*data)) - 1)
    name = "GP by state space, N=1,000,000, float64: evidence"
    return [Row(name, "tinygp", other.run, mine.run, mine.first, 1, f"values agree to {off:.0e}")]


def rows(data_dir=None) -> list[Row]:
    return [*value_and_gradient(), *restarts(), *long_series(), *million()]
