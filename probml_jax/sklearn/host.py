"""What all estimators share: checked NumPy arrays in, models compiled for few shapes, NumPy arrays out.

Estimators compute in the precision of their input, float64 included, whatever JAX is configured to: the 64-bit mode is
entered for the call (`jax.enable_x64`) and left again. Fitted models are kept with NumPy leaves, which pickle anywhere.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

FLOATS = (np.float64, np.float32)
_DENSE_ENTRIES = 2**24  # of sparse rows at a time


def in_double(method: Callable) -> Callable:
    """A method that runs in JAX's 64-bit mode. Arrays of float32 stay what they are."""

    @functools.wraps(method)
    def run(*args, **kwargs):
        with jax.enable_x64(True):
            return method(*args, **kwargs)

    return run


def checked(estimator: Any, X: Any, *, reset: bool = False, accept_sparse: bool = False, **options: Any) -> Any:
    """Rows as a floating array, by scikit-learn's checks; sparse ones, where they are accepted, as CSR."""
    kinds = "csr" if accept_sparse else False
    return validate_data(estimator, X, reset=reset, dtype=list(FLOATS), accept_sparse=kinds, **options)


def dense(X: Any) -> np.ndarray:
    """Rows as a dense array, all at once."""
    return X.toarray() if sparse.issparse(X) else X


def key_of(random_state: Any) -> jax.Array:
    """A key from whatever scikit-learn takes for a random state."""
    return jr.key(int(check_random_state(random_state).randint(np.iinfo(np.int32).max)))


def held(tree: Any) -> Any:
    """A model with NumPy leaves."""
    return jax.tree_util.tree_map(lambda a: np.asarray(a) if eqx.is_array(a) else a, tree)


def roomy(n: int) -> int:
    """A number of rows not much above n, out of few: programs are compiled for shapes, and rows may be padded."""
    step = 2 ** max(n.bit_length() - (3 if n < 4096 else 5), 3)
    return -(-n // step) * step


def padded(X: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows and weights with room at the end: copies of the first row that weigh nothing."""
    extra = roomy(len(X)) - len(X)
    weights = np.ones(len(X), X.dtype) if weights is None else np.asarray(weights, X.dtype)
    return np.concatenate([X, np.repeat(X[:1], extra, axis=0)]), np.concatenate([weights, np.zeros(extra, X.dtype)])


def over_rows(function: Callable, model: Any, X: Any) -> Any:
    """`function(model, rows)`, compiled, with a leading axis of rows in every answer; sparse rows are made dense in
    blocks of bounded size."""
    if sparse.issparse(X):
        size = max(_DENSE_ENTRIES // max(X.shape[1], 1), 1)
        blocks = [over_rows(function, model, X[i : i + size].toarray()) for i in range(0, X.shape[0], size)]
        return jax.tree_util.tree_map(lambda *parts: np.concatenate(parts), *blocks)
    rows, _ = padded(X)
    found = _compiled(function, on_device(model), jnp.asarray(rows))
    return jax.tree_util.tree_map(lambda a: np.asarray(a)[: len(X)], found)


def on_device(model: Any) -> Any:
    """A held model with JAX leaves again; inside of the 64-bit mode."""
    return jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, model)


def in_precision(tree: Any, dtype: Any) -> Any:
    """A model with NumPy leaves, floating ones of a given type."""
    return jax.tree_util.tree_map(lambda a: np.asarray(a, dtype) if eqx.is_inexact_array(a) else a, tree)


@eqx.filter_jit
def _compiled(function: Callable, model: Any, rows: jax.Array) -> Any:
    return function(model, rows)
