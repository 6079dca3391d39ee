"""First-order methods on unconstrained coordinates, driven by an optax optimizer."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree

from .._buckets import draw, total
from .._constraint import split
from .._fit import AbstractMethod
from .._model import AbstractLatentModel, AbstractModel, objective
from .._typing import Data, PRNGKey


def slope(model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
    """Gradient of the objective in free coordinates: zero at every optimum, whatever found it."""
    free, rebuild = split(model)
    return jax.grad(lambda raw: objective(rebuild(raw), data, weights))(free)


def check_trainable(model: AbstractModel) -> None:
    """Raise `TypeError` for a model in which nothing trains."""
    if not jax.tree_util.tree_leaves(split(model)[0]):
        raise TypeError(f"{type(model).__name__} has no trainable parameters: no field is declared with param().")


def _apply(raw: PyTree, updates: PyTree) -> PyTree:
    return jax.tree_util.tree_map(jnp.add, raw, updates)


class Gradient(AbstractMethod):
    """Gradient ascent with any optax optimizer: `Gradient(optax.adam(1e-2))`.

    The optimizer sees unconstrained coordinates of the parameters declared with `param`, and the objective divided
    by the total weight, so that a learning rate means the same for any number of units. With `batch_size` each step
    uses units drawn at random (a `key` is then required; from `Buckets`, all of one bucket) and the trace holds their
    estimates of the objective.
    Make the optimizer once and keep it: a new one compiles the loop again.
    """

    optimizer: Any = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True, default=None)
    key: PRNGKey | None = eqx.field(default=None, kw_only=True)
    monotone: ClassVar[bool] = False
    patience: ClassVar[int] = 10

    def __check_init__(self):
        if self.batch_size is not None and self.key is None:
            raise ValueError("batch_size draws units at random: a key is wanted, Gradient(..., key=jr.key(0)).")

    def check(self, model: AbstractModel) -> None:
        check_trainable(model)

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return self.optimizer.init(split(model)[0]), self.key

    def step(self, model: AbstractModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        inner, key = state
        mass = jnp.sum(weights)
        free, rebuild = split(model)

        def climb(data, weights):
            return jax.value_and_grad(lambda raw: -objective(rebuild(raw), data, weights) / mass)(free)

        if self.batch_size is None:
            value, grad = climb(data, weights)
        else:
            key, now = jr.split(key)
            value, grad = draw(data, weights, now, self.batch_size, climb)
        updates, inner = self.optimizer.update(grad, inner, free)
        return rebuild(_apply(free, updates)), (inner, key), -value * mass

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
        if not isinstance(model, AbstractLatentModel):
            raise TypeError(f"GeneralizedEM needs a latent model; got {type(model).__name__}.")

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return self.optimizer.init(split(model)[0])

    def step(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        free, rebuild = split(model)
        mass = jnp.sum(weights)

        def loss(raw):
            new = rebuild(raw)
            expected = total(lambda part, share: new.surrogate(part, share, model), data, weights)
            return -(expected + new.log_prior()) / mass

        def climb(_, carry):
            raw, inner = carry
            updates, inner = self.optimizer.update(jax.grad(loss)(raw), inner, raw)
            return _apply(raw, updates), inner

        raw, state = jax.lax.fori_loop(0, self.num_gradient_steps, climb, (free, state))
        return rebuild(raw), state, objective(model, data, weights)

    def optimality(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return slope(model, data, weights)
