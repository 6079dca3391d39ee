"""PCA and factor analysis against scikit-learn, with log-likelihoods and components compared."""

import time
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.exceptions import ConvergenceWarning

import probml_jax as pml
from benchmarks.timing import Row, measure


def _data(n: int, d: int, p: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(n, d)) * rng.uniform(0.5, 1.5, d)
    return (rng.normal(size=(n, p)) @ rng.normal(size=(p, d)) + noise + 3).astype(dtype)


def _seconds(function) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def factor_analysis(dtype: str, n: int = 50_000, d: int = 32, p: int = 5, steps: int = 50) -> Row:
    """50 steps of EM, builder and summary included, against the quicker of the peer's two solvers."""
    data = _data(n, d, p, dtype)
    xs = jnp.asarray(data)

    def peer(method):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return FactorAnalysis(p, max_iter=steps, tol=0, svd_method=method, random_state=0).fit(data)

    def ours(count=steps):
        return pml.fit(pml.factors.factor_analysis(jr.key(0), xs, p), xs, pml.EM(), max_steps=count, rtol=-1.0)

    theirs = min(_seconds(lambda m=m: peer(m)) for m in ("randomized", "lapack"))
    mine = measure(ours)
    wanted = peer("lapack").score(data) * n
    gap = lambda count: abs(float(ours(count).final_objective) - wanted) / abs(wanted)
    note = f"log-likelihood differs by {gap(steps):.0e} relative after {steps} steps, {gap(500):.0e} after 500"
    name = f"factor analysis, N={n:,} D={d} P={p}, {steps} steps, {dtype}"
    return Row(name, "scikit-learn", theirs, mine.run, mine.first, 20, note)


def missing(dtype: str, n: int = 10_000, d: int = 32, p: int = 5) -> Row:
    """One step with a tenth of the entries missing, against one that imputes nothing: what incomplete events cost."""
    data = _data(n, d, p, dtype)
    holes = np.where(np.random.default_rng(1).uniform(size=data.shape) < 0.1, np.nan, data).astype(dtype)
    start = pml.factors.factor_analysis(jr.key(0), jnp.asarray(holes), p)
    gaussian = pml.mixtures.gaussian_mixture(jr.key(0), jnp.asarray(holes), 1)
    step = lambda model: measure(lambda: pml.fit(model, jnp.asarray(holes), max_steps=4, rtol=-1.0), repeats=3)
    mine, dense = step(start), step(gaussian)
    name = f"4 steps of EM with missing entries, N={n:,} D={d} P={p}, {dtype}"
    return Row(name, "our full Gaussian", dense.run, mine.run, mine.first, None, "p x p algebra instead of d x d")


def pca(dtype: str, n: int, d: int, k: int, method: str, solver: str) -> Row:
    """The leading components, up to the accuracy of the method."""
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(n, d)) * np.linspace(3, 0.1, d) + 1).astype(dtype)
    xs = jnp.asarray(data)
    key = jr.key(0) if method == "randomized" else None
    mine = measure(lambda: pml.factors.PCA.from_data(xs, k, method=method, key=key), repeats=9)
    theirs = measure(lambda: PCA(k, svd_solver=solver, random_state=0).fit(data), repeats=9)
    exact = PCA(k, svd_solver="full").fit(data).explained_variance_
    found = pml.factors.PCA.from_data(xs, k, method=method, key=key).explained_variance
    note = f"variances within {float(np.max(np.abs(found - exact) / exact)):.0e} of the exact ones"
    name = f"PCA ({method}), N={n:,} D={d:,} K={k}, {dtype}"
    return Row(name, f"scikit-learn ({solver})", theirs.run, mine.run, mine.first, 1, note)


def rows(data_dir=None) -> list[Row]:
    jax.config.update("jax_enable_x64", True)
    both = ("float32", "float64")
    return [
        *(factor_analysis(dtype) for dtype in both),
        missing("float32"),
        *(pca(dtype, 50_000, 32, 5, "auto", "auto") for dtype in both),
        *(pca(dtype, 500, 2_000, 5, "svd", "full") for dtype in both),
        *(pca(dtype, 500, 2_000, 5, "auto", "auto") for dtype in both),
        *(pca(dtype, 500, 2_000, 5, "randomized", "randomized") for dtype in both),
    ]
