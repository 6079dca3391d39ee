"""What learning needs of a model, and no more."""

from abc import abstractmethod
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp

from ._buckets import total
from ._placed import Placed, across
from ._special import pairwise_dot
from ._typing import Array, Data, Flag, Float, Scalar, Statistics
from ._validate import check_units, float_dtype


class AbstractModel(eqx.Module):
    """A model scores a pool of weighted exchangeable units. `fit` climbs `log_likelihood + log_prior`."""

    @abstractmethod
    def log_likelihood(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        """Weighted log-likelihood of all units, or a bound on it."""

    @abstractmethod
    def log_prior(self) -> Scalar:
        """What is added once per model: 0 for ML, log p(theta) for MAP, -KL(q || p) for Bayes."""

    @abstractmethod
    def validate(self, data: Data) -> None:
        """Raise `ValueError` naming what is wrong with `data`; silent for tracers."""

    @abstractmethod
    def degenerate(self) -> Flag:
        """Whether the model has collapsed onto the edge of its parameter space."""


class AbstractExchangeableModel(AbstractModel):
    """A model that scores one unit; the pool is a weighted `vmap`, over one array or over `Buckets`."""

    @abstractmethod
    def log_prob(self, datum: Data) -> Scalar:
        """Log-likelihood (or bound) of one unit. Conditional models: `datum = (x, y)`, log p(y|x)."""

    def log_likelihood(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        return total(lambda part, share: pairwise_dot(share, jax.vmap(self.log_prob)(part)), data, weights)


class AbstractAuditedModel(AbstractModel):
    """A model whose collapse shows on its data only: `fit` asks once, at the end."""

    @abstractmethod
    def audit(self, data: Data, weights: Float[Array, "n"]) -> Scalar:
        """How much of these units keeps the model from running away; sums over units. Nothing at all: collapsed."""


class AbstractLatentModel(AbstractExchangeableModel):
    """A model with latent variables: adds what EM needs."""

    @abstractmethod
    def e_step(self, data: Data, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        """Pooled additive expected statistics, and the log-likelihood (or bound) of these units."""

    @abstractmethod
    def m_step(self, stats: Statistics) -> Self:
        """The model of the same form that maximizes the expected complete-data objective."""

    @abstractmethod
    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        """Statistics of this model's E-step as if they had been taken around `new`: its M-step then finds the same
        model, and they add to its own."""

    @abstractmethod
    def surrogate(self, data: Data, weights: Float[Array, "n"], reference: Self) -> Scalar:
        r"""$Q(\theta \mid \theta_{ref}) = \sum_i w_i E_{p(z \mid x_i, \theta_{ref})} \log p(x_i, z \mid \theta)$.

        Its gradient at the reference is the gradient of the log-likelihood (Fisher's identity).
        """


class AbstractPreparedModel(AbstractLatentModel):
    """A latent model that learns from a summary of the data: `fit` makes it once, before the first step."""

    @abstractmethod
    def prepare(self, data: Data, weights: Float[Array, "n"]) -> tuple[Data, Float[Array, "_"]]:
        """The same evidence in the form that costs a step least, and its weights; the data themselves if there is
        none, or if it cannot be known (tracers). Scores and statistics of either form are the same."""


class AbstractStandardizedModel(AbstractModel):
    """A model that is learned in coordinates of its data's own: `fit` goes there before the first step and comes back
    after the last, so that no column's origin or unit matters to a method."""

    @abstractmethod
    def standardized(self, data: Data, weights: Float[Array, "n"]) -> tuple[AbstractModel, Data]:
        """A model and data of which the objective is the same, about the data's centre and in their units."""

    @abstractmethod
    def restored(self, learned: AbstractModel) -> Self:
        """What was learned there, in the coordinates of the data as they came."""


def objective(model: AbstractModel, data: Data, weights: Float[Array, "n"] | None = None) -> Scalar:
    """The one line every method climbs; units count once where no `weights` are given."""
    if weights is None:
        weights = data.weights if isinstance(data, Placed) else jnp.ones(check_units(data), float_dtype(model))
    return across(lambda m, part, share: m.log_likelihood(part, share), model, data, weights) + model.log_prior()
