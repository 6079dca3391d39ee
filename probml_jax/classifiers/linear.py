"""Logistic and softmax regression: log-probabilities from linear scores."""

from abc import abstractmethod
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._buckets import total
from .._constraint import fixed, param, real
from .._linalg import matmul
from .._model import AbstractAuditedModel, AbstractStandardizedModel
from .._typing import Data, Flag, Scalar
from .._validate import as_float, check_finite, check_labels, check_rank, check_shape, is_concrete
from ..decision.bayes_rule import bayes_action
from ..inference import softmax


class AbstractLinearClassifier(AbstractAuditedModel, AbstractStandardizedModel):
    r"""$\log p(y \mid x)$ is a log-softmax of scores that are linear in $x$; a unit is `(x, y)`, -1 for unknown.

    Learned about the mean of the features and in their units, so that neither matters; the objective is that of the
    features as they are. Data that a hyperplane separates have no best weights without a penalty: `fit` then climbs
    until nothing changes any more and says `degenerate`.
    """

    weights: eqx.AbstractVar[Float[Array, "*c d"]]
    intercept: eqx.AbstractVar[Float[Array, "*c"]]
    l2: eqx.AbstractVar[Float[Array, ""]]

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """c."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """d."""

    @abstractmethod
    def coefficients(self) -> tuple[Float[Array, "c d"], Float[Array, "c"]]:
        """Weights and intercepts of all classes."""

    def scores(self, xs: Float[Array, "n d"]) -> Float[Array, "c n"]:
        """Unnormalized log-probabilities of n events."""
        return softmax.scores(*self.coefficients(), xs)

    def log_probs(self, x: Float[Array, "d"]) -> Float[Array, "c"]:
        r"""$\log p(y \mid x)$ of one event."""
        x = as_float(x, "x")
        check_shape("x", x, (self.num_features,))
        return jax.nn.log_softmax(self.scores(x[None])[:, 0])

    def probs(self, x: Float[Array, "d"]) -> Float[Array, "c"]:
        r"""$p(y \mid x)$ of one event."""
        return jnp.exp(self.log_probs(x))

    def predict(self, x: Float[Array, "d"], cost: Any = None) -> Int[Array, ""]:
        """The most probable class, or the action of least expected loss under a cost matrix C[action, truth]."""
        return jnp.argmax(self.log_probs(x)) if cost is None else bayes_action(self.probs(x), cost)

    # -------------------------------------------------------------------------------------- learning

    def log_prob(self, datum: Data) -> Scalar:
        r"""$\log p(y \mid x)$; 0 where the label is unobserved."""
        x, y = datum
        return softmax.log_softmax_of(self.scores(jnp.asarray(x)[None]), jnp.asarray(y)[None])[0]

    def log_likelihood(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        return total(lambda part, share: softmax.log_likelihood(*self.coefficients(), *part, share), data, weights)

    def validate(self, data: Data) -> None:
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise ValueError("data must be a pair (x, y): features (n, d), and a class for each (-1 where unobserved).")
        xs, ys = data
        check_rank("x", xs, 2, f"(n, {self.num_features})")
        check_shape("x", xs, (xs.shape[0], self.num_features))
        check_finite("x", xs, nan=False)
        check_rank("y", ys, 1, "(n,): one label per event")
        check_labels("y", ys, self.num_classes)

    def degenerate(self) -> Flag:
        return jnp.array(False)

    def standardized(self, data: Data, weights: Float[Array, "n"]) -> tuple["Standardized", Data]:
        """With columns moved to their mean, in units in which the curvature of the objective is one."""
        xs, ys = data
        mass = jnp.sum(weights)
        center = jax.lax.stop_gradient(matmul(weights, xs) / mass)
        moved = xs - center[None]
        variance = matmul(weights, moved**2) / mass
        # a column that varies by no more than rounding is left alone
        real = variance > (64 * jnp.finfo(xs.dtype).eps * center) ** 2
        unit = jnp.where(real, jnp.sqrt(jnp.where(real, variance, 1) + 4 * self.l2 / mass), 1)
        unit = jax.lax.stop_gradient(unit)
        intercept = self.intercept + matmul(self.weights, center)
        inner = eqx.tree_at(lambda m: (m.weights, m.intercept), self, (_times(self.weights, unit), intercept))
        return Standardized(inner, center, unit), (moved / unit[None], ys)

    def restored(self, learned: "Standardized") -> Self:
        """Weights and intercept for columns as they are."""
        weights = _times(learned.inner.weights, 1 / learned.unit)
        intercept = learned.inner.intercept - matmul(weights, learned.center)
        return eqx.tree_at(lambda m: (m.weights, m.intercept), self, (weights, intercept))

    def audit(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        """The penalty, and labels without the highest score: if there is none, larger weights are better for ever."""
        return total(self._wrong, data, weights).astype(self.l2.dtype) + self.l2

    def _wrong(self, data: Data, weights: Float[Array, "n"]) -> Int[Array, ""]:
        xs, ys = data
        scores = self.scores(xs)
        chosen = softmax.chosen(scores, ys)
        own = jnp.sum(jnp.where(chosen, scores, 0), axis=0)
        rival = jnp.max(jnp.where(chosen, -jnp.inf, scores), axis=0)
        # a tie is no objection to larger weights
        tie = jnp.sqrt(jnp.finfo(scores.dtype).eps) * jnp.max(jnp.abs(scores))
        return jnp.sum((own < rival - tie) & (ys >= 0) & (weights > 0))


class Standardized(AbstractAuditedModel):
    """A linear classifier of standardized columns; its prior is that of the weights for columns as they are."""

    inner: AbstractLinearClassifier
    center: Float[Array, "d"] = fixed()
    unit: Float[Array, "d"] = fixed()

    def log_likelihood(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        return self.inner.log_likelihood(data, weights)

    def log_prior(self) -> Scalar:
        weights = _times(self.inner.weights, 1 / self.unit)
        return eqx.tree_at(lambda m: m.weights, self.inner, weights).log_prior()

    def validate(self, data: Data) -> None:
        self.inner.validate(data)

    def degenerate(self) -> Flag:
        return self.inner.degenerate()

    def audit(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        return self.inner.audit(data, weights)


def _times(weights: Float[Array, "*c d"], unit: Float[Array, "d"]) -> Float[Array, "*c d"]:
    return weights * unit.reshape(*[1] * (weights.ndim - 1), -1)


class SoftmaxRegression(AbstractLinearClassifier):
    r"""$p(y=c \mid x) \propto \exp(w_c^\top x + b_c)$ with the prior $N(0, 1/\lambda)$ of each weight (none of $b$).

    The objective is $\sum_i \log p(y_i \mid x_i) - \tfrac\lambda2\sum|w_c|^2$: `l2` is $\lambda$, scikit-learn's `1/C`.
    Cost: $O(ndc)$ per evaluation. Reference: Murphy (2022), section 10.3.

    >>> model = SoftmaxRegression(jnp.eye(2), jnp.zeros(2))
    >>> model.probs(jnp.array([1.0, 0.0])).round(3).tolist()
    [0.731, 0.269]
    """

    weights: Float[Array, "c d"] = param(real)
    intercept: Float[Array, "c"] = param(real)
    l2: Float[Array, ""] = fixed(default=0.0, converter=as_float)

    def __check_init__(self):
        check_rank("weights", self.weights, 2, "(c, d)")
        check_shape("intercept", self.intercept, self.weights.shape[:1])
        _check_penalty(self.l2)

    @property
    def num_classes(self) -> int:
        return self.weights.shape[0]

    @property
    def num_features(self) -> int:
        return self.weights.shape[1]

    def coefficients(self) -> tuple[Float[Array, "c d"], Float[Array, "c"]]:
        return self.weights, self.intercept

    def log_prior(self) -> Scalar:
        return -0.5 * self.l2 * jnp.sum(self.weights**2)


class LogisticRegression(AbstractLinearClassifier):
    r"""$p(y=1 \mid x) = \sigma(w^\top x + b)$ with the prior $N(0, 1/\lambda)$ of each weight (none of $b$).

    Two classes with one vector of weights. `l2` is $\lambda$, scikit-learn's `1/C`.

    >>> LogisticRegression(jnp.array([2.0]), 0.0).predict(jnp.array([1.0])).item()
    1
    """

    weights: Float[Array, "d"] = param(real)
    intercept: Float[Array, ""] = param(real, default=0.0)
    l2: Float[Array, ""] = fixed(default=0.0, converter=as_float)

    def __check_init__(self):
        check_rank("weights", self.weights, 1, "(d,)")
        _check_penalty(self.l2)

    @property
    def num_classes(self) -> int:
        return 2

    @property
    def num_features(self) -> int:
        return self.weights.shape[0]

    def coefficients(self) -> tuple[Float[Array, "c d"], Float[Array, "c"]]:
        # the first class scores zero
        after_zero = lambda a: jnp.stack([jnp.zeros_like(a), a])
        return after_zero(self.weights), after_zero(self.intercept)

    def log_prior(self) -> Scalar:
        return -0.5 * self.l2 * jnp.sum(self.weights**2)


def _check_penalty(l2: Array) -> None:
    if is_concrete(l2) and not float(l2) >= 0:
        raise ValueError(f"l2 must be zero or positive; got {float(l2):.6g}.")


def softmax_regression(num_features: int, num_classes: int, l2: Any = 0.0, dtype: Any = None) -> SoftmaxRegression:
    """A softmax regression at zero, ready for `fit(model, (x, y), Newton())` or `LBFGS()`.

    >>> softmax_regression(num_features=4, num_classes=3, l2=1e-2).weights.shape
    (3, 4)
    """
    if num_features < 1 or num_classes < 2:
        raise ValueError(f"wanted at least one feature and two classes; got {num_features} and {num_classes}.")
    dtype = jnp.result_type(float) if dtype is None else dtype
    weights, intercept = jnp.zeros((num_classes, num_features), dtype), jnp.zeros(num_classes, dtype)
    return SoftmaxRegression(weights, intercept, jnp.asarray(l2, dtype))


def logistic_regression(num_features: int, l2: Any = 0.0, dtype: Any = None) -> LogisticRegression:
    """A logistic regression at zero, ready for `fit(model, (x, y), Newton())` or `LBFGS()`; labels are 0 and 1.

    >>> logistic_regression(num_features=4).num_classes
    2
    """
    if num_features < 1:
        raise ValueError(f"wanted at least one feature; got {num_features}.")
    dtype = jnp.result_type(float) if dtype is None else dtype
    return LogisticRegression(jnp.zeros(num_features, dtype), jnp.zeros((), dtype), jnp.asarray(l2, dtype))
