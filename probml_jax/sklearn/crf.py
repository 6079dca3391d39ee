"""A conditional random field with the names of sklearn-crfsuite."""

from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._buckets import Buckets
from .._fit import fit
from ..methods import LBFGS
from ..sequences import FeatureEncoder, LinearChainCRF
from .host import held, in_double, on_device

_MANY = 1000  # steps, where CRFsuite has no limit


class CRF(ClassifierMixin, BaseEstimator):
    """A linear-chain conditional random field over sparse features; the model is `model_`, a `LinearChainCRF`.

    `X` is a list of sequences, each a list of steps, each a mapping from features to values or a list of features; `y`
    a list of lists of labels. Names, the objective and what `None` stands for are those of sklearn-crfsuite:

    - `algorithm`: "lbfgs" only. `c2` is the L2 penalty (1 by default); `c1`, that of L1, must be 0.
    - `all_possible_states` and `all_possible_transitions` give weights to pairs that never occur too (not by default);
      `min_freq` leaves out rarer features.
    - `max_iterations` (1000), `num_memories` (6) and `max_linesearch` (20) of L-BFGS, which stops when a step changes
      the objective by less than `delta / period` of itself (1e-5 / 10). `epsilon`, `linesearch` and `verbose` have no
      effect.

    Besides `predict` and `predict_marginals` there are `state_features_` and `transition_features_`: weights by pair.

    >>> X = [[["w=the"], ["w=cat"]], [["w=a"], ["w=dog"]]]
    >>> CRF().fit(X, [["DET", "NOUN"], ["DET", "NOUN"]]).predict([[["w=the"], ["w=dog"]]])
    [['DET', 'NOUN']]
    """

    _parameter_constraints: ClassVar[dict] = {
        "algorithm": [StrOptions({"lbfgs", "l2sgd", "ap", "pa", "arow"}), None],
        "min_freq": [Interval(Integral, 0, None, closed="left"), None],
        "all_possible_states": ["boolean", None],
        "all_possible_transitions": ["boolean", None],
        "c1": [Interval(Real, 0, None, closed="left"), None],
        "c2": [Interval(Real, 0, None, closed="left"), None],
        "max_iterations": [Interval(Integral, 1, None, closed="left"), None],
        "num_memories": [Interval(Integral, 1, None, closed="left"), None],
        "epsilon": [Interval(Real, 0, None, closed="left"), None],
        "period": [Interval(Integral, 1, None, closed="left"), None],
        "delta": [Interval(Real, 0, None, closed="left"), None],
        "linesearch": [str, None],
        "max_linesearch": [Interval(Integral, 1, None, closed="left"), None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        algorithm=None,
        min_freq=None,
        all_possible_states=None,
        all_possible_transitions=None,
        c1=None,
        c2=None,
        max_iterations=None,
        num_memories=None,
        epsilon=None,
        period=None,
        delta=None,
        linesearch=None,
        max_linesearch=None,
        verbose=False,
    ):
        self.algorithm = algorithm
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.num_memories = num_memories
        self.epsilon = epsilon
        self.period = period
        self.delta = delta
        self.linesearch = linesearch
        self.max_linesearch = max_linesearch
        self.verbose = verbose

    @in_double
    def fit(self, X, y):
        """Learn from sequences and their labels."""
        self._validate_params()
        if self.algorithm not in (None, "lbfgs"):
            raise ValueError(f"algorithm must be 'lbfgs', the one that is offered; got {self.algorithm!r}.")
        if self.c1:
            raise ValueError(f"c1, the L1 penalty, must be 0: c2 is the one that is offered; got c1={self.c1!r}.")
        X, y = list(map(list, X)), [list(map(str, labels)) for labels in y]
        self.encoder_ = FeatureEncoder.from_sentences(X, y, min_count=max(self.min_freq or 1, 1))
        data = self.encoder_.encode(X, y)
        method = LBFGS(memory=self.num_memories or 6, max_linesearch_steps=self.max_linesearch or 20)
        tol = (1e-5 if self.delta is None else self.delta) / (self.period or 10)
        tol = max(tol, 4 * float(np.finfo(float).eps))
        result = fit(self._start(data), data, method, max_steps=self.max_iterations or _MANY, rtol=tol)
        self.model_ = held(result.model)
        self.n_iter_ = int(result.num_steps)
        self.classes_ = np.array(self.encoder_.tags.words)
        return self

    def _start(self, data: Any) -> LinearChainCRF:
        """Zero weights, of the pairs that are to have some."""
        observed = self.encoder_.observed(data)
        if self.all_possible_transitions:
            observed = observed._replace(transitions=jnp.ones_like(observed.transitions))
        start = LinearChainCRF.sparse(
            self.encoder_.num_features,
            self.encoder_.num_labels,
            l2=1.0 if self.c2 is None else self.c2,
            observed=None if self.all_possible_states else observed,
            boundaries=False,
        )
        if self.all_possible_states and not self.all_possible_transitions:
            start = eqx.tree_at(lambda m: m.active, start, observed.transitions, is_leaf=lambda a: a is None)
        return start

    @property
    def attributes_(self):
        """Names of the features."""
        check_is_fitted(self)
        return list(self.encoder_.features.words)

    @property
    @in_double
    def state_features_(self):
        """Weights of pairs of a feature and a label, those that have one."""
        check_is_fitted(self)
        scores = self.model_.scores
        if scores.features is None:
            pairs, weights = np.ndindex(*scores.weights.shape), scores.weights.ravel()
        else:
            pairs, weights = zip(scores.features.tolist(), scores.labels.tolist(), strict=True), scores.weights
        names, tags = self.attributes_, self.classes_.tolist()
        return {(names[i], tags[c]): float(w) for (i, c), w in zip(pairs, weights, strict=True)}

    @property
    def transition_features_(self):
        """Weights of pairs of labels that follow one another, those that have one."""
        check_is_fitted(self)
        table, tags, active = self.model_.transition, self.classes_.tolist(), self.model_.active
        used = np.ones(table.shape, bool) if active is None else np.asarray(active) > 0
        return {(tags[i], tags[j]): float(table[i, j]) for i, j in np.argwhere(used)}

    def _encoded(self, X: Any) -> Buckets:
        check_is_fitted(self)
        return self.encoder_.encode(list(map(list, X)))

    @in_double
    def predict(self, X):
        """The most probable labels of each sequence."""
        data = self._encoded(X)
        return [self.encoder_.labels(path) for path in on_device(self.model_).decode_all(data)]

    def predict_single(self, xseq):
        """The most probable labels of one sequence."""
        return self.predict([xseq])[0]

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

    def predict_marginals_single(self, xseq):
        """For each step of one sequence, the probability of every label."""
        return self.predict_marginals([xseq])[0]

    def score(self, X, y):
        """Share of steps with the right label."""
        pairs = [
            (a, str(b))
            for found, true in zip(self.predict(X), y, strict=True)
            for a, b in zip(found, true, strict=True)
        ]
        return sum(a == b for a, b in pairs) / len(pairs)
