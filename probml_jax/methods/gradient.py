"""First-order methods on unconstrained coordinates, driven by an optax optimizer."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree

from .._buckets import total
from .._constraint import split
from .._method import AbstractAdditiveMethod, AbstractMethod
from .._model import AbstractLatentModel, AbstractModel, objective
from .._placed import across
from .._typing import Data, PRNGKey, Scalar, Statistics
from .drawing import check_drawing, draw
from .em import check_latent


def slope(model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
    """Gradient of the objective in free coordinates: zero at every optimum, whatever found it."""
    free, rebuild = split(model)
    return jax.grad(lambda raw: objective(rebuild(raw), data, weights))(free)


def climb(model: AbstractModel, raw: PyTree, data: Data, weights: Float[Array, "n"]) -> tuple[Scalar, PyTree]:
    """The log-likelihood of the model with free coordinates `raw`, and its gradient: both are sums over units."""

    def local(given, data, weights):
        rebuild = split(given[0])[1]
        return jax.value_and_grad(lambda raw: rebuild(raw).log_likelihood(data, weights))(given[1])

    return across(local, (model, raw), data, weights)


def with_prior(model: AbstractModel, raw: PyTree, likelihood: tuple[Scalar, PyTree]) -> tuple[Scalar, PyTree]:
    """The objective and its gradient, from those of the log-likelihood."""
    rebuild = split(model)[1]
    prior = jax.value_and_grad(lambda raw: rebuild(raw).log_prior())(raw)
    return jax.tree_util.tree_map(jnp.add, likelihood, prior)


def check_trainable(model: AbstractModel) -> None:
    """Raise `TypeError` for a model in which nothing trains."""
    if not jax.tree_util.tree_leaves(split(model)[0]):
        raise TypeError(f"{type(model).__name__} has no trainable parameters: no field is declared with param().")


def _apply(raw: PyTree, updates: PyTree) -> PyTree:
    return jax.tree_util.tree_map(jnp.add, raw, updates)


class Gradient(AbstractAdditiveMethod):
    """Gradient ascent with any optax optimizer: `Gradient(optax.adam(1e-2))`.

    The optimizer sees unconstrained coordinates of the parameters declared with `param`, and the objective divided
    by the total weight, so that a learning rate means the same for any number of units. With `batch_size` each step
    uses units drawn at random (a `key` is then required; from `Buckets`, all of one bucket) and the trace holds their
    estimates of the objective. From `Batches` it moves after every batch, and a step of the trace is one pass.
    Make the optimizer once and keep it: a new one compiles the loop again.
    """

    optimizer: Any = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True, default=None)
    key: PRNGKey | None = eqx.field(default=None, kw_only=True)
    monotone: ClassVar[bool] = False
    patience: ClassVar[int] = 10
    per_batch: ClassVar[bool] = True

    def __check_init__(self):
        check_drawing("Gradient", self.batch_size, self.key)

    def check(self, model: AbstractModel) -> None:
        check_trainable(model)

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return self.optimizer.init(split(model)[0]), self.key

    def gather(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> tuple[Scalar, PyTree]:
        return climb(model, split(model)[0], data, weights)

    def move(self, model: AbstractModel, gathered: Statistics, mass: Scalar, total: Scalar, state: PyTree):
        inner, key = state
        free, rebuild = split(model)
        likelihood = jax.tree_util.tree_map(lambda a: a * (total / mass), gathered)
        value, grad = with_prior(model, free, likelihood)
        down = jax.tree_util.tree_map(lambda g: -g / total, grad)
        updates, inner = self.optimizer.update(down, inner, free)
        return rebuild(_apply(free, updates)), (inner, key), value

    def step(self, model: AbstractModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        mass = jnp.sum(weights)
        if self.batch_size is None:
            return self.move(model, self.gather(model, data, weights), mass, mass, state)
        inner, key = state
        key, now = jr.split(key)
        drawn = draw(self.gather, model, data, weights, now, self.batch_size)
        return self.move(model, drawn, mass, mass, (inner, key))

    def optimality(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return slope(model, data, weights)


class GeneralizedEM(AbstractMethod):
    r"""EM whose M-step is a few gradient steps on $Q(\theta \mid \theta_{old})$ instead of a closed form.

    For models whose M-step has none. The posterior of the latents is computed once per step and held while
    `num_gradient_steps` of the optax `optimizer` raise $Q + \log p(\theta)$.
    """

    optimizer: Any = eqx.field(static=True)
    num_gradient_steps: int = eqx.field(static=True, default=5)
    monotone: ClassVar[bool] = False
    patience: ClassVar[int] = 10

    def check(self, model: AbstractModel) -> None:
        check_latent(model, "GeneralizedEM")

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return self.optimizer.init(split(model)[0])

    def step(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        free, rebuild = split(model)
        mass = jnp.sum(weights)

        def local(given, data, weights):
            new, old = given
            return total(lambda part, share: new.surrogate(part, share, old), data, weights)

        def loss(raw):
            new = rebuild(raw)
            return -(across(local, (new, model), data, weights) + new.log_prior()) / mass

        def climb(_, carry):
            raw, inner = carry
            updates, inner = self.optimizer.update(jax.grad(loss)(raw), inner, raw)
            return _apply(raw, updates), inner

        raw, state = jax.lax.fori_loop(0, self.num_gradient_steps, climb, (free, state))
        return rebuild(raw), state, objective(model, data, weights)

    def optimality(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return slope(model, data, weights)
