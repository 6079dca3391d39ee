"""What a learning algorithm is."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from ._model import AbstractModel
from ._typing import Data, Scalar, Statistics


class AbstractMethod(eqx.Module):
    """A learning algorithm. It knows `AbstractModel` and nothing of distributions.

    `monotone` says whether a fall of the objective is a failure; `patience` how many calm steps in a row
    mean convergence.
    """

    monotone: eqx.AbstractClassVar[bool]
    patience: eqx.AbstractClassVar[int]

    @abstractmethod
    def check(self, model: AbstractModel) -> None:
        """Raise `TypeError` if this method cannot train such a model."""

    @abstractmethod
    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        """What the method carries from step to step."""

    @abstractmethod
    def step(
        self, model: AbstractModel, data: Data, weights: Float[Array, "n"], state: PyTree
    ) -> tuple[AbstractModel, PyTree, Scalar]:
        """The next model, the next state, and the objective of the model that came *in*."""

    @abstractmethod
    def optimality(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        """A tree, shaped like the trainable parameters, that vanishes where the method comes to rest."""


class AbstractAdditiveMethod(AbstractMethod):
    """A method whose step is a sum over units and then a move: it also learns from data that come in batches.

    `per_batch` says whether it moves after every batch (online), or once the whole pass is summed up (exact).
    """

    per_batch: eqx.AbstractClassVar[bool]

    @abstractmethod
    def gather(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> Statistics:
        """What one step has to know of these units; sums over units."""

    @abstractmethod
    def move(
        self, model: AbstractModel, gathered: Statistics, mass: Scalar, total: Scalar, state: PyTree
    ) -> tuple[AbstractModel, PyTree, Scalar]:
        """The next model and state, and the objective of the model that came in, from what units of weight `mass`
        told; `total` is the weight of all units."""
