"""Logistic regression with scikit-learn's names."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model._base import SparseCoefMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .._constraint import fixed, param, real
from .._fit import Fit, Status, fit
from .._model import AbstractAuditedModel
from ..classifiers import LogisticRegression as Logistic
from ..classifiers import SoftmaxRegression, logistic_regression, softmax_regression
from ..methods import LBFGS, Newton
from .classifier import normalized
from .host import FLOATS, checked, dense, held, in_double, in_precision, on_device, over_rows, padded

_METHODS = {"lbfgs": LBFGS, "newton-cholesky": Newton}
_WHY = {
    Status.max_steps: "stopped after max_iter={} steps; increase max_iter, or scale the columns",
    Status.degenerate: "found classes that a hyperplane separates: without a penalty there are no best weights",
}


class ThroughOrigin(AbstractAuditedModel):
    """A linear classifier without intercept."""

    weights: Array = param(real)
    l2: Float[Array, ""] = fixed()

    def whole(self) -> Any:
        """The classifier, its intercept zero."""
        intercept = jnp.zeros(self.weights.shape[:-1], self.weights.dtype)
        return (Logistic if self.weights.ndim == 1 else SoftmaxRegression)(self.weights, intercept, self.l2)

    def log_likelihood(self, data: Any, weights: Any) -> Any:
        return self.whole().log_likelihood(data, weights)

    def log_prior(self) -> Any:
        return self.whole().log_prior()

    def validate(self, data: Any) -> None:
        self.whole().validate(data)

    def degenerate(self) -> Any:
        return self.whole().degenerate()

    def audit(self, data: Any, weights: Any) -> Any:
        return self.whole().audit(data, weights)


class LogisticRegression(SparseCoefMixin, ClassifierMixin, BaseEstimator):
    """With the names of `sklearn.linear_model.LogisticRegression`: an L2 penalty of `1/C` on the weights.

    More than two classes have the softmax. The model is `model_`, a `pml.classifiers.SoftmaxRegression`
    (`LogisticRegression` for two classes).

    - `C`: `inf` is no penalty, as is `penalty=None`; other penalties than "l2" (`l1_ratio` above 0) are not offered.
    - `solver`: "lbfgs" or "newton-cholesky" (Newton's method); `dual` is not offered.
    - `tol`: about the slope per row, as in scikit-learn: fits stop when the objective changes by less than `tol**2/100`
      of itself. Any other end than that, separable classes included, is a `ConvergenceWarning`.
    - `class_weight`: "balanced", or a weight for each label; `warm_start` begins where the last fit ended.
    - `intercept_scaling`, `random_state`, `n_jobs` and `verbose` have no effect.

    Sparse rows are made dense: all at once to fit, in blocks to predict.

    >>> rows = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> LogisticRegression().fit(rows, ["no", "no", "yes", "yes"]).predict([[3.0]]).tolist()
    ['yes']
    """

    _parameter_constraints: ClassVar[dict] = {
        "penalty": [StrOptions({"l1", "l2", "elasticnet", "deprecated"}), None],
        "C": [Interval(Real, 0, None, closed="right")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), None],
        "dual": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "random_state": ["random_state"],
        "solver": [StrOptions({"lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
        "n_jobs": [None, Integral],
    }

    def __init__(
        self,
        penalty="deprecated",
        *,
        C=1.0,
        l1_ratio=0.0,
        dual=False,
        tol=1e-4,
        fit_intercept=True,
        intercept_scaling=1,
        class_weight=None,
        random_state=None,
        solver="lbfgs",
        max_iter=100,
        verbose=0,
        warm_start=False,
        n_jobs=None,
    ):
        self.penalty = penalty
        self.C = C
        self.l1_ratio = l1_ratio
        self.dual = dual
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.random_state = random_state
        self.solver = solver
        self.max_iter = max_iter
        self.verbose = verbose
        self.warm_start = warm_start
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        tags = ClassifierMixin.__sklearn_tags__(self)
        tags.input_tags.sparse = True
        return tags

    def _check_offered(self) -> None:
        if self.solver not in _METHODS:
            raise ValueError(f"solver must be one of {', '.join(map(repr, _METHODS))}; got {self.solver!r}.")
        if self.penalty in ("l1", "elasticnet") or self.l1_ratio:
            raise ValueError(
                "The penalty is 'l2' or None, with l1_ratio=0; got "
                f"penalty={self.penalty!r} and l1_ratio={self.l1_ratio!r}."
            )
        if self.dual:
            raise ValueError(f"dual=True is not offered: solver={self.solver!r} works on the weights; got dual=True.")

    @in_double
    def fit(self, X, y, sample_weight=None):
        """Learn from rows and labels."""
        self._validate_params()
        self._check_offered()
        given: Any = validate_data(self, X, y, dtype=list(FLOATS), accept_sparse="csr")
        X, y = given
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        c = len(self.classes_)
        if c < 2:
            raise ValueError(f"This solver needs samples of at least 2 classes in the data; got {c} class")
        X = dense(X)
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        if self.class_weight is not None:
            each = compute_class_weight(self.class_weight, classes=self.classes_, y=y, sample_weight=weights)
            weights = weights * each[labels].astype(X.dtype)
        rows, weights = padded(X, weights)
        labels = np.concatenate([labels, np.full(len(rows) - len(X), -1, labels.dtype)])
        tol = max(0.01 * self.tol**2, 4 * np.finfo(X.dtype).eps)
        l2 = np.asarray(0 if self.penalty is None else 1 / self.C, X.dtype)
        start = self._start(X.shape[1], c, l2, X.dtype)
        result = _learn(start, rows, labels, weights, np.asarray(tol), self.solver, self.max_iter)
        model = result.model if self.fit_intercept else result.model.whole()
        self.model_ = held(model)
        self.coef_ = np.atleast_2d(self.model_.weights)
        self.intercept_ = np.atleast_1d(self.model_.intercept)
        self.n_iter_ = np.array([max(int(result.num_steps), 1)])
        self._report(Status(int(result.status)))
        return self

    def _start(self, d: int, c: int, l2: np.ndarray, dtype: Any) -> Any:
        """Zero, or the last fit with the present penalty."""
        start = logistic_regression(d, l2, dtype) if c == 2 else softmax_regression(d, c, l2, dtype)
        if self.warm_start and "model_" in vars(self) and np.shape(self.model_.weights) == start.weights.shape:
            again = on_device(in_precision(self.model_, dtype))
            start = type(start)(again.weights, again.intercept, start.l2)
        return start if self.fit_intercept else ThroughOrigin(start.weights, start.l2)

    def _report(self, status: Status) -> None:
        if status != Status.converged:
            why = _WHY.get(status, f"ended as {status.name}").format(self.max_iter)
            warnings.warn(f"{self.solver} failed to converge: it {why}.", ConvergenceWarning, stacklevel=4)

    @in_double
    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return over_rows(_scores, self.model_, checked(self, X, accept_sparse=True))

    def decision_function(self, X):
        """Log-odds of the second of two classes; scores of more."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_log_proba(self, X):
        """Log-probabilities of the classes."""
        return normalized(self._scores(X))

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
def _learn(start: Any, rows: Any, labels: Any, weights: Any, tol: Any, solver: str, max_iter: int) -> Fit:
    data = rows, jnp.asarray(labels)
    return fit(start, data, _METHODS[solver](), weights=weights, max_steps=max_iter, rtol=tol)
