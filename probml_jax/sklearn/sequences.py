"""Sequence models as estimators: a Gaussian HMM with hmmlearn's names, a CRF with those of sklearn-crfsuite."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._buckets import Buckets
from .._fit import Status, best_of, fit
from ..methods import LBFGS
from ..sequences import FeatureEncoder, LinearChainCRF, Sequences, gaussian_hmm
from .host import checked, held, in_double, key_of, on_device, roomy

_NAMES = {"full": "full", "tied": "tied", "diag": "diagonal", "spherical": "spherical"}


class GaussianHMM(BaseEstimator):
    """A hidden Markov model with Gaussian emissions; the model is `model_`, a `pml.sequences.HMM`.

    Rows of `X` are the observations of all sequences, one after the other; `lengths` says how many belong to each (one
    sequence without it). `tol` is the change of the total log-likelihood per row at which EM stops.

    >>> rows = np.repeat([[0.0], [5.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 1))
    >>> GaussianHMM(2, random_state=0).fit(rows).predict(rows)[[0, -1]].tolist() in ([0, 1], [1, 0])
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions(set(_NAMES))],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, n_components=1, covariance_type="diag", *, n_iter=100, tol=1e-4, n_init=1, random_state=None):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.n_iter = n_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state

    @in_double
    def fit(self, X, y=None, lengths=None):
        """Learn by Baum-Welch; y is ignored."""
        self._validate_params()
        X = checked(self, X, reset=True)
        if len(X) < max(self.n_components, 2):
            raise ValueError(f"n_samples={len(X)} should be >= max(2, n_components={self.n_components}).")
        data = self._sequences(X, lengths)
        keys = jr.split(key_of(self.random_state), self.n_init)
        result = best_of(_learn(keys, data, self.n_components, _NAMES[self.covariance_type], self.tol, self.n_iter))
        model = result.model
        self.model_ = held(model)
        self.startprob_ = np.exp(np.asarray(model.log_initial()))
        self.transmat_ = np.exp(np.asarray(model.log_transition()))
        points = held(model.emission.map(lambda leaf: leaf.point()))
        self.means_ = points.loc
        full = self.covariance_type in ("full", "tied")
        self.covars_ = points.covariance if full else points.scale**2
        self.n_iter_ = max(int(result.num_steps), 1)
        self.converged_ = int(result.status) in (Status.converged, Status.degenerate)
        if not self.converged_:
            warnings.warn("EM did not converge; increase n_iter or tol.", ConvergenceWarning, stacklevel=3)
        return self

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
    def _answer(self, X: Any, lengths: Any, function: Any) -> np.ndarray:
        check_is_fitted(self)
        X = checked(self, X)
        data = self._sequences(X, lengths)
        found = np.asarray(_over_sequences(function, on_device(self.model_), data))
        if found.ndim == 1:
            return found
        return np.concatenate([row[:length] for row, length in zip(found, np.asarray(data.lengths), strict=True)])

    def predict(self, X, lengths=None):
        """The most probable path of states of each sequence (Viterbi)."""
        return self._answer(X, lengths, _decode)

    def predict_proba(self, X, lengths=None):
        """Posterior probabilities of the states at each row."""
        return self._answer(X, lengths, _smooth)

    def score(self, X, y=None, lengths=None):
        """Total log-likelihood of the sequences."""
        return float(np.sum(self._answer(X, lengths, _log_prob)))

    @in_double
    def sample(self, n_samples=1, random_state=None):
        """A new sequence: its observations, and its states."""
        check_is_fitted(self)
        states, rows = on_device(self.model_).sample(key_of(random_state), n_samples)
        return np.asarray(rows), np.asarray(states)


def _decode(model: Any, one: Sequences) -> Any:
    return model.decode(one)


def _smooth(model: Any, one: Sequences) -> Any:
    return model.smooth(one)


def _log_prob(model: Any, one: Sequences) -> Any:
    return model.log_prob(one)


@eqx.filter_jit
def _over_sequences(function: Any, model: Any, data: Sequences) -> Any:
    return jax.vmap(lambda one: function(model, one))(data)


