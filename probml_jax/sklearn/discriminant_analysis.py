"""Linear and quadratic discriminant analysis with scikit-learn's names."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.linalg import LinAlgError, eigh
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.covariance import ledoit_wolf, shrunk_covariance
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..classifiers import lda, qda
from .classifier import AbstractGenerativeEstimator
from .host import FLOATS, checked, held, in_double, in_precision, padded

_FLOOR = 1e-12  # of each column's variance: singular covariances get a factor, others are not touched


class AbstractDiscriminantAnalysis(AbstractGenerativeEstimator):
    """Gaussian classes, and scikit-learn's view of them: a solver, priors, an estimator of covariances.

    Fits are computed in double precision, and kept in that of the rows.
    """

    solver: Any
    shrinkage: Any
    priors: Any
    covariance_estimator: Any

    def _rows(self, X: Any, *, learning: bool = False) -> Any:
        return X

    def _labelled(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Checked rows and labels 0..; sets `classes_` and `priors_`."""
        self._validate_params()
        given: Any = validate_data(self, X, y, dtype=list(FLOATS), ensure_min_samples=2)
        X, y = given
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {len(self.classes_)} class")
        self.priors_ = self._checked_priors(np.bincount(labels) / len(labels))
        if self.solver == "svd" and self.shrinkage is not None:
            raise ValueError("shrinkage not supported with 'svd' solver.")
        if self.solver == "svd" and self.covariance_estimator is not None:
            raise ValueError("covariance_estimator is not supported with solver='svd'. Try another solver.")
        if self.covariance_estimator is not None and self.shrinkage not in (None, 0):
            raise ValueError(
                "covariance_estimator and shrinkage parameters are not None. Only one of the two can be set."
            )
        return X, labels

    def _checked_priors(self, shares: np.ndarray) -> np.ndarray:
        if self.priors is None:
            return shares
        priors = np.asarray(self.priors, np.float64)
        if priors.shape != shares.shape:
            raise ValueError("Number of priors must match number of classes.")
        if (priors < 0).any():
            raise ValueError("priors must be non-negative")
        if abs(priors.sum() - 1) > 1e-5:
            warnings.warn("The priors do not sum to 1. Renormalizing", UserWarning, stacklevel=5)
        return priors / priors.sum()

    def _built(self, build: Any, X: np.ndarray, labels: np.ndarray, row_weights: Any = None) -> Any:
        """A classifier of the library, `lda` or `qda`, in double precision."""
        rows, weights = padded(X.astype(np.float64), row_weights)
        labels = np.concatenate([labels, np.full(len(rows) - len(X), -1, labels.dtype)])
        shrinkage = 0.0 if self.shrinkage is None else self.shrinkage
        shrinkage = shrinkage if isinstance(shrinkage, str) else float(shrinkage)
        options = {"shrinkage": shrinkage, "class_prior": None if self.priors is None else self.priors_}
        return build(rows, labels, len(self.classes_), weights=weights, floor=_FLOOR, **options)

    def _by_estimator(self, X: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The covariance of each class by the given estimator."""
        return np.stack([self._estimated(X[labels == c]) for c in range(len(self.classes_))])

    def _estimated(self, X: np.ndarray) -> np.ndarray:
        estimator = self.covariance_estimator
        estimator.fit(X)
        if "covariance_" not in dir(estimator):
            raise ValueError(f"{type(estimator).__name__} does not have a covariance_ attribute")
        return np.atleast_2d(estimator.covariance_)

    def decision_function(self, X):
        """Log-odds of the second of two classes; of more, their scores."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores


def _covariance(classifier: Any) -> Any:
    return classifier.class_conditionals.each.distribution.covariance


def _with_covariance(classifier: Any, value: np.ndarray) -> Any:
    return eqx.tree_at(_covariance, classifier, jnp.asarray(value))


class LinearDiscriminantAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, AbstractDiscriminantAnalysis):
    """With the names of `sklearn.discriminant_analysis`; `model_` is a `pml.classifiers.lda`.

    Solvers are scikit-learn's in what they compute, `coef_`, `intercept_` and `scalings_` included: "svd" leaves out
    directions without variance (below `tol`, in standard deviations); "lsqr" and "eigen" take `shrinkage` (`None`,
    "auto" for that of Ledoit and Wolf, a number in [0, 1]) or a `covariance_estimator` with `fit` and `covariance_`,
    and weigh the covariances of classes by `priors`. `transform` projects on the `n_components` directions that
    separate the means best; "lsqr" has none. Where scikit-learn raises NotImplementedError, this raises `ValueError`.

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
        self._max_components = self._n_features_out = self.n_components or most
        model = self._built(lda, X, labels)
        if self.solver != "svd":
            model = _with_covariance(model, self._within(X, labels, model))
        self.means_ = np.asarray(model.class_conditionals.each.distribution.loc)
        covariance = np.asarray(_covariance(model))
        if self.solver != "svd":
            self.covariance_ = covariance
        elif self.store_covariance:
            self.covariance_ = self._within(X, labels, model)
        with np.errstate(divide="ignore"):
            log_priors = np.log(self.priors_)
        if self.solver == "svd":
            self._solve_svd(covariance, log_priors)
        elif self.solver == "eigen":
            self._solve_eigen(X, log_priors)
        else:
            slopes = np.linalg.lstsq(covariance, self.means_.T, rcond=None)[0].T
            self._set_lines(slopes, log_priors - 0.5 * np.sum(self.means_ * slopes, axis=1))
        self.model_ = held(in_precision(model, X.dtype))
        for name in ("means_", "covariance_", "coef_", "intercept_", "scalings_", "xbar_", "priors_"):
            if name in vars(self):
                setattr(self, name, getattr(self, name).astype(X.dtype))
        return self

    def _within(self, X: np.ndarray, labels: np.ndarray, model: Any) -> np.ndarray:
        """The covariances of classes, averaged by priors."""
        if self.covariance_estimator is not None:
            return np.tensordot(self.priors_, self._by_estimator(X, labels), 1)
        if self.priors is None:
            return np.asarray(_covariance(model))
        if self.shrinkage == "auto":
            return np.tensordot(self.priors_, np.asarray(_covariance(self._built(qda, X, labels))), 1)
        each = np.maximum(self.priors_, np.finfo(float).tiny) * len(X) / np.bincount(labels)
        return np.asarray(_covariance(self._built(lda, X, labels, each[labels])))

    def _solve_svd(self, covariance: np.ndarray, log_priors: np.ndarray) -> None:
        """Directions in which means differ most, in standard deviations within classes."""
        spread = np.sqrt(np.diag(covariance))
        spread = np.where(spread > 0, spread, 1)
        values, vectors = np.linalg.eigh(covariance / (spread[:, None] * spread[None]))
        kept = values > self.tol**2
        whiten = vectors[:, kept] / (spread[:, None] * np.sqrt(values[kept])[None])
        self.xbar_ = self.priors_ @ self.means_
        apart = self.means_ - self.xbar_[None]
        _, lengths, directions = np.linalg.svd(np.sqrt(self.priors_)[:, None] * apart @ whiten, full_matrices=False)
        share = lengths**2 / np.sum(lengths**2)
        self.explained_variance_ratio_ = share[: self._max_components]
        self.scalings_ = whiten @ directions[lengths > self.tol * lengths[0]].T
        along = apart @ self.scalings_
        slopes = along @ self.scalings_.T
        self._set_lines(slopes, log_priors - 0.5 * np.sum(along**2, axis=1) - slopes @ self.xbar_)

    def _solve_eigen(self, X: np.ndarray, log_priors: np.ndarray) -> None:
        """The same by the covariances between classes and within them."""
        X = X.astype(np.float64)
        if self.covariance_estimator is not None:
            total = self._estimated(X)
        elif self.shrinkage == "auto":
            scale = np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
            total = ledoit_wolf((X - X.mean(axis=0)) / scale)[0] * scale[:, None] * scale[None]
        else:
            total = shrunk_covariance(np.atleast_2d(np.cov(X.T, bias=True)), self.shrinkage or 0.0)
        values, vectors = eigh(total - self.covariance_, self.covariance_)
        self.explained_variance_ratio_ = (values / values.sum())[::-1][: self._max_components]
        self.scalings_ = vectors[:, ::-1]
        slopes = self.means_ @ vectors @ vectors.T
        self._set_lines(slopes, log_priors - 0.5 * np.sum(self.means_ * slopes, axis=1))

    def _set_lines(self, slopes: np.ndarray, offsets: np.ndarray) -> None:
        two = len(self.classes_) == 2
        self.coef_ = slopes[1:] - slopes[:1] if two else slopes
        self.intercept_ = offsets[1:] - offsets[:1] if two else offsets

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        scores = checked(self, X) @ self.coef_.T + self.intercept_
        return np.concatenate([np.zeros_like(scores), scores], axis=1) if len(self.classes_) == 2 else scores

    def transform(self, X):
        """Coordinates along the directions that separate the classes best."""
        check_is_fitted(self)
        if self.solver == "lsqr":
            raise ValueError("transform not implemented for 'lsqr' solver (use 'svd' or 'eigen').")
        X = checked(self, X)
        moved = X - self.xbar_ if self.solver == "svd" else X
        return (moved @ self.scalings_)[:, : self._max_components]


class QuadraticDiscriminantAnalysis(AbstractDiscriminantAnalysis):
    """With the names of `sklearn.discriminant_analysis`; `model_` is a `pml.classifiers.qda`.

    With solver="svd", `reg_param` moves covariances towards the identity; "eigen" takes `shrinkage` (as in
    `LinearDiscriminantAnalysis`) or a `covariance_estimator` instead. Covariances are divided by the number of events
    of their class; one with a variance below `tol` in some direction raises `LinAlgError`.

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
        "tol": [Interval(Real, 0, None, closed="left")],
        "covariance_estimator": [HasMethods("fit"), None],
    }

    def __init__(
        self,
        *,
        solver="svd",
        shrinkage=None,
        priors=None,
        reg_param=0.0,
        store_covariance=False,
        tol=1e-4,
        covariance_estimator=None,
    ):
        self.solver = solver
        self.shrinkage = shrinkage
        self.priors = priors
        self.reg_param = reg_param
        self.store_covariance = store_covariance
        self.tol = tol
        self.covariance_estimator = covariance_estimator

    @in_double
    def fit(self, X, y):
        """Learn from rows and labels."""
        X, labels = self._labelled(X, y)
        counts = np.bincount(labels)
        for label, count in zip(self.classes_, counts, strict=True):
            if count < 2:
                raise ValueError(f"y has only 1 sample in class {label}, covariance is ill defined.")
        model = self._built(qda, X, labels)
        covariances = np.asarray(_covariance(model))
        if self.covariance_estimator is not None:
            covariances = self._by_estimator(X, labels)
        if self.solver == "svd":
            covariances = (1 - self.reg_param) * covariances + self.reg_param * np.eye(X.shape[1])[None]
        values, vectors = np.linalg.eigh(covariances)
        self._check_rank(values, counts)
        self.model_ = held(in_precision(_with_covariance(model, covariances), X.dtype))
        self.means_ = self.model_.class_conditionals.each.distribution.loc
        self.priors_ = self.priors_.astype(X.dtype)
        if self.store_covariance:
            self.covariance_ = list(covariances.astype(X.dtype))
        self.scalings_ = list(values[:, ::-1].astype(X.dtype))
        self.rotations_ = list(vectors[:, :, ::-1].astype(X.dtype))
        return self

    def _check_rank(self, values: np.ndarray, counts: np.ndarray) -> None:
        for label, spread, count in zip(self.classes_, values, counts, strict=True):
            if np.all(spread > self.tol):
                continue
            found = f"The covariance matrix of class {label} is not full rank."
            if self.solver == "svd" and count <= spread.size:
                raise LinAlgError(
                    f"{found} When using `solver='svd'` the number of samples in each class should be more than the "
                    f"number of features, but class {label} has {count} samples and {spread.size} features. Try using "
                    "`solver='eigen'` and setting the parameter `shrinkage` for regularization."
                )
            remedy = "shrinkage" if self.solver == "eigen" else "reg_param"
            raise LinAlgError(f"{found} Increase the value of `{remedy}` to reduce the collinearity.")

    def _scores(self, X: Any) -> np.ndarray:
        joint = self._joint(X)
        return joint + joint.dtype.type(0.5 * np.log(2 * np.pi) * self.n_features_in_)
