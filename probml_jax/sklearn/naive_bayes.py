"""Naive Bayes with scikit-learn's names: what all kinds share, and the Gaussian one."""

from abc import abstractmethod
from numbers import Real
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from .._estimate import ML, Frozen
from .._stack import Stacked
from ..classifiers import GenerativeClassifier
from ..distributions import Categorical, Normal
from .classifier import AbstractGenerativeEstimator, given_priors
from .host import FLOATS, held, in_double

_FLOOR = 1e-12


class AbstractNaiveBayes(AbstractGenerativeEstimator):
    """Statistics that add: a fit is one batch of them, `partial_fit` adds another."""

    @abstractmethod
    def _forget(self, num_classes: int, num_features: int) -> None:
        """Statistics of no events."""

    @abstractmethod
    def _count(self, X: Any, labels: np.ndarray, weights: np.ndarray) -> None:
        """Add the statistics of rows."""

    @abstractmethod
    def _model(self, dtype: Any) -> GenerativeClassifier:
        """The classifier that has these statistics; sets the attributes that scikit-learn names."""

    @in_double
    def fit(self, X, y, sample_weight=None):
        """Learn from rows and labels."""
        return self._absorbed(X, y, None, sample_weight, again=True)

    @in_double
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn from another batch of rows and labels: batches give what one fit of all rows gives.

        `classes` names all labels there can be, and is wanted at the first call.
        """
        return self._absorbed(X, y, classes, sample_weight, again=False)

    def _scores(self, X: Any) -> np.ndarray:
        return self._joint(X)

    def _absorbed(self, X: Any, y: Any, classes: Any, sample_weight: Any, *, again: bool) -> Any:
        self._validate_params()
        first = again or _check_partial_fit_first_call(self, classes)
        kinds = "csr" if self.takes_sparse else False
        given: Any = validate_data(self, X, y, reset=first, dtype=list(FLOATS), accept_sparse=kinds)
        X, y = given
        check_classification_targets(y)
        if again:
            self.classes_ = np.unique(y)
        strange = np.setdiff1d(y, self.classes_)
        if strange.size:
            raise ValueError(f"The target label(s) {strange} in y do not exist in the initial classes {self.classes_}")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        rows = self._rows(X, learning=True)
        if first:
            self._forget(len(self.classes_), X.shape[1])
        self._count(rows, np.searchsorted(self.classes_, y), weights)
        self.model_ = held(self._model(X.dtype))
        return self


def shares(labels: np.ndarray, weights: np.ndarray, num_classes: int) -> sparse.csr_array:
    """The weight of each event for each class, `(c, n)`; to multiply rows by, sparse or not."""
    return sparse.csr_array((weights, (labels, np.arange(len(labels)))), shape=(num_classes, len(labels)))


def class_leaf(prior: np.ndarray | None, counts: np.ndarray, dtype: Any) -> Any:
    """A leaf over classes: given probabilities, which stay, or shares of counts."""
    if prior is not None:
        return Frozen(ML(Categorical(jnp.asarray(prior, dtype))))
    return ML(Categorical(jnp.asarray(counts / counts.sum(), dtype)))


class GaussianNB(AbstractNaiveBayes):
    """With the names of `sklearn.naive_bayes.GaussianNB`; `model_` is a `pml.classifiers.gaussian_naive_bayes`.

    `var_smoothing` times the largest variance of all columns (of all rows seen, where scikit-learn takes the last
    batch) is added to every variance. A class without events has mean zero and that variance.

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

    def _rows(self, X: Any, *, learning: bool = False) -> Any:
        return X

    def _forget(self, num_classes: int, num_features: int) -> None:
        # weight, mean and scatter around it: of each class, and (last) of all rows, each of weight one
        self._moments = np.zeros(num_classes + 1), *np.zeros((2, num_classes + 1, num_features))

    def _count(self, X: Any, labels: np.ndarray, weights: np.ndarray) -> None:
        new = [_moments(X[labels == c], weights[labels == c]) for c in range(len(self.classes_))]
        new.append(_union(new) if (weights == 1).all() else _moments(X, np.ones(len(X))))
        self._moments = _together(self._moments, tuple(map(np.stack, zip(*new, strict=True))))

    def _model(self, dtype: Any) -> GenerativeClassifier:
        prior = given_priors(self.priors, len(self.classes_))
        counts, means, scatters = self._moments
        variances = scatters / np.where(counts > 0, counts, 1)[:, None]
        self.epsilon_ = self.var_smoothing * variances[-1].max()
        smooth = variances[:-1] + self.epsilon_
        self.class_count_ = counts[:-1].astype(dtype)
        self.class_prior_ = (counts[:-1] / counts[:-1].sum() if prior is None else prior).astype(dtype)
        self.theta_, self.var_ = means[:-1].astype(dtype), smooth.astype(dtype)
        floor = _FLOOR * np.where(variances[-1] > 0, variances[-1], 1)
        scale = np.sqrt(np.maximum(smooth, floor[None]))
        arrays = (jnp.asarray(a, dtype) for a in (means[:-1], scale, np.broadcast_to(floor, scale.shape)))
        leaf = class_leaf(prior, counts[:-1], dtype)
        return GenerativeClassifier(leaf, Stacked(ML(eqx.filter_vmap(Normal)(*arrays))))


def _moments(rows: np.ndarray, weights: np.ndarray) -> tuple[Any, ...]:
    """Weight, mean and scatter around the mean, in double precision."""
    rows, total = rows.astype(np.float64), weights.sum()
    if not total > 0:
        return total, *np.zeros((2, rows.shape[1]))
    mean = weights @ rows / total
    return total, mean, weights @ (rows - mean[None]) ** 2


def _union(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Moments of several sets of rows as those of all of them."""
    counts, means, scatters = map(np.stack, zip(*parts, strict=True))
    mean = counts @ means / counts.sum()
    return counts.sum(), mean, scatters.sum(axis=0) + counts @ (means - mean[None]) ** 2


def _together(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """Moments of two sets of rows as those of their union."""
    (count, mean, scatter), (more, center, spread) = old, new
    total = count + more
    share = np.where(total > 0, more / np.where(total > 0, total, 1), 0)[:, None]
    step = center - mean
    return total, mean + share * step, scatter + spread + count[:, None] * share * step**2
