"""Distributions over matrices: against SciPy, their reductions to one dimension, and the errata they settle."""

import functools

import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from probml_jax import conjugate
from probml_jax import distributions as pd
from probml_jax._exponential_family import bregman

S = np.array([[2.0, 0.6, 0.1], [0.6, 1.0, -0.2], [0.1, -0.2, 0.7]])
T = np.array([[1.0, -0.3, 0.0], [-0.3, 0.8, 0.2], [0.0, 0.2, 1.5]])
X = np.array([[1.5, 0.2, 0.3], [0.2, 0.9, 0.1], [0.3, 0.1, 1.1]])
ROW = np.array([[1.2, 0.4], [0.4, 0.7]])
M = np.array([[0.5, -1.0, 0.2], [0.1, 0.3, -0.4]])
Z = np.array([[0.1, 0.4, -0.8], [1.1, -0.2, 0.6]])

NIW = pd.NormalInverseWishart(jnp.array([0.5, -0.2]), 0.8, jnp.asarray(ROW), 9.0)
MNIW = pd.MatrixNormalInverseWishart(jnp.asarray(M), jnp.asarray(T), jnp.asarray(ROW), 9.0)
PAIRS = {
    "wishart": (pd.Wishart(4.5, S), pd.Wishart(6.0, T)),
    "inverse_wishart": (pd.InverseWishart(9.5, S), pd.InverseWishart(8.0, T)),
    "matrix_normal": (pd.MatrixNormal(M, ROW, S), pd.MatrixNormal(Z, np.eye(2), T)),
}
pairs = pytest.mark.parametrize("name", list(PAIRS))


update = jax.jit(lambda prior, xs: prior.update(xs))


@jax.jit
def learn(prior, xs):
    """The mode after the data, and the evidence."""
    return prior.update(xs).mode(), prior.log_evidence(xs)


def flat(tree):
    return jax.flatten_util.ravel_pytree(tree)[0]


def agree(value, expected, rtol=1e-10):
    np.testing.assert_allclose(value, expected, rtol=rtol, atol=1e-12)


# ------------------------------------------------------------------------------------------ references


def test_wishart_is_scipys():
    ours, theirs = pd.Wishart(4.5, S), scipy.stats.wishart(4.5, S)
    agree(ours.log_prob(jnp.asarray(X)), theirs.logpdf(X))
    agree(ours.entropy(), theirs.entropy())
    agree(ours.mean(), theirs.mean())
    agree(ours.mode(), theirs.mode())
    agree(ours.variance(), theirs.var())


def test_inverse_wishart_is_scipys():
    ours, theirs = pd.InverseWishart(5.5, S), scipy.stats.invwishart(5.5, S)
    agree(ours.log_prob(jnp.asarray(X)), theirs.logpdf(X))
    agree(ours.mean(), theirs.mean())
    agree(ours.mode(), theirs.mode())
    assert np.all(np.isnan(pd.InverseWishart(4.0, S).mean()))


def test_matrix_normal_is_scipys_and_the_vectorized_normal():
    ours, theirs = pd.MatrixNormal(M, ROW, S), scipy.stats.matrix_normal(M, ROW, S)
    agree(ours.log_prob(jnp.asarray(Z)), theirs.logpdf(Z))
    agree(ours.entropy(), theirs.entropy())
    vector = pd.MultivariateNormal(M.T.ravel(), np.kron(S, ROW))
    other = pd.MultivariateNormal(Z.T.ravel(), np.kron(T, np.eye(2)))
    agree(ours.kl(pd.MatrixNormal(Z, np.eye(2), T)), vector.kl(other))
    agree(ours.variance().T.ravel(), vector.variance())


def test_joint_densities_are_products_of_their_parts():
    mu, sigma = jnp.array([0.4, -0.1]), jnp.asarray(ROW + 0.5 * np.eye(2))
    covariance = scipy.stats.invwishart(9.0, ROW).logpdf(np.asarray(sigma))
    normal = scipy.stats.multivariate_normal([0.5, -0.2], sigma / 0.8).logpdf(mu)
    agree(NIW.log_prob((mu, sigma)), covariance + normal)
    normal = scipy.stats.matrix_normal(M, sigma, np.linalg.inv(T)).logpdf(Z)
    agree(MNIW.log_prob((jnp.asarray(Z), sigma)), covariance + normal)
    dist = pd.NormalInverseChiSquared(0.5, 0.8, 9.0, 1.3)
    parts = scipy.stats.invgamma(4.5, scale=4.5 * 1.3).logpdf(0.7) + scipy.stats.norm(0.5, np.sqrt(0.7 / 0.8)).logpdf(
        0.2
    )
    agree(dist.log_prob((jnp.asarray(0.2), jnp.asarray(0.7))), parts)


