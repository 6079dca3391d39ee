"""Scores of labels given inputs: what a CRF or an MEMM is made of. Linear in dense or sparse features, or a network."""

from abc import abstractmethod
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._constraint import network, param, real
from .._stack import AbstractStack
from .._typing import PRNGKey
from ..inference.sparse import SparseMatrix, prepared_row_sums, row_sums


class SparseFeatures(NamedTuple):
    """Features that are mostly absent: a list of feature numbers per step (-1: none) and, if not 1, their values."""

    index: Int[Array, "*steps m"]
    value: Float[Array, "*steps m"] | None = None


class AbstractScores(eqx.Module):
    """Scores of every label at every step of one sequence. Any callable `x -> (t, k)` does as well; unlike this class
    it is not told which steps are padding."""

    @abstractmethod
    def __call__(self, x: PyTree, mask: Bool[Array, "t"]) -> Float[Array, "t k"]:
        """Scores `(t, k)` of a sequence's inputs; what stands where `mask` is false must not matter elsewhere."""


class AbstractPointScores(AbstractScores):
    """Scores in which a step's inputs tell all: steps of many sequences can be scored as one long list."""

    @abstractmethod
    def rows(self, x: PyTree) -> Float[Array, "n k"]:
        """Scores of n steps, of whatever sequences; or of what `Buckets.pooled` holds of them."""


