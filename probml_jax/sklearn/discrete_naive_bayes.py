"""Naive Bayes over counts, binary columns and labels, with scikit-learn's names."""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval

from .. import conjugate
from .._estimate import MAP, ML
from .._stack import Stacked
from ..classifiers import GenerativeClassifier
from ..distributions import Bernoulli, Categorical, Multinomial
from .classifier import given_priors
from .host import dense
from .naive_bayes import AbstractNaiveBayes, class_leaf, shares

_DISCRETE: dict[str, list] = {
    "alpha": [Interval(Real, 0, None, closed="left"), "array-like"],
    "force_alpha": ["boolean"],
    "fit_prior": ["boolean"],
    "class_prior": ["array-like", None],
}
_LEAST = 1e-10


class AbstractDiscreteNaiveBayes(AbstractNaiveBayes):
    """Weights of classes, smoothed frequencies within them; the leaves are modes under the prior of the smoothing."""

    alpha: Any
    force_alpha: Any
    fit_prior: Any
    class_prior: Any

    @abstractmethod
    def _members(self, alpha: np.ndarray) -> tuple[Callable, np.ndarray, Any]:
        """What makes a member, the probabilities of all of them, and the prior of one."""

    def _model(self, dtype: Any) -> GenerativeClassifier:
        counts = self.class_count_
        prior = given_priors(self.class_prior, counts.size)
        if prior is None and not self.fit_prior:
            prior = np.full(counts.size, 1 / counts.size)
        with np.errstate(divide="ignore"):
            self.class_log_prior_ = np.log(counts / counts.sum() if prior is None else prior)
        alpha = self._smoothing()
        make, probs, conjugate_prior = self._members(alpha)
        members = eqx.filter_vmap(make)(jnp.asarray(probs, dtype))
        repeat = lambda a: jnp.broadcast_to(jnp.asarray(a, dtype), (counts.size, *np.shape(a)))
        priors = jax.tree_util.tree_map(repeat, conjugate_prior)
        leaf = class_leaf(prior, counts, dtype)
        return GenerativeClassifier(leaf, Stacked(MAP(members, priors) if np.any(alpha > 0) else ML(members)))

    def _smoothing(self) -> np.ndarray:
        """`alpha`, one for all columns or one for each; raised to 1e-10 where it is not forced."""
        alpha = np.asarray(self.alpha, np.float64)
        if alpha.ndim and alpha.shape[0] != self.n_features_in_:
            raise ValueError(
                f"When alpha is an array, it should contains `n_features`. Got {alpha.shape[0]} elements instead of "
                f"{self.n_features_in_}."
            )
        if alpha.min() < 0:
            raise ValueError("All values in alpha must be greater than 0.")
        if alpha.min() < _LEAST and not self.force_alpha:
            warnings.warn(
                f"alpha too small will result in numeric errors, setting alpha = {_LEAST:.1e}. Use `force_alpha=True` "
                "to keep alpha unchanged.",
                stacklevel=6,
            )
            return np.maximum(alpha, _LEAST)
        return alpha


def _frequencies(counts: np.ndarray, totals: np.ndarray, otherwise: Any) -> np.ndarray:
    """Shares of totals; what is given for a class of which nothing is known."""
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1), otherwise)


def _log(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probs)


def _weighed_words(model: Any, rows: Any) -> Any:
    """Scores of rows of counts, whole or not, without the coefficient that all classes have in common."""
    probs = model.class_conditionals.each.distribution.probs
    possible = probs > 0
    scores = rows @ jnp.log(jnp.where(possible, probs, 1)).T
    impossible = rows @ (~possible).astype(rows.dtype).T > 0
    log_prior = jax.vmap(model.prior.predictive().log_prob)(jnp.arange(probs.shape[0]))
    return jnp.where(impossible, -jnp.inf, scores) + log_prior[None, :]


