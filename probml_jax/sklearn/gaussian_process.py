"""Gaussian processes with scikit-learn's names."""

from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.linalg import cho_solve, cholesky
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._constraint import fixed, num_parameters, perturbed
from .._fit import Fit, fit
from .._model import AbstractModel
from .._race import race
from ..gaussian_processes import GaussianProcess
from ..gaussian_processes import GaussianProcessClassifier as Classifier
from ..gaussian_processes.kernels import AbstractKernel
from ..inference.evidence import log_density
from ..methods import LBFGS
from .host import FLOATS, checked, held, in_double, key_of, on_device, padded
from .kernels import as_given, as_kernel, built


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


def _evidence_at(model_at: Any, given: Any, theta: Any, eval_gradient: bool) -> Any:
    """The log evidence at logarithms of the parameters of one of scikit-learn's kernels, and its gradient."""
    if not isinstance(given, Kernel):
        raise ValueError("log_marginal_likelihood(theta) needs a kernel of scikit-learn, whose parameters theta names.")
    value = lambda theta: model_at(built(given, theta))
    theta = jnp.asarray(theta, jnp.float64)
    if not eval_gradient:
        return float(value(theta))
    found, slope = jax.value_and_grad(value)(theta)
    return float(found), np.asarray(slope)


class GaussianProcessRegressor(RegressorMixin, BaseEstimator):
    """With the names of `sklearn.gaussian_process.GaussianProcessRegressor`; the conditioned process is `model_`.

    - `kernel`: of `pml.gaussian_processes.kernels`, or of scikit-learn (without a counterpart here: `TypeError`; bounds
      other than "fixed" are not used). `kernel_` is of the same library. `None` is scikit-learn's constant times RBF.
    - `optimizer`: "fmin_l_bfgs_b" (or "lbfgs"), this library's L-BFGS for at most `max_iter` steps, from
      `1 + n_restarts_optimizer` starts in a `pml.race`; `None` keeps parameters.
    - `alpha`: the variance of the noise, known, one for all rows or one for each. `learn_noise=True` makes it the
      starting value of a parameter.
    - `n_targets`: 1 or `None`. `copy_X_train=False` keeps a reference to the rows as `X_train_`.

    `L_` and `alpha_` are computed when they are asked for, in $O(n^3)$.

    >>> x = np.linspace(0, 3, 20)[:, None]
    >>> model = GaussianProcessRegressor(alpha=1e-4).fit(x, np.sin(x[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 1e-3)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "alpha": [Interval(Real, 0, None, closed="left"), np.ndarray],
        "optimizer": [StrOptions({"fmin_l_bfgs_b", "lbfgs"}), None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        "copy_X_train": ["boolean"],
        "n_targets": [Interval(Integral, 1, None, closed="left"), None],
        "learn_noise": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kernel=None,
        *,
        alpha=1e-10,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=0,
        normalize_y=False,
        copy_X_train=True,
        n_targets=None,
        learn_noise=False,
        max_iter=100,
        random_state=None,
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.normalize_y = normalize_y
        self.copy_X_train = copy_X_train
        self.n_targets = n_targets
        self.learn_noise = learn_noise
        self.max_iter = max_iter
        self.random_state = random_state

    @in_double
    def fit(self, X, y):
        """Learn the kernel's parameters, and condition on the rows."""
        self._validate_params()
        given: Any = validate_data(self, X, y, dtype=list(FLOATS), y_numeric=True)
        X, y = given
        if self.n_targets not in (None, 1):
            raise ValueError(f"y has one target here; got n_targets={self.n_targets}.")
        y = y.astype(X.dtype)
        self._shift = y.mean() if self.normalize_y else np.zeros((), X.dtype)
        self._unit = (y.std() or 1.0) if self.normalize_y else np.ones((), X.dtype)
        target = ((y - self._shift) / self._unit).astype(X.dtype)
        kernel, noise = as_kernel(self._given(), X.dtype), self._noise_of_rows(X)
        self.n_iter_ = 1
        start = GaussianProcess(kernel, jnp.asarray(noise[0])) if self.learn_noise else KnownNoise(kernel, noise[0])
        if self.optimizer is not None and num_parameters(start):
            keys = jr.split(key_of(self.random_state), 1 + self.n_restarts_optimizer)
            # noise of twice the variance is half an observation
            rows, weights = padded(X, noise[0] / noise if noise[0] > 0 else None)
            found = _learn(keys, start, (rows, padded(target)[0]), weights, self.max_iter)
            self.n_iter_ = max(int(found.num_steps), 1)
            kernel = found.model.kernel
            noise = np.full_like(noise, found.model.noise) if self.learn_noise else noise
        self.kernel_ = as_given(self._given(), held(kernel))
        self.X_train_, self.y_train_ = X.copy() if self.copy_X_train else X, target
        room = np.full(len(padded(X)[0]) - len(X), np.nan, X.dtype)  # a missing observation tells nothing
        rows, spread = padded(X, noise)
        process = GaussianProcess(kernel, jnp.asarray(noise[0]))
        self.model_ = held(process.condition(rows, np.concatenate([target, room]), spread))
        self._noise = noise
        self.log_marginal_likelihood_value_ = self.log_marginal_likelihood()
        return self

    def _given(self) -> Any:
        return ConstantKernel() * RBF() if self.kernel is None else self.kernel

    def _noise_of_rows(self, X: np.ndarray) -> np.ndarray:
        alpha = np.asarray(self.alpha, X.dtype)
        if alpha.ndim == 0 or alpha.shape == (1,):
            return np.broadcast_to(alpha, len(X)).copy()
        if alpha.shape != (len(X),):
            raise ValueError(
                f"alpha must be a scalar or an array with same number of entries as y. ({len(alpha)} != {len(X)})"
            )
        if self.learn_noise or not (alpha > 0).all():
            raise ValueError("alpha of each row must be positive, and goes without learn_noise.")
        return alpha

    @in_double
    def _factor(self) -> np.ndarray:
        check_is_fitted(self)
        model = on_device(self.model_)
        gram = np.asarray(model.kernel.gram(jnp.asarray(self.X_train_)))
        return cholesky(gram + np.diag(self._noise + model.jitter), lower=True)

    @property
    def L_(self):
        """The Cholesky factor of the covariance of observations."""
        return self._factor()

    @property
    def alpha_(self):
        """The inverse of that covariance times the observations: weights of rows in the mean."""
        return cho_solve((self._factor(), True), self.y_train_)

    @in_double
    def log_marginal_likelihood(self, theta=None, eval_gradient=False, clone_kernel=True):
        """The log evidence of the fitted kernel, or of scikit-learn's at logarithms `theta` of its free parameters, on
        request with its gradient. `clone_kernel` has no effect: `kernel_` stays as it is."""
        check_is_fitted(self)
        if theta is None and eval_gradient:
            raise ValueError("Gradient can only be evaluated for theta!=None")
        X, y = jnp.asarray(self.X_train_), jnp.asarray(self.y_train_)
        model_at = lambda kernel: log_density(kernel.gram(X) + jnp.diag(jnp.asarray(self._noise)), y)
        if theta is None:
            return float(model_at(on_device(self.model_).kernel))
        return _evidence_at(model_at, self._given(), theta, eval_gradient)

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

    `kernel`, `optimizer`, `max_iter` and restarts as in `GaussianProcessRegressor`; as in scikit-learn, the kernel of
    `None` does not train. More than two classes share the
    kernel and a softmax, instead of one classifier for each: `multi_class` is "one_vs_rest" for the sake of its name
    and has no effect, nor have `max_iter_predict`, `warm_start`, `copy_X_train` and `n_jobs`. The conditioned
    classifier is `model_`.

    >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> GaussianProcessClassifier().fit(x, ["no", "no", "yes", "yes"]).predict([[1.5]]).tolist()
    ['yes']
    """

    _parameter_constraints: ClassVar[dict] = {
        "optimizer": [StrOptions({"fmin_l_bfgs_b", "lbfgs"}), None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "max_iter_predict": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "copy_X_train": ["boolean"],
        "random_state": ["random_state"],
        "multi_class": [StrOptions({"one_vs_rest"})],
        "n_jobs": [Integral, None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        kernel=None,
        *,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=0,
        max_iter_predict=100,
        warm_start=False,
        copy_X_train=True,
        random_state=None,
        multi_class="one_vs_rest",
        n_jobs=None,
        max_iter=100,
    ):
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter_predict = max_iter_predict
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.random_state = random_state
        self.multi_class = multi_class
        self.n_jobs = n_jobs
        self.max_iter = max_iter

    @in_double
    def fit(self, X, y):
        """Learn the kernel's parameters, and condition on the labels."""
        self._validate_params()
        given: Any = validate_data(self, X, y, dtype=list(FLOATS))
        X, y = given
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.n_classes_ = len(self.classes_)
        if self.n_classes_ < 2:
            raise ValueError(f"y has {self.n_classes_} class; two or more distinct classes are wanted.")
        rows, weights = padded(X)
        labels = np.concatenate([labels, np.full(len(rows) - len(X), -1)])
        model = Classifier(as_kernel(self._given(), X.dtype), self.n_classes_)
        self.n_iter_ = 1
        if self.optimizer is not None and num_parameters(model):
            keys = jr.split(key_of(self.random_state), 1 + self.n_restarts_optimizer)
            found = _learn(keys, model, (rows, labels), weights, self.max_iter)
            model = found.model
            self.n_iter_ = max(int(found.num_steps), 1)
        self.kernel_ = as_given(self._given(), held(model.kernel))
        self.model_ = held(model.condition(rows, labels, weights))
        self._seen = rows, labels, weights
        self.log_marginal_likelihood_value_ = self.log_marginal_likelihood()
        return self

    def _given(self) -> Any:
        return ConstantKernel(1.0, "fixed") * RBF(1.0, "fixed") if self.kernel is None else self.kernel

    @in_double
    def log_marginal_likelihood(self, theta=None, eval_gradient=False, clone_kernel=True):
        """Laplace's log evidence of the fitted kernel, or of scikit-learn's at logarithms `theta` of its free
        parameters, on request with its gradient. `clone_kernel` has no effect: `kernel_` stays as it is."""
        check_is_fitted(self)
        if theta is None and eval_gradient:
            raise ValueError("Gradient can only be evaluated for theta!=None")
        rows, labels, weights = map(jnp.asarray, self._seen)
        model_at = lambda kernel: Classifier(kernel, self.n_classes_).log_likelihood((rows, labels), weights)
        if theta is None:
            return float(model_at(on_device(self.model_).kernel))
        return _evidence_at(model_at, self._given(), theta, eval_gradient)

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
