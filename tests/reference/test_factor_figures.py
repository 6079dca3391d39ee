"""PCA, probabilistic PCA and factor analysis against scikit-learn."""

import warnings

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn import datasets
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.decomposition._factor_analysis import _ortho_rotation
from sklearn.exceptions import ConvergenceWarning

import probml_jax as pml
from probml_jax import factors

IRIS = datasets.load_iris().data
WINE = datasets.load_wine().data
WIDE = np.random.default_rng(0).normal(size=(30, 80)) * np.linspace(3, 0.5, 80)


@pytest.mark.parametrize(
    ("xs", "method"), [(WINE, "auto"), (WINE, "svd"), (WINE, "eigen"), (WIDE, "auto"), (WIDE, "eigen")]
)
def test_pca(xs, method):
    ours, theirs = factors.PCA.from_data(jnp.asarray(xs), 4, method=method), PCA(4, svd_solver="full").fit(xs)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    close(ours.mean, theirs.mean_)
    close(ours.components, theirs.components_)
    close(ours.explained_variance, theirs.explained_variance_)
    close(ours.explained_variance_ratio, theirs.explained_variance_ratio_)
    close(ours.singular_values, theirs.singular_values_)
    close(ours.noise_variance, theirs.noise_variance_)
    close(ours.transform(jnp.asarray(xs)), theirs.transform(xs))
    close(ours.reconstruct(jnp.asarray(xs)), theirs.inverse_transform(theirs.transform(xs)))


def test_probabilistic_pca_scores_as_pca_does():
    """Theirs divides by n - 1, so it is a little off the maximum of the likelihood, which is ours."""
    n = len(WINE)
    peer = PCA(3, svd_solver="full").fit(WINE)
    ours = factors.PPCA.from_data(jnp.asarray(WINE), 3)
    np.testing.assert_allclose(ours.noise_variance[0] * n / (n - 1), peer.noise_variance_, rtol=1e-9)
    np.testing.assert_allclose(ours.marginal_covariance() * n / (n - 1), peer.get_covariance(), rtol=1e-8)
    score = float(pml.objective(ours, jnp.asarray(WINE), jnp.ones(n)))
    assert score >= peer.score(WINE) * n
    leaf = pml.distributions.LinearSphericalNormal(
        peer.components_.T * np.sqrt(peer.explained_variance_ - peer.noise_variance_),
        peer.mean_,
        np.sqrt(peer.noise_variance_),
    )
    theirs = factors.PPCA(pml.ML(leaf))
    scores = np.array([theirs.log_prob(jnp.asarray(x)) for x in WINE[:5]])
    np.testing.assert_allclose(scores, peer.score_samples(WINE)[:5], rtol=1e-10)


def _peer(xs, size):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return FactorAnalysis(size, max_iter=20_000, tol=1e-12, svd_method="lapack").fit(xs)


def test_factor_analysis_reaches_the_same_likelihood():
    xs = (WINE - WINE.mean(0)) / WINE.std(0)
    peer = _peer(xs, 3)
    result = pml.fit(
        factors.factor_analysis(jr.key(0), jnp.asarray(xs), 3), jnp.asarray(xs), max_steps=20_000, rtol=1e-14
    )
    np.testing.assert_allclose(result.final_objective, peer.score(xs) * len(xs), rtol=1e-9)
    np.testing.assert_allclose(result.model.marginal_covariance(), peer.get_covariance(), atol=1e-4)
    np.testing.assert_allclose(result.model.noise_variance, peer.noise_variance_, atol=1e-4)


def test_a_heywood_case_is_climbed_at_least_as_far():
    """One factor of the irises leaves nothing of a petal's length: EM, theirs too, takes for ever; L-BFGS does not."""
    xs = (IRIS - IRIS.mean(0)) / IRIS.std(0)
    start = factors.factor_analysis(jr.key(0), jnp.asarray(xs), 1)
    result = pml.fit(start, jnp.asarray(xs), pml.LBFGS(), max_steps=500, rtol=1e-12)
    theirs = _peer(xs, 1).score(xs) * len(xs)
    assert float(result.final_objective) > theirs
    np.testing.assert_allclose(result.final_objective, theirs, rtol=1e-5)
    by_em = pml.fit(start, jnp.asarray(xs), max_steps=3000, rtol=1e-12)
    assert float(by_em.final_objective) < float(result.final_objective)
    np.testing.assert_allclose(by_em.final_objective, result.final_objective, rtol=1e-4)


@pytest.mark.parametrize("xs", [IRIS, WINE, datasets.load_breast_cancer().data[:, :10]], ids=["iris", "wine", "cancer"])
def test_the_dimension_is_minkas(xs):
    xs = (xs - xs.mean(0)) / xs.std(0)
    peer = PCA("mle", svd_solver="full").fit(xs)
    assert factors.choose_dimension(jnp.asarray(xs)) == peer.n_components_


def test_the_evidence_of_every_dimension_is_minkas():
    from sklearn.decomposition._pca import _assess_dimension

    xs = (WINE - WINE.mean(0)) / WINE.std(0)
    spectrum = PCA(svd_solver="full").fit(xs).explained_variance_
    theirs = [_assess_dimension(spectrum, k, len(xs)) for k in range(1, xs.shape[1])]
    np.testing.assert_allclose(factors.dimension_evidence(jnp.asarray(xs)), theirs, rtol=1e-9)


def test_varimax_is_theirs():
    loadings = np.random.default_rng(1).normal(size=(9, 3))
    theirs = _ortho_rotation(loadings.copy(), tol=1e-14, max_iter=5000).T
    ours = np.asarray(factors.varimax(jnp.asarray(loadings), normalize=False).loadings)
    variance = lambda a: np.sum(np.var(a**2, axis=0))
    assert variance(ours) >= variance(theirs) - 1e-9
    order = np.argsort(-np.sum(theirs**2, axis=0))
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs[:, order]), atol=1e-5)


def test_model_choice_works_on_factor_models():
    xs = jnp.asarray((WINE - WINE.mean(0)) / WINE.std(0))
    criteria = [float(pml.selection.bic(factors.PPCA.from_data(xs, k), xs)) for k in (1, 2, 3, 12)]
    assert np.all(np.isfinite(criteria))
    assert criteria[3] > min(criteria)
