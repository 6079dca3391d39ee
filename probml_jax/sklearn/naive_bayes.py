"""Naive Bayes with scikit-learn's names."""

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval

from ..classifiers import (
    bernoulli_naive_bayes,
    categorical_naive_bayes,
    gaussian_naive_bayes,
    multinomial_naive_bayes,
)
from .classifier import AbstractGenerativeEstimator, given_priors
from .host import in_double

_FLOOR = 1e-12


class GaussianNB(AbstractGenerativeEstimator):
    """With the names of `sklearn.naive_bayes.GaussianNB`; `model_` is a `pml.classifiers.gaussian_naive_bayes`.

    `var_smoothing` times the largest variance of all columns is added to every variance.

    >>> rows = np.array([[-1.0, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> GaussianNB().fit(rows, [1, 1, 1, 2, 2, 2]).predict([[-0.8, -1]]).tolist()
    [1]
    """

    _parameter_constraints: ClassVar[dict] = {
        "priors": ["array-like", None],
        "var_smoothing": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, priors=None, var_smoothing=1e-9):
        self.priors = priors
        self.var_smoothing = var_smoothing

    @in_double
    def fit(self, X, y, sample_weight=None):
        """Learn from rows and labels."""
        X, labels = self._labelled(X, y)
        self.epsilon_ = self.var_smoothing * np.var(X, axis=0).max()
        self._learned(X, labels, sample_weight)
        return self

    def _rows(self, X: np.ndarray) -> np.ndarray:
        return X

    def _build(self, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Any:
        prior = given_priors(self.priors, counts.size)
        self.class_prior_ = counts / counts.sum() if prior is None else prior
        self.class_count_ = counts
        # a class of one event has a variance of zero, to which the smoothing is added
        twice = lambda a: np.concatenate([a, a])
        options = {"class_prior": prior, "weights": twice(weights / 2), "floor": _FLOOR}
        found = gaussian_naive_bayes(twice(rows), twice(labels), counts.size, **options)
        where = lambda m: m.class_conditionals.each.distribution.scale
        return eqx.tree_at(where, found, (where(found) ** 2 + self.epsilon_) ** 0.5)

    def _read(self, model: Any) -> None:
        member = model.class_conditionals.each.distribution
        self.theta_, self.var_ = member.loc, member.scale**2


_DISCRETE: dict[str, list] = {
    "alpha": [Interval(Real, 0, None, closed="left"), "array-like"],
    "force_alpha": ["boolean"],
    "fit_prior": ["boolean"],
    "class_prior": ["array-like", None],
}


def _class_prior(estimator: Any, counts: np.ndarray) -> np.ndarray | None:
    """What is given, a uniform one where none is to be learned, else `None`: counts. Sets scikit-learn's attributes."""
    prior = given_priors(estimator.class_prior, counts.size)
    if prior is None and not estimator.fit_prior:
        prior = np.full(counts.size, 1 / counts.size)
    estimator.class_count_ = counts
    with np.errstate(divide="ignore"):
        estimator.class_log_prior_ = np.log(counts / counts.sum() if prior is None else prior)
    return prior


def _weighed_words(model: Any, rows: Any) -> Any:
    """Scores of rows of counts, whole or not, without the coefficient that all classes have in common."""
    probs = model.class_conditionals.each.distribution.probs
    possible = probs > 0
    scores = rows @ jnp.log(jnp.where(possible, probs, 1)).T
    impossible = rows @ (~possible).astype(rows.dtype).T > 0
    log_prior = jax.vmap(model.prior.predictive().log_prob)(jnp.arange(probs.shape[0]))
    return jnp.where(impossible, -jnp.inf, scores) + log_prior[None, :]


def _smoothing(estimator: Any, num_features: int) -> Any:
    """`alpha`, one for all columns or one for each; raised to 1e-10 where it is not forced."""
    alpha = np.asarray(estimator.alpha, np.float64)
    if alpha.ndim and alpha.shape[0] != num_features:
        raise ValueError(
            f"When alpha is an array, it should contains `n_features`. Got {alpha.shape[0]} elements instead of "
            f"{num_features}."
        )
    if alpha.min() < 0:
        raise ValueError("All values in alpha must be greater than 0.")
    alpha = alpha if estimator.force_alpha else np.maximum(alpha, 1e-10)
    return alpha if alpha.ndim else float(alpha)


class MultinomialNB(AbstractGenerativeEstimator):
    """With the names of `sklearn.naive_bayes.MultinomialNB`; `model_` is a `pml.classifiers.multinomial_naive_bayes`.

    >>> rows = np.array([[2, 0, 1], [1, 0, 0], [0, 3, 0], [0, 1, 1]])
    >>> MultinomialNB().fit(rows, ["a", "a", "b", "b"]).predict([[0, 2, 0]]).tolist()
    ['b']
    """

    joint_scores: ClassVar[Callable] = staticmethod(_weighed_words)
    _parameter_constraints: ClassVar[dict] = _DISCRETE

    def __init__(self, *, alpha=1.0, force_alpha=True, fit_prior=True, class_prior=None):
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior

    def __sklearn_tags__(self):
        tags = ClassifierMixin.__sklearn_tags__(self)
        tags.input_tags.positive_only = True
        tags.classifier_tags.poor_score = True  # counts are not what scikit-learn's check gives it
        return tags

    @in_double
    def fit(self, X, y, sample_weight=None):
        """Learn from rows of counts and labels."""
        X, labels = self._labelled(X, y)
        self._learned(X, labels, sample_weight)
        return self

    def _rows(self, X: np.ndarray) -> np.ndarray:
        if X.min(initial=0) < 0:
            raise ValueError("Negative values in data passed to MultinomialNB (input X)")
        return X

    def _build(self, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Any:
        prior = _class_prior(self, counts)
        options = {"smoothing": _smoothing(self, rows.shape[1]), "class_prior": prior, "weights": weights}
        shares = (labels[None, :] == np.arange(counts.size)[:, None]) * weights[None, :]
        self.feature_count_ = shares @ rows
        return multinomial_naive_bayes(rows, labels, counts.size, **options)

    def _read(self, model: Any) -> None:
        with np.errstate(divide="ignore"):
            self.feature_log_prob_ = np.log(model.class_conditionals.each.distribution.probs)


class BernoulliNB(AbstractGenerativeEstimator):
    """With the names of `sklearn.naive_bayes.BernoulliNB`; `model_` is a `pml.classifiers.bernoulli_naive_bayes`.

    Values above `binarize` count as 1, others as 0; `binarize=None` takes binary values as they are.

    >>> rows = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1]])
    >>> BernoulliNB().fit(rows, ["a", "a", "b", "b"]).predict([[0, 1, 0]]).tolist()
    ['b']
    """

    _parameter_constraints: ClassVar[dict] = {
        **_DISCRETE,
        "binarize": [None, Interval(Real, None, None, closed="neither")],
    }

    def __init__(self, *, alpha=1.0, force_alpha=True, binarize=0.0, fit_prior=True, class_prior=None):
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.binarize = binarize
        self.fit_prior = fit_prior
        self.class_prior = class_prior

    def __sklearn_tags__(self):
        tags = ClassifierMixin.__sklearn_tags__(self)
        tags.classifier_tags.poor_score = True  # binary values are not what scikit-learn's check gives it
        return tags

    @in_double
    def fit(self, X, y, sample_weight=None):
        """Learn from binary rows and labels."""
        X, labels = self._labelled(X, y)
        self._learned(X, labels, sample_weight)
        return self

    def _rows(self, X: np.ndarray) -> np.ndarray:
        return X if self.binarize is None else (X > self.binarize).astype(X.dtype)

    def _build(self, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Any:
        prior = _class_prior(self, counts)
        shares = (labels[None, :] == np.arange(counts.size)[:, None]) * weights[None, :]
        self.feature_count_ = shares @ rows
        options = {"smoothing": _smoothing(self, rows.shape[1]), "class_prior": prior, "weights": weights}
        return bernoulli_naive_bayes(rows, labels, counts.size, **options)

    def _read(self, model: Any) -> None:
        with np.errstate(divide="ignore"):
            self.feature_log_prob_ = np.log(model.class_conditionals.each.distribution.probs)


class CategoricalNB(AbstractGenerativeEstimator):
    """With the names of `sklearn.naive_bayes.CategoricalNB`; `model_` is a `pml.classifiers.categorical_naive_bayes`.

    Columns hold whole labels from 0; `min_categories` says how many a column has at least. A label that was not seen
    when the classifier was fitted, and is not covered by `min_categories`, raises `IndexError`.

    >>> rows = np.array([[0, 2], [1, 2], [1, 0], [0, 1]])
    >>> CategoricalNB().fit(rows, ["a", "a", "b", "b"]).predict([[0, 2]]).tolist()
    ['a']
    """

    _parameter_constraints: ClassVar[dict] = {
        **_DISCRETE,
        "min_categories": [None, "array-like", Interval(Real, 1, None, closed="left")],
    }

    def __init__(self, *, alpha=1.0, force_alpha=True, fit_prior=True, class_prior=None, min_categories=None):
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.min_categories = min_categories

    def __sklearn_tags__(self):
        tags = ClassifierMixin.__sklearn_tags__(self)
        tags.input_tags.categorical = True
        tags.input_tags.positive_only = True
        return tags

    @in_double
    def fit(self, X, y, sample_weight=None):
        """Learn from rows of labels and their classes."""
        X, labels = self._labelled(X, y)
        self.n_categories_ = np.maximum(X.max(axis=0) + 1, 1 if self.min_categories is None else self.min_categories)
        self._learned(X, labels, sample_weight)
        return self

    def _rows(self, X: np.ndarray) -> np.ndarray:
        if X.min(initial=0) < 0:
            raise ValueError("Negative values in data passed to CategoricalNB (input X)")
        X = X.astype(np.int64)
        if "n_categories_" in vars(self) and "model_" in vars(self) and (X >= self.n_categories_[None, :]).any():
            raise IndexError("X has a category that was not seen when the classifier was fitted.")
        return X

    def _build(self, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Any:
        prior = _class_prior(self, counts)
        options = {"smoothing": _smoothing(self, rows.shape[1]), "class_prior": prior, "weights": weights}
        return categorical_naive_bayes(rows, labels, counts.size, self.n_categories_.tolist(), **options)

    def _read(self, model: Any) -> None:
        probs = model.class_conditionals.each.distribution.probs
        with np.errstate(divide="ignore"):
            self.feature_log_prob_ = [np.log(probs[:, j, :k]) for j, k in enumerate(self.n_categories_.astype(int))]