def test_lomax_is_scipys_and_the_predictive_of_gamma_exponential():
    ours, theirs = pd.Lomax(2.5, 1.3), scipy.stats.lomax(2.5, scale=1.3)
    agree(ours.log_prob(0.7), theirs.logpdf(0.7))
    agree(ours.entropy(), theirs.entropy())
    agree(ours.mean(), theirs.mean())
    agree(ours.variance(), theirs.var())
    assert ours.log_prob(-0.1) == -np.inf
    samples = jax.vmap(ours.sample)(jr.split(jr.key(0), 4000))
    assert scipy.stats.kstest(np.asarray(samples), theirs.cdf).pvalue > 1e-3


def test_linear_gaussian_is_least_squares():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)) + 5, rng.normal(size=(30, 2))
    start = pd.LinearGaussian(np.zeros((2, 3)), np.zeros(2), np.eye(2))
    fitted = jax.jit(lambda d: d.refit(d.statistics((jnp.asarray(x), jnp.asarray(y)), jnp.ones(30))))(start)
    design = np.column_stack([x, np.ones(30)])
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0].T
    residual = y - design @ coefficients.T
    agree(fitted.matrix, coefficients[:, :-1], rtol=1e-8)
    agree(fitted.offset, coefficients[:, -1], rtol=1e-8)
    agree(fitted.covariance, residual.T @ residual / 30, rtol=1e-8)
    score = scipy.stats.multivariate_normal(coefficients @ design[0], fitted.covariance).logpdf(y[0])
    agree(fitted.log_prob((jnp.asarray(x[0]), jnp.asarray(y[0]))), score, rtol=1e-8)
    half = fitted.log_prob((jnp.asarray(x[0]), jnp.array([y[0, 0], jnp.nan])))
    agree(
        half, scipy.stats.norm(fitted.given(jnp.asarray(x[0])).loc[0], np.sqrt(fitted.covariance[0, 0])).logpdf(y[0, 0])
    )


# ------------------------------------------------------------------------------------------ laws


@functools.cache
def draws(name):
    ours, other = PAIRS[name]
    draw = lambda x: (x, ours.log_prob(x), other.log_prob(x))
    return jax.jit(jax.vmap(lambda key: draw(ours.sample(key))))(jr.split(jr.key(1), 4000))


@pairs
def test_entropy_kl_and_mean_are_averages_over_samples(name):
    ours, other = PAIRS[name]
    events, log_p, log_q = map(np.asarray, draws(name))

    def within(values, expected):
        error = values.std(0) / np.sqrt(len(values))
        assert np.all(np.abs(values.mean(0) - np.asarray(expected)) < 5 * error)

    entropy, kl, itself, mean, top = jax.jit(
        lambda p, q: (p.entropy(), p.kl(q), p.kl(p), p.mean(), p.log_prob(p.mode()))
    )(ours, other)
    within(-log_p, entropy)
    within(log_p - log_q, kl)
    within(events, mean)
    agree(itself, 0)
    assert top > log_p.max()


@pytest.mark.parametrize("name", ["wishart", "inverse_wishart"])
def test_exponential_form(name):
    ours, other = PAIRS[name]
    x = jnp.asarray(X)
    eta, t = ours.natural(), ours.suffstats(x)
    linear = sum(jnp.sum(a * b) for a, b in zip(eta, t, strict=True))
    agree(ours.log_prob(x), linear - ours.log_normalizer() + ours.log_base_measure(x))
    agree(ours.kl(other), bregman(ours, other))
    for rebuilt in (ours.from_natural(eta), ours.from_mean_parameters(ours.mean_parameters())):
        agree(rebuilt.df, ours.df)
        agree(rebuilt.scale, ours.scale)
    agree(ours.mean_parameters()[0], ours.expected_log_det())
    mean = sum(jnp.sum(a * b) for a, b in zip(eta, ours.mean_parameters(), strict=True))
    agree(ours.entropy(), ours.log_normalizer() - mean)


@pytest.mark.parametrize("name", ["wishart", pytest.param("inverse_wishart", marks=pytest.mark.thorough)])
def test_maximum_likelihood_recovers_the_parameters(name):
    ours, other = PAIRS[name]
    xs, log_p, _ = draws(name)
    refit = jax.jit(lambda weights: other.refit(other.statistics(xs, weights)))
    fitted = refit(jnp.ones(4000))
    np.testing.assert_allclose(fitted.df, ours.df, rtol=0.1)
    np.testing.assert_allclose(fitted.scale, ours.scale, atol=0.15)
    assert jnp.mean(jax.jit(jax.vmap(lambda x: fitted.log_prob(x)))(xs)) >= jnp.mean(log_p)
    agree(flat(refit(jnp.zeros(4000))), flat(other), rtol=1e-8)


