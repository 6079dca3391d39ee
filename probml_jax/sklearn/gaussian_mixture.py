"""Gaussian mixtures, by EM and by variational Bayes, with scikit-learn's names."""

from numbers import Integral, Real
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions

from .. import conjugate
from .host import checked, held
from .mixture import LOOP, STARTS, AbstractMixture
from .stick_breaking import StickBreaking

_NAMES = {"full": "full", "tied": "tied", "diag": "diagonal", "spherical": "spherical"}


def _gaussian_attributes(estimator: Any, covariances: np.ndarray) -> None:
    """Covariances and precisions of the members of a mixture, in scikit-learn's shapes."""
    shape = estimator.covariance_type
    if shape in ("full", "tied"):
        covariances = covariances[0] if shape == "tied" else covariances
        whiten = np.swapaxes(np.linalg.inv(np.linalg.cholesky(covariances)), -1, -2)
        precisions = whiten @ np.swapaxes(whiten, -1, -2)
    else:
        whiten, precisions = 1 / np.sqrt(covariances), 1 / covariances
    estimator.covariances_, estimator.precisions_cholesky_, estimator.precisions_ = covariances, whiten, precisions


class GaussianMixture(AbstractMixture):
    """Gaussian mixture by EM, with the names of `sklearn.mixture.GaussianMixture`.

    The model itself is `model_`, a `pml.mixtures.Mixture`. Differences: `reg_covar` is the smallest variance a
    component may have, not an addition to all of them; all `n_init` starts run at once; "kmeans" and "k-means++" both
    mean k-means++ with a few Lloyd steps, "random" and "random_from_data" both mean rows at random.

    >>> rows = np.concatenate([np.random.default_rng(0).normal(size=(50, 2)) + shift for shift in (0, 8)])
    >>> GaussianMixture(2, random_state=0).fit(rows).means_.round().astype(int)[:, 0].max()
    np.int64(8)
    """

    _parameter_constraints: ClassVar[dict] = {
        **LOOP,
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "init_params": [StrOptions(set(STARTS))],
        "weights_init": ["array-like", None],
        "means_init": ["array-like", None],
        "precisions_init": ["array-like", None],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        tol=1e-3,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weights_init=None,
        means_init=None,
        precisions_init=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def _check(self, X: Any, *, reset: bool) -> np.ndarray:
        return checked(self, X, reset=reset, ensure_min_samples=2 if reset else 1)

    def _start(self, key: jax.Array, X: np.ndarray) -> tuple[Any, ...]:
        k, d = self.n_components, X.shape[1]
        options: dict[str, Any] = {"floor": np.asarray(self.reg_covar, X.dtype)}
        if self.weights_init is not None:
            options["weights"] = _given_weights(self.weights_init, k).astype(X.dtype)
        if self.means_init is not None:
            options["means"] = _shaped(self.means_init, (k, d), "means").astype(X.dtype)
        if self.precisions_init is not None:
            shapes = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
            precisions = _shaped(
                self.precisions_init, shapes[self.covariance_type], f"{self.covariance_type} precision"
            )
            options["covariances"] = _inverted(precisions, self.covariance_type).astype(X.dtype)
        return ("gaussian", k, _NAMES[self.covariance_type], "ml", STARTS[self.init_params]), options

    def _read(self, model: Any) -> None:
        self.weights_ = np.asarray(model.weights.point().probs)
        points = held(model.components.map(lambda leaf: leaf.point()))
        self.means_ = points.loc
        _gaussian_attributes(self, points.covariance if self.covariance_type in ("full", "tied") else points.scale**2)


def _given_weights(weights: Any, k: int) -> np.ndarray:
    weights = _shaped(weights, (k,), "weights")
    if (weights < 0).any() or (weights > 1).any():
        raise ValueError(
            "The parameter 'weights' should be in the range [0, 1], but got max value "
            f"{weights.min():.5f}, min value {weights.max():.5f}"
        )
    if not np.allclose(weights.sum(), 1):
        raise ValueError(f"The parameter 'weights' should be normalized, but got sum(weights) = {weights.sum():.5f}")
    return weights


def _shaped(given: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    given = check_array(given, dtype=np.float64, ensure_2d=False, allow_nd=True)
    if given.shape != shape:
        raise ValueError(f"The parameter '{name}' should have the shape of {shape}, but got {given.shape}")
    return given


def _inverted(precisions: np.ndarray, shape: str) -> np.ndarray:
    if shape in ("diag", "spherical"):
        if (precisions <= 0).any():
            raise ValueError(f"'{shape} precision' should be positive")
        return 1 / precisions
    symmetric = np.allclose(precisions, np.swapaxes(precisions, -1, -2))
    if not symmetric or (np.linalg.eigvalsh(precisions) <= 0).any():
        raise ValueError(f"'{shape} precision' should be symmetric, positive-definite")
    return np.linalg.inv(precisions)


class BayesianGaussianMixture(AbstractMixture):
    """Gaussian mixture by variational Bayes, with the names of `sklearn.mixture.BayesianGaussianMixture`.

    `weight_concentration_prior_type`: "dirichlet_process", truncated at `n_components` (`weight_concentration_` then
    holds both parameters of each Beta posterior), or "dirichlet_distribution". As in scikit-learn, `covariances_` are
    inverses of expected precisions; but "tied", "diag" and "spherical" have their exact posteriors, where scikit-learn
    takes over parts of that of a full covariance. `lower_bound_` is the evidence lower
    bound per row, with its constants. Differences in the start are those of `GaussianMixture`; here priors keep
    variances off zero, and `reg_covar` is added to the variances of that prior.

    >>> rows = np.concatenate([np.random.default_rng(0).normal(size=(50, 2)) + shift for shift in (0, 8)])
    >>> found = BayesianGaussianMixture(n_components=4, weight_concentration_prior=1e-3, random_state=0).fit(rows)
    >>> int((found.weights_ > 0.1).sum())
    2
    """

    _parameter_constraints: ClassVar[dict] = {
        **LOOP,
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "init_params": [StrOptions(set(STARTS))],
        "weight_concentration_prior_type": [StrOptions({"dirichlet_process", "dirichlet_distribution"})],
        "weight_concentration_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "mean_precision_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "mean_prior": [None, "array-like"],
        "degrees_of_freedom_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "covariance_prior": [None, "array-like", Interval(Real, 0.0, None, closed="neither")],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        n_components=1,
        covariance_type="full",
        tol=1e-3,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=None,
        mean_precision_prior=None,
        mean_prior=None,
        degrees_of_freedom_prior=None,
        covariance_prior=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weight_concentration_prior_type = weight_concentration_prior_type
        self.weight_concentration_prior = weight_concentration_prior
        self.mean_precision_prior = mean_precision_prior
        self.mean_prior = mean_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def _check(self, X: Any, *, reset: bool) -> np.ndarray:
        return checked(self, X, reset=reset, ensure_min_samples=2 if reset else 1)

    def _start(self, key: jax.Array, X: np.ndarray) -> tuple[Any, ...]:
        k, d = self.n_components, X.shape[1]
        given = lambda value, default: default if value is None else value
        self.weight_concentration_prior_ = given(self.weight_concentration_prior, 1 / k)
        self.mean_precision_prior_ = given(self.mean_precision_prior, 1.0)
        center = X.mean(axis=0) if self.mean_prior is None else _shaped(self.mean_prior, (d,), "means")
        self.mean_prior_ = center
        df = given(self.degrees_of_freedom_prior, d)
        if df <= d - 1:
            raise ValueError(
                f"The parameter 'degrees_of_freedom_prior' should be greater than {d - 1}, but got {df:.3f}."
            )
        self.degrees_of_freedom_prior_ = df
        shapes = {"full": (d, d), "tied": (d, d), "diag": (d,), "spherical": ()}
        spread = np.atleast_2d(np.cov(X.T))
        default = {"full": spread, "tied": spread, "diag": np.diag(spread), "spherical": np.diag(spread).mean()}
        shape = shapes[self.covariance_type]
        value = default[self.covariance_type] if self.covariance_prior is None else self.covariance_prior
        self.covariance_prior_ = _shaped(value, shape, f"{self.covariance_type} covariance_prior") if shape else value
        prior = self._prior(X.dtype)
        options = {"prior": prior, "concentration": np.asarray(self.weight_concentration_prior_, X.dtype)}
        if self.weight_concentration_prior_type == "dirichlet_process":
            options["process"] = options["concentration"]
        return ("gaussian", k, _NAMES[self.covariance_type], "bayes", STARTS[self.init_params]), options

    def _prior(self, dtype: Any) -> Any:
        array = lambda a: jnp.asarray(a, dtype)
        loc, strength, df, scale = map(
            array,
            (self.mean_prior_, self.mean_precision_prior_, self.degrees_of_freedom_prior_, self.covariance_prior_),
        )
        whole = self.covariance_type in ("full", "tied")
        scale = scale + self.reg_covar * (jnp.eye(loc.size, dtype=dtype) if whole else 1)
        if whole:
            return conjugate.NormalInverseWishart(loc, strength, scale, df)
        each = lambda a: jnp.broadcast_to(a, loc.shape)
        if self.covariance_type == "diag":
            return conjugate.NormalInverseChiSquared(loc, each(strength), each(df), scale / df)
        return conjugate.SphericalNormalInverseChiSquared(loc, strength, df, scale / df)

    def _read(self, model: Any) -> None:
        self.weights_ = np.asarray(model.weights.point().probs)
        if isinstance(model.weights, StickBreaking):
            self.weight_concentration_ = np.asarray(model.weights.first), np.asarray(model.weights.rest)
        else:
            self.weight_concentration_ = np.asarray(model.weights.posterior.concentration)
        posterior = held(model.components.map(lambda leaf: leaf.posterior))
        self.means_ = posterior.loc
        one_each = lambda a: a.reshape(self.n_components, -1)[:, 0]
        self.mean_precision_, self.degrees_of_freedom_ = one_each(posterior.strength), one_each(posterior.df)
        whole = self.covariance_type in ("full", "tied")
        _gaussian_attributes(self, posterior.scale / posterior.df[:, None, None] if whole else posterior.scale)
