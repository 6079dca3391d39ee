"""Principal components and factor analysis with scikit-learn's names."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import TransformerTags
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._fit import Fit, Status, fit
from ..factors import PCA as Principal
from ..factors import choose_dimension, varimax
from ..factors.build import factor_analysis
from .host import checked, dense, held, in_double, key_of, on_device, over_rows, padded


def _size(n_components: Any, X: np.ndarray) -> int:
    most = min(X.shape)
    if n_components is None:
        return most
    if n_components > most:
        raise ValueError(f"n_components={n_components} must be between 0 and min(n_samples, n_features)={most}")
    return int(n_components)


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """With the names of `sklearn.decomposition.PCA`; the model is `model_`, a `pml.factors.PCA`.

    `n_components`: a number of components, a share of the variance between 0 and 1, "mle" (Minka's choice), or `None`
    for all. `svd_solver`: "auto", "full" (of the data), "covariance_eigh" or "randomized". `copy` (rows are never
    changed), `tol`, `iterated_power`, `n_oversamples` and `power_iteration_normalizer` have no effect. Scores and
    covariances are those of probabilistic PCA, the same with and without `whiten`. Sparse rows are made dense: all at
    once to fit, in blocks to transform.

    >>> rows = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.1]])
    >>> PCA(1).fit(rows).explained_variance_ratio_.round(3).tolist()
    [1.0]
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
            StrOptions({"mle"}),
            None,
        ],
        "copy": ["boolean"],
        "whiten": ["boolean"],
        "svd_solver": [StrOptions({"auto", "full", "covariance_eigh", "randomized"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "iterated_power": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "n_oversamples": [Interval(Integral, 1, None, closed="left")],
        "power_iteration_normalizer": [StrOptions({"auto", "QR", "LU", "none"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=None,
        *,
        copy=True,
        whiten=False,
        svd_solver="auto",
        tol=0.0,
        iterated_power="auto",
        n_oversamples=10,
        power_iteration_normalizer="auto",
        random_state=None,
    ):
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = BaseEstimator.__sklearn_tags__(self)
        tags.transformer_tags = TransformerTags(preserves_dtype=["float64", "float32"])
        tags.input_tags.sparse = True
        return tags

    @in_double
    def fit(self, X, y=None):
        """Learn from rows; y is ignored."""
        self._validate_params()
        X = dense(checked(self, X, reset=True, accept_sparse=True, ensure_min_samples=2))
        wanted: Any = self.n_components
        if wanted == "mle":
            if len(X) < X.shape[1]:
                raise ValueError("n_components='mle' is only supported if n_samples >= n_features")
            wanted = choose_dimension(X)
        share = wanted is not None and not isinstance(wanted, Integral)
        k = min(X.shape) if share else _size(wanted, X)
        method = {"full": "svd", "covariance_eigh": "eigen"}.get(self.svd_solver, self.svd_solver)
        key = key_of(self.random_state) if method == "randomized" else None
        model = held(Principal.from_data(X, k, method=method, key=key))
        if share:
            heap = np.cumsum(model.explained_variance_ratio)
            k = min(int(np.searchsorted(heap, float(wanted), side="right")) + 1, k)
            model = held(Principal.from_data(X, k, method=method, key=key))
        self.model_ = model
        self.mean_, self.components_ = model.mean, model.components
        self.explained_variance_ = model.explained_variance
        self.explained_variance_ratio_ = model.explained_variance_ratio
        self.singular_values_, self.noise_variance_ = model.singular_values, float(model.noise_variance)
        self.n_components_ = self._n_features_out = k
        self.n_samples_ = len(X)
        return self

    def _unit(self) -> np.ndarray:
        scale = np.sqrt(self.explained_variance_)
        return np.where(scale > 0, scale, 1) if self.whiten else np.ones_like(scale)

    @in_double
    def transform(self, X):
        """Coordinates of rows along the components."""
        check_is_fitted(self)
        return over_rows(_coordinates, self.model_, checked(self, X, accept_sparse=True)) / self._unit()

    def inverse_transform(self, X):
        """The rows of the subspace with these coordinates."""
        check_is_fitted(self)
        return (np.asarray(X) * self._unit()) @ self.components_ + self.mean_

    def _spread(self) -> np.ndarray:
        """Variances along the components, not below that of the noise."""
        check_is_fitted(self)
        return np.maximum(self.explained_variance_, self.noise_variance_)

    def _around_noise(self, values: np.ndarray, noise: float) -> np.ndarray:
        """The matrix with these eigenvalues along the components, and another one everywhere else."""
        eye = np.eye(self.components_.shape[1], dtype=self.components_.dtype)
        return (self.components_.T * (values - noise)[None]) @ self.components_ + noise * eye

    def get_covariance(self):
        """The covariance of rows under the model."""
        return self._around_noise(self._spread(), self.noise_variance_)

    def get_precision(self):
        """Its inverse."""
        spread = self._spread()
        if self.noise_variance_ > 0:
            return self._around_noise(1 / spread, 1 / self.noise_variance_)
        return np.linalg.inv(self.get_covariance())

    def score_samples(self, X):
        """Log density of each row under the model."""
        precision = self.get_precision()
        moved = dense(checked(self, X, accept_sparse=True)) - self.mean_
        constant = np.linalg.slogdet(precision)[1] - len(precision) * np.log(2 * np.pi)
        return 0.5 * (constant.astype(moved.dtype) - np.sum(moved * (moved @ precision), axis=1))

    def score(self, X, y=None):
        """Mean log density under the model."""
        return float(self.score_samples(X).mean())


def _coordinates(model: Any, rows: Any) -> Any:
    return model.transform(rows)


class FactorAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """With the names of `sklearn.decomposition.FactorAnalysis`; the model is `model_`, a `pml.factors.FactorAnalysis`.

    `tol` is the change of the total log-likelihood at which EM stops; `noise_variance_init` is where variances of the
    noise start. `rotation`: "varimax" or `None`; others are not offered. `copy` (rows are never changed), `svd_method`
    and `iterated_power` have no effect.

    >>> rows = np.random.default_rng(0).normal(size=(100, 1)) @ np.ones((1, 3))
    >>> FactorAnalysis(1, random_state=0).fit(rows + 0.1 * np.arange(300).reshape(100, 3) % 1).components_.shape
    (1, 3)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "copy": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "noise_variance_init": ["array-like", None],
        "svd_method": [StrOptions({"randomized", "lapack"})],
        "iterated_power": [Interval(Integral, 0, None, closed="left")],
        "rotation": [StrOptions({"varimax"}), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=None,
        *,
        tol=1e-2,
        copy=True,
        max_iter=1000,
        noise_variance_init=None,
        svd_method="randomized",
        iterated_power=3,
        rotation=None,
        random_state=0,
    ):
        self.n_components = n_components
        self.tol = tol
        self.copy = copy
        self.max_iter = max_iter
        self.noise_variance_init = noise_variance_init
        self.svd_method = svd_method
        self.iterated_power = iterated_power
        self.rotation = rotation
        self.random_state = random_state

    @in_double
    def fit(self, X, y=None):
        """Learn from rows; y is ignored."""
        self._validate_params()
        X = checked(self, X, reset=True, ensure_min_samples=2)
        rows, weights = padded(X)
        k = X.shape[1] if self.n_components is None else self.n_components
        k = _size(min(k, min(X.shape)) if self.n_components is None else k, X)
        key = key_of(self.random_state)
        result = _learn(key, rows, weights, k, self._noise_start(X), np.asarray(self.tol), self.max_iter)
        model = _turned(result.model, self.rotation)
        self.model_ = held(model)
        self.mean_ = np.asarray(model.line.offset)
        self.components_ = np.asarray(model.loadings).T
        self.noise_variance_ = np.asarray(model.noise_variance)
        self.n_iter_ = max(int(result.num_steps), 1)
        self.loglike_ = np.asarray(result.objective)[1 : self.n_iter_ + 1].tolist()
        self._n_features_out = k
        if int(result.status) == Status.max_steps:
            warnings.warn(
                "EM did not converge; increase max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _noise_start(self, X: np.ndarray) -> np.ndarray | None:
        if self.noise_variance_init is None:
            return None
        given = np.asarray(self.noise_variance_init, X.dtype)
        if given.shape != X.shape[1:] or (given <= 0).any():
            raise ValueError(
                "noise_variance_init must hold a positive variance for each of the "
                f"{X.shape[1]} features; got shape {given.shape}."
            )
        return given

    @in_double
    def transform(self, X):
        """Posterior means of the factors given rows."""
        check_is_fitted(self)
        return over_rows(_factors, self.model_, checked(self, X))

    @in_double
    def get_covariance(self):
        """The covariance of rows under the model."""
        check_is_fitted(self)
        return np.asarray(on_device(self.model_).marginal_covariance())

    def get_precision(self):
        """Its inverse."""
        return np.linalg.inv(self.get_covariance())

    @in_double
    def score_samples(self, X):
        """Log density of each row."""
        check_is_fitted(self)
        return over_rows(_scores, self.model_, checked(self, X))

    def score(self, X, y=None):
        """Mean log density."""
        return float(self.score_samples(X).mean())


def _factors(model: Any, rows: Any) -> Any:
    return model.transform(rows)


def _scores(model: Any, rows: Any) -> Any:
    return jax.vmap(model.log_prob)(rows)


def _turned(model: Any, rotation: str | None) -> Any:
    """The same density with scikit-learn's loadings: varimax on their own scale, or factors that are independent given
    a row, the best seen first."""
    loadings = model.loadings
    if rotation:
        turned = varimax(loadings, normalize=False).loadings
    else:
        turned = loadings @ jnp.linalg.eigh(loadings.T @ (loadings / model.noise_variance[:, None]))[1][:, ::-1]
    return eqx.tree_at(lambda m: m.observation.distribution.matrix, model, turned)


@eqx.filter_jit
def _learn(key: Any, rows: Any, weights: Any, k: int, noise: Any, tol: Any, max_iter: int) -> Fit:
    start = factor_analysis(key, rows, k, weights=weights)
    if noise is not None:
        start = eqx.tree_at(lambda m: m.observation.distribution.scale, start, jnp.sqrt(noise))
    value = abs(start.log_likelihood(rows, weights))
    return fit(start, rows, weights=weights, max_steps=max_iter, rtol=tol / jnp.maximum(value, 1))