@pytest.mark.parametrize("dist", [pd.Wishart(4.5, S), pd.InverseWishart(4.5, S)])
def test_matrices_outside_the_cone_are_impossible_with_finite_gradients(dist):
    outside = jnp.diag(jnp.array([1.0, -0.5, 2.0]))
    assert dist.log_prob(outside) == -np.inf
    assert np.all(np.isfinite(jax.grad(dist.log_prob)(outside)))
    assert np.isnan(dist.log_prob(outside.at[0, 0].set(jnp.nan)))


def test_conditional_families_do_not_sample_pairs():
    line = pd.LinearGaussian([[2.0]], [1.0], [[1.0]])
    with pytest.raises(TypeError, match="given"):
        line.sample(jr.key(0))
    with pytest.raises(TypeError, match="given"):
        pd.LinearStudentT(5.0, [[2.0]], [1.0], [[1.0]], jnp.eye(2)).sample(jr.key(0))
    assert line.given(jnp.array([3.0])).sample(jr.key(0)).shape == (1,)


# ------------------------------------------------------------------------------------------ errata (docs/errata.md)


def test_erratum_2_the_scatter_of_the_niw_update_is_centred():
    xs = np.random.default_rng(3).normal(size=(7, 2)) + 1
    prior = conjugate.NormalInverseWishart(jnp.array([0.5, -0.2]), 0.8, jnp.asarray(ROW), 4.0)
    posterior = update(prior, jnp.asarray(xs))
    m0, k0, mN, kN = np.asarray(prior.loc), 0.8, np.asarray(posterior.loc), 7.8
    agree(mN, (k0 * m0 + xs.sum(0)) / kN)
    agree(posterior.scale, ROW + xs.T @ xs + k0 * np.outer(m0, m0) - kN * np.outer(mN, mN))
    shift = xs.mean(0) - m0
    agree(posterior.scale, ROW + 7 * np.cov(xs.T, bias=True) + k0 * 7 / kN * np.outer(shift, shift))


def test_erratum_4_the_inverse_of_a_wishart_keeps_its_degrees_of_freedom():
    x = jnp.asarray(X)
    jacobian = (S.shape[0] + 1) * np.linalg.slogdet(X)[1]  # of the inverse of a symmetric matrix
    inverse = pd.Wishart(5.5, np.linalg.inv(S)).log_prob(jnp.linalg.inv(x))
    agree(pd.InverseWishart(5.5, S).log_prob(x), inverse - jacobian)
    agree(pd.InverseWishart(5.5, S).mean(), S / 1.5)
    agree(pd.InverseWishart(5.5, S).mode(), S / 9.5)


def test_erratum_5_a_wishart_in_one_dimension_is_a_gamma():
    ours, gamma = pd.Wishart(3.3, [[0.7]]), pd.Gamma(3.3 / 2, 1 / (2 * 0.7))
    agree(ours.log_prob(jnp.array([[1.9]])), gamma.log_prob(1.9))
    agree(ours.entropy(), gamma.entropy())
    inverse, inverse_gamma = pd.InverseWishart(3.3, [[0.7]]), pd.InverseGamma(3.3 / 2, 0.7 / 2)
    agree(inverse.log_prob(jnp.array([[1.9]])), inverse_gamma.log_prob(1.9))
    agree(inverse.entropy(), inverse_gamma.entropy())
    agree(inverse.kl(pd.InverseWishart(4.1, [[1.1]])), inverse_gamma.kl(pd.InverseGamma(4.1 / 2, 1.1 / 2)))


def test_erratum_6_laplace_smoothing_is_a_posterior_mean():
    labels, alpha = jnp.array([0, 0, 2, 0, 1, 0]), 0.5
    smoothed = (np.array([4, 1, 1, 0]) + alpha) / (6 + 4 * alpha)
    agree(conjugate.DirichletCategorical(jnp.full(4, alpha)).update(labels).mean().probs, smoothed)
    agree(conjugate.DirichletCategorical(jnp.full(4, alpha + 1)).update(labels).mode().probs, smoothed)


def test_erratum_14_the_joint_mode_of_the_niw():
    mu, sigma = NIW.mode()
    agree(mu, NIW.loc)
    agree(sigma, np.asarray(NIW.scale) / (9 + 2 + 2))
    slopes = jax.grad(lambda x: NIW.log_prob(x))((mu, sigma))
    agree(flat(slopes), np.zeros(6))


# ------------------------------------------------------------------------------------------ reductions


