"""Gaussian processes against scikit-learn: evidence and gradient, predictions, Laplace's approximation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier as TheirClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as theirs

from probml_jax.gaussian_processes import GaussianProcess, GaussianProcessClassifier
from probml_jax.gaussian_processes import kernels as ours

PAIRS = {
    "ard": (lambda: 1.3 * ours.RBF(jnp.array([0.5, 0.7, 1.0])), theirs.ConstantKernel(1.3) * theirs.RBF([0.5, 0.7, 1])),
    "matern32": (lambda: 1.3 * ours.Matern32(0.6), theirs.ConstantKernel(1.3) * theirs.Matern(0.6, nu=1.5)),
    "matern52": (lambda: 1.3 * ours.Matern52(0.6), theirs.ConstantKernel(1.3) * theirs.Matern(0.6, nu=2.5)),
    "matern12": (lambda: 1.3 * ours.Matern12(0.6), theirs.ConstantKernel(1.3) * theirs.Matern(0.6, nu=0.5)),
    "rational": (
        lambda: 1.3 * ours.RationalQuadratic(0.6, 0.8),
        theirs.ConstantKernel(1.3) * theirs.RationalQuadratic(0.6, 0.8),
    ),
    "periodic": (lambda: 1.3 * ours.Periodic(0.6, 0.8), theirs.ConstantKernel(1.3) * theirs.ExpSineSquared(0.6, 0.8)),
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_regression(name):
    rng = np.random.default_rng(0)
    x, new = rng.uniform(size=(25, 3)), rng.uniform(size=(6, 3))
    if name == "periodic":
        x, new = x[:, :1], new[:, :1]
    y = np.sin(3 * x.sum(1)) + 0.1 * rng.normal(size=25)
    mine, other = PAIRS[name][0](), PAIRS[name][1]
    peer = GaussianProcessRegressor(other, alpha=0.1, optimizer=None).fit(x, y)
    gp = GaussianProcess(mine, noise=0.1)
    value, slope = jax.value_and_grad(lambda g: g.log_prob((x, y)))(gp)
    np.testing.assert_allclose(value, peer.log_marginal_likelihood_value_, rtol=1e-8)
    _, wanted = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    inner, scales = mine.kernel, slope.kernel.kernel
    parts = [1.3 * slope.kernel.variance]
    if name == "rational":  # theirs are ordered by name
        parts += [inner.alpha * scales.alpha]
    parts += list(np.ravel(inner.length_scale * scales.length_scale))
    if name == "periodic":
        parts += [inner.period * scales.period]
    np.testing.assert_allclose(parts, wanted, rtol=1e-7, atol=1e-8)
    mean, covariance = peer.predict(new, return_cov=True)
    post = gp.condition(x, y)
    np.testing.assert_allclose(post.mean(new), mean, rtol=1e-8)
    np.testing.assert_allclose(post.covariance(new), covariance, atol=1e-8)


def test_laplace_classifier():
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(40, 2)), rng.normal(size=(6, 2))
    y = (x.sum(1) + 0.5 * rng.normal(size=40) > 0).astype(int)
    kernel = theirs.ConstantKernel(2.0) * theirs.RBF(0.8)
    peer = TheirClassifier(kernel, optimizer=None, max_iter_predict=1000).fit(x, y)
    model = GaussianProcessClassifier(2.0 * ours.RBF(0.8))
    value, slope = jax.value_and_grad(lambda m: m.log_prob((x, y)))(model)
    np.testing.assert_allclose(value, peer.log_marginal_likelihood_value_, rtol=1e-8)
    _, wanted = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    found = 2.0 * slope.kernel.variance, 0.8 * slope.kernel.kernel.length_scale
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    # scikit-learn averages by a sum of five error functions, which is off by up to some 1e-4; ours is the integral
    np.testing.assert_allclose(model.condition(x, y).probs(new), peer.predict_proba(new), atol=2e-4)
    mean, variance = peer.latent_mean_and_variance(new)
    np.testing.assert_allclose(model.condition(x, y).latent(new), (mean, variance), atol=1e-8)
