"""Logistic regression with scikit-learn's names."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .._fit import Fit, Status, fit
from ..classifiers import logistic_regression, softmax_regression
from ..methods import LBFGS
from .host import FLOATS, checked, held, in_double, over_rows, padded


class LogisticRegression(ClassifierMixin, BaseEstimator):
    """With the names of `sklearn.linear_model.LogisticRegression`: an L2 penalty of `1/C` on the weights, L-BFGS.

    More than two classes have the softmax. `C=inf` is no penalty. `tol` is relative to the objective. The model is
    `model_`, a `pml.classifiers.SoftmaxRegression` (`LogisticRegression` for two classes).

    >>> rows = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> LogisticRegression().fit(rows, ["no", "no", "yes", "yes"]).predict([[3.0]]).tolist()
    ['yes']
    """

    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="right")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, *, C=1.0, tol=1e-10, max_iter=500):
        self.C = C
        self.tol = tol
        self.max_iter = max_iter

    @in_double
    def fit(self, X, y, sample_weight=None):
        """Learn from rows and labels."""
        self._validate_params()
        given: Any = validate_data(self, X, y, dtype=list(FLOATS))
        X, y = given
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        c = len(self.classes_)
        if c < 2:
            raise ValueError(f"This solver needs samples of at least 2 classes in the data; got {c} class")
        rows, weights = padded(X, _check_sample_weight(sample_weight, X, dtype=X.dtype))
        labels = np.concatenate([labels, np.full(len(rows) - len(X), -1, labels.dtype)])
        tol = max(self.tol, 4 * np.finfo(X.dtype).eps)
        result = _learn(rows, labels, weights, c, np.asarray(1 / self.C, X.dtype), np.asarray(tol), self.max_iter)
        self.model_ = held(result.model)
        self.coef_ = np.atleast_2d(self.model_.weights)
        self.intercept_ = np.atleast_1d(self.model_.intercept)
        self.n_iter_ = np.array([max(int(result.num_steps), 1)])
        if int(result.status) == Status.max_steps:
            warnings.warn("lbfgs failed to converge; increase max_iter.", ConvergenceWarning, stacklevel=3)
        return self

    @in_double
    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return over_rows(_scores, self.model_, checked(self, X))

    def decision_function(self, X):
        """Log-odds of the second of two classes; scores of more."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_log_proba(self, X):
        """Log-probabilities of the classes."""
        scores = self._scores(X)
        top = scores.max(axis=1, keepdims=True)
        return scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))

    def predict_proba(self, X):
        """Probabilities of the classes."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X):
        """The most probable class of each row."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(axis=1)]


def _scores(model: Any, rows: Any) -> Any:
    return model.scores(rows).T


@eqx.filter_jit
def _learn(rows: Any, labels: Any, weights: Any, c: int, l2: Any, tol: Any, max_iter: int) -> Fit:
    d, dtype = rows.shape[1], rows.dtype
    start = logistic_regression(d, l2, dtype) if c == 2 else softmax_regression(d, c, l2, dtype)
    return fit(start, (rows, jnp.asarray(labels)), LBFGS(), weights=weights, max_steps=max_iter, rtol=tol)
