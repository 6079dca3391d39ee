"""Limited-memory BFGS with a line search."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._constraint import split
from .._fit import AbstractMethod
from .._model import AbstractModel, objective
from .._typing import Data
from .gradient import slope


class LBFGS(AbstractMethod):
    """Limited-memory BFGS (optax) with a zoom line search, on unconstrained coordinates.

    `memory` past steps approximate the curvature. One value and gradient per line-search trial, usually one or two.
    Reference: Nocedal and Wright (2006), algorithms 7.4, 3.5 and 3.6.
    """

    memory: int = eqx.field(static=True, default=10)
    max_linesearch_steps: int = eqx.field(static=True, default=20)
    monotone: ClassVar[bool] = True
    patience: ClassVar[int] = 3

    def _optimizer(self):
        import optax  # here, not at import: it costs half of the package's import time

        search = optax.scale_by_zoom_linesearch(self.max_linesearch_steps, initial_guess_strategy="one")
        return optax.lbfgs(memory_size=self.memory, linesearch=search)

    def check(self, model: AbstractModel) -> None:
        if not jax.tree_util.tree_leaves(split(model)[0]):
            raise TypeError(f"{type(model).__name__} has no trainable parameters: no field is declared with param().")

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return self._optimizer().init(split(model)[0])

    def step(self, model: AbstractModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        import optax

        free, rebuild = split(model)
        total = jnp.sum(weights)
        loss = lambda raw: -objective(rebuild(raw), data, weights) / total
        value, grad = optax.value_and_grad_from_state(loss)(free, state=state)
        updates, state = self._optimizer().update(grad, state, free, value=value, grad=grad, value_fn=loss)
        return rebuild(jax.tree_util.tree_map(jnp.add, free, updates)), state, -value * total

    def optimality(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return slope(model, data, weights)
