"""Undirected models and how they are learned: exact likelihood, pseudo-likelihood, contrastive divergence."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._constraint import fixed
from .._model import AbstractExchangeableModel, AbstractModel
from .._special import logsumexp, pairwise_dot
from .._typing import Flag, PRNGKey, Scalar
from ..inference.blocks import repeated


class AbstractField(AbstractExchangeableModel):
    """An undirected model that knows its conditionals: one variable given all others."""

    @abstractmethod
    def log_score(self, states: Int[Array, "..."]) -> Scalar:
        """The log of the product of all potentials at complete states: the log-probability plus $\\log Z$."""

    @abstractmethod
    def conditional_logits(self, states: Int[Array, "..."]) -> Float[Array, "... k"]:
        """Log potential of each state of each variable given all others, padded with `-inf`."""

    @abstractmethod
    def resample(self, key: PRNGKey, states: Int[Array, "..."]) -> Int[Array, "..."]:
        """One Gibbs sweep from given states."""

    @abstractmethod
    def validate_complete(self, data: Any) -> None:
        """Raise `ValueError` unless data are complete units of this field."""


class PseudoLikelihood(AbstractExchangeableModel):
    r"""A field learned by $\sum_v \log p(x_v \mid x_{\setminus v})$, which needs no partition function.

    `pml.fit(PseudoLikelihood(field), data, pml.LBFGS()).model.field` is a consistent estimate of the field. Data must
    be complete. Cost: linear in the entries of the tables that data touch. Reference: Besag (1975).

    >>> import probml_jax as pml
    >>> model = PseudoLikelihood(pml.graphs.potts_grid(2, 2, num_labels=2, coupling=0.0))
    >>> round(float(model.log_prob(jnp.zeros((2, 2), int))), 4)  # four coins
    -2.7726
    """

    field: AbstractField

    def log_prob(self, datum: Int[Array, "..."]) -> Scalar:
        logits = self.field.conditional_logits(datum)
        chosen = jnp.take_along_axis(logits, jnp.asarray(datum)[..., None], axis=-1)[..., 0]
        return jnp.sum(chosen - logsumexp(logits, axis=-1))

    def log_prior(self) -> Scalar:
        return self.field.log_prior()

    def validate(self, data: Any) -> None:
        self.field.validate_complete(data)

    def degenerate(self) -> Flag:
        return self.field.degenerate()


class ContrastiveDivergence(AbstractModel):
    r"""A field learned by comparing data with what a few Gibbs sweeps make of them.

    The objective's gradient is $\sum_i w_i (\nabla\log\tilde p(x_i) - \nabla\log\tilde p(x_i'))$ with $x_i'$ drawn from
    $x_i$ by `num_sweeps` sweeps; its value (the difference of log scores) is no likelihood, so use `pml.Gradient`.
    Every unit has its own noise, the same at every step. Data must be complete. Reference: Hinton (2002).

    >>> import jax.random as jr, optax, probml_jax as pml
    >>> data = jnp.ones((4, 3, 3), int)  # all spins alike
    >>> model = ContrastiveDivergence(pml.graphs.ising_grid(3, 3, coupling=0.1), key=jr.key(0))
    >>> bool(pml.fit(model, data, pml.Gradient(optax.sgd(0.1)), max_steps=3).model.field.coupling > 0.1)
    True
    """

    field: AbstractField
    key: PRNGKey = fixed(kw_only=True)
    num_sweeps: int = eqx.field(static=True, default=1)

    def log_likelihood(self, data: Int[Array, "n ..."], weights: Float[Array, "n"]) -> Scalar:
        still = jax.lax.stop_gradient(self.field)

        def difference(key: PRNGKey, datum: Array) -> Scalar:
            step = lambda carry: (still.resample(carry[1], carry[0]), jr.split(carry[1])[0])
            moved, _ = repeated(step, (datum, key), self.num_sweeps)
            return self.field.log_score(datum) - self.field.log_score(jax.lax.stop_gradient(moved))

        keys = jr.split(self.key, data.shape[0])
        return pairwise_dot(weights, jax.vmap(difference)(keys, data))

    def log_prior(self) -> Scalar:
        return self.field.log_prior()

    def validate(self, data: Any) -> None:
        self.field.validate_complete(data)

    def degenerate(self) -> Flag:
        return self.field.degenerate()
