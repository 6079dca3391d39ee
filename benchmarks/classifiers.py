"""Classifiers against scikit-learn: N=200,000, D=32, ten classes."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import probml_jax as pml
from benchmarks.timing import Row, measure

N, D, CLASSES = 200_000, 32, 10


def _data(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, size=N)
    mixing = np.eye(D) + 0.3 * rng.normal(size=(CLASSES, D, D)) / np.sqrt(D)
    x = 0.6 * rng.normal(size=(CLASSES, D))[y]
    for k in range(CLASSES):
        x[y == k] += rng.normal(size=((y == k).sum(), D)) @ mixing[k]
    return x.astype(dtype), y


def generative(dtype: str) -> list[Row]:
    x, y = _data(dtype)
    xs, ys = jnp.asarray(x), jnp.asarray(y)
    kinds = {
        "LDA": (LinearDiscriminantAnalysis, pml.classifiers.lda, 8, None),
        "QDA": (QuadraticDiscriminantAnalysis, pml.classifiers.qda, 4, 8),
        "Gaussian NB": (GaussianNB, pml.classifiers.gaussian_naive_bayes, 2, 5),
    }
    rows = []
    for name, (peer, build, fit_target, predict_target) in kinds.items():
        theirs = measure(lambda peer=peer: peer().fit(x, y), 5)
        mine = measure(lambda build=build: build(xs, ys, CLASSES), 9)
        rows.append(Row(f"{name} fit, {dtype}", "scikit-learn", theirs.run, mine.run, mine.first, fit_target))
        fitted, model = peer().fit(x, y), build(xs, ys, CLASSES)
        theirs = measure(lambda fitted=fitted: fitted.predict(x), 5)
        mine = measure(lambda model=model: pml.in_blocks(model.predict, xs), 9)
        agree = np.mean(np.asarray(pml.in_blocks(model.predict, xs)) == fitted.predict(x))
        note = f"the same class for {100 * agree:.4g} %"
        rows.append(
            Row(f"{name} predict, {dtype}", "scikit-learn", theirs.run, mine.run, mine.first, predict_target, note)
        )
    return rows


def regression(dtype: str) -> Row:
    """Time to the objective at which scikit-learn stops; the first call runs to convergence."""
    x, y = _data(dtype)
    xs, ys = jnp.asarray(x), jnp.asarray(y)
    peer = LogisticRegression(C=1.0, max_iter=1000)
    theirs = measure(lambda: peer.fit(x, y), 3)
    start = pml.classifiers.softmax_regression(D, CLASSES, l2=1.0, dtype=xs.dtype)
    coefficients = jnp.asarray(peer.coef_, xs.dtype), jnp.asarray(peer.intercept_, xs.dtype)
    there = pml.classifiers.SoftmaxRegression(*coefficients, jnp.asarray(1.0, xs.dtype))
    goal = float(pml.objective(there, (xs, ys), jnp.ones(N, xs.dtype)))
    whole = pml.fit(start, (xs, ys), pml.LBFGS(), max_steps=200)
    steps = int(np.argmax(np.asarray(whole.objective) >= goal))
    mine = measure(lambda: pml.fit(start, (xs, ys), pml.LBFGS(), max_steps=steps, rtol=-1.0), 5)
    note = f"{steps} steps to its objective {goal:.1f}; converged at {float(whole.final_objective):.1f}"
    return Row(f"softmax regression, {dtype}", "scikit-learn", theirs.run, mine.run, mine.first, 4, note)


def rows(data_dir=None) -> list[Row]:
    jax.config.update("jax_enable_x64", True)
    return [*generative("float32"), regression("float32"), *generative("float64"), regression("float64")]