@eqx.filter_jit
def _learn(keys: Any, data: Sequences, k: int, covariance: str, tol: float, max_steps: int) -> Any:
    lengths = data.lengths
    assert lengths is not None, "scikit-learn's data are cut by lengths"
    rows = jnp.sum(lengths).astype(data.xs.dtype)

    def one(key):
        start = gaussian_hmm(key, data, k, covariance)
        value = start.log_likelihood(data, jnp.ones(lengths.shape, data.xs.dtype))
        share = tol * rows / jnp.maximum(jnp.abs(value), 1)
        return fit(start, data, max_steps=max_steps, rtol=share)

    return one(keys[0]) if keys.shape[0] == 1 else eqx.filter_vmap(one)(keys)


class CRF(ClassifierMixin, BaseEstimator):
    """A linear-chain conditional random field over sparse features; the model is `model_`, a `LinearChainCRF`.

    `X` is a list of sequences, each a list of steps, each a mapping from features to values or a list of features; `y`
    a list of lists of labels. `c2` is the L2 penalty. `all_possible_states` and `all_possible_transitions` give weights
    to pairs that never occur too. Weights are learned by L-BFGS.

    >>> X = [[["w=the"], ["w=cat"]], [["w=a"], ["w=dog"]]]
    >>> CRF().fit(X, [["DET", "NOUN"], ["DET", "NOUN"]]).predict([[["w=the"], ["w=dog"]]])
    [['DET', 'NOUN']]
    """

    _parameter_constraints: ClassVar[dict] = {
        "c2": [Interval(Real, 0, None, closed="left")],
        "max_iterations": [Interval(Integral, 1, None, closed="left")],
        "min_freq": [Interval(Integral, 1, None, closed="left")],
        "all_possible_states": ["boolean"],
        "all_possible_transitions": ["boolean"],
    }

    def __init__(
        self, *, c2=1.0, max_iterations=100, min_freq=1, all_possible_states=True, all_possible_transitions=True
    ):
        self.c2 = c2
        self.max_iterations = max_iterations
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions

    @in_double
    def fit(self, X, y):
        """Learn from sequences and their labels."""
        self._validate_params()
        X, y = list(map(list, X)), [list(map(str, labels)) for labels in y]
        self.encoder_ = FeatureEncoder.from_sentences(X, y, min_count=self.min_freq)
        data = self.encoder_.encode(X, y)
        observed = self.encoder_.observed(data)
        if self.all_possible_transitions:
            observed = observed._replace(transitions=jnp.ones_like(observed.transitions))
        start = LinearChainCRF.sparse(
            self.encoder_.num_features,
            self.encoder_.num_labels,
            l2=self.c2,
            observed=None if self.all_possible_states else observed,
        )
        if self.all_possible_states and not self.all_possible_transitions:
            start = eqx.tree_at(lambda m: m.active, start, observed.transitions, is_leaf=lambda a: a is None)
        result = fit(start, data, LBFGS(), max_steps=self.max_iterations)
        self.model_ = held(result.model)
        self.n_iter_ = int(result.num_steps)
        self.classes_ = np.array(self.encoder_.tags.words)
        return self

    def _encoded(self, X: Any) -> Buckets:
        check_is_fitted(self)
        return self.encoder_.encode(list(map(list, X)))

    @in_double
    def predict(self, X):
        """The most probable labels of each sequence."""
        data = self._encoded(X)
        return [self.encoder_.labels(path) for path in on_device(self.model_).decode_all(data)]

    @in_double
    def predict_marginals(self, X):
        """For each step of each sequence, the probability of every label."""
        data = self._encoded(X)
        model = on_device(self.model_)
        found = data.map(jax.vmap(model.marginals))
        names = self.classes_.tolist()
        return [
            [dict(zip(names, map(float, row), strict=True)) for row in table[: len(x)]]
            for table, x in zip(found, X, strict=True)
        ]

    def score(self, X, y):
        """Share of steps with the right label."""
        pairs = [
            (a, str(b))
            for found, true in zip(self.predict(X), y, strict=True)
            for a, b in zip(found, true, strict=True)
        ]
        return sum(a == b for a, b in pairs) / len(pairs)
