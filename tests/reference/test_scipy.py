"""Every family against scipy.stats, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

from probml_jax import distributions as pd

rng = np.random.default_rng(0)
COV = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])

# name -> (ours, scipy's frozen twin, events)
SCALARS = {
    "beta": (pd.Beta(2.5, 0.7), st.beta(2.5, 0.7), [0.01, 0.5, 0.999]),
    "beta_large": (pd.Beta(1e3, 2e4), st.beta(1e3, 2e4), [0.04, 0.0476, 0.06]),
    "gamma": (pd.Gamma(2.5, 3.0), st.gamma(2.5, scale=1 / 3.0), [1e-3, 0.7, 20.0]),
    "gamma_small": (pd.Gamma(0.05, 3.0), st.gamma(0.05, scale=1 / 3.0), [1e-30, 0.7, 20.0]),
    "inverse_gamma": (pd.InverseGamma(2.5, 3.0), st.invgamma(2.5, scale=3.0), [0.05, 0.7, 20.0]),
    "normal": (pd.Normal(1.0, 0.3), st.norm(1.0, 0.3), [-3.0, 1.0, 2.0]),
    "exponential": (pd.Exponential(3.0), st.expon(scale=1 / 3.0), [0.0, 0.7, 20.0]),
    "uniform": (pd.Uniform(-1.0, 3.0), st.uniform(-1.0, 4.0), [-1.0, 0.7, 3.0]),
    "student": (pd.StudentT(3.5, 1.0, 0.3), st.t(3.5, 1.0, 0.3), [-30.0, 1.0, 2.0]),
    "student_wide": (pd.StudentT(1e6, 1.0, 0.3), st.t(1e6, 1.0, 0.3), [-1.0, 1.0, 2.0]),
    "bernoulli": (pd.Bernoulli(0.3), st.bernoulli(0.3), [0, 1]),
    "binomial": (pd.Binomial(0.3, 12), st.binom(12, 0.3), [0, 5, 12]),
    "binomial_large": (pd.Binomial(0.3, 4000), st.binom(4000, 0.3), [1000, 1200, 1400]),
    "poisson": (pd.Poisson(3.5), st.poisson(3.5), [0, 3, 40]),
    "poisson_small": (pd.Poisson(1e-3), st.poisson(1e-3), [0, 1, 4]),
    "negative_binomial": (pd.NegativeBinomial(2.5, 0.7), st.nbinom(2.5, 0.3), [0, 3, 40]),
    "negative_binomial_small": (pd.NegativeBinomial(0.1, 0.9), st.nbinom(0.1, 0.1), [0, 3, 40]),
    "beta_binomial": (pd.BetaBinomial(2.0, 0.5, 9), st.betabinom(9, 2.0, 0.5), [0, 4, 9]),
}
DISCRETE_WITHOUT_SCIPY_ENTROPY = {"beta_binomial"}


@pytest.mark.parametrize("name", SCALARS)
def test_scalar_family_agrees_with_scipy(name):
    ours, theirs, events = SCALARS[name]
    log_pdf = theirs.logpmf if hasattr(theirs.dist, "pmf") else theirs.logpdf
    scores = jax.vmap(ours.log_prob)(jnp.asarray(events, float))
    np.testing.assert_allclose(scores, log_pdf(np.asarray(events, float)), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=1e-10)
    np.testing.assert_allclose(ours.variance(), theirs.var(), rtol=1e-10)
    if name not in DISCRETE_WITHOUT_SCIPY_ENTROPY:
        np.testing.assert_allclose(ours.entropy(), _entropy(theirs), rtol=1e-10, atol=1e-10)


def _entropy(frozen):
    """scipy's own entropy where it is exact, else a plain sum over the support."""
    if not hasattr(frozen.dist, "pmf"):
        return frozen.entropy()
    high = min(frozen.support()[1], frozen.ppf(1 - 1e-15) * 2 + 500)
    log_p = frozen.logpmf(np.arange(high + 1))
    return -np.sum(np.where(log_p > -np.inf, np.exp(log_p) * np.where(log_p > -np.inf, log_p, 0), 0))


@pytest.mark.parametrize("rate", [1e-6, 0.3, 20.0, 440.0, 460.0, 1e4, 1e7])
def test_poisson_entropy(rate):
    if rate < 1e5:
        x = np.arange(int(rate + 30 * np.sqrt(rate) + 100))
        log_p = st.poisson(rate).logpmf(x)
        wanted = -np.sum(np.exp(log_p) * log_p)
    else:  # Evans & Boersma's expansion
        wanted = 0.5 * np.log(2 * np.pi * np.e * rate) - 1 / (12 * rate) - 1 / (24 * rate**2)
    np.testing.assert_allclose(pd.Poisson(rate).entropy(), wanted, rtol=1e-10, atol=1e-12)
    single = pd.Poisson(jnp.asarray(rate, jnp.float32)).entropy()
    np.testing.assert_allclose(single, wanted, rtol=2e-4)