class MultinomialNB(AbstractDiscreteNaiveBayes):
    """With the names of `sklearn.naive_bayes.MultinomialNB`; `model_` is a `pml.classifiers.multinomial_naive_bayes`.

    Sparse rows are counted as they are; to predict they are made dense in blocks.

    >>> rows = np.array([[2, 0, 1], [1, 0, 0], [0, 3, 0], [0, 1, 1]])
    >>> MultinomialNB().fit(rows, ["a", "a", "b", "b"]).predict([[0, 2, 0]]).tolist()
    ['b']
    """

    joint_scores: ClassVar[Callable] = staticmethod(_weighed_words)
    takes_sparse: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict] = _DISCRETE

    def __init__(self, *, alpha=1.0, force_alpha=True, fit_prior=True, class_prior=None):
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior

    def __sklearn_tags__(self):
        tags = ClassifierMixin.__sklearn_tags__(self)
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.classifier_tags.poor_score = True  # counts are not what scikit-learn's check gives it
        return tags

    def _rows(self, X: Any, *, learning: bool = False) -> Any:
        if X.shape[0] and X.min() < 0:
            raise ValueError("Negative values in data passed to MultinomialNB (input X)")
        return X

    def _forget(self, num_classes: int, num_features: int) -> None:
        self.class_count_ = np.zeros(num_classes)
        self.feature_count_ = np.zeros((num_classes, num_features))

    def _count(self, X: Any, labels: np.ndarray, weights: np.ndarray) -> None:
        each = shares(labels, weights, len(self.classes_))
        self.class_count_ = self.class_count_ + np.asarray(each.sum(axis=1))
        self.feature_count_ = self.feature_count_ + dense(each @ X)

    def _members(self, alpha: np.ndarray) -> tuple[Callable, np.ndarray, Any]:
        counts = self.feature_count_ + alpha
        probs = _frequencies(counts, counts.sum(axis=1, keepdims=True), 1 / counts.shape[1])
        self.feature_log_prob_ = _log(probs)
        each = np.broadcast_to(alpha + 1, counts.shape[1:])
        return lambda p: Multinomial(p, None), probs, conjugate.DirichletMultinomial(each, None)


