"""Markov chains whose states are seen."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .. import conjugate
from .._estimate import MAP, ML, AbstractEstimate, Bayes
from .._model import AbstractLatentModel
from .._special import any_in_batch, pairwise_dot, xlogy
from .._stack import AbstractStack, Stacked
from .._typing import Flag, PRNGKey, Scalar, Statistics
from .._validate import as_weights, check_labels, is_concrete
from ..distributions.categorical import Categorical
from ..inference import chain
from .data import Sequences, as_sequences, check_lengths, check_steps, exists, pad_sequences
from .labels import check_chain, log_probs
from .query import query


class MarkovChain(AbstractLatentModel):
    r"""$p(z) = p(z_1)\prod_s p(z_s \mid z_{s-1})$ over sequences of labels; a unit is one sequence `(t,)`.

    `initial` is a leaf over labels and `transition` a stack of k such leaves (its rows). States of -1 are unknown and
    summed out. Learning is counting (one step of EM when all states are seen).

    Reference: Murphy (2012), section 17.2.

    >>> chain = MarkovChain.from_data([[0, 1, 1, 0, 1, 1, 1, 0]], num_states=2)
    >>> [[round(float(p), 2) for p in row] for row in chain.transition_matrix()]
    [[0.0, 1.0], [0.4, 0.6]]
    >>> [round(float(p), 3) for p in chain.stationary()]
    [0.286, 0.714]
    """

    initial: AbstractEstimate
    transition: AbstractStack

    def __check_init__(self):
        check_chain(self.initial, self.transition)

    @classmethod
    def from_data(
        cls,
        states: Any,
        num_states: int,
        *,
        smoothing: float = 0.0,
        estimate: str = "ml",
        lengths: Any = None,
        weights: Any = None,
        dtype: Any = None,
    ) -> Self:
        """Estimated from sequences `(n, t)`, padded to `lengths (n,)`, from one `(t,)` or a list; -1 is unknown.

        - `estimate="ml"`: relative frequencies after adding `smoothing` to every count. A state that is never left,
          without smoothing, gets a uniform row.
        - `estimate="bayes"`: Dirichlet posteriors under a Dirichlet(`smoothing`) prior (default 1).
        - `estimate="map"`: their modes under Dirichlet(1 + `smoothing`): the same numbers as "ml", with the prior kept
          for further learning.
        """
        if estimate not in ("ml", "map", "bayes"):
            raise ValueError(f"estimate must be 'ml', 'map' or 'bayes'; got {estimate!r}.")
        if num_states < 1:
            raise ValueError(f"num_states must be at least 1; got {num_states}.")
        if smoothing < 0:
            raise ValueError(f"smoothing must be non-negative; got {smoothing}.")
        if lengths is None and isinstance(states, list) and all(np.ndim(row) == 1 for row in states):
            states, lengths = pad_sequences(states)
        states = jnp.asarray(states)
        states = states[None] if states.ndim == 1 else states
        dtype = jnp.result_type(float) if dtype is None else dtype
        uniform = Categorical(jnp.full(num_states, 1 / num_states, dtype))
        start = cls(ML(uniform), Stacked(ML(jax.tree_util.tree_map(lambda a: jnp.stack([a] * num_states), uniform))))
        data = states if lengths is None else (states, jnp.asarray(lengths))
        start.validate(data)
        n = states.shape[0]
        weights = as_weights(weights, n, dtype)
        (began, moved), _ = eqx.filter_jit(cls.e_step)(start, data, weights)
        return _estimated(began, moved, smoothing, estimate)

    @property
    def num_states(self) -> int:
        """k."""
        return self.transition.size

    # -------------------------------------------------------------------------------------- one sequence

    def log_initial(self) -> Float[Array, "k"]:
        """Log-probabilities of the first state (expected ones under `Bayes` leaves)."""
        return log_probs(self.initial, self.num_states)

    def log_transition(self) -> Float[Array, "k k"]:
        """Log-probabilities of moves, row by row."""
        return self.transition.map(lambda leaf: log_probs(leaf, self.num_states))

    def transition_matrix(self) -> Float[Array, "k k"]:
        r"""$p(z_s = j \mid z_{s-1} = i)$ (posterior mean under `Bayes`)."""
        return self.transition.map(lambda leaf: leaf.predictive().probs)

    def initial_probs(self) -> Float[Array, "k"]:
        """Probabilities of the first state."""
        return self.initial.predictive().probs

    def _one(self, datum: Any) -> Sequences:
        one = as_sequences(datum, batched=False)
        check_steps(one.xs, 0)
        if one.xs.ndim != 1 or jnp.issubdtype(one.xs.dtype, jnp.floating):
            raise ValueError(f"states must be whole labels (t,); got {one.xs.dtype} of shape {one.xs.shape}.")
        return one

    def _potentials(self, datum: Any) -> tuple[Array, Array, Array, Array]:
        one = self._one(datum)
        here = exists(one.lengths, one.xs.shape[0])
        states = one.xs[:, None]
        known = (states == -1) | (states == jnp.arange(self.num_states)[None, :])
        log_initial = self.log_initial()
        evidence = jnp.where(known, 0.0, -jnp.inf).astype(log_initial.dtype)
        return log_initial, self.log_transition(), evidence, here

    @query
    def log_prob(self, datum: Any) -> Scalar:
        """Log-probability of one sequence of states; -1 is unknown and summed out."""
        potentials = self._potentials(datum)
        one = self._one(datum)
        here = potentials[3]
        unknown = any_in_batch(jnp.any(here & (one.xs < 0)))
        direct = lambda: chain.path_log_score(one.xs, *potentials)
        return jax.lax.cond(unknown, lambda: chain.log_partition(*potentials), direct)

    @eqx.filter_jit
    def sample(self, key: PRNGKey, num_steps: int) -> Int[Array, "t"]:
        """A sequence of states."""
        free = jnp.zeros((num_steps, self.num_states), self.log_initial().dtype)
        return chain.sample(key, jnp.log(self.initial_probs()), jnp.log(self.transition_matrix()), free)

    # -------------------------------------------------------------------------------------- the long run

    def n_step(self, n: int) -> Float[Array, "k k"]:
        r"""$P^n$: transition probabilities over n steps (Chapman-Kolmogorov). Cost: $O(k^3 \log n)$."""
        if n < 0:
            raise ValueError(f"n must be non-negative; got {n}.")
        return jnp.linalg.matrix_power(self.transition_matrix(), n)

    def reachable(self) -> Bool[Array, "k k"]:
        """Whether state j can be reached from state i in any number of steps."""
        return chain.reachability(self.transition_matrix() > 0)

    def recurrent_classes(self) -> list[list[int]]:
        """Closed sets of states that, once entered, are never left: each has a stationary distribution of its own."""
        if not is_concrete(self):
            raise ValueError("recurrent_classes reads values on the host: call it outside jit and vmap.")
        reach = jax.device_get(self.reachable())
        classes = []
        for i in range(self.num_states):
            members = [j for j in range(self.num_states) if reach[i, j]]
            closed = all(reach[j, i] for j in members)
            if closed and members not in classes:
                classes.append(members)
        return classes

    def stationary(self) -> Float[Array, "k"]:
        r"""The $\pi$ with $\pi P = \pi$, if it is unique (one closed class; transient states get zero).

        A chain with several closed classes has many: eager calls raise `ValueError` naming the classes, compiled ones
        give NaN. Differentiable. Cost: $O(k^3)$.
        """
        matrix = self.transition_matrix()
        reach = self.reachable()
        closed = jnp.all(~reach | reach.T, axis=1)
        size = jnp.sum(reach & reach.T, axis=1)
        unique = jnp.sum(jnp.where(closed, 1 / size, 0)) < 1.5
        if is_concrete(self) and not bool(unique):
            raise ValueError(
                f"the chain is reducible: closed classes {self.recurrent_classes()} each have a stationary "
                "distribution, so there is no unique one. Restrict the chain to a class first."
            )
        return jnp.where(unique, chain.stationary(matrix, closed), jnp.nan)

    def entropy_rate(self) -> Scalar:
        r"""$-\sum_i \pi_i \sum_j P_{ij}\log P_{ij}$ nats per step in the long run."""
        matrix = self.transition_matrix()
        return -jnp.sum(self.stationary() * jnp.sum(xlogy(matrix, matrix), axis=1))

    # -------------------------------------------------------------------------------------- learning

    def _posterior(self, data: Any) -> chain.Beliefs:
        many = as_sequences(data, batched=True)
        return jax.vmap(lambda one: chain.beliefs(*self._potentials(one)))(many)

    def e_step(self, data: Any, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        log_probs, single, pairs = self._posterior(data)
        counts = jnp.tensordot(weights, single[:, 0], 1), jnp.tensordot(weights, pairs, 1)
        return counts, pairwise_dot(weights, log_probs)

    def m_step(self, stats: Statistics) -> Self:
        return MarkovChain(self.initial.refit(stats[0]), self.transition.refit(stats[1]))

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        began, moved = stats
        return self.initial.recenter(began, new.initial), self.transition.recenter(moved, new.transition)

    def log_prior(self) -> Scalar:
        return self.initial.log_prior() + self.transition.log_prior()

    def surrogate(self, data: Any, weights: Float[Array, "n"], reference: Self) -> Scalar:
        (began, moved), _ = jax.lax.stop_gradient(reference.e_step(data, weights))
        expected = lambda mass, score: jnp.sum(jnp.where(mass > 0, mass * jnp.where(mass > 0, score, 0), 0))
        return expected(began, self.log_initial()) + expected(moved, self.log_transition())

    def validate(self, data: Any) -> None:
        many = as_sequences(data, batched=True)
        if many.xs.ndim != 2 or jnp.issubdtype(many.xs.dtype, jnp.floating):
            raise ValueError(f"states must be whole labels (n, t); got {many.xs.dtype} of shape {many.xs.shape}.")
        n, t = many.xs.shape
        check_steps(many.xs, 1)
        check_lengths(many.lengths, n, t)
        here = jnp.ones((n, t), bool) if many.lengths is None else jnp.arange(t)[None] < many.lengths[:, None]
        check_labels("states", jnp.where(here, many.xs, 0), self.num_states)

    def degenerate(self) -> Flag:
        """Never: a zero probability is a fair estimate."""
        return jnp.array(False)


def _estimated(began: Array, moved: Array, smoothing: float, estimate: str) -> MarkovChain:
    def leaf(counts):
        uniform = Categorical(jnp.full_like(counts, 1 / counts.size))
        if estimate == "ml":
            return ML(uniform.refit(counts + smoothing))
        prior = conjugate.DirichletCategorical(
            jnp.full_like(counts, smoothing or 1.0 if estimate == "bayes" else 1 + smoothing)
        )
        posterior = prior.absorb(counts, uniform)
        return Bayes(posterior, prior) if estimate == "bayes" else MAP(uniform.refit(counts + smoothing), prior)

    return MarkovChain(leaf(began), Stacked(eqx.filter_vmap(leaf)(moved)))