@pytest.mark.parametrize(
    ("count", "probs"), [(0, 0.3), (1, 0.5), (30, 0.01), (2000, 0.35), (10**6, 1e-5), (10**5, 0.5)]
)
def test_binomial_and_multinomial_entropy(count, probs):
    # ratios of neighbors in extended precision: scipy's own log-masses lose digits for large counts
    x = np.arange(count, dtype=np.longdouble)
    ratios = np.log((count - x) / (x + 1) * np.longdouble(probs) / (1 - np.longdouble(probs)))
    log_p = np.concatenate([[np.longdouble(0)], np.cumsum(ratios)])
    log_p -= log_p.max()
    mass = np.exp(log_p) / np.exp(log_p).sum()
    wanted = float(np.log(np.exp(log_p).sum()) - np.sum(mass * log_p))
    np.testing.assert_allclose(pd.Binomial(probs, count).entropy(), wanted, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(pd.Multinomial([probs, 1 - probs], count).entropy(), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("r", [1e-2, 0.5, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("mean", [1e-2, 3.0, 400.0])
def test_negative_binomial_entropy(r, mean):
    probs = mean / (mean + r)
    x = np.arange(int(min(60 * mean / min(r, 1) + 2000, 4e6)))
    log_p = st.nbinom(r, 1 - probs).logpmf(x)
    wanted = -np.sum(np.exp(log_p) * log_p)
    np.testing.assert_allclose(pd.NegativeBinomial(r, probs).entropy(), wanted, rtol=1e-10, atol=1e-11)


def test_multinomial_entropy():
    theirs = st.multinomial(7, [0.2, 0.5, 0.3])
    np.testing.assert_allclose(pd.Multinomial([0.2, 0.5, 0.3], 7).entropy(), theirs.entropy(), rtol=1e-10)


VECTORS = {
    "dirichlet": (
        pd.Dirichlet([0.5, 2.0, 7.0]),
        lambda x: st.dirichlet([0.5, 2.0, 7.0]).logpdf(x),
        st.dirichlet([0.5, 2.0, 7.0]).rvs(4, random_state=0),
        st.dirichlet([0.5, 2.0, 7.0]),
    ),
    "multinomial": (
        pd.Multinomial([0.2, 0.5, 0.3], 7),
        lambda x: st.multinomial(7, [0.2, 0.5, 0.3]).logpmf(x),
        np.array([[7.0, 0, 0], [2, 3, 2]]),
        None,
    ),
    "dirichlet_multinomial": (
        pd.DirichletMultinomial([0.5, 2.0, 7.0], 7),
        lambda x: st.dirichlet_multinomial([0.5, 2.0, 7.0], 7).logpmf(x.astype(int)),
        np.array([[7.0, 0, 0], [2, 3, 2]]),
        None,
    ),
    "multivariate_normal": (
        pd.MultivariateNormal(np.arange(3.0), COV),
        st.multivariate_normal(np.arange(3.0), COV).logpdf,
        rng.normal(size=(4, 3)),
        st.multivariate_normal(np.arange(3.0), COV),
    ),
    "multivariate_student_t": (
        pd.MultivariateStudentT(3.5, np.arange(3.0), COV),
        st.multivariate_t(np.arange(3.0), COV, 3.5).logpdf,
        rng.normal(size=(4, 3)),
        st.multivariate_t(np.arange(3.0), COV, 3.5),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector_family_agrees_with_scipy(name):
    ours, log_pdf, events, theirs = VECTORS[name]
    wanted = [float(log_pdf(x)) for x in events]
    np.testing.assert_allclose(jax.vmap(ours.log_prob)(jnp.asarray(events)), wanted, rtol=1e-10, atol=1e-10)
    if theirs is not None:
        np.testing.assert_allclose(ours.entropy(), theirs.entropy(), rtol=1e-10)


def test_moments_of_vector_families_agree_with_scipy():
    theirs = st.dirichlet([0.5, 2.0, 7.0])
    ours = pd.Dirichlet([0.5, 2.0, 7.0])
    np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=1e-10)
    np.testing.assert_allclose(ours.covariance(), theirs.cov(), rtol=1e-10)
    theirs = st.dirichlet_multinomial([0.5, 2.0, 7.0], 7)
    np.testing.assert_allclose(pd.DirichletMultinomial([0.5, 2.0, 7.0], 7).covariance(), theirs.cov(), rtol=1e-10)
    theirs = st.multinomial(7, [0.2, 0.5, 0.3])
    np.testing.assert_allclose(pd.Multinomial([0.2, 0.5, 0.3], 7).covariance(), theirs.cov(), rtol=1e-10)


@pytest.mark.parametrize(
    ("ours", "theirs", "x"),
    [
        (lambda f: pd.NegativeBinomial(f(1e6), f(3e-6)), st.nbinom(1e6, 1 - 3e-6), 4.0),
        (lambda f: pd.BetaBinomial(f(1e6), f(3e6), f(20)), st.betabinom(20, 1e6, 3e6), 4.0),
        (lambda f: pd.StudentT(f(1e7), f(0.0), f(1.0)), st.t(1e7), 1.5),
    ],
)
def test_near_limits_float32_keeps_its_digits(ours, theirs, x):
    dist = ours(lambda v: jnp.asarray(v, jnp.float32))
    log_pdf = theirs.logpmf if hasattr(theirs.dist, "pmf") else theirs.logpdf
    np.testing.assert_allclose(dist.log_prob(jnp.asarray(x, jnp.float32)), log_pdf(x), rtol=3e-5)