class BernoulliNB(AbstractDiscreteNaiveBayes):
    """With the names of `sklearn.naive_bayes.BernoulliNB`; `model_` is a `pml.classifiers.bernoulli_naive_bayes`.

    Values above `binarize` count as 1, others as 0; `binarize=None` takes binary values as they are. Sparse rows are
    counted as they are (dense if `binarize` is below zero); to predict they are made dense in blocks.

    >>> rows = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1]])
    >>> BernoulliNB().fit(rows, ["a", "a", "b", "b"]).predict([[0, 1, 0]]).tolist()
    ['b']
    """

    takes_sparse: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict] = {
        **_DISCRETE,
        "binarize": [None, Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, alpha=1.0, force_alpha=True, binarize=0.0, fit_prior=True, class_prior=None):
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.binarize = binarize
        self.fit_prior = fit_prior
        self.class_prior = class_prior

    def __sklearn_tags__(self):
        tags = ClassifierMixin.__sklearn_tags__(self)
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True  # binary values are not what scikit-learn's check gives it
        return tags

    def _rows(self, X: Any, *, learning: bool = False) -> Any:
        if self.binarize is not None:
            return (X > self.binarize).astype(X.dtype)
        values = X.data if sparse.issparse(X) else X
        if values.size and (values.min() < 0 or values.max() > 1):
            raise ValueError("X must lie in [0, 1]: without binarize, values are binary, or probabilities.")
        return X

    def _forget(self, num_classes: int, num_features: int) -> None:
        self.class_count_ = np.zeros(num_classes)
        self.feature_count_ = np.zeros((num_classes, num_features))

    def _count(self, X: Any, labels: np.ndarray, weights: np.ndarray) -> None:
        each = shares(labels, weights, len(self.classes_))
        self.class_count_ = self.class_count_ + np.asarray(each.sum(axis=1))
        self.feature_count_ = self.feature_count_ + dense(each @ X)

    def _members(self, alpha: np.ndarray) -> tuple[Callable, np.ndarray, Any]:
        probs = _frequencies(self.feature_count_ + alpha, self.class_count_[:, None] + 2 * alpha, 0.5)
        self.feature_log_prob_ = _log(probs)
        each = np.broadcast_to(alpha + 1, probs.shape[1:])
        return Bernoulli, probs, conjugate.BetaBernoulli(each, each)


class CategoricalNB(AbstractDiscreteNaiveBayes):
    """With the names of `sklearn.naive_bayes.CategoricalNB`; `model_` is a `pml.classifiers.categorical_naive_bayes`.

    Columns hold whole labels from 0; `min_categories` says how many a column has at least. A label that was not seen
    when the classifier was fitted, and is not covered by `min_categories`, raises `IndexError`. `n_categories_` counts
    the labels of all batches.

    >>> rows = np.array([[0, 2], [1, 2], [1, 0], [0, 1]])
    >>> CategoricalNB().fit(rows, ["a", "a", "b", "b"]).predict([[0, 2]]).tolist()
    ['a']
    """

    _parameter_constraints: ClassVar[dict] = {
        **_DISCRETE,
        "alpha": [Interval(Real, 0, None, closed="left")],
        "min_categories": [None, "array-like", Interval(Integral, 1, None, closed="left")],
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
        tags.classifier_tags.poor_score = True  # labels are not what scikit-learn's check gives it
        return tags

    def _rows(self, X: Any, *, learning: bool = False) -> Any:
        if X.min(initial=0) < 0:
            raise ValueError("Negative values in data passed to CategoricalNB (input X)")
        X = X.astype(np.int64)
        if not learning and (X >= self.n_categories_[None, :]).any():
            raise IndexError("X has a category that was not seen when the classifier was fitted.")
        return X

    def _forget(self, num_classes: int, num_features: int) -> None:
        self.class_count_ = np.zeros(num_classes)
        self.category_count_ = [np.zeros((num_classes, 0)) for _ in range(num_features)]

    def _count(self, X: Any, labels: np.ndarray, weights: np.ndarray) -> None:
        c = len(self.classes_)
        seen = np.array([table.shape[1] for table in self.category_count_])
        self.n_categories_ = np.maximum(np.maximum(seen, X.max(axis=0) + 1), _at_least(self.min_categories, X.shape[1]))
        self.class_count_ = self.class_count_ + np.bincount(labels, weights, c)
        tables = []
        for table, column, k in zip(self.category_count_, X.T, self.n_categories_, strict=True):
            found = np.bincount(labels * k + column, weights, c * k).reshape(c, k)
            found[:, : table.shape[1]] += table
            tables.append(found)
        self.category_count_ = tables

    def _members(self, alpha: np.ndarray) -> tuple[Callable, np.ndarray, Any]:
        sizes, most = self.n_categories_, self.n_categories_.max()
        probs = np.zeros((len(self.classes_), len(sizes), most))
        for j, (table, k) in enumerate(zip(self.category_count_, sizes, strict=True)):
            probs[:, j, :k] = _frequencies(table + alpha, table.sum(axis=1, keepdims=True) + k * alpha, 1 / k)
        self.feature_log_prob_ = [_log(probs[:, j, :k]) for j, k in enumerate(sizes)]
        # nothing for the categories that a column does not have
        exists = np.arange(most)[None, :] < sizes[:, None]
        return Categorical, probs, conjugate.DirichletCategorical(np.where(exists, alpha + 1, 1.0))


def _at_least(min_categories: Any, num_features: int) -> np.ndarray:
    if min_categories is None:
        return np.ones(num_features, np.int64)
    least = np.asarray(min_categories)
    if not np.issubdtype(least.dtype, np.signedinteger):
        raise ValueError(f"'min_categories' should have integral type. Got {least.dtype} instead.")
    if least.shape not in ((), (num_features,)):
        raise ValueError(
            f"'min_categories' should have shape ({num_features},) when an array-like is provided. Got {least.shape} "
            "instead."
        )
    return np.broadcast_to(least, (num_features,))
