"""Formulas that circulate in a wrong form (docs/errata.md): the library has the corrected one and not the other.

Numbers 2, 4, 5, 6 and 14 are in `test_matrix_distributions.py`, number 12 in `test_factors.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import probml_jax as pml

MEANS = np.array([[0.0, 1.0], [2.0, -0.5]])
SPREADS = np.array([[[1.0, 0.3], [0.3, 0.5]], [[2.0, -0.4], [-0.4, 1.5]]])
PRIOR = np.array([0.2, 0.8])
X = np.random.default_rng(0).normal(size=(6, 2))


def classifier(spreads=SPREADS):
    gaussians = jax.vmap(pml.distributions.MultivariateNormal)(jnp.asarray(MEANS), jnp.asarray(spreads))
    prior = pml.ML(pml.distributions.Categorical(jnp.asarray(PRIOR)))
    return pml.classifiers.GenerativeClassifier(prior, pml.Stacked(pml.ML(gaussians)))


def log_det(matrix):
    return np.linalg.slogdet(matrix)[1]


def test_erratum_1_the_constant_of_the_quadratic_boundary():
    (m1, m2), (s1, s2), (p1, p2) = MEANS, SPREADS, PRIOR
    i1, i2 = np.linalg.inv(s1), np.linalg.inv(s2)
    found = classifier().decision_boundary(0, 1)
    np.testing.assert_allclose(found.a, 0.5 * (i2 - i1), rtol=1e-12)
    np.testing.assert_allclose(found.b, i1 @ m1 - i2 @ m2, rtol=1e-12)
    common = 0.5 * (m2 @ i2 @ m2 - m1 @ i1 @ m1) + 0.5 * (log_det(s2) - log_det(s1))
    np.testing.assert_allclose(found.c, common + np.log(p1 / p2), rtol=1e-12)
    assert abs(float(found.c) - (common + np.log(p2 / p1))) > 1


def test_erratum_3_the_likelihood_has_a_trace():
    member = pml.distributions.MultivariateNormal(jnp.asarray(MEANS[0]), jnp.asarray(SPREADS[0]))
    n, d = X.shape
    scatter = (X - MEANS[0]).T @ (X - MEANS[0])
    constant = -0.5 * n * (d * np.log(2 * np.pi) + log_det(SPREADS[0]))
    total = np.sum(jax.vmap(member.log_prob)(jnp.asarray(X)))
    np.testing.assert_allclose(total, constant - 0.5 * np.trace(np.linalg.solve(SPREADS[0], scatter)), rtol=1e-12)
    assert abs(total - (constant - 0.5 * n)) > 1
    best = member.refit(member.statistics(jnp.asarray(X), jnp.ones(n)))  # there the trace is n d
    at_best = -0.5 * n * (d * np.log(2 * np.pi) + log_det(np.asarray(best.covariance)) + d)
    np.testing.assert_allclose(np.sum(jax.vmap(best.log_prob)(jnp.asarray(X))), at_best, rtol=1e-12)


def mixture():
    return classifier().mixture


def test_erratum_7_the_bound_is_q_and_an_entropy():
    model, xs, weights = mixture(), jnp.asarray(X), jnp.ones(len(X))
    bound = float(model.e_step(xs, weights)[1])
    shares = np.asarray(model.responsibilities(xs)[0])
    q = float(model.surrogate(xs, weights, model))
    np.testing.assert_allclose(bound, q - np.sum(shares * np.log(shares)), rtol=1e-10)
    densities = np.stack([multivariate_normal(m, s).logpdf(X) for m, s in zip(MEANS, SPREADS, strict=True)])
    np.testing.assert_allclose(bound, np.sum(logsumexp(densities + np.log(PRIOR)[:, None], axis=0)), rtol=1e-10)
    assert q < bound


def test_erratum_8_equal_components_stay_equal_and_are_refused():
    same = jax.vmap(pml.distributions.MultivariateNormal)(jnp.zeros((2, 2)), jnp.stack([jnp.eye(2)] * 2))
    label = pml.ML(pml.distributions.Categorical(jnp.array([0.5, 0.5])))
    model = pml.mixtures.Mixture(label, pml.Stacked(pml.ML(same)))
    after = model.m_step(model.e_step(jnp.asarray(X), jnp.ones(len(X)))[0])
    locs = after.components.each.distribution.loc
    np.testing.assert_allclose(locs[0], locs[1], rtol=1e-12)
    with pytest.raises(ValueError, match="identical"):
        pml.fit(model, jnp.asarray(X))


def test_erratum_9_the_log_normalizer_of_the_categorical():
    member = pml.distributions.Categorical(jnp.array([0.2, 0.5, 0.3]))
    eta = np.asarray(member.natural())
    assert eta.shape == (2,)
    np.testing.assert_allclose(member.log_normalizer(), np.log(1 + np.sum(np.exp(eta))), rtol=1e-12)
    assert abs(float(member.log_normalizer()) - np.log(np.sum(np.exp(eta)))) > 0.1


@pytest.mark.parametrize("d", [1, 3])
def test_erratum_10_the_kernel_has_the_power_of_its_dimension(d):
    h = 0.4
    kde = pml.density.KernelDensity.from_data(jnp.zeros((1, d)), bandwidth=h)
    x = np.full(d, 0.3)
    value = -0.5 * d * np.log(2 * np.pi) - d * np.log(h) - x @ x / (2 * h**2)
    np.testing.assert_allclose(kde.log_prob(jnp.asarray(x)), value, rtol=1e-12)


def test_erratum_11_the_two_class_rule_has_priors_and_halves():
    model = classifier()
    for x in X:
        far = [(x - m) @ np.linalg.solve(s, x - m) for m, s in zip(MEANS, SPREADS, strict=True)]
        ratio = np.log(PRIOR[0] / PRIOR[1])
        ratio += -0.5 * (log_det(SPREADS[0]) - log_det(SPREADS[1])) - 0.5 * (far[0] - far[1])
        found = model.log_probs(jnp.asarray(x))
        np.testing.assert_allclose(found[0] - found[1], ratio, rtol=1e-10)
        assert int(model.predict(jnp.asarray(x))) == (0 if ratio > 0 else 1)


def test_erratum_13_the_softmax_of_lda_drops_a_common_factor():
    shared = np.stack([SPREADS[0]] * 2)
    model = classifier(shared)
    inverse = np.linalg.inv(SPREADS[0])
    for x in X:
        linear = MEANS @ inverse @ x - 0.5 * np.sum(MEANS @ inverse * MEANS, axis=1) + np.log(PRIOR)
        joint = np.asarray(model.log_joint(jnp.asarray(x)))
        left_out = -0.5 * x @ inverse @ x - np.log(2 * np.pi) - 0.5 * log_det(SPREADS[0])
        np.testing.assert_allclose(joint, linear + left_out, rtol=1e-10)
        np.testing.assert_allclose(model.probs(jnp.asarray(x)), np.exp(linear - logsumexp(linear)), rtol=1e-10)
