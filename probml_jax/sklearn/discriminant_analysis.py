"""Linear and quadratic discriminant analysis with scikit-learn's names."""

from numbers import Real
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..classifiers import lda, qda
from .classifier import AbstractGenerativeEstimator, given_priors
from .host import in_double

_FLOOR = 1e-12  # of each column's variance: singular covariances get a factor, others are not touched


class LinearDiscriminantAnalysis(AbstractGenerativeEstimator):
    """With the names of `sklearn.discriminant_analysis`; `model_` is a `pml.classifiers.lda`.

    `shrinkage`: `None`, "auto" (Ledoit and Wolf) or a number in [0, 1]. The covariance that classes share is divided by
    n, as scikit-learn's is with its solvers "lsqr" and "eigen". There is no `transform`: see `PCA`.

    >>> rows = np.array([[-1.0, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> LinearDiscriminantAnalysis().fit(rows, [1, 1, 1, 2, 2, 2]).predict([[-0.8, -1]]).tolist()
    [1]
    """

    _parameter_constraints: ClassVar[dict] = {
        "shrinkage": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both"), None],
        "priors": ["array-like", None],
        "store_covariance": ["boolean"],
    }

    def __init__(self, *, shrinkage=None, priors=None, store_covariance=False):
        self.shrinkage = shrinkage
        self.priors = priors
        self.store_covariance = store_covariance

    @in_double
    def fit(self, X, y):
        """Learn from rows and labels."""
        X, labels = self._labelled(X, y)
        if len(X) == len(self.classes_):
            raise ValueError("The number of samples must be more than the number of classes.")
        self._learned(X, labels, None)
        return self

    def _rows(self, X: np.ndarray) -> np.ndarray:
        return X

    def _build(self, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Any:
        shrinkage = 0.0 if self.shrinkage is None else self.shrinkage
        shrinkage = shrinkage if isinstance(shrinkage, str) else float(shrinkage)
        prior = given_priors(self.priors, counts.size)
        self.priors_ = counts / counts.sum() if prior is None else prior
        options = {"shrinkage": shrinkage, "class_prior": prior, "weights": weights, "floor": _FLOOR}
        return lda(rows, labels, counts.size, **options)

    def _read(self, model: Any) -> None:
        member = model.class_conditionals.each.distribution
        self.means_, covariance = member.loc, member.covariance
        if self.store_covariance:
            self.covariance_ = covariance
        slopes = np.linalg.lstsq(covariance, self.means_.T, rcond=None)[0].T
        offsets = -0.5 * np.sum(self.means_ * slopes, axis=1) + np.log(self.priors_)
        two = len(self.classes_) == 2
        self.coef_ = slopes[1:] - slopes[:1] if two else slopes
        self.intercept_ = offsets[1:] - offsets[:1] if two else offsets

    def decision_function(self, X):
        """Log-odds of the second of two classes; joint scores of more."""
        joint = self._joint(X)
        return joint[:, 1] - joint[:, 0] if joint.shape[1] == 2 else joint


class QuadraticDiscriminantAnalysis(AbstractGenerativeEstimator):
    """With the names of `sklearn.discriminant_analysis`; `model_` is a `pml.classifiers.qda`.

    `reg_param` moves the covariance of every class towards the identity. Covariances are divided by the number of
    events of their class (as scikit-learn's are, from version 1.8 on).

    >>> rows = np.array([[-1.0, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> QuadraticDiscriminantAnalysis(reg_param=0.1).fit(rows, [1, 1, 1, 2, 2, 2]).predict([[-0.8, -1]]).tolist()
    [1]
    """

    _parameter_constraints: ClassVar[dict] = {
        "priors": ["array-like", None],
        "reg_param": [Interval(Real, 0, 1, closed="both")],
        "store_covariance": ["boolean"],
    }

    def __init__(self, *, priors=None, reg_param=0.0, store_covariance=False):
        self.priors = priors
        self.reg_param = reg_param
        self.store_covariance = store_covariance

    @in_double
    def fit(self, X, y):
        """Learn from rows and labels."""
        X, labels = self._labelled(X, y)
        for label, count in zip(self.classes_, np.bincount(labels), strict=True):
            if count < 2:
                raise ValueError(f"y has only 1 sample in class {label}, covariance is ill defined.")
        self._learned(X, labels, None)
        return self

    def _rows(self, X: np.ndarray) -> np.ndarray:
        return X

    def _build(self, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Any:
        prior = given_priors(self.priors, counts.size)
        self.priors_ = counts / counts.sum() if prior is None else prior
        options = {"class_prior": prior, "weights": weights, "floor": _FLOOR}
        return _towards_identity(qda(rows, labels, counts.size, **options), self.reg_param)

    def _read(self, model: Any) -> None:
        member = model.class_conditionals.each.distribution
        self.means_ = member.loc
        if self.store_covariance:
            self.covariance_ = list(member.covariance)

    def decision_function(self, X):
        """Log-odds of the second of two classes; joint scores of more."""
        joint = self._joint(X)
        return joint[:, 1] - joint[:, 0] if joint.shape[1] == 2 else joint


def _towards_identity(classifier: Any, amount: float) -> Any:
    where = lambda m: m.class_conditionals.each.distribution.covariance
    covariance = where(classifier)
    eye = np.eye(covariance.shape[-1], dtype=covariance.dtype)
    return eqx.tree_at(where, classifier, (1 - amount) * covariance + amount * eye[None])
