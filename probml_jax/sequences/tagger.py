"""What all conditional models of labels given inputs share: they are chains, and the chain engine answers."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._buckets import Buckets, parts_of
from .._constraint import trainable
from .._model import AbstractModel
from .._special import any_in_batch, pairwise_dot
from .._typing import Flag, PRNGKey, Scalar
from .._validate import check_finite, check_labels, check_shape, is_concrete
from ..inference import chain
from .data import Sequences, as_tagged, blank, bucket, check_lengths, exists, num_steps
from .grammar import Constraints, impossible
from .scores import AbstractPointScores, SparseFeatures, SparseScores, score


class Complete(NamedTuple):
    """Labels none of which is unknown. Said by type, so that no program is compiled for unknown ones."""

    labels: Int[Array, "*n t"]


class Potentials(NamedTuple):
    """What `pml.inference.chain` wants to know of one sequence."""

    log_initial: Float[Array, "k"]
    log_transition: Float[Array, "*steps k k"]
    log_likelihood: Float[Array, "t k"]
    mask: Bool[Array, "t"]


class AbstractTagger(AbstractModel):
    r"""$p(y \mid x)$ over label sequences y of the length of x; a unit is one sequence with its labels.

    `x` is whatever `scores` reads, with a leading axis of time; or `(x, length)` where padded. Labels `y (t,)` are
    whole numbers, -1 where unknown; or bool `(t, k)`, the set of labels a step may have. Unknown labels are summed out.
    """

    scores: eqx.AbstractVar[Any]
    transition: eqx.AbstractVar[Any]
    constraints: eqx.AbstractVar[Constraints | None]
    l2: eqx.AbstractVar[Array]
    num_labels: eqx.AbstractVar[int]

    @abstractmethod
    def wire(self, scores: Float[Array, "t k"], x: PyTree, mask: Bool[Array, "t"]) -> Potentials:
        """Potentials of one sequence from the scores of its labels."""

    @abstractmethod
    def log_normalizer(self, potentials: Potentials) -> Scalar:
        """Log of the sum over all label sequences of the product of potentials."""

    # -------------------------------------------------------------------------------------- one sequence

    def _potentials(self, one: Sequences) -> Potentials:
        mask = exists(one.lengths, num_steps(one.xs, 0))
        x = blank(one.xs, mask)
        return self.wire(score(self.scores, x, mask), x, mask)

    def potentials(self, x: Any) -> Potentials:
        """What the chain engine is told of one sequence."""
        return self._potentials(as_tagged(x, batched=False))

    @eqx.filter_jit
    def log_prob(self, datum: Any) -> Scalar:
        r"""$\log p(y \mid x)$ of `(x, y)`, `(x, length, y)` or `Sequences(x, length, y)`; unknown labels summed out."""
        one = as_tagged(datum, batched=False)
        potentials = self._potentials(one)
        return _ratio(known(potentials, one.states), self.log_normalizer(potentials))

    @eqx.filter_jit
    def decode(self, x: Any, *, parallel: bool = False) -> Int[Array, "t"]:
        """The most probable labels (Viterbi); -1 beyond the length."""
        return chain.viterbi(*self.potentials(x), parallel)[0]

    @eqx.filter_jit
    def marginals(self, x: Any, *, parallel: bool = False) -> Float[Array, "t k"]:
        r"""$p(y_s \mid x)$; zero beyond the length."""
        return chain.smooth(*self.potentials(x), parallel)

    @eqx.filter_jit
    def k_best(self, x: Any, k: int, *, parallel: bool = False) -> tuple[Int[Array, "k t"], Float[Array, "k"]]:
        r"""The k most probable label sequences, best first, and their $\log p(y \mid x)$."""
        potentials = self.potentials(x)
        paths, scores = chain.k_best(*potentials, parallel, k=k)
        return paths, scores - self.log_normalizer(potentials)

    @eqx.filter_jit
    def sample(self, key: PRNGKey, x: Any, *, parallel: bool = False) -> Int[Array, "t"]:
        """Labels drawn given the inputs."""
        return chain.sample(key, *self.potentials(x), parallel)

    @eqx.filter_jit
    def entropy(self, x: Any) -> Scalar:
        """Entropy of the label sequence given the inputs."""
        return chain.entropy(*self.potentials(x))

    # -------------------------------------------------------------------------------------- many sequences

    def decode_all(self, data: Any) -> list[np.ndarray]:
        """The most probable labels of every sequence of a batch or of `Buckets`, in order, each of its own length."""
        data = data if isinstance(data, Buckets) else bucket(data, 1)
        many = [as_tagged(part, batched=True)._replace(states=None) for part in data.parts]
        found = self._decode_parts(many, data.pooled)
        labels: list[Any] = [None] * data.num_units
        for paths, m, positions in zip(found, many, data.positions, strict=True):
            for path, length, position in zip(*map(np.asarray, (paths, _lengths(m), positions)), strict=True):
                labels[position] = path[:length]
        return labels

    @eqx.filter_jit
    def _decode_parts(self, many: list[Sequences], pooled: Any) -> list[Int[Array, "n t"]]:
        def one(scores, sequence):
            mask = exists(sequence.lengths, scores.shape[0])
            return chain.viterbi(*self.wire(scores, blank(sequence.xs, mask), mask))[0]

        scored = zip(self.pooled_scores(many, pooled), many, strict=True)
        return [jax.vmap(one)(scores, m) for scores, m in scored]

    # -------------------------------------------------------------------------------------- learning

    def pooled_scores(self, many: list[Sequences], pooled: Any = None) -> list[Float[Array, "n t k"]]:
        """Scores of several batches. Where a step's inputs tell all, steps of all batches are scored as one list."""
        if pooled is not None and isinstance(self.scores, SparseScores):
            return self._cut(self.scores.rows(pooled), many)
        masks = [jax.vmap(lambda l, m=m: exists(l, num_steps(m.xs, 1)))(_lengths(m)) for m in many]
        inputs = [jax.vmap(blank)(m.xs, mask) for m, mask in zip(many, masks, strict=True)]
        if not isinstance(self.scores, AbstractPointScores):
            each = jax.vmap(lambda x, mask: score(self.scores, x, mask))
            return [each(x, mask) for x, mask in zip(inputs, masks, strict=True)]
        flat = [jax.tree_util.tree_map(lambda a: a.reshape(-1, *a.shape[2:]), x) for x in inputs]
        return self._cut(self.scores.rows(jax.tree_util.tree_map(lambda *a: jnp.concatenate(a), *flat)), many)

    def _cut(self, rows: Float[Array, "steps k"], many: list[Sequences]) -> list[Float[Array, "n t k"]]:
        shapes = [jax.tree_util.tree_leaves(m.xs)[0].shape[:2] for m in many]
        ends = np.cumsum([n * t for n, t in shapes])
        cut = jnp.split(rows, ends[:-1])
        return [a.reshape(*s, self.num_labels) for a, s in zip(cut, shapes, strict=True)]

    def log_likelihood(self, data: Any, weights: Float[Array, "n"]) -> Scalar:
        return self.conditional_score(data, weights, lambda potentials, states: potentials)

    def conditional_score(self, data: Any, weights: Float[Array, "n"], rival) -> Scalar:
        r"""$\sum_i w_i (s_i(y_i) - \log\sum_y e^{s'_i(y)})$, where `rival(potentials, states)` gives $s'$."""
        parts = parts_of(data, weights)
        many = [as_tagged(part, batched=True) for part, _ in parts]

        def one(scores, sequence):
            mask = exists(sequence.lengths, scores.shape[0])
            potentials = self.wire(scores, blank(sequence.xs, mask), mask)
            total = self.log_normalizer(rival(potentials, sequence.states))
            return _ratio(known(potentials, sequence.states), total)

        pooled = data.pooled if isinstance(data, Buckets) else None
        scored = zip(self.pooled_scores(many, pooled), many, parts, strict=True)
        totals = [pairwise_dot(share, jax.vmap(one)(scores, m)) for scores, m, (_, share) in scored]
        return sum(totals[1:], totals[0])

    def log_prior(self) -> Scalar:
        r"""$-\lambda\sum\theta^2$ over all weights: a Gaussian prior, CRFsuite's `c2`."""
        weights = jax.tree_util.tree_leaves(eqx.filter(self, trainable(self)))
        return -self.l2 * sum(jnp.sum(w**2) for w in weights)

    def degenerate(self) -> Flag:
        return jnp.array(False)

    # -------------------------------------------------------------------------------------- honesty

    def validate(self, data: Any) -> None:
        many = as_tagged(data, batched=True)
        complete = isinstance(many.states, Complete)
        many = many._replace(states=many.states.labels) if complete else many
        leaves = jax.tree_util.tree_leaves(many.xs)
        if any(a.ndim < 2 for a in leaves):
            raise ValueError(f"inputs have shape {leaves[0].shape}; wanted (n, t, ...): one sequence is x[None].")
        n, t = leaves[0].shape[:2]
        if t == 0:
            raise ValueError("sequences are empty: at least one step is wanted.")
        check_lengths(many.lengths, n, t)
        if many.states is None:
            raise ValueError("learning needs labels: pass (x, y), (x, lengths, y) or Sequences(x, lengths, y).")
        for leaf in leaves:
            check_finite("inputs", leaf, nan=False)
        if isinstance(self.scores, SparseScores):
            _check_index(many.xs, self.scores.num_features)
        sets = many.states.ndim == 3
        check_shape("labels", many.states, (n, t, self.num_labels) if sets else (n, t))
        if not sets:
            check_labels("labels", many.states, self.num_labels)
        if is_concrete(many.states, self.constraints):
            self._check_possible(many, n, t)

    def _check_possible(self, many: Sequences, n: int, t: int) -> None:
        k = self.num_labels
        lengths = np.full(n, t) if many.lengths is None else np.asarray(many.lengths)
        states = np.asarray(many.states)
        free = Constraints(np.ones(k, bool), np.ones((k, k), bool), np.ones(k, bool))
        if states.ndim == 2:
            states = (states == -1)[..., None] | (states[..., None] == np.arange(k))
        bad = impossible(free if self.constraints is None else self.constraints, lengths, states.astype(bool))
        if bad.size:
            raise ValueError(f"the constraints forbid every labelling of sequence {bad[0]} that its labels allow.")


