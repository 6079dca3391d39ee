"""Areas under ROC curves and kernel densities against scikit-learn."""

import jax.numpy as jnp
import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KernelDensity

import probml_jax as pml
from benchmarks.timing import Row, measure


def auc(dtype: str, weighted: bool, n: int = 200_000) -> Row:
    """One area from scores and labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, n)
    scores = (rng.normal(size=n) + labels).astype(dtype)
    weights = rng.uniform(size=n).astype(dtype) if weighted else None
    theirs = measure(lambda: roc_auc_score(labels, scores, sample_weight=weights))
    given = jnp.asarray(scores), jnp.asarray(labels), None if weights is None else jnp.asarray(weights)
    ours = measure(lambda: pml.decision.auc(*given))
    gap = abs(float(pml.decision.auc(*given)) - roc_auc_score(labels, scores, sample_weight=weights))
    name = f"AUC, N={n:,}{', weights' if weighted else ''}, {dtype}"
    return Row(name, "scikit-learn", theirs.run, ours.run, ours.first, 1, f"areas differ by {gap:.0e}")


def kernel_density(dtype: str, target: float | None, n: int = 10_000, d: int = 5) -> Row:
    """Gaussian kernels: log densities of n points under n others."""
    rng = np.random.default_rng(0)
    points, queries = rng.normal(size=(2, n, d))
    peer = KernelDensity(bandwidth=0.5).fit(points)
    theirs = measure(lambda: peer.score_samples(queries), repeats=2)
    kde = pml.density.KernelDensity.from_data(jnp.asarray(points, dtype), 0.5)
    asked = jnp.asarray(queries, dtype)
    ours = measure(lambda: kde.log_probs(asked))
    gap = np.abs(np.asarray(kde.log_probs(asked)) - peer.score_samples(queries)).max()
    name = f"kernel density, {n:,} x {n:,}, D={d}, {dtype}"
    return Row(name, "scikit-learn (float64)", theirs.run, ours.run, ours.first, target, f"log density {gap:.0e}")


def rows(data_dir=None) -> list[Row]:
    areas = [auc("float32", False), auc("float64", False), auc("float64", True)]
    return [*areas, kernel_density("float32", 40), kernel_density("float64", 40)]
