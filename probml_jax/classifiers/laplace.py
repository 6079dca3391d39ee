"""Laplace's approximation to the posterior of a logistic or softmax regression."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from .._constraint import split
from .._model import objective
from .._special import LOG_2PI
from .._typing import Data, PRNGKey, Scalar
from .._validate import as_data, as_weights, check_units
from ..decision.bayes_rule import bayes_action
from ..inference.averages import expected_sigmoid, expected_softmax
from .linear import AbstractLinearClassifier, LogisticRegression


class LaplacePosterior(eqx.Module):
    r"""$N(\hat\theta, H^{-1})$ with $H$ the curvature of the objective at a fitted regression.

    `probs(x)` averages over the weights instead of plugging in their mode: less certain far from the data. Directions
    without curvature (a shift of all scores of a softmax) do not change probabilities and have no variance here.

    - `model`: the fitted regression.
    - `covariance (p, p)`: of its parameters, weights first (row by row), then the intercept.
    - `log_evidence`: Laplace's approximation to $\log\int p(y \mid X, \theta)p(\theta)\,d\theta$, under a flat
      prior of the intercept.

    Reference: Murphy (2022), section 10.5; Bishop (2006), section 4.5.
    """

    model: AbstractLinearClassifier
    covariance: Float[Array, "p p"]
    log_evidence: Float[Array, ""]

    @eqx.filter_jit
    def latent(self, x: Float[Array, "d"]) -> tuple[Float[Array, "c"], Float[Array, "c c"]]:
        """Mean and covariance of the scores of one event."""
        flat, rebuild = _flat(self.model)
        scores = lambda theta: rebuild(theta).scores(jnp.asarray(x)[None])[:, 0]
        slopes = jax.jacrev(scores)(flat)
        return scores(flat), slopes @ self.covariance @ slopes.T

    @eqx.filter_jit
    def probs(self, x: Float[Array, "d"], num_points: int = 512) -> Float[Array, "c"]:
        """Class probabilities averaged over the posterior: to twelve digits for two classes of a logistic regression,
        over `num_points` evenly spread points (about a percent) otherwise."""
        mean, covariance = self.latent(x)
        if isinstance(self.model, LogisticRegression):
            second = expected_sigmoid(mean[1:], covariance[1:, 1])[0]
            return jnp.stack([1 - second, second])
        return expected_softmax(mean[None], covariance[None], num_points)[0]

    def log_probs(self, x: Float[Array, "d"]) -> Float[Array, "c"]:
        """Logarithms of `probs`."""
        return jnp.log(self.probs(x))

    def predict(self, x: Float[Array, "d"], cost: Any = None) -> Int[Array, ""]:
        """The most probable class, or the action of least expected loss."""
        return jnp.argmax(self.probs(x)) if cost is None else bayes_action(self.probs(x), cost)

    @eqx.filter_jit
    def sample(self, key: PRNGKey) -> AbstractLinearClassifier:
        """A regression drawn from the posterior."""
        flat, rebuild = _flat(self.model)
        values, vectors = jnp.linalg.eigh(self.covariance)
        noise = jr.normal(key, flat.shape, flat.dtype)
        return rebuild(flat + vectors @ (jnp.sqrt(jnp.maximum(values, 0)) * noise))


def laplace(model: AbstractLinearClassifier, data: Data, weights: Any = None) -> LaplacePosterior:
    """The Gaussian around a *fitted* regression that stands for its posterior given `data = (xs, ys)`.

    Cost: the Hessian of p parameters, p gradients and $p^3$.

    >>> import probml_jax as pml
    >>> xs, ys = jnp.array([[-2.0], [-1.0], [1.0], [2.0]]), jnp.array([0, 0, 1, 1])
    >>> mode = pml.fit(pml.classifiers.logistic_regression(1, l2=1.0), (xs, ys), pml.Newton()).model
    >>> posterior = laplace(mode, (xs, ys))
    >>> bool(posterior.probs(jnp.array([9.0]))[1] < mode.probs(jnp.array([9.0]))[1])
    True
    """
    if not isinstance(model, AbstractLinearClassifier):
        raise TypeError(f"model must be a softmax or logistic regression; got {type(model).__name__}.")
    data = as_data(data)
    model.validate(data)
    weights = as_weights(weights, check_units(data), _flat(model)[0].dtype)
    return _laplace(model, data, weights)


def _flat(model: AbstractLinearClassifier):
    free, rebuild = split(model)
    flat, unravel = ravel_pytree(free)
    return flat, lambda theta: rebuild(unravel(theta))


@eqx.filter_jit
def _laplace(model: AbstractLinearClassifier, data: Data, weights: Float[Array, "n"]) -> LaplacePosterior:
    flat, rebuild = _flat(model)
    curvature = -jax.hessian(lambda theta: objective(rebuild(theta), data, weights))(flat)
    values, vectors = jnp.linalg.eigh(0.5 * (curvature + curvature.T))
    resolved = values > 8 * flat.size * jnp.finfo(flat.dtype).eps * jnp.max(values)
    covariance = (vectors * jnp.where(resolved, 1 / jnp.where(resolved, values, 1), 0)[None, :]) @ vectors.T
    volume = jnp.sum(jnp.where(resolved, LOG_2PI - jnp.log(jnp.where(resolved, values, 1)), 0))
    return LaplacePosterior(model, covariance, _log_joint(model, data, weights) + 0.5 * volume)


def _log_joint(model: AbstractLinearClassifier, data: Data, weights: Float[Array, "n"]) -> Scalar:
    """Log-likelihood and the normalized log prior of the weights."""
    size = model.weights.size
    proper = model.l2 > 0
    constant = 0.5 * size * (jnp.log(jnp.where(proper, model.l2, 1)) - LOG_2PI)
    return objective(model, data, weights) + jnp.where(proper, constant, 0)
