"""Expectation-maximization from few units at a time."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree

from .._method import AbstractAdditiveMethod
from .._model import AbstractLatentModel, AbstractModel
from .._typing import Data, PRNGKey, Scalar, Statistics
from .._validate import float_dtype
from .drawing import check_drawing, draw
from .em import EM, check_latent, pooled_e_step


class OnlineEM(AbstractAdditiveMethod):
    r"""Stepwise EM: expected statistics are a running average over batches, and every batch moves the model.

    After batch $t$, $S \leftarrow (1-\rho_t) S + \rho_t \tfrac{N}{N_t} S_t$ with $\rho_t = (t + \tau)^{-\kappa}$ (times
    $N_t/\max_s N_s$, for batches that are smaller than others), then an M-step. With `Bayes` leaves this is stochastic
    variational inference. For $\kappa$ in (0.5, 1] (`decay`) it converges to a stationary point of the objective;
    `delay` is $\tau$. From `Batches` a step of the trace is one pass; from arrays each step draws `batch_size` units,
    for which a `key` is wanted. The trace holds estimates of the objective.

    The past is kept as statistics around the current model, so nothing cancels. Cost of a move: the E-step of its
    units, and an M-step. Reference: Cappé and Moulines (2009); Liang and Klein (2009); Hoffman et al. (2013).

    >>> import probml_jax as pml
    >>> xs = jnp.concatenate([jr.normal(jr.key(0), (500, 1)), 6 + jr.normal(jr.key(1), (500, 1))])
    >>> model = pml.mixtures.gaussian_mixture(jr.key(2), xs[::50], num_components=2)
    >>> fit = pml.fit(model, xs, OnlineEM(batch_size=100, key=jr.key(3)), max_steps=50)
    >>> sorted(abs(round(float(m))) for m in fit.model.components.map(lambda leaf: leaf.point().mean())[:, 0])
    [0, 6]
    """

    batch_size: int | None = eqx.field(static=True, default=None)
    key: PRNGKey | None = eqx.field(default=None, kw_only=True)
    decay: float = eqx.field(static=True, default=0.7, kw_only=True)
    delay: float = eqx.field(static=True, default=1.0, kw_only=True)
    monotone: ClassVar[bool] = False
    patience: ClassVar[int] = 3
    per_batch: ClassVar[bool] = True

    def __check_init__(self):
        check_drawing("OnlineEM", self.batch_size, self.key)
        if not 0.5 < self.decay <= 1:
            raise ValueError(f"decay must be greater than 0.5 and at most 1; got {self.decay}.")
        if self.delay < 0:
            raise ValueError(f"delay must not be negative; got {self.delay}.")

    def check(self, model: AbstractModel) -> None:
        check_latent(model, "OnlineEM")

    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        shapes, _ = jax.eval_shape(lambda m, d, w: self.gather(m, d, w), model, data, weights)
        nothing = jax.tree_util.tree_map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return nothing, jnp.zeros((), jnp.int32), jnp.zeros((), float_dtype(model)), self.key

    def gather(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        return pooled_e_step(model, data, weights, None)

    def move(self, model: AbstractLatentModel, gathered: Statistics, mass: Scalar, total: Scalar, state: PyTree):
        past, count, largest, key = state
        stats, bound = jax.tree_util.tree_map(lambda a: a * (total / mass), gathered)
        largest = jnp.maximum(largest, mass)
        # the last batch of a pass may be small, and tells less
        rate = jnp.where(count == 0, 1, (count + self.delay) ** (-self.decay) * mass / largest).astype(total.dtype)
        stats = jax.tree_util.tree_map(lambda new, old: old + rate * (new - old), stats, past)
        new = model.m_step(stats)
        return new, (model.recenter(stats, new), count + 1, largest, key), bound + model.log_prior()

    def step(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"], state: PyTree):
        mass = jnp.sum(weights)
        if self.batch_size is None:
            raise ValueError("OnlineEM of arrays draws units: OnlineEM(batch_size=..., key=...) is wanted, or Batches.")
        *past, key = state
        key, now = jr.split(key)
        drawn = draw(self.gather, model, data, weights, now, self.batch_size)
        return self.move(model, drawn, mass, mass, (*past, key))

    def optimality(self, model: AbstractLatentModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        return EM().optimality(model, data, weights)  # it rests where EM does
