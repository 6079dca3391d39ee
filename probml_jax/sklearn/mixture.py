"""What mixtures share as estimators, and the mixture of binary vectors."""

import warnings
from abc import abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._constraint import num_parameters
from .._estimate import ML
from .._fit import Fit, Status, best_of, fit
from .._model import objective
from ..distributions import Categorical
from ..mixtures import bernoulli_mixture, gaussian_mixture
from .host import checked, held, in_double, key_of, on_device, over_rows, padded
from .stick_breaking import StickBreaking

STARTS = {"kmeans": "kmeans++", "k-means++": "kmeans++", "random": "random", "random_from_data": "random"}
LOOP: dict[str, list] = {
    "n_components": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0.0, None, closed="left")],
    "max_iter": [Interval(Integral, 0, None, closed="left")],
    "n_init": [Interval(Integral, 1, None, closed="left")],
    "random_state": ["random_state"],
    "warm_start": ["boolean"],
}


class AbstractMixture(DensityMixin, BaseEstimator):
    """What mixtures share: EM from several starts in one compiled call, soft and hard clusters, scores, samples."""

    # what every estimator's __init__ sets
    n_components: Any
    tol: Any
    max_iter: Any
    n_init: Any
    random_state: Any
    warm_start: Any

    @abstractmethod
    def _start(self, key: jax.Array, X: np.ndarray) -> tuple[Any, ...]:
        """Arguments of `_learn`: what kind of mixture, and arrays that say where and how it starts."""

    @abstractmethod
    def _read(self, model: Any) -> None:
        """Set the attributes that scikit-learn names."""

    @abstractmethod
    def _check(self, X: Any, *, reset: bool) -> np.ndarray:
        """Rows that this kind of mixture can have made."""

    def fit(self, X, y=None):
        """Learn from rows `(n_samples, n_features)`; y is ignored."""
        self._learned(X)
        return self

    def fit_predict(self, X, y=None):
        """Learn, and name the most probable component of each row."""
        return self._learned(X).argmax(axis=1)

    @in_double
    def _learned(self, X: Any) -> np.ndarray:
        self._validate_params()
        X = self._check(X, reset=True)
        if len(X) < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, n_samples = {len(X)}"
            )
        rows, weights = padded(X)
        kind, options = self._start(key_of(self.random_state), X)
        again = on_device(self.model_) if self.warm_start and "model_" in vars(self) else None
        keys = jr.split(key_of(self.random_state), self.n_init if again is None else 1)
        fits = _learn(kind, options, keys, rows, weights, np.asarray(self.tol), int(self.max_iter), again)
        result = best_of(fits)
        self._conclude(result, np.atleast_1d(np.asarray(fits.final_objective)), len(X))
        return over_rows(_posterior, self.model_, X)[0]

    def _conclude(self, result: Fit, bounds: np.ndarray, n: int) -> None:
        status = Status(int(result.status))
        if status == Status.nonfinite or not np.isfinite(bounds).any():
            raise ValueError(
                "Fitting the mixture model failed because some components have ill-defined empirical covariance (for "
                "instance caused by singleton or collapsed samples). Try to decrease the number of components, or "
                "increase reg_covar."
            )
        self.model_ = held(result.model)
        self.converged_ = status in (Status.converged, Status.degenerate)
        self.n_iter_ = int(result.num_steps)
        self.lower_bound_ = float(result.final_objective) / n
        trace = np.asarray(result.objective)[1 : self.n_iter_ + 1] / n
        self.lower_bounds_ = trace.tolist()
        self._read(result.model)
        if not self.converged_ and self.max_iter > 0:
            warnings.warn(
                "Best performing initialization did not converge. Try different init parameters, or increase max_iter, "
                "tol, or check for degenerate data.",
                ConvergenceWarning,
                stacklevel=4,
            )

    @in_double
    def _answer(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        return over_rows(_posterior, self.model_, self._check(X, reset=False))

    def predict(self, X):
        """The most probable component of each row."""
        return self._answer(X)[0].argmax(axis=1)

    def predict_proba(self, X):
        """The probability of each component given each row."""
        return self._answer(X)[0]

    def score_samples(self, X):
        """Log density of each row (its expectation, under a posterior)."""
        return self._answer(X)[1]

    def score(self, X, y=None):
        """Mean log density."""
        return float(self.score_samples(X).mean())

    @in_double
    def sample(self, n_samples=1):
        """Rows drawn from the mixture, and the components they come from, in the order of components."""
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"Invalid value for 'n_samples': {n_samples} . The sampling requires at least one sample.")
        keys = jr.split(key_of(self.random_state), n_samples)
        which, rows = map(np.asarray, _draw(on_device(self.model_), keys))
        order = np.argsort(which, kind="stable")
        return rows[order], which[order]

    @in_double
    def _n_parameters(self) -> int:
        return num_parameters(on_device(self.model_))

    def aic(self, X):
        """Akaike's information criterion; lower is better."""
        return -2 * self.score(X) * len(X) + 2 * self._n_parameters()

    def bic(self, X):
        """The Bayesian information criterion; lower is better."""
        return -2 * self.score(X) * len(X) + self._n_parameters() * np.log(len(X))


