"""The maximum-entropy Markov model: locally normalized, and why that is not the same."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._constraint import fixed, network, param, real
from .._special import logsumexp
from .._typing import Scalar
from .._validate import as_float, check_shape, float_dtype
from ..inference import chain
from .grammar import Constraints, as_constraints
from .tagger import AbstractTagger, Potentials


class MEMM(AbstractTagger):
    r"""$p(y \mid x) = \prod_s p(y_s \mid y_{s-1}, x)$ with $p(j \mid i, x) \propto \exp(u_s(j, x) + T_s(i, j))$.

    The same scores, transitions and constraints as `LinearChainCRF`, normalized at every step. No sum over label
    sequences is needed to learn it. The price is label bias: a label with one possible successor passes on all its
    mass, whatever the inputs say. Reference: McCallum, Freitag and Pereira (2000).

    >>> import jax.numpy as jnp, probml_jax as pml
    >>> memm = MEMM(scores=pml.sequences.DenseScores.zeros(num_inputs=1, num_labels=2), num_labels=2)
    >>> memm.marginals(jnp.zeros((3, 1))).tolist()
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    """

    scores: Any = network()
    transition: Any = network()
    start: Float[Array, "k"] | None = param(real)
    constraints: Constraints | None
    l2: Float[Array, ""] = fixed(converter=as_float)
    num_labels: int = eqx.field(static=True)

    def __init__(
        self,
        scores: Any,
        num_labels: int,
        *,
        transition: Any = None,
        start: Any = 0.0,
        constraints: Any = None,
        l2: Any = 0.0,
    ):
        k, dtype = num_labels, float_dtype(scores)
        self.scores, self.num_labels = scores, k
        self.start = None if start is None else jnp.broadcast_to(jnp.asarray(as_float(start), dtype), (k,))
        self.transition = jnp.zeros((k, k), dtype) if transition is None else transition
        self.constraints = as_constraints(constraints, k)
        self.l2 = jnp.asarray(as_float(l2), dtype)

    def __check_init__(self):
        if not callable(self.transition):
            check_shape("transition", self.transition, (self.num_labels, self.num_labels))

    def wire(self, scores: Float[Array, "t k"], x: PyTree, mask: Bool[Array, "t"]) -> Potentials:
        moves: Any = self.transition(x) if callable(self.transition) else self.transition[None]
        first = scores[0] if self.start is None else scores[0] + self.start
        joint = moves + scores[1:, None, :]
        evidence = jnp.zeros_like(scores)
        if self.constraints is not None:
            first = jnp.where(self.constraints.start, first, -jnp.inf)
            joint = jnp.where(self.constraints.transition[None], joint, -jnp.inf)
            ends = jnp.arange(mask.size) == jnp.sum(mask) - 1
            evidence = jnp.where(ends[:, None] & ~self.constraints.end[None], -jnp.inf, evidence)
        return Potentials(_normalized(first), _normalized(joint), evidence, mask)

    def log_normalizer(self, potentials: Potentials) -> Scalar:
        if self.constraints is None:
            return jnp.zeros((), potentials.log_initial.dtype)
        return chain.log_partition(*potentials)  # what ends in a forbidden label, or cannot go on, is taken away


def _normalized(scores: Array) -> Array:
    total = logsumexp(scores, axis=-1)[..., None]
    return scores - jnp.where(total == -jnp.inf, 0, total)