@pytest.mark.thorough
def test_one_dimensional_pairs_coincide():
    xs = jnp.array([1.0, 0.5, 2.0, 1.4])
    scalar = conjugate.NormalInverseChiSquared(0.5, 0.8, 4.0, 1.3)
    niw = conjugate.NormalInverseWishart(jnp.array([0.5]), 0.8, jnp.array([[4.0 * 1.3]]), 4.0)
    spherical = conjugate.SphericalNormalInverseChiSquared(jnp.array([0.5]), 0.8, 4.0, 1.3)
    regression = conjugate.MatrixNormalInverseWishart([[0.5]], [[0.8]], [[4.0 * 1.3]], 4.0)
    mode, value = learn(scalar, xs)
    others = [
        learn(niw, xs[:, None]),
        learn(spherical, xs[:, None]),
        learn(regression, (jnp.ones((4, 1)), xs[:, None])),
    ]
    agree([other[1] for other in others], np.full(3, value))
    variances = [others[0][0].covariance[0, 0], others[1][0].scale ** 2, others[2][0].covariance[0, 0]]
    agree(variances, np.full(3, mode.scale**2))
    agree(scalar.predictive().log_prob(0.3), niw.predictive().log_prob(jnp.array([0.3])))


@pytest.mark.thorough
def test_an_intercept_is_a_column_of_ones():
    x, y = jnp.asarray(X), jnp.asarray(Z.T)
    with_ones = jnp.concatenate([x, jnp.ones((3, 1))], axis=1)
    loc, precision = jnp.zeros((2, 4)), jnp.eye(4) + 0.1
    plain = conjugate.MatrixNormalInverseWishart(loc, precision, ROW, 4.0)
    option = conjugate.MatrixNormalInverseWishart(loc, precision, ROW, 4.0, intercept=True)
    every = jax.jit(
        lambda prior, x, y: (
            prior.update((x, y)),
            prior.log_evidence((x, y)),
            prior.predictive().log_prob((x[0], y[1])),
        )
    )
    agree(flat(every(plain, with_ones, y)), flat(every(option, x, y)), rtol=1e-9)


# ------------------------------------------------------------------------------------------ single precision


def far_data(d=2):
    return np.random.default_rng(4).normal(size=(1000, d)) + 5000


def test_niw_in_single_precision_far_from_the_origin():
    xs = far_data().astype("float32")
    make = lambda loc, dtype: conjugate.NormalInverseWishart(
        jnp.full(2, loc, dtype), jnp.asarray(0.01, dtype), jnp.eye(2, dtype=dtype), jnp.asarray(4.0, dtype)
    )
    for loc in (0.0, 5000.0):
        results = (learn(make(loc, t), jnp.asarray(xs, t)) for t in ("float32", "float64"))
        (single, evidence), (double, expected) = results
        assert single.covariance.dtype == "float32"
        np.testing.assert_allclose(single.covariance, double.covariance, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(evidence, expected, rtol=1e-4)


def test_other_gaussian_pairs_in_single_precision_far_from_the_origin():
    xs = far_data().astype("float32")
    for make in (
        lambda t: conjugate.NormalInverseChiSquared(jnp.full(2, 5000.0, t), 0.01, 4.0, 1.0),
        lambda t: conjugate.SphericalNormalInverseChiSquared(jnp.full(2, 5000.0, t), 0.01, 4.0, 1.0),
        lambda t: conjugate.InverseWishartKnownMean(4.0, jnp.eye(2, dtype=t), jnp.full(2, 5000.0, t)),
        lambda t: conjugate.NormalKnownVariance(jnp.full(2, 5000.0, t), 10.0, 1.0),
    ):
        single, double = (update(make(t), jnp.asarray(xs, t)).mode() for t in ("float32", "float64"))
        np.testing.assert_allclose(flat(single), flat(double), rtol=1e-3)


def test_regression_in_single_precision_far_from_the_origin():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1000, 2))
    y = (x @ [[1.0], [-2.0]] + 5000 + rng.normal(size=(1000, 1))).astype("float32")
    make = lambda t: conjugate.MatrixNormalInverseWishart(
        jnp.zeros((1, 3), t), 1e-6 * jnp.eye(3, dtype=t), jnp.eye(1, dtype=t), jnp.asarray(4.0, t), intercept=True
    )
    data = lambda t: (jnp.asarray(x.astype("float32"), t), jnp.asarray(y, t))
    single, double = (learn(make(t), data(t))[0] for t in ("float32", "float64"))
    np.testing.assert_allclose(single.covariance, double.covariance, rtol=1e-3)
    np.testing.assert_allclose(single.matrix, double.matrix, atol=1e-3)