def _posterior(model: Any, rows: Any) -> tuple[Any, Any]:
    shares, total = model.responsibilities(rows)
    return shares.T, total


@eqx.filter_jit
def _draw(model: Any, keys: Any) -> tuple[Any, Any]:
    def one(key):
        which, what = jr.split(key)
        index = model.weights.predictive().sample(which)
        return index, model.components.member(index).predictive().sample(what)

    return jax.vmap(one)(keys)


@eqx.filter_jit
def _learn(kind: tuple, options: dict, keys: Any, rows: Any, weights: Any, tol: Any, max_iter: int, again: Any) -> Fit:
    """One compiled call for all starts. scikit-learn's `tol` is about the mean over rows, ours about the total."""

    def one(key):
        start = _begun(kind, options, key, rows, weights) if again is None else again
        value = objective(start, rows, weights)
        if max_iter == 0:
            zero = jnp.zeros((), jnp.int32)
            return Fit(start, value[None], zero, zero + Status.max_steps)
        share = tol * jnp.sum(weights) / jnp.maximum(jnp.abs(value), 1)
        return fit(start, rows, weights=weights, max_steps=max_iter, rtol=share)

    return one(keys[0]) if keys.shape[0] == 1 else eqx.filter_vmap(one)(keys)


def _begun(kind: tuple, options: dict, key: Any, rows: Any, weights: Any) -> Any:
    name, k, *rest = kind
    if name == "bernoulli":
        return bernoulli_mixture(key, rows, k, weights=weights, init=rest[0])
    covariance, estimate, init = rest
    center = options.get("means", init)
    given = {"estimate": estimate, "init": center, "weights": weights}
    given |= {"prior": options.get("prior"), "concentration": options.get("concentration")}
    start = gaussian_mixture(key, rows, k, covariance, **given)
    if estimate == "ml":
        start = _with_floor(start, options["floor"])
    if "process" in options:
        counts = start.weights.posterior.concentration - start.weights.prior.concentration
        ones = jnp.ones_like(counts)
        sticks = StickBreaking(ones, ones, jnp.asarray(options["process"], counts.dtype)).refit(counts)
        start = eqx.tree_at(lambda m: m.weights, start, sticks)
    if "covariances" in options:
        start = _with_covariances(start, covariance, options["covariances"])
    if "weights" in options:
        start = eqx.tree_at(lambda m: m.weights, start, ML(Categorical(options["weights"])))
    return start


def _with_floor(start: Any, floor: Any) -> Any:
    """The smallest variance as a number, not as a share of the data's."""
    member = lambda m: m.components.each.distribution
    return eqx.tree_at(lambda m: member(m).floor, start, jnp.full_like(member(start).floor, floor))


def _with_covariances(start: Any, covariance: str, given: Any) -> Any:
    member = lambda m: m.components.each.distribution
    if covariance in ("full", "tied"):
        return eqx.tree_at(lambda m: member(m).covariance, start, given)
    return eqx.tree_at(lambda m: member(m).scale, start, jnp.sqrt(given))


class BernoulliMixture(AbstractMixture):
    """A mixture of vectors of independent binary values (latent classes), learned by EM.

    `probs_ (n_components, n_features)` and `weights_` are the estimates; the rest is as in `GaussianMixture`. Values
    above `binarize` count as 1, others as 0; `binarize=None` takes them as they are, binary or probabilities.

    >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 20, axis=0)
    >>> BernoulliMixture(2, random_state=0).fit(rows).probs_.round().astype(int).sum()
    np.int64(3)
    """

    _parameter_constraints: ClassVar[dict] = {
        **LOOP,
        "init_params": [StrOptions(set(STARTS))],
        "binarize": [None, Interval(Real, None, None, closed="neither")],
    }

    def __init__(
        self,
        n_components=1,
        *,
        tol=1e-3,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        binarize=0.0,
        random_state=None,
        warm_start=False,
    ):
        self.n_components = n_components
        self.binarize = binarize
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.random_state = random_state
        self.warm_start = warm_start

    def _check(self, X: Any, *, reset: bool) -> np.ndarray:
        X = checked(self, X, reset=reset)
        if self.binarize is not None:
            return (X > self.binarize).astype(X.dtype)
        if X.min() < 0 or X.max() > 1:
            raise ValueError("X must lie in [0, 1]: values are binary, or probabilities.")
        return X

    def _start(self, key: jax.Array, X: np.ndarray) -> tuple[Any, ...]:
        return ("bernoulli", self.n_components, STARTS[self.init_params]), {}

    def _read(self, model: Any) -> None:
        self.weights_ = np.asarray(model.weights.point().probs)
        self.probs_ = held(model.components.map(lambda leaf: leaf.point())).probs
