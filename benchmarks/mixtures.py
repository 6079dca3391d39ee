"""Gaussian mixture EM and k-means against scikit-learn, restarts by vmap, and the latency of a small fit."""

import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import probml_jax as pml
from benchmarks.timing import Row, measure, per_step
from probml_jax.methods.em import pooled_e_step


def _data(n: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(k, d)) * 3
    xs = centers[rng.integers(0, k, n)] + rng.normal(size=(n, d))
    return xs, xs[rng.choice(n, k, replace=False)]


def gaussian_mixture(dtype: str, target: float, n: int = 100_000, d: int = 16, k: int = 16) -> Row:
    """One EM step, full covariances, both from the same start; log-likelihoods must agree."""
    data, means = (a.astype(dtype) for a in _data(n, d, k))
    precision = np.linalg.inv(np.cov(data.T)).astype(dtype)

    def peer(steps):
        model = GaussianMixture(
            k,
            max_iter=steps,
            tol=0,
            reg_covar=0,
            means_init=means,
            weights_init=np.full(k, 1 / k, dtype),
            precisions_init=np.repeat(precision[None], k, 0),
            init_params="random_from_data",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(data)

    xs = jnp.asarray(data)
    member = lambda m: pml.ML(pml.distributions.MultivariateNormal(m, jnp.asarray(np.cov(data.T), dtype)))
    weights = pml.ML(pml.distributions.Categorical(jnp.full(k, 1 / k, dtype)))
    start = pml.mixtures.Mixture(weights, pml.Stacked(jax.vmap(member)(jnp.asarray(means))))
    ours = lambda steps: pml.fit(start, xs, pml.EM(), max_steps=steps, rtol=-1.0)
    theirs, _ = per_step(peer, 2, 12, repeats=2)
    mine, first = per_step(ours, 2, 22)
    reached, wanted = float(ours(20).final_objective), peer(20).score(data) * n
    step = jax.jit(lambda x: pooled_e_step(start, x, jnp.ones(n, dtype), None))
    memory = step.lower(xs).compile().memory_analysis().temp_size_in_bytes / 2**20
    note = (
        f"log-likelihood differs by {abs(reached - wanted) / abs(wanted):.1e} relative; {memory:.0f} MB working memory"
    )
    return Row(f"GMM EM step, N={n:,} D={d} K={k} full, {dtype}", "scikit-learn", theirs, mine, first, target, note)


def kmeans(dtype: str, n: int = 100_000, d: int = 16, k: int = 16) -> Row:
    """One Lloyd step from the same centers."""
    # without clusters, so that neither side converges before the last step that is timed
    data = np.random.default_rng(0).normal(size=(n, d)).astype(dtype)
    centers = data[:k]

    def peer(steps):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return KMeans(k, init=centers, n_init=1, max_iter=steps, tol=0, algorithm="lloyd").fit(data)

    xs, start = jnp.asarray(data), pml.mixtures.KMeans(jnp.asarray(centers))
    ours = lambda steps: pml.fit(start, xs, max_steps=steps, rtol=-1.0)
    theirs, _ = per_step(peer, 2, 8)
    mine, first = per_step(ours, 2, 22)
    gap = abs(-float(ours(8).final_objective) - peer(8).inertia_) / peer(8).inertia_
    return Row(
        f"k-means step, N={n:,} D={d} K={k}, {dtype}", "scikit-learn", theirs, mine, first, None, f"inertia {gap:.1e}"
    )


def restarts() -> Row:
    """64 restarts in one vmap against 64 times one fit."""
    xs = jnp.asarray(_data(1000, 2, 3)[0], jnp.float32)
    fit = lambda key: pml.fit(pml.mixtures.gaussian_mixture(key, xs, num_components=3), xs, max_steps=50, rtol=-1.0)
    one, many = jax.jit(fit), jax.jit(jax.vmap(fit))
    keys = jr.split(jr.key(0), 64)
    single = measure(lambda: one(keys[0]))
    batch = measure(lambda: many(keys))
    alone = np.array([one(key).final_objective for key in keys])
    gap = float(np.max(np.abs(alone - many(keys).final_objective) / np.abs(alone)))
    note = f"64 restarts cost {batch.run / single.run:.1f} fits (target: under 40); objectives agree to {gap:.0e}"
    return Row("64 restarts by vmap", "64 single fits", 64 * single.run, batch.run, batch.first, 1.6, note)


def small_fit() -> Row:
    """Latency: N=1,000, D=2, K=3, 50 steps."""
    data, _ = _data(1000, 2, 3)
    data = data.astype("float32")
    xs = jnp.asarray(data)
    start = pml.mixtures.gaussian_mixture(jr.key(0), xs, num_components=3)
    ours = measure(lambda: pml.fit(start, xs, max_steps=50, rtol=-1.0), repeats=20)

    def peer():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return GaussianMixture(3, max_iter=50, tol=0, random_state=0).fit(data)

    theirs = measure(peer)
    return Row(
        "small GMM fit, N=1,000 D=2 K=3, 50 steps",
        "scikit-learn",
        theirs.run,
        ours.run,
        ours.first,
        None,
        "targets: first call under 3 s, second under 5 ms",
    )


def rows(data_dir=None) -> list[Row]:
    small = [small_fit(), restarts()]
    return [
        *small,
        gaussian_mixture("float32", 6),
        gaussian_mixture("float64", 5),
        kmeans("float32"),
        kmeans("float64"),
    ]
