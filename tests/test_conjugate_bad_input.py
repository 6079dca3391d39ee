"""Conjugate priors: every documented refusal, what is missing, and the edges of the domain."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from probml_jax import conjugate as pc
from probml_jax import distributions as pd

EYE = jnp.eye(2)
ZERO = jnp.zeros(2)
NIW = pc.NormalInverseWishart(ZERO, 1.0, EYE, 4.0)

evidence = jax.jit(lambda prior, xs, weights=None: prior.log_evidence(xs, weights))
update = jax.jit(lambda prior, xs: prior.update(xs))

BAD_PRIORS = {
    "alpha must be positive": lambda: pc.BetaBernoulli(0.0, 1.0),
    "beta must be positive": lambda: pc.BetaBinomial(1.0, -1.0, 3),
    "total_count must be non-negative whole": lambda: pc.BetaBinomial(1.0, 1.0, 2.5),
    "concentration must be positive": lambda: pc.DirichletCategorical([1.0, 0.0]),
    "concentration has shape": lambda: pc.DirichletMultinomial([[1.0, 2.0]], 3),
    "shape must be positive": lambda: pc.GammaPoisson(-1.0, 1.0),
    "rate must be positive": lambda: pc.GammaExponential(1.0, 0.0),
    "rate has shape": lambda: pc.GammaPoisson(jnp.ones(3), jnp.ones(2)),
    "known_scale must be positive": lambda: pc.NormalKnownVariance(0.0, 1.0, 0.0),
    "known_covariance must be positive definite": lambda: pc.MultivariateNormalKnownCovariance(ZERO, EYE, -EYE),
    "covariance has shape": lambda: pc.MultivariateNormalKnownCovariance(ZERO, jnp.eye(3), EYE),
    "df must be greater than 1": lambda: pc.NormalInverseWishart(ZERO, 1.0, EYE, 1.0),
    "strength must be positive": lambda: pc.NormalInverseWishart(ZERO, 0.0, EYE, 4.0),
    "scale must be positive definite": lambda: pc.NormalInverseWishart(ZERO, 1.0, -EYE, 4.0),
    "scale must be symmetric": lambda: pd.Wishart(4.0, [[1.0, 0.5], [0.0, 1.0]]),
    "scale has shape": lambda: pc.InverseWishartKnownMean(4.0, EYE, jnp.zeros(3)),
    "known_loc has shape": lambda: pc.InverseWishartKnownMean(4.0, EYE, 0.0),
    "df must be positive": lambda: pc.NormalInverseChiSquared(0.0, 1.0, 0.0, 1.0),
    "strength has shape": lambda: pc.SphericalNormalInverseChiSquared(ZERO, jnp.ones(3), 1.0, 1.0),
    "column_precision has shape": lambda: pc.MatrixNormalInverseWishart(jnp.zeros((2, 3)), EYE, EYE, 4.0),
    "loc has shape": lambda: pd.MatrixNormal(ZERO, EYE, EYE),
    "offset has shape": lambda: pd.LinearGaussian(EYE, jnp.zeros(3), EYE),
    "input_covariance has shape": lambda: pd.LinearStudentT(4.0, EYE, ZERO, EYE, EYE),
}


@pytest.mark.parametrize("message", list(BAD_PRIORS))
def test_bad_hyper_parameters_are_named(message):
    with pytest.raises(ValueError, match=message):
        BAD_PRIORS[message]()


BAD_DATA = {
    "features": (NIW, jnp.zeros((3, 5))),
    "wanted": (NIW, jnp.zeros(3)),
    "empty": (NIW, jnp.zeros((0, 2))),
    "infinite": (NIW, jnp.array([[1.0, jnp.inf]])),
    "labels": (pc.DirichletCategorical([1.0, 1.0]), jnp.array([0, 2])),
    "0 or 1": (pc.BetaBernoulli(1.0, 1.0), jnp.array([0, 2])),
    "exceed total_count": (pc.BetaBinomial(1.0, 1.0, 3), jnp.array([4])),
    "sum to total_count": (pc.DirichletMultinomial([1.0, 1.0], 3), jnp.array([[1, 1]])),
    "whole": (pc.GammaPoisson(1.0, 1.0), jnp.array([0.5])),
    "negative": (pc.GammaExponential(1.0, 1.0), jnp.array([-0.5])),
    "tuple": (pc.MatrixNormalInverseWishart(EYE, EYE, EYE, 4.0), jnp.ones((3, 2))),
    "x has shape": (pc.MatrixNormalInverseWishart(EYE, EYE, EYE, 4.0), (jnp.ones((3, 3)), jnp.ones((3, 2)))),
    "different numbers": (pc.MatrixNormalInverseWishart(EYE, EYE, EYE, 4.0), (jnp.ones((3, 2)), jnp.ones((4, 2)))),
}


@pytest.mark.parametrize("message", list(BAD_DATA))
def test_bad_data_are_refused(message):
    prior, xs = BAD_DATA[message]
    for method in (prior.update, prior.downdate, prior.log_evidence):
        with pytest.raises(ValueError, match=message):
            method(xs)


def test_bad_weights_are_refused():
    for weights, message in (([1.0, -1.0], "non-negative"), ([0.0, 0.0], "all zero"), ([1.0], "shape")):
        with pytest.raises(ValueError, match=message):
            NIW.update(jnp.ones((2, 2)), jnp.array(weights))


FULL = {
    "niw": (NIW, jnp.array([[1.0, 2.0], [jnp.nan, 0.5], [0.3, 0.4]])),
    "iw": (pc.InverseWishartKnownMean(4.0, EYE, ZERO), jnp.array([[1.0, 2.0], [jnp.nan, 0.5], [0.3, 0.4]])),
    "mvn": (pc.MultivariateNormalKnownCovariance(ZERO, EYE, EYE), jnp.array([[1.0, 2.0], [jnp.nan, 0.5], [0.3, 0.4]])),
    "mniw": (
        pc.MatrixNormalInverseWishart(EYE, EYE, EYE, 4.0),
        (jnp.array([[1.0, 2.0], [0.1, 0.5], [0.3, 0.4]]), jnp.array([[1.0, 2.0], [jnp.nan, 0.5], [0.3, 0.4]])),
    ),
    "multinomial": (pc.DirichletMultinomial([1.0, 2.0], 3), jnp.array([[1.0, 2.0], [jnp.nan, 0.0], [0.0, 3.0]])),
}


@pytest.mark.parametrize("name", list(FULL))
def test_joint_families_refuse_incomplete_rows(name):
    prior, xs = FULL[name]
    for method in (prior.update, prior.downdate, prior.log_evidence):
        with pytest.raises(ValueError, match="complete rows"):
            method(xs)
    # in compiled code nothing raises: the answer is NaN, not a guess
    assert np.isnan(evidence(prior, xs))
    # as padding, with no weight, an incomplete row does not matter
    weights = jnp.array([1.0, 0.0, 1.0])
    kept = jax.tree_util.tree_map(lambda x: x[np.array([0, 2])], xs)
    np.testing.assert_allclose(evidence(prior, xs, weights), evidence(prior, kept), rtol=1e-10)


def test_incomplete_inputs_of_a_regression_are_refused():
    prior = pc.MatrixNormalInverseWishart(EYE, EYE, EYE, 4.0)
    with pytest.raises(ValueError, match="x has NaN"):
        prior.update((jnp.array([[jnp.nan, 1.0]]), jnp.ones((1, 2))))


INDEPENDENT = {
    "bernoulli": (lambda: pc.BetaBernoulli([1.0, 2.0], [2.0, 1.5]), [[1.0, 0.0], [np.nan, 1.0], [0.0, np.nan]]),
    "binomial": (lambda: pc.BetaBinomial([1.0, 2.0], [2.0, 1.5], 3.0), [[1.0, 0.0], [np.nan, 2.0], [3.0, np.nan]]),
    "poisson": (lambda: pc.GammaPoisson([1.0, 2.0], [2.0, 1.5]), [[1.0, 0.0], [np.nan, 4.0], [3.0, np.nan]]),
    "exponential": (lambda: pc.GammaExponential([1.0, 2.0], [2.0, 1.5]), [[1.0, 0.2], [np.nan, 4.0], [3.0, np.nan]]),
    "known": (lambda: pc.NormalKnownVariance([1.0, 2.0], 1.5, [1.0, 2.0]), [[1.0, 0.2], [np.nan, 4.0], [3.0, np.nan]]),
    "nix": (
        lambda: pc.NormalInverseChiSquared([1.0, 2.0], [0.5, 1.0], [3.0, 4.0], [1.0, 2.0]),
        [[1.0, 0.2], [np.nan, 4.0], [3.0, np.nan]],
    ),
}


@pytest.mark.parametrize("name", list(INDEPENDENT))
def test_missing_coordinates_are_dropped_exactly(name):
    make, data = INDEPENDENT[name]
    prior, xs = make(), jnp.array(data)
    coordinate = lambda j: jax.tree_util.tree_map(lambda a: a[j], prior)
    parts = [(coordinate(0), xs[np.array([0, 2]), 0]), (coordinate(1), xs[np.array([0, 1]), 1])]
    np.testing.assert_allclose(evidence(prior, xs), sum(evidence(p, x) for p, x in parts), rtol=1e-10)
    posterior = update(prior, xs)
    for j, (part, x) in enumerate(parts):
        for ours, alone in zip(
            jax.tree_util.tree_leaves(posterior), jax.tree_util.tree_leaves(update(part, x)), strict=True
        ):
            np.testing.assert_allclose(ours[j], alone, rtol=1e-10)
    np.testing.assert_allclose(prior.expected_log_prob(xs[1]), coordinate(1).expected_log_prob(xs[1, 1]), rtol=1e-10)


def test_missing_coordinates_of_a_spherical_normal_are_dropped_exactly():
    prior = pc.SphericalNormalInverseChiSquared([1.0, 2.0], 0.5, 3.0, 1.0)
    xs = jnp.array([[1.0, 0.2], [np.nan, 4.0], [3.0, np.nan]])
    predict = jax.jit(lambda p, x: p.predictive().log_prob(x))
    total, posterior = 0.0, prior
    for i in range(3):
        total += predict(posterior, xs[i])
        posterior = update(posterior, xs[i : i + 1])
    np.testing.assert_allclose(evidence(prior, xs), total, rtol=1e-10)
    together = jax.flatten_util.ravel_pytree(update(prior, xs))[0]
    np.testing.assert_allclose(together, jax.flatten_util.ravel_pytree(posterior)[0], rtol=1e-10)


def test_unobserved_labels_say_nothing():
    prior = pc.DirichletCategorical([1.0, 2.0, 0.5])
    np.testing.assert_allclose(prior.update(jnp.array([0, -1, 2])).concentration, [2.0, 2.0, 1.5])
    assert prior.expected_log_prob(-1) == 0
    np.testing.assert_allclose(prior.log_evidence(jnp.array([0, -1])), prior.log_evidence(jnp.array([0])), rtol=1e-10)


def test_modes_on_the_boundary():
    probs = lambda a: np.asarray(pc.DirichletCategorical(a).mode().probs)
    np.testing.assert_allclose(probs([3.0, 0.5, 2.0]), [2 / 3, 0, 1 / 3])
    np.testing.assert_allclose(probs([0.5, 0.25, 0.25]), [0.5, 0.25, 0.25])
    beta = lambda a, b: float(pc.BetaBernoulli(a, b).mode().probs)
    assert (beta(0.5, 3.0), beta(3.0, 1.0), beta(0.6, 0.2)) == (0.0, 1.0, pytest.approx(0.75))
    assert pc.GammaPoisson(0.5, 1.0).mode().rate == 0
    with pytest.raises(ValueError, match="shape must be greater than 1"):
        pc.GammaExponential(0.5, 1.0).mode()


NO_MEAN = {
    "niw": lambda: pc.NormalInverseWishart(ZERO, 1.0, EYE, 3.0),
    "iw": lambda: pc.InverseWishartKnownMean(3.0, EYE, ZERO),
    "nix": lambda: pc.NormalInverseChiSquared(0.0, 1.0, 2.0, 1.0),
    "spherical": lambda: pc.SphericalNormalInverseChiSquared(ZERO, 1.0, 2.0, 1.0),
    "mniw": lambda: pc.MatrixNormalInverseWishart(EYE, EYE, EYE, 3.0),
}


@pytest.mark.parametrize("name", list(NO_MEAN))
def test_a_mean_that_does_not_exist_is_refused(name):
    prior = NO_MEAN[name]()
    with pytest.raises(ValueError, match="df must be greater"):
        prior.mean()
    compiled = jax.flatten_util.ravel_pytree(jax.jit(lambda p: p.mean())(prior))[0]
    assert not np.all(np.isfinite(compiled))


def test_sparse_priors_keep_finite_scores_in_single_precision():
    """Where the expected member's probabilities round to zero, expected logarithms and evidence do not."""
    tiny = jnp.asarray(1e-3, "float32")
    dirichlet = pc.DirichletCategorical(jnp.stack([tiny, tiny, jnp.ones_like(tiny)]))
    beta = pc.BetaBernoulli(tiny, tiny)
    for value in (dirichlet.expected_log_prob(0), beta.expected_log_prob(0), beta.expected_log_prob(1)):
        assert np.isfinite(value)
    assert np.isfinite(dirichlet.log_evidence(jnp.array([0, 0, 2])))
    assert np.isfinite(beta.log_evidence(jnp.array([0, 0, 0])))