def known(potentials: Potentials, labels: Array | Complete | None) -> Scalar:
    """Log-score of what is known: one path, or the sum over all paths that agree with it."""
    if isinstance(labels, Complete):
        return _path_score(potentials, labels.labels)
    if labels is None:
        raise ValueError("log_prob needs labels: pass (x, y), (x, length, y) or Sequences(x, length, y).")
    initial, transition, likelihood, mask = potentials

    def some(labels):
        each = jnp.arange(likelihood.shape[1])[None, :]
        allowed = labels if labels.ndim == 2 else (labels[:, None] == -1) | (labels[:, None] == each)
        agreeing = jnp.where(allowed.astype(bool), likelihood, -jnp.inf)
        return chain.log_partition(initial, transition, agreeing, mask)

    if labels.ndim == 2:
        return some(labels)
    path = lambda labels: _path_score(potentials, labels)
    return jax.lax.cond(any_in_batch(jnp.any((labels == -1) & mask)), some, path, labels)


def _ratio(score: Scalar, total: Scalar) -> Scalar:
    """Log-probability; `-inf`, not NaN, where the constraints leave nothing possible."""
    possible = total > -jnp.inf
    return jnp.where(possible, score - jnp.where(possible, total, 0), -jnp.inf)


def _path_score(potentials: Potentials, labels: Int[Array, "t"]) -> Scalar:
    return chain.path_log_score(jnp.where(potentials.mask, labels, 0), *potentials)


def _lengths(many: Sequences) -> Int[Array, "n"]:
    n, t = jax.tree_util.tree_leaves(many.xs)[0].shape[:2]
    return jnp.full(n, t, jnp.int32) if many.lengths is None else many.lengths


def _check_index(xs: Any, num_features: int) -> None:
    index = xs.index if isinstance(xs, SparseFeatures) else xs
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise TypeError(f"sparse features are lists of whole numbers; got {index.dtype}.")
    if is_concrete(index):
        values = np.asarray(index)
        if values.size and (values.max() >= num_features or values.min() < -1):
            worst = values.max() if values.max() >= num_features else values.min()
            raise ValueError(f"feature numbers must be 0..{num_features - 1} (-1 for none); got {worst}.")
