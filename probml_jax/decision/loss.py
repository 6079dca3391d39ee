"""Loss as a cost matrix C[action, truth]: what an action is expected to cost, and what actions did cost."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._linalg import matmul
from .._typing import Scalar
from .._validate import as_weights, check, check_above, check_finite, check_labels, check_shape
from .outcomes import as_cost, as_labels, as_rows, marked, on_simplex


def zero_one(num_classes: int, dtype: Any = None) -> Float[Array, "c c"]:
    """The 0-1 loss: every error costs 1. Its Bayes rule is the most probable class.

    >>> zero_one(2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    check_above("num_classes", num_classes, 0)
    return as_cost(None, num_classes, dtype)


def with_reject(cost: Any, price: Any) -> Float[Array, "b c"]:
    """A cost matrix with one action more, the last: to reject, at the same `price` whatever the truth is.

    Under the 0-1 loss the Bayes rule then rejects where no class has probability above `1 - price`, and never if
    `price` is at least $1 - 1/c$. Reference: Chow (1970); Bishop (2006), section 1.5.3.

    >>> with_reject(zero_one(2), 0.1).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.1..., 0.1...]]
    """
    if cost is None:
        raise ValueError("cost must be a matrix C[action, truth]: with_reject(zero_one(num_classes), price).")
    cost = as_cost(cost, jnp.shape(cost)[-1] if jnp.ndim(cost) else 0)
    price = jnp.asarray(price, cost.dtype)
    check_shape("price", price, ())
    check_finite("price", price, nan=False)
    return jnp.concatenate([cost, jnp.broadcast_to(price, (1, cost.shape[1]))])


def expected_loss(probs: Any, cost: Any = None) -> Float[Array, "*n a"]:
    r"""What each action is expected to cost: $R(a \mid x) = \sum_k C_{ak}\, p(k \mid x)$.

    `probs (..., c)` are class probabilities of one event or of many; `cost (a, c)` is C[action, truth], the 0-1 loss
    by default. Probabilities that do not sum to one, or a cost of another width, raise `ValueError`; in compiled code
    such rows give NaN. Cost: one matrix product. Reference: Bishop (2006), equation 1.81; Murphy (2022), section 5.1.

    >>> expected_loss(jnp.array([0.8, 0.2]), [[0.0, 10.0], [1.0, 0.0]]).round(1).tolist()
    [2.0, 0.8...]
    """
    probs = as_rows(probs)
    return _expected_loss(probs, as_cost(cost, probs.shape[-1], probs.dtype))


@eqx.filter_jit
def _expected_loss(probs: Array, cost: Array) -> Array:
    return jnp.where(on_simplex(probs)[..., None], matmul(probs, cost.T), jnp.nan)


def empirical_risk(actions: Any, labels: Any, cost: Any = None, weights: Any = None) -> Scalar:
    r"""What the actions did cost: $\sum_i w_i C_{a_i y_i} / \sum_i w_i$ over units of known label.

    With the default 0-1 loss it is the error rate. `actions (n,)` are rows of `cost (a, c)`, `labels (n,)` its
    columns; -1 is an unknown label, and such a unit does not count. Actions or labels outside of the range raise
    `ValueError`; NaN in compiled code.

    >>> float(empirical_risk(jnp.array([0, 1, 1, 0]), jnp.array([0, 1, 0, -1])).round(3))
    0.333
    """
    actions, labels = jnp.asarray(actions), jnp.asarray(labels)
    check_shape("actions", actions, labels.shape)
    check_labels("actions", actions, jnp.iinfo(jnp.int32).max if cost is None else jnp.shape(cost)[0])
    check(actions >= 0, "actions must be rows of cost; got one below 0.")
    if cost is None:
        check(labels >= -1, "labels must be -1 (unknown) or classes; got one below -1.")
        weights = as_weights(weights, labels.shape[0], jnp.result_type(float) if weights is None else None)
        return _error_rate(actions, labels, weights)
    cost = as_cost(cost, jnp.shape(cost)[-1])
    labels = as_labels(labels, labels.shape[0], cost.shape[1])
    return _risk(actions, labels, cost, as_weights(weights, labels.shape[0], cost.dtype))


def error_rate(actions: Any, labels: Any, weights: Any = None) -> Scalar:
    """The share of wrong answers: `empirical_risk` of the 0-1 loss.

    >>> error_rate([0, 1, 1, 0], [0, 1, 0, 0]).item()
    0.25
    """
    return empirical_risk(actions, labels, None, weights)


@eqx.filter_jit
def _risk(actions: Array, labels: Array, cost: Array, weights: Array) -> Scalar:
    sound = jnp.all((labels >= -1) & (actions >= 0) & (actions < cost.shape[0]))
    weights = jnp.where(labels >= 0, weights, 0)
    paid = cost[jnp.clip(actions, 0, cost.shape[0] - 1), jnp.maximum(labels, 0)]
    return marked(sound, jnp.sum(weights * paid) / jnp.sum(weights))


@eqx.filter_jit
def _error_rate(actions: Array, labels: Array, weights: Array) -> Scalar:
    sound = jnp.all((labels >= -1) & (actions >= 0))
    weights = jnp.where(labels >= 0, weights, 0)
    return marked(sound, jnp.sum(jnp.where(actions == labels, 0, weights)) / jnp.sum(weights))


def confusion_matrix(actions: Any, labels: Any, num_classes: int, weights: Any = None) -> Float[Array, "c c"]:
    r"""Weight of the units for each pair of action and truth, in the order of cost matrices: `counts[action, truth]`.

    So $\sum C \odot N / \sum N$ is the empirical risk, and scikit-learn's matrix is the transpose. Unknown labels (-1)
    are left out. Labels outside of 0..num_classes-1 raise `ValueError`; NaN in compiled code. Cost: O(n).

    >>> confusion_matrix(jnp.array([0, 1, 1]), jnp.array([0, 0, 1]), num_classes=2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    labels = jnp.asarray(labels)
    labels = as_labels(labels, labels.size, num_classes)
    actions = as_labels(actions, labels.size, num_classes)
    if weights is not None:
        weights = as_weights(weights, labels.size, None)
    return _confusion(actions, labels, weights, num_classes)


@eqx.filter_jit
def _confusion(actions: Array, labels: Array, weights: Array | None, num_classes: int) -> Array:
    sound = jnp.all((actions >= -1) & (labels >= -1))
    known = (actions >= 0) & (labels >= 0)
    cell = jnp.where(known, actions.astype(jnp.int32) * num_classes + labels, 0)
    # units are counted as whole numbers: float32 stops counting at 16,777,216
    share = known.astype(jnp.int32) if weights is None else jnp.where(known, weights, 0)
    counts = jnp.bincount(cell, share, length=num_classes**2).reshape(num_classes, num_classes)
    return marked(sound, counts.astype(jnp.result_type(float)) if weights is None else counts)
