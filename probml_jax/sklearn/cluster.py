"""k-means with scikit-learn's names."""

from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import TransformerTags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted

from .._fit import Fit, best_of, fit
from ..mixtures import kmeans
from .host import checked, dense, held, in_double, key_of, over_rows, padded

_MANY = 10  # starts from rows at random, as scikit-learn has them


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Lloyd's algorithm, with the names of `sklearn.cluster.KMeans`; the model is `model_`, a `pml.mixtures.KMeans`.

    All `n_init` starts run at once. `tol` is the relative change of the inertia at which a run stops. `init` may also
    be centers, or a function of rows, `n_clusters` and a random state that gives them: one start then. There is one
    algorithm, so `algorithm` has no effect, nor have `copy_x` (rows are never changed) and `verbose`. Sparse rows are
    made dense: all at once to fit, in blocks to predict.

    >>> rows = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> sorted(KMeans(2, random_state=0).fit(rows).cluster_centers_.ravel().tolist())
    [0.5, 10.5]
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"k-means++", "random"}), "array-like", callable],
        "n_init": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        "copy_x": ["boolean"],
        "algorithm": [StrOptions({"lloyd", "elkan"})],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        init="k-means++",
        n_init="auto",
        max_iter=300,
        tol=1e-4,
        verbose=0,
        random_state=None,
        copy_x=True,
        algorithm="lloyd",
    ):
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.copy_x = copy_x
        self.algorithm = algorithm

    def __sklearn_tags__(self):
        tags = ClusterMixin.__sklearn_tags__(self)
        tags.transformer_tags = TransformerTags(preserves_dtype=["float64", "float32"])
        tags.input_tags.sparse = True
        return tags

    @in_double
    def fit(self, X, y=None, sample_weight=None):
        """Learn from rows; y is ignored."""
        self._validate_params()
        X = dense(checked(self, X, reset=True, accept_sparse=True))
        if len(X) < self.n_clusters:
            raise ValueError(f"n_samples={len(X)} should be >= n_clusters={self.n_clusters}.")
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        rows, weights = padded(X, weights)
        init, starts = self._starts(X)
        keys = jr.split(key_of(self.random_state), starts)
        result = best_of(_learn(keys, rows, weights, self.n_clusters, init, np.asarray(self.tol), self.max_iter))
        self.model_ = held(result.model)
        self.cluster_centers_ = self.model_.centers
        self.inertia_ = -float(result.final_objective)
        self.n_iter_ = max(int(result.num_steps), 1)
        self.labels_ = self._squares(X).argmin(axis=1).astype(np.int32)
        self._n_features_out = self.n_clusters
        return self

    def _starts(self, X: np.ndarray) -> tuple[Any, int]:
        """How to start, by name or by centers, and how often."""
        if isinstance(self.init, str):
            often = _MANY if self.init == "random" else 1
            name = {"k-means++": "kmeans++"}.get(self.init, self.init)
            return name, often if self.n_init == "auto" else self.n_init
        chance = check_random_state(self.random_state)
        given = self.init(X, self.n_clusters, chance) if callable(self.init) else self.init
        init = check_array(given, dtype=X.dtype)
        if init.shape != (self.n_clusters, X.shape[1]):
            raise ValueError(f"init has shape {init.shape}; wanted {(self.n_clusters, X.shape[1])}.")
        return init, 1

    def _squares(self, X: np.ndarray) -> np.ndarray:
        return over_rows(_distances, self.model_, X)

    @in_double
    def predict(self, X):
        """The nearest center of each row."""
        check_is_fitted(self)
        return self._squares(checked(self, X, accept_sparse=True)).argmin(axis=1).astype(np.int32)

    @in_double
    def transform(self, X):
        """Distances of each row to all centers."""
        check_is_fitted(self)
        return np.sqrt(self._squares(checked(self, X, accept_sparse=True)))

    @in_double
    def score(self, X, y=None, sample_weight=None):
        """Minus the inertia of other rows."""
        check_is_fitted(self)
        X = checked(self, X, accept_sparse=True)
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        return -float(weights @ self._squares(X).min(axis=1))


def _distances(model: Any, rows: Any) -> Any:
    return jax.vmap(model.distances)(rows)


@eqx.filter_jit
def _learn(keys: Any, rows: Any, weights: Any, k: int, init: Any, tol: Any, max_iter: int) -> Fit:
    def one(key):
        start = kmeans(key, rows, k, init=init, weights=weights)
        return fit(start, rows, weights=weights, max_steps=max_iter, rtol=jnp.asarray(tol))

    return one(keys[0]) if keys.shape[0] == 1 else eqx.filter_vmap(one)(keys)
