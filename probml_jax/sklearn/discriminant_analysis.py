"""Linear and quadratic discriminant analysis with scikit-learn's names."""

from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..classifiers import lda, qda
from .classifier import AbstractGenerativeEstimator, given_priors
from .host import checked, in_double

_FLOOR = 1e-12  # of each column's variance: singular covariances get a factor, others are not touched


def _decided(joint: np.ndarray) -> np.ndarray:
    """Log-odds of the second of two classes; joint scores of more."""
    return joint[:, 1] - joint[:, 0] if joint.shape[1] == 2 else joint


class LinearDiscriminantAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, AbstractGenerativeEstimator):
    """With the names of `sklearn.discriminant_analysis`; `model_` is a `pml.classifiers.lda`.

    `shrinkage`: `None`, "auto" (Ledoit and Wolf) or a number in [0, 1]. All solvers are one here, so
    each of them shrinks and transforms. The covariance
    that classes share is divided by n, and weighs classes by their counts also where `priors` are given;
    `covariance_estimator`, with a `fit` and a `covariance_`, may estimate that of each class instead.
    `transform` projects on the `n_components` directions that separate the means best.

    >>> rows = np.array([[-1.0, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> LinearDiscriminantAnalysis().fit(rows, [1, 1, 1, 2, 2, 2]).predict([[-0.8, -1]]).tolist()
    [1]
    """

    _parameter_constraints: ClassVar[dict] = {
        "solver": [StrOptions({"svd", "lsqr", "eigen"})],
        "shrinkage": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both"), None],
        "priors": ["array-like", None],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "store_covariance": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "covariance_estimator": [HasMethods("fit"), None],
    }

    def __init__(
        self,
        solver="svd",
        shrinkage=None,
        priors=None,
        n_components=None,
        store_covariance=False,
        tol=1e-4,
        covariance_estimator=None,
    ):
        self.solver = solver
        self.shrinkage = shrinkage
        self.priors = priors
        self.n_components = n_components
        self.store_covariance = store_covariance
        self.tol = tol
        self.covariance_estimator = covariance_estimator

    @in_double
    def fit(self, X, y):
        """Learn from rows and labels."""
        X, labels = self._labelled(X, y)
        if len(X) == len(self.classes_):
            raise ValueError("The number of samples must be more than the number of classes.")
        most = min(len(self.classes_) - 1, X.shape[1])
        if self.n_components is not None and self.n_components > most:
            raise ValueError("n_components cannot be larger than min(n_features, n_classes - 1).")
        self._max_components = self.n_components or most
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
        found = lda(rows, labels, counts.size, **options)
        return _by_estimator(found, self.covariance_estimator, rows, labels, self.priors_)

    def _read(self, model: Any) -> None:
        member = model.class_conditionals.each.distribution
        self.means_, covariance = member.loc, member.covariance
        if self.store_covariance or self.solver != "svd":
            self.covariance_ = covariance
        slopes = np.linalg.lstsq(covariance, self.means_.T, rcond=None)[0].T
        offsets = -0.5 * np.sum(self.means_ * slopes, axis=1) + np.log(self.priors_).astype(slopes.dtype)
        two = len(self.classes_) == 2
        self.coef_ = slopes[1:] - slopes[:1] if two else slopes
        self.intercept_ = offsets[1:] - offsets[:1] if two else offsets
        self._separate(covariance)

    def _separate(self, covariance: np.ndarray) -> None:
        """Directions in which means differ most, in standard deviations within classes."""
        values, vectors = np.linalg.eigh(covariance)
        kept = values > self.tol**2 * values[-1]
        whiten = vectors[:, kept] / np.sqrt(values[kept])[None, :]
        self.xbar_ = self.priors_.astype(covariance.dtype) @ self.means_
        spread = np.sqrt(self.priors_ * len(self.classes_) / max(len(self.classes_) - 1, 1))[:, None]
        _, lengths, directions = np.linalg.svd(
            (spread * (self.means_ - self.xbar_[None])) @ whiten, full_matrices=False
        )
        self.scalings_ = (whiten @ directions.T).astype(covariance.dtype)
        share = lengths**2 / np.sum(lengths**2)
        self.explained_variance_ratio_ = share[: self._max_components]
        self._n_features_out = self._max_components

    def decision_function(self, X):
        """Log-odds of the second of two classes; joint scores of more."""
        return _decided(self._joint(X))

    def transform(self, X):
        """Coordinates along the directions that separate the classes best."""
        check_is_fitted(self)
        return ((checked(self, X) - self.xbar_) @ self.scalings_)[:, : self._max_components]


