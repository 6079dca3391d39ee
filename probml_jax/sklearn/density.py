"""Kernel density estimation with scikit-learn's names."""

from numbers import Integral, Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ..density import KERNELS
from ..density import KernelDensity as Density
from .host import checked, held, in_double, key_of, on_device, over_rows, padded

_NAMES = {"linear": "triangular"}


class KernelDensity(BaseEstimator):
    """With the names of `sklearn.neighbors.KernelDensity`; the model is `model_`, a `pml.density.KernelDensity`.

    Every sum is exact, so `algorithm`, `atol`, `rtol`, `breadth_first` and `leaf_size` have no effect; distances are
    Euclidean, and "linear" is another name of "triangular". As in scikit-learn, "scott" and "silverman" are rules for
    data of unit variance: `pml.density.KernelDensity.from_data` also takes the spread of each column into account.

    >>> rows = np.zeros((1, 1))
    >>> round(float(np.exp(KernelDensity(bandwidth=1.0).fit(rows).score_samples(rows)[0])), 4)
    0.3989
    """

    _parameter_constraints: ClassVar[dict] = {
        "bandwidth": [Interval(Real, 0, None, closed="neither"), StrOptions({"scott", "silverman"})],
        "algorithm": [StrOptions({"kd_tree", "ball_tree", "auto"})],
        "kernel": [StrOptions({*KERNELS, *_NAMES})],
        "metric": [StrOptions({"euclidean"})],
        "atol": [Interval(Real, 0, None, closed="left")],
        "rtol": [Interval(Real, 0, None, closed="left")],
        "breadth_first": ["boolean"],
        "leaf_size": [Interval(Integral, 1, None, closed="left")],
        "metric_params": [None],
    }

    def __init__(
        self,
        *,
        bandwidth=1.0,
        algorithm="auto",
        kernel="gaussian",
        metric="euclidean",
        atol=0,
        rtol=0,
        breadth_first=True,
        leaf_size=40,
        metric_params=None,
    ):
        self.bandwidth = bandwidth
        self.algorithm = algorithm
        self.kernel = kernel
        self.metric = metric
        self.atol = atol
        self.rtol = rtol
        self.breadth_first = breadth_first
        self.leaf_size = leaf_size
        self.metric_params = metric_params

    @in_double
    def fit(self, X, y=None, sample_weight=None):
        """Keep the rows; y is ignored."""
        self._validate_params()
        X = checked(self, X, reset=True)
        n, d = X.shape
        rules = {"scott": n, "silverman": n * (d + 2) / 4}
        rule = isinstance(self.bandwidth, str)
        self.bandwidth_ = rules[self.bandwidth] ** (-1 / (d + 4)) if rule else self.bandwidth
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        name = _NAMES.get(self.kernel, self.kernel)
        rows, weights = padded(X, weights)
        self.model_ = held(Density.from_data(rows, float(self.bandwidth_), name, weights))
        return self

    @in_double
    def score_samples(self, X):
        """Log density of each row."""
        check_is_fitted(self)
        return over_rows(_log_probs, self.model_, checked(self, X))

    def score(self, X, y=None):
        """Total log density of the rows."""
        return float(np.sum(self.score_samples(X)))

    @in_double
    def sample(self, n_samples=1, random_state=None):
        """Rows drawn from the density, for every kernel."""
        check_is_fitted(self)
        return np.asarray(_draw(on_device(self.model_), jr.split(key_of(random_state), n_samples)))


def _log_probs(model: Any, rows: Any) -> Any:
    return model.log_probs(rows)


@eqx.filter_jit
def _draw(model: Any, keys: Any) -> Any:
    return jax.vmap(model.sample)(keys)