class DenseScores(AbstractPointScores):
    """Linear in dense features: `x (t, d)` scores `x @ weights + bias`.

    >>> DenseScores.zeros(num_inputs=3, num_labels=2)(jnp.ones((5, 3)), jnp.ones(5, bool)).shape
    (5, 2)
    """

    weights: Float[Array, "d k"] = param(real)
    bias: Float[Array, "k"] = param(real)

    @classmethod
    def zeros(cls, num_inputs: int, num_labels: int, dtype: Any = None) -> Self:
        """Weights to start from: every label scores 0."""
        return cls(jnp.zeros((num_inputs, num_labels), dtype), jnp.zeros(num_labels, dtype))

    def rows(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        return jnp.matmul(x, self.weights) + self.bias[None]

    def __call__(self, x: Float[Array, "t d"], mask: Bool[Array, "t"]) -> Float[Array, "t k"]:
        return self.rows(x)


class SparseScores(AbstractPointScores):
    """Linear in sparse features, for hundreds of thousands of them.

    A step is a list of feature numbers `(t, m)`, padded with -1 (or `SparseFeatures` with values). Weights are
    `(num_features, num_labels)`; or, where `features (p,)` and `labels (p,)` are given, one weight for each of these p
    pairs and nothing for the others, as in CRFsuite: usually fifteen times fewer.

    >>> scores = SparseScores(jnp.array([[1.0, 0.0], [0.5, 2.0]]), num_features=2, num_labels=2)
    >>> scores(jnp.array([[0, 1], [1, -1]]), jnp.ones(2, bool)).tolist()
    [[1.5, 2.0], [0.5, 2.0]]
    """

    weights: Float[Array, "..."] = param(real)
    features: Int[Array, "p"] | None = None
    labels: Int[Array, "p"] | None = None
    num_features: int = eqx.field(static=True, kw_only=True)
    num_labels: int = eqx.field(static=True, kw_only=True)

    def __check_init__(self):
        dense = (self.num_features, self.num_labels)
        wanted = dense if self.features is None else self.features.shape
        if self.weights.shape != wanted:
            raise ValueError(f"weights has shape {self.weights.shape}; wanted {wanted}.")

    def table(self) -> Float[Array, "r k"]:
        """All weights, with a last row of zeros for features that are not there."""
        if self.features is None:
            return jnp.concatenate([self.weights, jnp.zeros_like(self.weights[:1])])
        empty = jnp.zeros((self.num_features + 1, self.num_labels), self.weights.dtype)
        return empty.at[self.features, self.labels].set(self.weights, unique_indices=True, mode="promise_in_bounds")

    def rows(self, x: Int[Array, "n m"] | SparseFeatures | SparseMatrix) -> Float[Array, "n k"]:
        if isinstance(x, SparseMatrix):
            return prepared_row_sums(self.table(), x)
        x = x if isinstance(x, SparseFeatures) else SparseFeatures(x)
        return row_sums(self.table(), *x)

    def __call__(self, x: Int[Array, "t m"] | SparseFeatures, mask: Bool[Array, "t"]) -> Float[Array, "t k"]:
        x = x if isinstance(x, SparseFeatures) else SparseFeatures(x)
        chosen = self.table()[jnp.where(x.index < 0, self.num_features, x.index)]
        return jnp.sum(chosen if x.value is None else chosen * x.value[:, :, None], axis=1)


class EmissionScores(AbstractScores):
    """A generative model's scores: `log p(x_s | label)` of a stack of leaves, one per label.

    >>> import jax, probml_jax as pml
    >>> normals = jax.vmap(pml.distributions.Normal)(jnp.array([[-1.0], [1.0]]), jnp.ones((2, 1)))
    >>> EmissionScores(pml.Stacked(pml.ML(normals)))(jnp.zeros((4, 1)), jnp.ones(4, bool)).shape
    (4, 2)
    """

    emission: AbstractStack

    def __call__(self, x: PyTree, mask: Bool[Array, "t"]) -> Float[Array, "t k"]:
        return self.emission.expected_log_probs(x, axis=1)


class SumScores(AbstractScores):
    """The sum of several scores of the same inputs, or, where `split`, of one part of a tuple of inputs each.

    >>> both = SumScores((DenseScores.zeros(3, 2), DenseScores(jnp.ones((3, 2)), jnp.zeros(2))))
    >>> both(jnp.ones((1, 3)), jnp.ones(1, bool)).tolist()
    [[3.0, 3.0]]
    """

    parts: tuple[Any, ...] = network()
    split: bool = eqx.field(static=True, default=False)

    def __call__(self, x: PyTree, mask: Bool[Array, "t"]) -> Float[Array, "t k"]:
        inputs = x if self.split else (x,) * len(self.parts)
        terms = [score(part, one, mask) for part, one in zip(self.parts, inputs, strict=True)]
        return sum(terms[1:], terms[0])


class ConvolutionalScores(AbstractScores):
    """A small convolutional tagger: layers of `width`-wide convolutions with residuals, then a linear read-out.

    Inputs are vectors `(t, d)`. Hidden steps beyond the sequence are zero at every layer, so padding changes nothing.
    """

    embed: eqx.nn.Linear = network()
    layers: tuple[eqx.nn.Conv1d, ...] = network()
    read_out: eqx.nn.Linear = network()

    def __init__(
        self, key: PRNGKey, num_inputs: int, num_labels: int, *, hidden: int = 32, width: int = 3, depth: int = 2
    ):
        keys = jr.split(key, depth + 2)
        self.embed = eqx.nn.Linear(num_inputs, hidden, key=keys[0])
        self.layers = tuple(eqx.nn.Conv1d(hidden, hidden, width, padding="SAME", key=k) for k in keys[1:-1])
        self.read_out = eqx.nn.Linear(hidden, num_labels, key=keys[-1])

    def __call__(self, x: Float[Array, "t d"], mask: Bool[Array, "t"]) -> Float[Array, "t k"]:
        within = mask.astype(x.dtype)[:, None]
        state = jax.vmap(self.embed)(x) * within
        for layer in self.layers:
            state = (state + jax.nn.gelu(layer(state.T).T)) * within
        return jax.vmap(self.read_out)(state)


class DenseTransitions(eqx.Module):
    """Transition scores that depend on the inputs: `(t-1, k, k)`, linear in the features of the step entered.

    >>> DenseTransitions.zeros(num_inputs=3, num_labels=2)(jnp.ones((5, 3))).shape
    (4, 2, 2)
    """

    weights: Float[Array, "d k k"] = param(real)
    bias: Float[Array, "k k"] = param(real)

    @classmethod
    def zeros(cls, num_inputs: int, num_labels: int, dtype: Any = None) -> Self:
        """Weights to start from: every pair of labels scores 0."""
        shape = (num_labels, num_labels)
        return cls(jnp.zeros((num_inputs, *shape), dtype), jnp.zeros(shape, dtype))

    def __call__(self, x: Float[Array, "t d"]) -> Float[Array, "steps k k"]:
        return jnp.tensordot(x[1:], self.weights, 1) + self.bias[None]


def score(scores: Any, x: PyTree, mask: Bool[Array, "t"]) -> Float[Array, "t k"]:
    """Scores of one sequence by ours or by anybody's module."""
    return scores(x, mask) if isinstance(scores, AbstractScores) else scores(x)
