"""What generative classifiers share as estimators."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..inference.blocks import in_blocks
from .host import checked, in_double, over_rows


class AbstractGenerativeEstimator(ClassifierMixin, BaseEstimator):
    """Probabilities of classes from joint scores; `model_` is a `GenerativeClassifier`."""

    # of a model and rows; a class may leave out what all classes have in common
    joint_scores: ClassVar[Callable] = staticmethod(lambda model, rows: in_blocks(model.log_joint, rows))
    takes_sparse: ClassVar[bool] = False

    @abstractmethod
    def _rows(self, X: Any, *, learning: bool = False) -> Any:
        """Checked rows in the form the model takes, to learn from or to classify."""

    @abstractmethod
    def _scores(self, X: Any) -> np.ndarray:
        """Joint scores of rows and all classes, up to what the classes have in common."""

    @in_double
    def _joint(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return over_rows(self.joint_scores, self.model_, self._rows(checked(self, X, accept_sparse=self.takes_sparse)))

    def predict_joint_log_proba(self, X):
        """Log of the joint probability of each row and every class."""
        return self._joint(X)

    def predict_log_proba(self, X):
        """Log-probabilities of the classes."""
        return normalized(self._scores(X))

    def predict_proba(self, X):
        """Probabilities of the classes."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X):
        """The most probable class of each row."""
        joint = self._scores(X)
        return self.classes_[joint.argmax(axis=1)]


def normalized(scores: np.ndarray) -> np.ndarray:
    """Log-probabilities from scores, row by row."""
    top = scores.max(axis=1, keepdims=True)
    return scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))


def given_priors(priors: Any, num_classes: int) -> np.ndarray | None:
    """Checked class probabilities."""
    if priors is None:
        return None
    priors = np.asarray(priors, np.float64)
    if len(priors) != num_classes:
        raise ValueError("Number of priors must match number of classes.")
    if (priors < 0).any():
        raise ValueError("Priors must be non-negative.")
    if not np.isclose(priors.sum(), 1):
        raise ValueError("The sum of the priors should be 1.")
    return priors / priors.sum()
