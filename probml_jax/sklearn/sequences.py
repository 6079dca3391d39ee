"""A Gaussian hidden Markov model with the names of hmmlearn."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._estimate import Frozen
from .._fit import Status, best_of, fit
from .._stack import Stacked
from ..sequences import Sequences, gaussian_hmm
from .host import checked, held, in_double, key_of, on_device, roomy

_NAMES = {"full": "full", "tied": "tied", "diag": "diagonal", "spherical": "spherical"}


class Monitor(NamedTuple):
    """How EM went: hmmlearn's `monitor_`. `history` is the log-likelihood after each of `iter` iterations."""

    tol: float
    n_iter: int
    history: list[float]
    iter: int
    converged: bool


class GaussianHMM(BaseEstimator):
    """A hidden Markov model with Gaussian emissions; the model is `model_`, a `pml.sequences.HMM`.

    Rows of `X` are the observations of all sequences, one after the other; `lengths` says how many belong to each (one
    sequence without it). It may also stand in hmmlearn's place, the second. Estimates are of maximum likelihood:
    hmmlearn's priors are not offered.

    - `tol`: the change of the log-likelihood at which EM stops. `min_covar`: the smallest variance.
    - `params`: what is learned, of "s" (`startprob_`), "t" (`transmat_`) and "mc" (`means_` and `covars_`, together).
    - `init_params`: what is started from the data; the rest starts at the attributes of these names, set beforehand.
      `covars_` is set in the shape of its type; after a fit it is `(n_components, n_features, n_features)`.
    - `algorithm`: "viterbi" (the best path) or "map" (the best state at each row), for `decode` and `predict`.
    - `n_init` starts run at once. `verbose` and `implementation` have no effect.

    >>> rows = np.repeat([[0.0], [5.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 1))
    >>> GaussianHMM(2, random_state=0).fit(rows).predict(rows)[[0, -1]].tolist() in ([0, 1], [1, 0])
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions(set(_NAMES))],
        "min_covar": [Interval(Real, 0, None, closed="left")],
        "algorithm": [StrOptions({"viterbi", "map"})],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
        "params": [str],
        "init_params": [str],
        "implementation": [StrOptions({"log", "scaling"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=1,
        covariance_type="diag",
        *,
        min_covar=1e-3,
        algorithm="viterbi",
        random_state=None,
        n_iter=100,
        tol=1e-2,
        verbose=False,
        params="stmc",
        init_params="stmc",
        implementation="log",
        n_init=1,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.min_covar = min_covar
        self.algorithm = algorithm
        self.random_state = random_state
        self.n_iter = n_iter
        self.tol = tol
        self.verbose = verbose
        self.params = params
        self.init_params = init_params
        self.implementation = implementation
        self.n_init = n_init

    @in_double
    def fit(self, X, y=None, lengths=None):
        """Learn by Baum-Welch; a `y` with an entry for each row is ignored."""
        self._validate_params()
        X = checked(self, X, reset=True)
        if len(X) < max(self.n_components, 2):
            raise ValueError(f"n_samples={len(X)} should be >= max(2, n_components={self.n_components}).")
        if not {*self.params, *self.init_params} <= set("stmc") or ("m" in self.params) != ("c" in self.params):
            raise ValueError(
                "params and init_params are of the letters 'stmc', and params has 'm' and 'c' together; got "
                f"{self.params!r} and {self.init_params!r}."
            )
        data = self._sequences(X, _lengths(X, y, lengths))
        keys = jr.split(key_of(self.random_state), self.n_init)
        options = np.asarray(self.min_covar, X.dtype), self._given(X), frozenset(self.params)
        kind = self.n_components, _NAMES[self.covariance_type]
        result = best_of(_learn(keys, data, kind, options, np.asarray(self.tol), self.n_iter))
        self.model_ = held(result.model)
        self._read(result.model)
        self.n_iter_ = max(int(result.num_steps), 1)
        self.converged_ = int(result.status) in (Status.converged, Status.degenerate)
        history = np.asarray(result.objective)[1 : self.n_iter_ + 1].tolist()
        self.monitor_ = Monitor(self.tol, self.n_iter, history, self.n_iter_, self.converged_)
        if not self.converged_:
            warnings.warn("EM did not converge; increase n_iter or tol.", ConvergenceWarning, stacklevel=3)
        return self

    def _given(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Attributes that EM starts from."""
        k, d = self.n_components, X.shape[1]
        covars = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[self.covariance_type]
        shapes = {"startprob_": (k,), "transmat_": (k, k), "means_": (k, d), "covars_": covars}
        found = {}
        for letter, (name, shape) in zip("stmc", shapes.items(), strict=True):
            if letter in self.init_params:
                continue
            if name not in vars(self):
                raise ValueError(f"init_params={self.init_params!r} leaves out {letter!r}: set {name} before fit.")
            value = np.asarray(vars(self)[name], X.dtype)
            if letter == "c" and "model_" in vars(self):
                value = self._compact(value)
            if value.shape != shape:
                raise ValueError(f"{name} has shape {value.shape}; wanted {shape}.")
            found[letter] = value
        return found

    def _compact(self, covars: np.ndarray) -> np.ndarray:
        """Whole matrices, as a fit leaves them, in the shape of their type."""
        if covars.ndim != 3 or self.covariance_type == "full":
            return covars
        diagonals = np.diagonal(covars, axis1=1, axis2=2)
        return {"tied": covars[0], "diag": diagonals, "spherical": diagonals[:, 0]}[self.covariance_type]

    def _read(self, model: Any) -> None:
        self.startprob_ = np.exp(np.asarray(model.log_initial()))
        self.transmat_ = np.exp(np.asarray(model.log_transition()))
        points = held(model.emission.map(lambda leaf: leaf.point()))
        self.means_ = points.loc
        if self.covariance_type in ("full", "tied"):
            self.covars_ = points.covariance
        else:
            spread = np.broadcast_to(points.scale.reshape(self.n_components, -1) ** 2, points.loc.shape)
            self.covars_ = spread[:, :, None] * np.eye(points.loc.shape[1], dtype=spread.dtype)[None]

    @property
    def n_features(self):
        """How many columns the observations have."""
        check_is_fitted(self)
        return self.n_features_in_

    def _sequences(self, X: np.ndarray, lengths: Any) -> Sequences:
        """Padded, with room in both axes, so that few shapes are compiled."""
        lengths = np.array([len(X)]) if lengths is None else np.asarray(lengths)
        if lengths.sum() != len(X) or (lengths < 1).any():
            raise ValueError(
                f"lengths must be positive and sum to the {len(X)} rows of X; they sum to {lengths.sum()}."
            )
        t = roomy(int(lengths.max()))
        xs = np.zeros((len(lengths), t, X.shape[1]), X.dtype)
        within = np.arange(t)[None, :] < lengths[:, None]
        xs[within] = X
        return Sequences(jnp.asarray(xs), jnp.asarray(lengths, jnp.int32))

    @in_double
    def _answer(self, X: Any, lengths: Any, function: Any) -> list[np.ndarray]:
        """What a function says of each sequence; of those with a value per row, the rows of all."""
        check_is_fitted(self)
        data = self._sequences(checked(self, X), lengths)
        found = jax.tree_util.tree_map(np.asarray, _over_sequences(function, on_device(self.model_), data))
        cut = lambda table: np.concatenate([row[:n] for row, n in zip(table, np.asarray(data.lengths), strict=True)])
        return [part if part.ndim == 1 else cut(part) for part in found]

    def decode(self, X, lengths=None, algorithm=None):
        """The log-probability of the observations together with the best path ("viterbi"), or the sum of those of the
        best states ("map"); and the path."""
        chosen = self.algorithm if algorithm is None else algorithm
        if chosen not in ("viterbi", "map"):
            raise ValueError(f"algorithm must be 'viterbi' or 'map'; got {chosen!r}.")
        if chosen == "viterbi":
            total, path = self._answer(X, lengths, _decode)
            return float(total.sum()), path
        probs = self.predict_proba(X, lengths)
        return float(probs.max(axis=1).sum()), probs.argmax(axis=1)

    def predict(self, X, lengths=None):
        """The states of each sequence that `decode` finds."""
        return self.decode(X, lengths)[1]

    def score_samples(self, X, lengths=None):
        """The log-likelihood of all sequences, and posterior probabilities of the states at each row."""
        total, probs = self._answer(X, lengths, _smooth)
        return float(total.sum()), probs

    def predict_proba(self, X, lengths=None):
        """Posterior probabilities of the states at each row."""
        return self.score_samples(X, lengths)[1]

    def score(self, X, y=None, lengths=None):
        """Total log-likelihood of the sequences; a `y` with an entry for each row is ignored."""
        return self.score_samples(X, _lengths(X, y, lengths))[0]

    def _n_parameters(self) -> int:
        k, d = self.n_components, self.n_features_in_
        covars = {"spherical": k, "diag": k * d, "full": k * d * (d + 1) // 2, "tied": d * (d + 1) // 2}
        return k - 1 + k * (k - 1) + k * d + covars[self.covariance_type]

    def aic(self, X, lengths=None):
        """Akaike's information criterion; lower is better."""
        return -2 * self.score(X, lengths=lengths) + 2 * self._n_parameters()

    def bic(self, X, lengths=None):
        """The Bayesian information criterion; lower is better."""
        return -2 * self.score(X, lengths=lengths) + self._n_parameters() * np.log(len(X))

    def get_stationary_distribution(self):
        """Probabilities of the states that a transition leaves as they are."""
        check_is_fitted(self)
        k = self.n_components
        balance = np.concatenate([self.transmat_.T - np.eye(k), np.ones((1, k))])
        return np.linalg.lstsq(balance, np.eye(k + 1)[k], rcond=None)[0]

    @in_double
    def sample(self, n_samples=1, random_state=None):
        """A new sequence: its observations, and its states."""
        check_is_fitted(self)
        states, rows = on_device(self.model_).sample(key_of(random_state), n_samples)
        return np.asarray(rows), np.asarray(states)


def _lengths(X: Any, y: Any, lengths: Any) -> Any:
    """Lengths, also where hmmlearn has them: anything in the place of `y` that has no entry for each row."""
    return y if lengths is None and y is not None and np.shape(y)[:1] != (len(X),) else lengths


def _decode(model: Any, one: Sequences) -> Any:
    path = model.decode(one)
    return model.log_prob(one._replace(states=path)), path


def _smooth(model: Any, one: Sequences) -> Any:
    return model.log_prob(one), model.smooth(one)


@eqx.filter_jit
def _over_sequences(function: Any, model: Any, data: Sequences) -> Any:
    return jax.vmap(lambda one: function(model, one))(data)


@eqx.filter_jit
def _learn(keys: Any, data: Sequences, kind: tuple[int, str], options: tuple, tol: Any, max_steps: int) -> Any:
    lengths = data.lengths
    assert lengths is not None, "scikit-learn's data are cut by lengths"
    least, given, params = options

    def one(key):
        start = _with_floor(_begun(gaussian_hmm(key, data, *kind), given, kind[1]), least)
        value = start.log_likelihood(data, jnp.ones(lengths.shape, data.xs.dtype))
        found = fit(_held_back(start, params), data, max_steps=max_steps, rtol=tol / jnp.maximum(jnp.abs(value), 1))
        return eqx.tree_at(lambda f: f.model, found, _taken_up(start, found.model, params))

    return one(keys[0]) if keys.shape[0] == 1 else eqx.filter_vmap(one)(keys)


def _begun(start: Any, given: dict[str, Any], covariance: str) -> Any:
    """The start with what is given."""
    member = lambda m: m.emission.each.distribution
    whole = covariance in ("full", "tied")
    places = {
        "s": lambda m: m.initial.distribution.probs,
        "t": lambda m: m.transition.each.distribution.probs,
        "m": lambda m: member(m).loc,
        "c": lambda m: member(m).covariance if whole else member(m).scale,
    }
    for letter, value in given.items():
        start = eqx.tree_at(places[letter], start, value if letter != "c" or whole else jnp.sqrt(value))
    return start


def _with_floor(start: Any, least: Any) -> Any:
    """The smallest variance as a number, not as a share of the data's."""
    where = lambda m: m.emission.each.distribution.floor
    return eqx.tree_at(where, start, jnp.full_like(where(start), least))


def _held_back(start: Any, params: frozenset) -> Any:
    """The model of which nothing else than `params` is learned."""
    fixed = lambda stack: Stacked(Frozen(stack.map(lambda leaf: leaf)))
    model = start if "s" in params else eqx.tree_at(lambda m: m.initial, start, Frozen(start.initial))
    model = model if "t" in params else eqx.tree_at(lambda m: m.transition, model, fixed(start.transition))
    return model if "m" in params else eqx.tree_at(lambda m: m.emission, model, fixed(start.emission))


def _taken_up(start: Any, model: Any, params: frozenset) -> Any:
    """The learned model, with leaves that can be learned again."""
    model = model if "s" in params else eqx.tree_at(lambda m: m.initial, model, start.initial)
    model = model if "t" in params else eqx.tree_at(lambda m: m.transition, model, start.transition)
    return model if "m" in params else eqx.tree_at(lambda m: m.emission, model, start.emission)
