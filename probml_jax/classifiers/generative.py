"""Generative classification: a mixture whose labels are observed."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._conditional import AbstractJointModel
from .._estimate import AbstractEstimate
from .._special import logsumexp, pairwise_dot
from .._stack import AbstractStack, Tied
from .._typing import Data, Event, Flag, PRNGKey, Scalar, Statistics
from .._validate import check, check_labels
from ..decision.bayes_rule import bayes_action
from ..mixtures.mixture import Mixture, normalized, one_event
from .boundary import Quadratic, contrast, quadratic
from .linear import SoftmaxRegression


class GenerativeClassifier(AbstractJointModel):
    r"""$p(x, y) = p(y)\,p(x \mid y)$ over one pair of an event $x$ of any kind and its class $y$; -1 is unobserved.

    `prior` is a leaf over classes and `class_conditionals` a stack of leaves, one per class: Gaussians of any
    structure, naive Bayes of any columns, mixtures, HMMs, kernel densities. The model is a mixture whose component is
    known for some events, so one `fit` learns from labels, from unlabelled events too (semi-supervised), and from
    events with missing (NaN) entries. Under `Bayes` leaves predictions are averaged over the posterior.

    The builders of `pml.classifiers` estimate it in closed form. Statistics add: `e_step(part, weights)[0]` of several
    parts of the data, added and given to `m_step`, is learning from all of them.

    Cost: that of scoring one event by every leaf. Reference: Murphy (2022), chapter 9.

    >>> import probml_jax as pml
    >>> xs, ys = jnp.array([181.0, 172, 175, 165, 161, 178])[:, None], jnp.array([0, 0, 0, 1, 1, 1])
    >>> heights = pml.classifiers.qda(xs, ys)
    >>> heights.predict(jnp.array([185.0])).item(), heights.probs(jnp.array([170.0])).round(2).tolist()
    (0, [0.36, 0.64])
    """

    prior: AbstractEstimate
    class_conditionals: AbstractStack

    @property
    def num_classes(self) -> int:
        """c."""
        return self.class_conditionals.size

    @property
    def mixture(self) -> Mixture:
        """The density of events without their labels."""
        return Mixture(self.prior, self.class_conditionals)

    # -------------------------------------------------------------------------------------- prediction

    def log_joint(self, x: Event) -> Float[Array, "c"]:
        r"""$\log p(y=c) + \log p(x \mid c)$ of one event, averaged over the posterior of `Bayes` leaves."""
        x = jnp.asarray(x) if isinstance(x, list) else x
        log_prior = jax.vmap(self.prior.predictive().log_prob)(jnp.arange(self.num_classes))
        return log_prior + self.class_conditionals.map(lambda leaf: leaf.predictive().log_prob(x))

    @eqx.filter_jit
    def log_probs(self, x: Event) -> Float[Array, "c"]:
        r"""$\log p(y \mid x)$ of one event; NaN where no class can produce it."""
        joint = self.log_joint(x)
        return joint - logsumexp(joint)

    @eqx.filter_jit
    def probs(self, x: Event) -> Float[Array, "c"]:
        r"""$p(y \mid x)$ of one event."""
        return jnp.exp(self.log_probs(x))

    @eqx.filter_jit
    def predict(self, x: Event, cost: Any = None) -> Int[Array, ""]:
        r"""The most probable class, or the action of least expected loss $\sum_c C[a, c]\,p(c \mid x)$."""
        if cost is None:
            return jnp.argmax(self._contrasts(x))
        return bayes_action(self.probs(x), cost)

    def _contrasts(self, x: Event) -> Float[Array, "c"]:
        """Joint scores, up to what all classes have in common."""
        if not isinstance(self.class_conditionals, Tied):
            return self.log_joint(x)
        log_prior = jax.vmap(self.prior.predictive().log_prob)(jnp.arange(self.num_classes))
        return log_prior + self.class_conditionals.map(lambda leaf: contrast(leaf.predictive(), x))

    @eqx.filter_jit
    def log_evidence(self, x: Event) -> Scalar:
        r"""$\log p(x)$: low for outliers."""
        return logsumexp(self.log_joint(x))

    def sample(self, key: PRNGKey, label: Any = None, **options: Any) -> tuple[Event, Int[Array, ""]]:
        """An event and its class; an event of a given class if `label` says which.

        `options` are what the classes want to know besides a key: `num_steps` for HMMs, which draw states and
        observations.
        """
        if label is not None:
            self._check_class("label", label)
        return self._sample(key, None if label is None else jnp.asarray(label), **options)

    @eqx.filter_jit
    def _sample(self, key: PRNGKey, label: Array | None, **options: Any) -> tuple[Event, Int[Array, ""]]:
        which, what = jr.split(key)
        y = self.prior.predictive().sample(which) if label is None else label
        return self.class_conditionals.member(y).predictive().sample(what, **options), y

    def _check_class(self, name: str, label: Any) -> None:
        last = self.num_classes - 1
        check((jnp.asarray(label) >= 0) & (jnp.asarray(label) <= last), f"{name} must be 0..{last}; got {label}.")

    # -------------------------------------------------------------------------------------- Gaussian classes

    def decision_boundary(self, first: int, second: int) -> Quadratic:
        r"""$A, b, c$ of the boundary $x^\top Ax + b^\top x + c = 0$ between two Gaussian classes: positive where the
        first is the more probable. $A$ vanishes where they share their covariance.

        $A = \tfrac12(\Sigma_2^{-1} - \Sigma_1^{-1})$, $b = \Sigma_1^{-1}\mu_1 - \Sigma_2^{-1}\mu_2$ and $c$ holds the
        log-determinants and $+\log p(1)/p(2)$. `TypeError` for classes that are not Gaussian.
        """
        self._check_class("first", first)
        self._check_class("second", second)
        return self._boundary(jnp.asarray(first), jnp.asarray(second))

    @eqx.filter_jit
    def _boundary(self, first: Array, second: Array) -> Quadratic:
        one, other = (quadratic(self.class_conditionals.member(i).point()) for i in (first, second))
        log_prior = self.prior.point().log_prob
        return Quadratic(one.a - other.a, one.b - other.b, one.c - other.c + log_prior(first) - log_prior(second))

    def to_softmax(self) -> SoftmaxRegression:
        r"""The same probabilities as a softmax of linear scores: $w_c = \Sigma^{-1}\mu_c$,
        $b_c = -\tfrac12\mu_c^\top\Sigma^{-1}\mu_c + \log\pi_c$; what all classes have in common drops out.

        `TypeError` unless the classes are Gaussians that share their covariance (`lda`).
        """
        if not isinstance(self.class_conditionals, Tied):
            raise TypeError("to_softmax needs classes that share their covariance: lda(...), or covariance='tied'.")
        return self._softmax()

    @eqx.filter_jit
    def _softmax(self) -> SoftmaxRegression:
        scores = self.class_conditionals.map(lambda leaf: quadratic(leaf.point()))
        log_prior = jax.vmap(self.prior.point().log_prob)(jnp.arange(self.num_classes))
        return SoftmaxRegression(scores.b, scores.c + log_prior)

    # -------------------------------------------------------------------------------------- learning

    def _given(self, data: Data) -> Float[Array, "c n"]:
        """Joint scores that leaves learn from, impossible for other classes than the known one."""
        xs, ys = data
        possible = (ys == -1)[None, :] | (ys[None, :] == jnp.arange(self.num_classes, dtype=ys.dtype)[:, None])
        return jnp.where(possible, self.mixture.log_joint(xs), -jnp.inf)

    def log_prob(self, datum: Data) -> Scalar:
        r"""$\log p(x, y)$; $\log p(x)$ where the class is unobserved (-1)."""
        check_labels("y", as_pair(datum)[1], self.num_classes)
        return logsumexp(self._given(one_event(as_pair(datum)))[:, 0])

    def e_step(self, data: Data, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        shares, total = normalized(self._given(as_pair(data)))
        shares = shares * weights[None, :]
        pooled = self.class_conditionals.statistics(data[0], shares)
        return (jnp.sum(shares, axis=1), pooled), pairwise_dot(weights, total)

    def m_step(self, stats: Statistics) -> Self:
        counts, per_class = stats
        return GenerativeClassifier(self.prior.refit(counts), self.class_conditionals.refit(per_class))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        counts, per_class = stats
        moved = self.class_conditionals.recenter(per_class, new.class_conditionals)
        return self.prior.recenter(counts, new.prior), moved

    def log_prior(self) -> Scalar:
        return self.prior.log_prior() + self.class_conditionals.log_prior()

    def surrogate(self, data: Data, weights: Float[Array, "n"], reference: Self) -> Scalar:
        shares = jax.lax.stop_gradient(normalized(reference._given(as_pair(data)))[0]) * weights[None, :]
        return jnp.sum(jnp.where(shares > 0, shares * self.mixture.log_joint(data[0]), 0))

    def unlabelled(self, datum: Data) -> Data:
        x, y = as_pair(datum)
        return x, jnp.full_like(y, -1)

    def check_labelled(self, data: Data) -> None:
        _, ys = as_pair(data)
        check(jnp.any(ys >= 0), "y has no label: a conditional model learns from labels alone.")

    # -------------------------------------------------------------------------------------- honesty

    def validate(self, data: Data) -> None:
        xs, ys = as_pair(data)
        if ys.ndim != 1:
            raise ValueError(f"y has shape {ys.shape}; wanted (n,): one label per event.")
        check_labels("y", ys, self.num_classes)
        self.class_conditionals.validate(xs)

    def degenerate(self) -> Flag:
        return self.class_conditionals.degenerate()


def as_pair(data: Data) -> tuple[Data, Int[Array, "*n"]]:
    """Events and labels; `ValueError` if it is not a pair of them."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError("data must be a pair (x, y): events, and a class for each (-1 where unobserved).")
    x, y = data
    y = jnp.asarray(y)
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise TypeError(f"y must be whole labels; got {y.dtype}.")
    return x, y
