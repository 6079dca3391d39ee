"""Expectation-maximization, in cache-sized blocks."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._buckets import total
from .._constraint import trainable
from .._method import AbstractAdditiveMethod
from .._model import AbstractLatentModel, AbstractModel
from .._placed import across
from .._typing import Data, Scalar, Statistics
from ..inference.blocks import block_size, pooled


class EM(AbstractAdditiveMethod):
    r"""Expectation-maximization: expected statistics under the posterior, then the model that fits them best.

    Every step raises $\sum_i w_i \log p(x_i) + \log p(\theta)$. With `Bayes` leaves the same two lines are
    variational EM and the objective is the evidence lower bound. `batch_size` is the number of units per block of
    the E-step: statistics add, so it changes memory and speed and never the answer; `None` picks a cache-sized block.
    From `Batches` a step is one pass: the same answer again, in the memory of one batch.

    Reference: Dempster, Laird and Rubin (1977); Bishop (2006), chapter 9 and section 10.2.
    """

    batch_size: int | None = eqx.field(static=True, default=None)
    monotone: ClassVar[bool] = True
    patience: ClassVar[int] = 1
    per_batch: ClassVar[bool] = False

    def __check_init__(self):
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {self.batch_size}.")

    def check(self, model: AbstractModel) -> None:
        check_latent(model, "EM")

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return None

    def gather(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        return pooled_e_step(model, data, weights, self.batch_size)

    def move(self, model: AbstractLatentModel, gathered: Statistics, mass: Scalar, total: Scalar, state: PyTree):
        stats, bound = gathered
        return model.m_step(stats), state, bound + model.log_prior()

    def step(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        mass = jnp.sum(weights)
        return self.move(model, self.gather(model, data, weights), mass, mass, state)

    def optimality(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        new, _, _ = self.step(model, data, weights, None)
        mask = trainable(model)
        return jax.tree_util.tree_map(jnp.subtract, eqx.filter(new, mask), eqx.filter(model, mask))


def check_latent(model: AbstractModel, name: str) -> None:
    """Raise `TypeError` unless the model has latent variables."""
    if not isinstance(model, AbstractLatentModel):
        raise TypeError(f"{name} needs a latent model with e_step and m_step; got {type(model).__name__}.")


def pooled_e_step(
    model: AbstractLatentModel, data: Data, weights: Float[Array, "n"], batch_size: int | None
) -> tuple[Statistics, Scalar]:
    """The E-step of all units, block by block: memory stays bounded by one block of each device."""

    def local(model, data, weights):
        block = lambda part, n: batch_size or block_size(part, n)
        return total(lambda part, w: pooled(model.e_step, part, w, block(part, w.shape[0])), data, weights)

    return across(local, model, data, weights)