class QuadraticDiscriminantAnalysis(AbstractGenerativeEstimator):
    """With the names of `sklearn.discriminant_analysis`; `model_` is a `pml.classifiers.qda`.

    `shrinkage` is that of `LinearDiscriminantAnalysis`, for each class; `reg_param` moves covariances towards the
    identity. They are divided by the number of events of their class.

    >>> rows = np.array([[-1.0, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> QuadraticDiscriminantAnalysis(reg_param=0.1).fit(rows, [1, 1, 1, 2, 2, 2]).predict([[-0.8, -1]]).tolist()
    [1]
    """

    _parameter_constraints: ClassVar[dict] = {
        "solver": [StrOptions({"svd", "eigen"})],
        "shrinkage": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both"), None],
        "priors": ["array-like", None],
        "reg_param": [Interval(Real, 0, 1, closed="both")],
        "store_covariance": ["boolean"],
    }

    def __init__(
        self,
        *,
        solver="svd",
        shrinkage=None,
        priors=None,
        reg_param=0.0,
        store_covariance=False,
        covariance_estimator=None,
    ):
        self.solver = solver
        self.shrinkage = shrinkage
        self.priors = priors
        self.reg_param = reg_param
        self.store_covariance = store_covariance
        self.covariance_estimator = covariance_estimator

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
        shrinkage = 0.0 if self.shrinkage is None else self.shrinkage
        shrinkage = shrinkage if isinstance(shrinkage, str) else float(shrinkage)
        prior = given_priors(self.priors, counts.size)
        self.priors_ = counts / counts.sum() if prior is None else prior
        options = {"shrinkage": shrinkage, "class_prior": prior, "weights": weights, "floor": _FLOOR}
        found = _by_estimator(qda(rows, labels, counts.size, **options), self.covariance_estimator, rows, labels, None)
        return _towards_identity(found, self.reg_param)

    def _read(self, model: Any) -> None:
        member = model.class_conditionals.each.distribution
        self.means_ = member.loc
        if self.store_covariance:
            self.covariance_ = list(member.covariance)
        values, self.rotations_ = map(list, zip(*map(np.linalg.eigh, member.covariance), strict=True))
        self.scalings_ = values

    def decision_function(self, X):
        """Log-odds of the second of two classes; joint scores of more."""
        return _decided(self._joint(X))


def _by_estimator(classifier: Any, estimator: Any, rows: np.ndarray, labels: np.ndarray, priors: Any) -> Any:
    """Covariances of the classes by another estimator; one for all, if `priors` say how to average them."""
    if estimator is None:
        return classifier
    where = lambda m: m.class_conditionals.each.distribution.covariance

    def of_class(c):
        estimator.fit(rows[labels == c])
        return estimator.covariance_

    found = np.stack([of_class(c) for c in range(labels.max() + 1)])
    found = found if priors is None else np.tensordot(priors, found, 1)
    return eqx.tree_at(where, classifier, jnp.asarray(found, rows.dtype))


def _towards_identity(classifier: Any, amount: float) -> Any:
    where = lambda m: m.class_conditionals.each.distribution.covariance
    covariance = where(classifier)
    eye = np.eye(covariance.shape[-1], dtype=covariance.dtype)
    return eqx.tree_at(where, classifier, (1 - amount) * covariance + amount * eye[None])
