"""Gaussian processes with scikit-learn's names."""

from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._constraint import fixed, perturbed
from .._fit import Fit, fit
from .._model import AbstractModel
from .._race import race
from ..gaussian_processes import GaussianProcess, kernels
from ..gaussian_processes import GaussianProcessClassifier as Classifier
from ..gaussian_processes.kernels import AbstractKernel
from ..methods import LBFGS
from .host import FLOATS, checked, held, in_double, key_of, on_device, padded


def _kernel(given: Any, dtype: Any) -> Any:
    """The kernel in the precision of the data; without one, a constant times an RBF, both learned."""
    kernel = kernels.Scaled(1.0, kernels.RBF(1.0)) if given is None else given
    return jax.tree_util.tree_map(lambda a: jnp.asarray(a, dtype) if eqx.is_inexact_array_like(a) else a, kernel)


@eqx.filter_jit
def _learn(keys: Any, start: Any, data: Any, weights: Any, max_iter: int) -> Fit:
    """The first start as given, the others perturbed; see `race` for how several of them are learned."""
    if keys.shape[0] == 1:
        return fit(start, data, LBFGS(), weights=weights, max_steps=max_iter)
    scales = jnp.where(jnp.arange(keys.shape[0]) == 0, 0.0, 1.0)
    starts = eqx.filter_vmap(lambda key, scale: perturbed(key, start, scale))(keys, scales)
    return race(starts, data, LBFGS(), weights=weights, max_steps=max_iter)


class KnownNoise(AbstractModel):
    """A process of which the kernel trains and the noise does not."""

    kernel: AbstractKernel
    noise: Any = fixed()

    def _process(self) -> GaussianProcess:
        return GaussianProcess(self.kernel, self.noise)

    def log_likelihood(self, data: Any, weights: Any) -> Any:
        return self._process().log_likelihood(data, weights)

    def log_prior(self) -> Any:
        return self._process().log_prior()

    def validate(self, data: Any) -> None:
        self._process().validate(data)

    def degenerate(self) -> Any:
        return self._process().degenerate()


class GaussianProcessRegressor(RegressorMixin, BaseEstimator):
    """With the names of `sklearn.gaussian_process.GaussianProcessRegressor`.

    `kernel` is one of `pml.gaussian_processes.kernels` (a constant times an RBF where it is not given); its parameters
    are learned by L-BFGS unless `optimizer` is `None`, from `1 + n_restarts_optimizer` starts in a `pml.race`. `alpha`
    is the variance of the noise, known; `learn_noise=True` makes it the starting value of a parameter. The
    conditioned process is `model_`.

    >>> x = np.linspace(0, 3, 20)[:, None]
    >>> model = GaussianProcessRegressor(alpha=1e-4).fit(x, np.sin(x[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 1e-3)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "optimizer": [str, None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        "learn_noise": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kernel=None,
        *,
        alpha=1e-10,
        optimizer="lbfgs",
        n_restarts_optimizer=0,
        normalize_y=False,
        learn_noise=False,
        max_iter=100,
        random_state=None,
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.normalize_y = normalize_y
        self.learn_noise = learn_noise
        self.max_iter = max_iter
        self.random_state = random_state

    @in_double
    def fit(self, X, y):
        """Learn the kernel's parameters, and condition on the rows."""
        self._validate_params()
        given: Any = validate_data(self, X, y, dtype=list(FLOATS), y_numeric=True)
        X, y = given
        y = y.astype(X.dtype)
        self._shift = y.mean() if self.normalize_y else np.zeros((), X.dtype)
        self._unit = (y.std() or 1.0) if self.normalize_y else np.ones((), X.dtype)
        kernel = _kernel(self.kernel, X.dtype)
        noise = jnp.asarray(self.alpha, X.dtype)
        start = GaussianProcess(kernel, noise)
        self.n_iter_ = 1
        target = ((y - self._shift) / self._unit).astype(X.dtype)
        if self.optimizer is not None:
            start = start if self.learn_noise else KnownNoise(kernel, noise)
            keys = jr.split(key_of(self.random_state), 1 + self.n_restarts_optimizer)
            rows, weights = padded(X)
            targets, _ = padded(target)
            found = _learn(keys, start, (rows, targets), weights, self.max_iter)
            kernel, noise = found.model.kernel, found.model.noise
            self.n_iter_ = max(int(found.num_steps), 1)
            self.log_marginal_likelihood_value_ = float(found.final_objective)
        process = GaussianProcess(kernel, noise)
        self.kernel_ = held(kernel)
        self.X_train_, self.y_train_ = X, target
        room = np.full(len(padded(X)[0]) - len(X), np.nan, X.dtype)  # a missing observation tells nothing
        self.model_ = held(process.condition(padded(X)[0], np.concatenate([target, room])))
        if self.optimizer is None:
            self.log_marginal_likelihood_value_ = float(process.log_prob((X, target)))
        return self

    @in_double
    def predict(self, X, return_std=False, return_cov=False):
        """Means of the function; with them, on request, standard deviations or covariances."""
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        check_is_fitted(self)
        X = checked(self, X)
        model = on_device(self.model_)
        rows, _ = padded(X)
        mean = np.asarray(model.mean(rows))[: len(X)] * self._unit + self._shift
        if return_cov:
            return mean, np.asarray(model.covariance(X)) * self._unit**2
        if return_std:
            return mean, np.sqrt(np.asarray(model.variance(rows))[: len(X)]) * self._unit
        return mean

    @in_double
    def sample_y(self, X, n_samples=1, random_state=0):
        """Functions drawn at some rows, `(n_rows, n_samples)`."""
        check_is_fitted(self)
        model, rows = on_device(self.model_), jnp.asarray(checked(self, X))
        drawn = jax.vmap(lambda key: model.sample(key, rows))(jr.split(key_of(random_state), n_samples))
        return np.asarray(drawn).T * self._unit + self._shift


