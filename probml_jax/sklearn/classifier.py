"""What generative classifiers share as estimators."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .host import FLOATS, checked, held, in_double, over_rows, padded


class AbstractGenerativeEstimator(ClassifierMixin, BaseEstimator):
    """Classes from labels, and probabilities from joint scores; `model_` is a `GenerativeClassifier`."""

    # of a model and rows; a class may leave out what all classes have in common
    joint_scores: ClassVar[Callable] = staticmethod(lambda model, rows: jax.vmap(model.log_joint)(rows))

    @abstractmethod
    def _build(self, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Any:
        """The classifier, from padded rows, labels 0.. and weights; `counts` is the weight of each class."""

    @abstractmethod
    def _read(self, model: Any) -> None:
        """Set the attributes that scikit-learn names."""

    @abstractmethod
    def _rows(self, X: np.ndarray) -> np.ndarray:
        """Checked rows in the form the model takes."""

    def _labelled(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=list(FLOATS))
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {len(self.classes_)} class")
        return self._rows(X), labels

    def _learned(self, X: np.ndarray, labels: np.ndarray, sample_weight: Any) -> None:
        # of the precision of the rows, unless these are whole labels
        floating = X if np.issubdtype(X.dtype, np.floating) else X.astype(np.float64)
        weights = _check_sample_weight(sample_weight, floating, dtype=floating.dtype, ensure_non_negative=True)
        counts = np.bincount(labels, weights, len(self.classes_)).astype(floating.dtype)
        rows, _ = padded(X)
        room = len(rows) - len(X)
        labels = np.concatenate([labels, np.full(room, -1, labels.dtype)])
        model = self._build(rows, labels, np.concatenate([weights, np.zeros(room, weights.dtype)]), counts)
        self.model_ = held(model)
        self._read(self.model_)

    @in_double
    def _joint(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return over_rows(self.joint_scores, self.model_, self._rows(checked(self, X)))

    def predict_joint_log_proba(self, X):
        """Log of the joint probability of each row and every class."""
        return self._joint(X)

    def predict_log_proba(self, X):
        """Log-probabilities of the classes."""
        joint = self._joint(X)
        top = joint.max(axis=1, keepdims=True)
        return joint - top - np.log(np.exp(joint - top).sum(axis=1, keepdims=True))

    def predict_proba(self, X):
        """Probabilities of the classes."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X):
        """The most probable class of each row."""
        joint = self._joint(X)
        return self.classes_[joint.argmax(axis=1)]


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
