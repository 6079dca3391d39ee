"""Classifiers against scikit-learn and against published leave-one-out counts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shared_data import shared_file
from sklearn import datasets, discriminant_analysis, linear_model, naive_bayes

import probml_jax as pml
from probml_jax import classifiers as ours


def _naive_bayes(xs, ys, c, **options):
    """The published counts are scikit-learn's, which adds 1e-9 of the largest variance of all columns to each."""
    model = ours.gaussian_naive_bayes(xs, ys, c, floor=1e-12, **options)
    rest = options["weights"][:, None] / jnp.sum(options["weights"])
    most = jnp.max(jnp.sum(rest * (xs - jnp.sum(rest * xs, axis=0)[None]) ** 2, axis=0))
    scales = lambda m: m.class_conditionals.each.distribution.scale
    return eqx.tree_at(scales, model, jnp.sqrt(scales(model) ** 2 + 1e-9 * most))


BUILDERS = {
    "lda": lambda xs, ys, c, **kw: ours.lda(xs, ys, c, unbiased=True, floor=1e-12, **kw),
    "qda": lambda xs, ys, c, **kw: ours.qda(xs, ys, c, unbiased=True, floor=1e-12, **kw),
    "nb": _naive_bayes,
}


def _left_out_right(name: str, xs: np.ndarray, ys: np.ndarray) -> int:
    """How many events are classified right by what the others say: one compiled program, one weight of zero each."""
    xs, labels, c = jnp.asarray(xs), jnp.asarray(ys), int(ys.max()) + 1

    def right(i):
        model = BUILDERS[name](xs, labels, c, weights=(jnp.arange(len(ys)) != i).astype(xs.dtype))
        return model.predict(xs[i]) == labels[i]

    return int(jnp.sum(jax.jit(lambda: jax.lax.map(right, jnp.arange(len(ys)), batch_size=16))()))


@pytest.mark.parametrize(
    ("name", "wanted"), [("lda", (147, 176)), ("qda", (146, 177)), ("nb", (143, 174))], ids=lambda v: str(v)
)
def test_leave_one_out_counts(name, wanted):
    for load, figure in zip((datasets.load_iris, datasets.load_wine), wanted, strict=True):
        assert _left_out_right(name, *load(return_X_y=True)) == figure


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "wanted"), [("lda", 545), ("qda", 544), ("nb", 534)])
def test_leave_one_out_counts_of_breast_cancer(name, wanted):
    assert _left_out_right(name, *datasets.load_breast_cancer(return_X_y=True)) == wanted


@pytest.mark.parametrize(("columns", "wanted"), [((2, 3), (1053, 1141, 1071)), ((1, 2, 3, 4), (1248, 1335, 1167))])
def test_vowels(columns, wanted):
    rows = np.genfromtxt(shared_file("peterson_barney.csv"), delimiter=",", names=True, dtype=None, encoding="utf-8")
    xs = np.stack([rows[f"f{j - 1}"] for j in columns], axis=1).astype(float)
    ys = np.unique(rows["vowel"], return_inverse=True)[1]
    assert tuple(_left_out_right(name, xs, ys) for name in ("lda", "qda", "nb")) == wanted


def test_heights():
    xs, ys = jnp.array([181.0, 172, 175, 165, 161, 178])[:, None], jnp.array([0, 0, 0, 1, 1, 1])
    found = ours.qda(xs, ys).class_conditionals.each.distribution
    np.testing.assert_allclose(found.loc.ravel(), [176, 168], rtol=1e-12)
    np.testing.assert_allclose(found.covariance.ravel(), [14, 158 / 3], rtol=1e-12)


def _random(n=120, d=4, c=3):
    rng = np.random.default_rng(0)
    ys = rng.integers(0, c, size=n)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 2 * rng.normal(size=(c, d))[ys], ys


@pytest.mark.parametrize("name", ["lda", "lda_shrunken", "lda_auto", "qda", "nb"])
def test_gaussian_classifiers_are_those_of_scikit_learn(name):
    xs, ys = _random()
    theirs = {
        "lda": discriminant_analysis.LinearDiscriminantAnalysis(),
        "lda_shrunken": discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3),
        "lda_auto": discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "qda": discriminant_analysis.QuadraticDiscriminantAnalysis(),
        "nb": naive_bayes.GaussianNB(var_smoothing=0),
    }[name].fit(xs, ys)
    mine = {
        "lda": lambda: ours.lda(xs, ys, 3),
        "lda_shrunken": lambda: ours.lda(xs, ys, 3, shrinkage=0.3),
        "lda_auto": lambda: ours.lda(xs, ys, 3, shrinkage="auto"),
        "qda": lambda: ours.qda(xs, ys, 3),
        "nb": lambda: ours.gaussian_naive_bayes(xs, ys, 3),
    }[name]()
    np.testing.assert_allclose(jax.vmap(mine.probs)(jnp.asarray(xs)), theirs.predict_proba(xs), atol=1e-6)


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "categorical"])
def test_naive_bayes_is_that_of_scikit_learn(name):
    rng = np.random.default_rng(0)
    ys = rng.integers(0, 3, size=100)
    counts = rng.poisson(1 + 3 * rng.uniform(size=(3, 5))[ys])
    weights = rng.uniform(size=100)
    if name == "bernoulli":
        xs, theirs = (counts > 2).astype(float), naive_bayes.BernoulliNB(alpha=0.7)
        mine = ours.bernoulli_naive_bayes(xs, ys, smoothing=0.7, weights=weights)
    elif name == "multinomial":
        xs, theirs = counts.astype(float), naive_bayes.MultinomialNB(alpha=0.7)
        mine = ours.multinomial_naive_bayes(xs, ys, smoothing=0.7, weights=weights)
    else:  # columns with different numbers of categories
        xs, theirs = np.minimum(counts, np.arange(2, 7)[None]), naive_bayes.CategoricalNB(alpha=0.7)
        mine = ours.categorical_naive_bayes(xs, ys, smoothing=0.7, weights=weights)
    theirs.fit(xs, ys, sample_weight=weights)
    np.testing.assert_allclose(jax.vmap(mine.probs)(jnp.asarray(xs)), theirs.predict_proba(xs), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_regression_is_that_of_scikit_learn(classes):
    xs, ys = _random(c=classes)
    theirs = linear_model.LogisticRegression(C=2.0, tol=1e-12, max_iter=10_000).fit(xs, ys)
    start = ours.logistic_regression(4, l2=0.5) if classes == 2 else ours.softmax_regression(4, classes, l2=0.5)
    mine = pml.fit(start, (xs, ys), pml.Newton(), rtol=1e-14).model
    np.testing.assert_allclose(np.atleast_2d(mine.weights), theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(mine.probs)(jnp.asarray(xs)), theirs.predict_proba(xs), atol=1e-6)
