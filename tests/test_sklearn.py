"""The scikit-learn interface: its checks, its tools, and its own estimators as the reference."""

import pickle
import subprocess
import sys
import warnings

import jax.random as jr
import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
import sklearn.decomposition
import sklearn.discriminant_analysis
import sklearn.linear_model
import sklearn.mixture
import sklearn.naive_bayes
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import probml_jax as pml
from probml_jax import sklearn as ours

IRIS = load_iris(return_X_y=True)
rng = np.random.default_rng(0)
COUNTS = rng.poisson(2.0, (120, 6)).astype(float), np.arange(120) % 3

CHECKED = {
    "KernelDensity": ours.KernelDensity(),
    "PCA": ours.PCA(),
    "KMeans": ours.KMeans(2, random_state=0),
    "FactorAnalysis": ours.FactorAnalysis(),
    "GaussianMixture": ours.GaussianMixture(2, random_state=0),
    "BayesianGaussianMixture": ours.BayesianGaussianMixture(n_components=2, random_state=0),
    "BernoulliMixture": ours.BernoulliMixture(2, random_state=0),
    "GaussianHMM": ours.GaussianHMM(2, random_state=0),
    "LinearDiscriminantAnalysis": ours.LinearDiscriminantAnalysis(),
    "QuadraticDiscriminantAnalysis": ours.QuadraticDiscriminantAnalysis(),
    "GaussianNB": ours.GaussianNB(),
    "MultinomialNB": ours.MultinomialNB(),
    "BernoulliNB": ours.BernoulliNB(),
    "CategoricalNB": ours.CategoricalNB(),
    "LogisticRegression": ours.LogisticRegression(),
    "GaussianProcessRegressor": ours.GaussianProcessRegressor(alpha=1e-3),
    "GaussianProcessClassifier": ours.GaussianProcessClassifier(optimizer=None),
}
# CRF is not here: scikit-learn's checks pass arrays, and its rows are lists of features
EXPECTED = {
    "KMeans": {
        "check_sample_weight_equivalence_on_sparse_data": "the same, from sparse rows",
        "check_sample_weight_equivalence_on_dense_data": "starts are drawn from other random numbers for other rows; "
        "scikit-learn's own has the same entry"
    },
}
QUICK = ("KernelDensity", "PCA")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in CHECKED])
def test_estimator_checks(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(CHECKED[name], expected_failed_checks=EXPECTED.get(name), on_fail=None, on_skip=None)
    failed = {r["check_name"]: repr(r["exception"])[:200] for r in results if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 30


# ------------------------------------------------------------------ scikit-learn's estimators as the reference

SAME = {
    "lda": (ours.LinearDiscriminantAnalysis, sklearn.discriminant_analysis.LinearDiscriminantAnalysis, {}, IRIS),
    "qda": (ours.QuadraticDiscriminantAnalysis, sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis, {}, IRIS),
    "shrunken lda": (
        ours.LinearDiscriminantAnalysis,
        sklearn.discriminant_analysis.LinearDiscriminantAnalysis,
        {"solver": "lsqr", "shrinkage": 0.3},
        IRIS,
    ),
    "gaussian": (ours.GaussianNB, sklearn.naive_bayes.GaussianNB, {}, IRIS),
    "multinomial": (ours.MultinomialNB, sklearn.naive_bayes.MultinomialNB, {"alpha": 0.5}, COUNTS),
    "bernoulli": (ours.BernoulliNB, sklearn.naive_bayes.BernoulliNB, {"fit_prior": False}, COUNTS),
    "categorical": (ours.CategoricalNB, sklearn.naive_bayes.CategoricalNB, {}, COUNTS),
}


@pytest.mark.parametrize("name", list(SAME))
def test_classifiers_are_those_of_scikit_learn(name):
    cls, reference, options, (X, y) = SAME[name]
    mine, theirs = cls(**options).fit(X, y), reference(**options).fit(X, y)
    np.testing.assert_allclose(mine.predict_log_proba(X), theirs.predict_log_proba(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(mine.predict(X), theirs.predict(X))


def test_logistic_regression_reaches_the_same_optimum():
    X, y = StandardScaler().fit_transform(IRIS[0]), IRIS[1]
    mine = ours.LogisticRegression().fit(X, y)
    theirs = sklearn.linear_model.LogisticRegression(tol=1e-10, max_iter=2000).fit(X, y)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


def test_mixtures_from_the_same_start():
    X = IRIS[0]
    options = {"n_components": 2, "means_init": X[[10, 120]], "tol": 1e-9, "max_iter": 1000, "reg_covar": 1e-9}
    mine = ours.GaussianMixture(**options).fit(X)
    theirs = sklearn.mixture.GaussianMixture(random_state=0, **options).fit(X)
    np.testing.assert_allclose(mine.score(X) * 150, -214.3547, atol=1e-3)
    np.testing.assert_allclose(mine.means_, theirs.means_, atol=1e-3)
    np.testing.assert_allclose(mine.covariances_, theirs.covariances_, atol=1e-3)
    assert mine.bic(X) == pytest.approx(theirs.bic(X), rel=1e-5)
    rows, labels = mine.sample(50)
    assert rows.shape == (50, 4)
    assert (np.diff(labels) >= 0).all()


def test_projections_and_clusters():
    X = IRIS[0]
    mine, theirs = ours.PCA(2).fit(X), sklearn.decomposition.PCA(2).fit(X)
    np.testing.assert_allclose(np.abs(mine.transform(X)), np.abs(theirs.transform(X)), atol=1e-8)
    np.testing.assert_allclose(mine.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-8)
    start = X[[10, 70, 130]]
    mine = ours.KMeans(3, init=start).fit(X)
    theirs = sklearn.cluster.KMeans(3, init=start, n_init=1).fit(X)
    np.testing.assert_allclose(mine.inertia_, theirs.inertia_, rtol=1e-6)
    np.testing.assert_array_equal(mine.predict(X), theirs.predict(X))
    X = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(200, 6))
    mine = ours.FactorAnalysis(2, tol=1e-7).fit(X)
    theirs = sklearn.decomposition.FactorAnalysis(2, tol=1e-8, max_iter=5000).fit(X)
    np.testing.assert_allclose(mine.score(X), theirs.score(X), atol=1e-3)


# ------------------------------------------------------------------ tools


def test_pipelines_searches_clones_pickles_and_frames():
    X, y = IRIS
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipeline = make_pipeline(StandardScaler(), ours.GaussianNB())
    search = GridSearchCV(pipeline, {"gaussiannb__var_smoothing": [1e-9, 1.0]}, cv=3).fit(frame, y)
    assert search.best_score_ > 0.9
    model = search.best_estimator_[-1]
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(frame), search.predict_proba(frame))
    assert clone(model).get_params() == model.get_params()
    named = ours.GaussianNB().fit(frame, y)
    assert named.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame[["b", "a", "c", "d"]])
    density = GridSearchCV(ours.KernelDensity(), {"bandwidth": [0.01, 0.3]}, cv=3).fit(X)
    assert density.best_params_["bandwidth"] == 0.3


def test_the_model_inside_is_a_model_of_the_library():
    X, y = IRIS
    found = ours.QuadraticDiscriminantAnalysis().fit(X, y)
    assert isinstance(found.model_, pml.classifiers.GenerativeClassifier)
    np.testing.assert_allclose(found.model_.probs(X[0]), found.predict_proba(X[:1])[0], rtol=1e-10)


def test_float32_stays_and_float64_needs_no_configuration():
    X, y = IRIS
    single = X.astype("float32")
    assert ours.LinearDiscriminantAnalysis().fit(single, y).predict_proba(single).dtype == np.float32
    script = """
import jax, numpy as np, jax.numpy as jnp
from sklearn.datasets import load_iris
from probml_jax.sklearn import GaussianNB
import sklearn.naive_bayes
X, y = load_iris(return_X_y=True)
mine, theirs = GaussianNB().fit(X, y), sklearn.naive_bayes.GaussianNB().fit(X, y)
assert mine.theta_.dtype == np.float64
np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(X), atol=1e-10)
assert jnp.asarray(X).dtype == jnp.float32  # the mode is left as it was
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


# ------------------------------------------------------------------ sequences and processes


def test_hidden_markov_model_over_several_sequences():
    X = np.concatenate([rng.normal(size=(30, 1)), 6 + rng.normal(size=(20, 1)), rng.normal(size=(25, 1))])
    lengths = [50, 25]
    model = ours.GaussianHMM(2, random_state=0).fit(X, lengths=lengths)
    states = model.predict(X, lengths)
    assert (states[:30] == states[0]).mean() > 0.9
    assert (states[30:50] != states[0]).mean() > 0.9
    np.testing.assert_allclose(model.predict_proba(X, lengths).sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(model.transmat_.sum(axis=1), 1, atol=1e-6)
    assert np.isfinite(model.score(X, lengths=lengths))
    assert model.sample(5, random_state=0)[0].shape == (5, 1)
    with pytest.raises(ValueError, match="lengths must"):
        model.predict(X, [10])


def test_conditional_random_field():
    X = [[["w=the"], ["w=cat"], ["w=sleeps"]], [["w=a"], ["w=dog"], ["w=runs"]]] * 3
    y = [["DET", "NOUN", "VERB"]] * 6
    crf = ours.CRF(c2=0.1).fit(X, y)
    assert crf.predict([[["w=the"], ["w=dog"], ["w=sleeps"]]]) == [["DET", "NOUN", "VERB"]]
    assert crf.score(X, y) == 1.0
    marginals = crf.predict_marginals(X[:1])[0]
    assert marginals[0]["DET"] > 0.8
    assert sum(marginals[0].values()) == pytest.approx(1, abs=1e-5)
    again = pickle.loads(pickle.dumps(crf))
    assert again.predict(X) == crf.predict(X)


def test_processes():
    x = np.linspace(0, 4, 24)[:, None]
    model = ours.GaussianProcessRegressor(alpha=1e-4).fit(x, np.sin(x[:, 0]))
    mean, std = model.predict([[1.1], [20.0]], return_std=True)
    assert abs(mean[0] - np.sin(1.1)) < 1e-2
    assert std[1] > 10 * std[0]
    assert model.sample_y(x[:3], 4).shape == (3, 4)
    labels = np.where(x[:, 0] > 2, "late", "early")
    classifier = ours.GaussianProcessClassifier(optimizer=None).fit(x, labels)
    assert classifier.score(x, labels) > 0.95


def test_key_of_a_random_state():
    from probml_jax.sklearn.host import key_of, roomy

    assert jr.key_data(key_of(3)).tolist() == jr.key_data(key_of(np.random.RandomState(3))).tolist()
    for n in (1, 7, 8, 100, 4095, 4097, 123_456):
        assert n <= roomy(n) <= max(8, 1.26 * n)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ours.GaussianMixture(5).fit(np.ones((3, 2))), "n_components"),
        (lambda: ours.GaussianMixture(2, weights_init=[0.5, 0.6]).fit(IRIS[0]), "normalized"),
        (lambda: ours.BernoulliMixture(2, binarize=None).fit(IRIS[0]), "lie in"),
        (lambda: ours.GaussianNB().fit(IRIS[0], np.zeros(150)), "class"),
        (lambda: ours.GaussianNB(priors=[0.5, 0.5]).fit(*IRIS), "Number of priors"),
        (lambda: ours.QuadraticDiscriminantAnalysis().fit(np.eye(3), [0, 0, 1]), "only 1 sample"),
        (lambda: ours.MultinomialNB().fit(-COUNTS[0], COUNTS[1]), "Negative"),
        (lambda: ours.KernelDensity(bandwidth=-1.0).fit(IRIS[0]), "bandwidth"),
        (lambda: ours.PCA(9).fit(IRIS[0]), "n_components"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