class GaussianProcessClassifier(ClassifierMixin, BaseEstimator):
    """With the names of `sklearn.gaussian_process.GaussianProcessClassifier`: Laplace's approximation.

    `kernel`, `optimizer` and restarts as in `GaussianProcessRegressor`. More than two classes share the kernel and a
    softmax, instead of one classifier for each. The conditioned classifier is `model_`.

    >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> GaussianProcessClassifier().fit(x, ["no", "no", "yes", "yes"]).predict([[1.5]]).tolist()
    ['yes']
    """

    _parameter_constraints: ClassVar[dict] = {
        "optimizer": [str, None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, kernel=None, *, optimizer="lbfgs", n_restarts_optimizer=0, max_iter=50, random_state=None):
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter = max_iter
        self.random_state = random_state

    @in_double
    def fit(self, X, y):
        """Learn the kernel's parameters, and condition on the labels."""
        self._validate_params()
        given: Any = validate_data(self, X, y, dtype=list(FLOATS))
        X, y = given
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has {len(self.classes_)} class; two or more distinct classes are wanted.")
        rows, weights = padded(X)
        labels = np.concatenate([labels, np.full(len(rows) - len(X), -1)])
        model = Classifier(_kernel(self.kernel, X.dtype), len(self.classes_))
        self.n_iter_ = 1
        if self.optimizer is not None:
            keys = jr.split(key_of(self.random_state), 1 + self.n_restarts_optimizer)
            found = _learn(keys, model, (rows, labels), weights, self.max_iter)
            model = found.model
            self.n_iter_ = max(int(found.num_steps), 1)
        self.kernel_ = held(model.kernel)
        self.model_ = held(model.condition(rows, labels, weights))
        return self

    @in_double
    def predict_proba(self, X):
        """Class probabilities, averaged over the posterior."""
        check_is_fitted(self)
        X = checked(self, X)
        return np.asarray(on_device(self.model_).probs(padded(X)[0]))[: len(X)]

    def predict(self, X):
        """The most probable class of each row."""
        probs = self.predict_proba(X)
        return self.classes_[probs.argmax(axis=1)]
