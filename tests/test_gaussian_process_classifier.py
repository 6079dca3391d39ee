"""Laplace classification: scikit-learn's evidence, the dense softmax formulas, implicit gradients, averages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

import probml_jax as pml
from probml_jax.gaussian_processes import GaussianProcessClassifier, kernels
from probml_jax.inference.averages import expected_sigmoid, expected_softmax


def _data(num_classes=2, n=30):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    y = np.digitize(x.sum(1) + 0.5 * rng.normal(size=n), np.linspace(-0.7, 0.7, num_classes + 1)[1:-1])
    return jnp.asarray(x), jnp.asarray(y)


@pytest.mark.parametrize(
    ("mean", "variance"), [(0.3, 0.01), (-2, 0.9), (1, 1.1), (3, 100), (-30, 900), (5, 1e4), (0.1, 0)]
)
def test_averaged_sigmoid_is_the_integral(mean, variance):
    width = np.sqrt(variance)
    middle = [-mean / width] if width and abs(mean / width) < 12 else None
    wanted, _ = quad(lambda t: expit(mean + width * t) * norm.pdf(t), -12, 12, epsabs=1e-13, limit=500, points=middle)
    found = expected_sigmoid(jnp.array([float(mean)]), jnp.array([float(variance)]))[0]
    np.testing.assert_allclose(found, wanted, atol=1e-11)


def test_averaged_softmax():
    """Two classes have an integral to compare with; 512 evenly spread points are within a fifth of a percent."""
    mean, covariance = jnp.array([[0.4, -0.3]]), jnp.array([[[2.0, 0.3], [0.3, 1.0]]])
    wanted = expected_sigmoid(jnp.array([0.7]), jnp.array([2.4]))
    found = expected_softmax(mean, covariance, 512)
    np.testing.assert_allclose(found[0, 0], wanted[0], atol=2e-3)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)


def _dense(kernel, x, y, c):
    """Mode and approximate evidence from matrices of size nc."""
    n = len(x)
    gram = np.kron(np.eye(c), np.asarray(kernel.gram(x)))
    target, f = np.eye(c)[np.asarray(y)].T.ravel(), np.zeros(n * c)

    def curvature(f):
        probs = np.exp(f.reshape(c, n)) / np.exp(f.reshape(c, n)).sum(0)
        blocks = np.concatenate([np.diag(p) for p in probs])
        return probs.ravel(), np.diag(probs.ravel()) - blocks @ blocks.T

    for _ in range(200):
        probs, w = curvature(f)
        f = gram @ np.linalg.solve(np.eye(n * c) + w @ gram, w @ f + target - probs)
    probs, w = curvature(f)
    fit = target @ f - np.log(np.exp(f.reshape(c, n)).sum(0)).sum() - 0.5 * (target - probs) @ f
    return f, w, fit - 0.5 * np.linalg.slogdet(np.eye(n * c) + w @ gram)[1], gram


def test_softmax_is_the_dense_approximation():
    (x, y), kernel = _data(3), 2.0 * kernels.RBF(0.8)
    f, w, value, gram = _dense(kernel, x, y, 3)
    model = GaussianProcessClassifier(kernel, num_classes=3)
    np.testing.assert_allclose(model.log_prob((x, y)), value, rtol=1e-9)
    post, new = model.condition(x, y), _data(3, 5)[0] + 0.1
    assert bool(post.evidence.latent.converged)
    np.testing.assert_allclose(np.ravel(post.evidence.latent.mode), f, atol=1e-7)
    cross = np.kron(np.eye(3), np.asarray(kernel.cross(x, new[:1])))
    covariance = np.kron(np.eye(3), np.asarray(kernel.gram(new[:1])))
    covariance = covariance - cross.T @ np.linalg.solve(np.eye(len(w)) + w @ gram, w @ cross)
    mean, spread = post.latent(new)
    np.testing.assert_allclose(mean[0], cross.T @ np.linalg.solve(gram + 1e-12 * np.eye(len(f)), f), atol=1e-5)
    np.testing.assert_allclose(spread[0], covariance, atol=1e-8)


@pytest.mark.parametrize(("num_classes", "link"), [(2, "logit"), (2, "probit"), (3, "logit")])
def test_implicit_gradient_of_the_evidence(num_classes, link):
    x, y = _data(num_classes, 14)
    score = lambda scale, variance: GaussianProcessClassifier(
        variance * kernels.RBF(scale), num_classes=num_classes, link=link
    ).log_prob((x, y))
    check_grads(score, (jnp.array(0.8), jnp.array(2.0)), order=1, modes=["rev"], rtol=1e-5)


@pytest.mark.parametrize("num_classes", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_weights_are_repetitions_and_minus_one_is_unobserved(num_classes):
    x, y = _data(num_classes, 12)
    model = GaussianProcessClassifier(2.0 * kernels.Matern32(0.8), num_classes=num_classes)
    counts = np.array([1, 2, 0, 1, 1, 3, 1, 1, 1, 1, 2, 1])
    again = model.log_prob((jnp.repeat(x, counts, axis=0), jnp.repeat(y, counts)))
    np.testing.assert_allclose(model.log_likelihood((x, y), jnp.asarray(counts, x.dtype)), again, rtol=1e-8)
    some = y.at[4].set(-1)
    without = model.condition(jnp.delete(x, 4, axis=0), jnp.delete(y, 4))
    np.testing.assert_allclose(model.condition(x, some).probs(x), without.probs(x), atol=1e-9)


def test_probit_and_fit():
    x, y = _data()
    model = GaussianProcessClassifier(1.0 * kernels.RBF(1.0), link="probit")
    result = pml.fit(model, (x, y), pml.LBFGS()).raise_if_failed()
    assert float(result.final_objective) > float(model.log_prob((x, y)))
    post = result.model.condition(x, y)
    assert float(jnp.mean(post.predict(x) == y)) > 0.8
    mean, variance = post.latent(x)
    np.testing.assert_allclose(post.probs(x)[:, 1], norm.cdf(mean / np.sqrt(1 + variance)), atol=1e-12)


def test_float32_keeps_its_dtype_and_agrees():
    x, y = _data()
    wide = GaussianProcessClassifier(2.0 * kernels.RBF(0.8))
    narrow = jax.tree_util.tree_map(lambda a: a.astype(jnp.float32), wide)
    value = narrow.log_prob((x.astype(jnp.float32), y))
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, wide.log_prob((x, y)), rtol=1e-5)


def test_separable_labels_with_a_large_variance():
    """Newton's method far from the mode: steps are shortened, nothing overflows."""
    x = jnp.linspace(-1, 1, 20)
    y = (x > 0).astype(int)
    post = GaussianProcessClassifier(1e4 * kernels.RBF(0.5)).condition(x, y)
    assert bool(post.evidence.latent.converged)
    np.testing.assert_array_equal(post.predict(x), y)


def test_bad_input_is_named():
    x, y = _data(2, 6)
    model = GaussianProcessClassifier(kernels.RBF(1.0))
    cases = [
        (lambda: GaussianProcessClassifier(kernels.RBF(1.0), num_classes=1), "at least 2"),
        (lambda: GaussianProcessClassifier(kernels.RBF(1.0), link="cauchit"), "link must be"),
        (lambda: GaussianProcessClassifier(kernels.RBF(1.0), num_classes=3, link="probit"), "two classes"),
        (lambda: model.condition(x, y + 1), "labels 0..1"),
        (lambda: model.condition(x, y[:3]), "6 inputs and y 3"),
        (lambda: model.condition(x[:0], y[:0]), "empty"),
        (lambda: model.probs(x), "condition it first"),
        (lambda: pml.fit(model.condition(x, y), (x, y), pml.LBFGS()), "before `condition`"),
    ]
    for call, words in cases:
        with pytest.raises(ValueError, match=words):
            call()
