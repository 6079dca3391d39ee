"""Published and peer figures for mixtures: Old Faithful, iris, scikit-learn on random data."""

import csv

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from shared_data import shared_file
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture

import probml_jax as pml


def _best(xs, num_components, covariance, num_restarts=16):
    build = lambda key: pml.mixtures.gaussian_mixture(key, xs, num_components, covariance)
    run = jax.jit(jax.vmap(lambda key: pml.fit(build(key), xs, max_steps=2000, rtol=1e-12)))
    return pml.best_of(run(jr.split(jr.key(0), num_restarts)))


@pytest.fixture(scope="module")
def faithful():
    with shared_file("faithful.csv").open() as file:
        return jnp.asarray([[float(row["eruptions"]), float(row["waiting"])] for row in csv.DictReader(file)])


@pytest.mark.parametrize(
    ("num_components", "covariance", "figure"),
    [
        (1, "full", -1289.7967),
        (2, "full", -1130.2640),
        (2, "tied", -1140.1868),
        (2, "diagonal", -1147.8064),
        (2, "spherical", -1709.5293),
        (3, "tied", -1126.3159),
    ],
)
def test_old_faithful(faithful, num_components, covariance, figure):
    best = _best(faithful, num_components, covariance)
    assert best.final_objective == pytest.approx(figure, abs=6e-5)
    if (num_components, covariance) == (2, "full"):
        order = jnp.argsort(best.model.weights.distribution.probs)
        np.testing.assert_allclose(best.model.weights.distribution.probs[order], [0.3559, 0.6441], atol=6e-5)
        means = best.model.components.each.distribution.loc[order]
        np.testing.assert_allclose(means, [[2.0364, 54.4785], [4.2897, 79.9681]], atol=6e-5)


@pytest.mark.parametrize(
    ("num_components", "covariance", "figure"),
    [(2, "full", -214.3547), (3, "full", -180.1855), (3, "tied", -256.3540), (3, "diagonal", -306.8605)],
)
def test_iris(num_components, covariance, figure):
    iris = load_iris()
    best = _best(jnp.asarray(iris.data), num_components, covariance, 32)
    assert best.final_objective == pytest.approx(figure, abs=6e-5)
    if (num_components, covariance) == (3, "full"):
        clusters = np.asarray(jax.vmap(best.model.predict)(jnp.asarray(iris.data)))
        agree = sum(np.bincount(iris.target[clusters == k]).max() for k in range(3))
        assert agree == 145


@pytest.mark.parametrize("covariance", ["full", "diagonal", "spherical", "tied"])
def test_twenty_steps_of_em_are_scikit_learns(covariance):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 4))[rng.integers(0, 3, 300)] * 3 + rng.normal(size=(300, 4))
    xs = jnp.asarray(data)
    ours = pml.mixtures.gaussian_mixture(jr.key(0), xs, 3, covariance, init=data[:3])
    if covariance == "tied":
        dist = ours.components.each.distribution
        precisions = np.linalg.inv(dist.covariance)
    elif covariance == "full":
        dist = ours.components.each.distribution
        precisions = np.linalg.inv(dist.covariance)
    else:
        dist = ours.components.each.distribution
        precisions = 1 / np.asarray(dist.scale) ** 2
    name = {"diagonal": "diag"}.get(covariance, covariance)
    peer = GaussianMixture(
        3,
        covariance_type=name,
        max_iter=20,
        tol=0,
        reg_covar=0,
        means_init=data[:3],
        weights_init=np.full(3, 1 / 3),
        precisions_init=precisions,
    )
    with pytest.warns(Warning, match="did not converge"):
        peer.fit(data)
    result = pml.fit(ours, xs, max_steps=20, rtol=-1.0)
    np.testing.assert_allclose(result.final_objective, peer.score(data) * 300, rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(result.model.posterior)(xs), peer.predict_proba(data), atol=1e-7)


def test_kmeans_is_scikit_learns():
    data = np.random.default_rng(1).normal(size=(200, 3))
    peer = KMeans(4, init=data[:4], n_init=1, max_iter=300, tol=0, algorithm="lloyd").fit(data)
    result = pml.fit(pml.mixtures.KMeans(jnp.asarray(data[:4])), jnp.asarray(data), max_steps=300, rtol=0.0)
    np.testing.assert_allclose(-result.final_objective, peer.inertia_, rtol=1e-10)
    np.testing.assert_allclose(result.model.centers, peer.cluster_centers_, rtol=1e-8)


def test_bic_and_aic_are_scikit_learns():
    data = load_iris().data
    peer = GaussianMixture(3, tol=1e-9, max_iter=2000, reg_covar=0, n_init=10, random_state=0).fit(data)
    best = _best(jnp.asarray(data), 3, "full", 32).model
    np.testing.assert_allclose(pml.selection.bic(best, jnp.asarray(data)), peer.bic(data), rtol=1e-5)
    np.testing.assert_allclose(pml.selection.aic(best, jnp.asarray(data)), peer.aic(data), rtol=1e-5)
