"""What a long chain is expected to do, one stretch of time after the other: what EM needs, and memory for the messages.

Arrays of a whole chain, one for each thing that is computed of it, are as long as it; those of a stretch are not.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._special import any_in_batch
from .._typing import Scalar
from .chain import wide_beliefs
from .messages import (
    Chain,
    Scaled,
    ScaledMessages,
    forward_pass,
    mixes,
    pairwise_sum,
    scale,
    scaled_future,
    single_marginals,
    underflows,
    until_last,
)
from .stretches import even_length, in_stretches

# what is computed of a stretch, some eight arrays of its potentials' size, should fill about this much
_STRETCH_BYTES, _LEAST_STEPS = 1 << 20, 256
# measured, in float32 with 8 states: at 100,000 steps EM of the whole takes 80 ms where stretches take 97; at 1,000,000
# both take 0.95 s, and stretches a sixth less memory
_MOST_NUMBERS = 1 << 22


class Expectations(NamedTuple):
    """Log-partition, expected first state and transitions, and what was collected over steps."""

    log_partition: Scalar
    first: Float[Array, "k"]
    pairs: Float[Array, "k k"]
    collected: PyTree


class _Stretch(NamedTuple):
    """A stretch on its way back: everything known of its steps from the way forward."""

    steps: PyTree
    exists: Bool[Array, "b"]
    potentials: Float[Array, "b k"]
    forward: Float[Array, "b k"]
    totals: Float[Array, "b"]


def is_long(t: int, k: int) -> bool:
    """Whether a chain of t steps and k states is worth cutting: on several cores shorter ones are quicker whole."""
    return t * k > _MOST_NUMBERS


def stretch_length(t: int, k: int, itemsize: int) -> int:
    """Steps of a stretch: as many as stay in cache, all stretches of (nearly) one length."""
    wanted = max(_LEAST_STEPS, _STRETCH_BYTES // (8 * k * itemsize))
    return even_length(t, wanted)


def expectations(
    log_initial: Float[Array, "k"],
    log_transition: Float[Array, "k k"],
    score: Callable[[PyTree], Float[Array, "b k"]],
    collect: Callable[[PyTree, Float[Array, "b k"]], PyTree],
    steps: PyTree,
    mask: Bool[Array, "t"],
    length: int | None = None,
) -> Expectations:
    r"""$\log Z$, $p(z_1)$, $\sum_s p(z_s, z_{s+1})$ and $\sum$ `collect(part, single)` over stretches of a long chain.

    `steps` is a tree of arrays with a leading axis of time; `score(part)` gives the log-likelihoods `(b, k)` of a
    stretch of it and `collect(part, single)` whatever adds up, from the single marginals of its steps. `mask` as in
    `chain.log_partition`; `length` is that of a stretch (by default one that stays in cache).

    Exactly what `chain.beliefs` and one `collect` of everything give, and by the same means. Cost: that of `beliefs`;
    memory for messages and potentials of the chain, and one stretch of all else.
    """
    t, k = mask.shape[0], log_initial.shape[0]
    length = length or stretch_length(t, k, log_initial.dtype.itemsize)
    parts, masks = in_stretches((steps, mask), length)
    present = until_last(mask)
    exists = in_stretches(present, length)
    way = _Way(log_initial, log_transition, score, collect)
    log_partition, lost, (potentials, messages) = way.forward(parts, masks, exists)
    stretches = _Stretch(parts, exists, potentials, messages.values, messages.totals)
    possible = log_partition > -jnp.inf
    by_probabilities = lambda stretches: Expectations(log_partition, *way.backward(stretches, possible))

    def by_wide(stretches):
        # in stretches too, so that what a branch may need does not grow beyond what memory is kept for
        scores = jax.lax.scan(lambda _, part: (None, score(part)), None, stretches.steps)[1].reshape(-1, k)[:t]
        scores = jnp.where(mask[:, None], scores, 0)
        found = wide_beliefs(Chain(log_initial, log_transition, scores, present))
        single = in_stretches(found.single, length)
        add = lambda total, given: (jax.tree_util.tree_map(jnp.add, total, collect(*given)), None)
        first = jax.tree_util.tree_map(lambda a: a[0], (stretches.steps, single))
        collected = jax.lax.scan(add, _nothing(collect, *first), (stretches.steps, single))[0]
        return Expectations(found.log_partition, found.single[0], found.pairs, collected)

    return jax.lax.cond(any_in_batch(lost), by_wide, by_probabilities, stretches)


def _nothing(function: Callable, *arguments: PyTree) -> PyTree:
    """Zeros of the shapes that a function answers with."""
    shapes = jax.eval_shape(function, *arguments)
    return jax.tree_util.tree_map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


class _Way(NamedTuple):
    """There and back along the stretches of a chain."""

    log_initial: Float[Array, "k"]
    log_transition: Float[Array, "k k"]
    score: Callable
    collect: Callable

    def forward(self, parts: PyTree, masks: Array, exists: Array) -> tuple[Scalar, Array, tuple[Array, ScaledMessages]]:
        """The log-partition, whether probabilities lost digits, and potentials and messages of each stretch."""
        edges = self.log_transition > -jnp.inf
        chain = lambda begin, scores, here: Chain(begin, self.log_transition, scores, here)
        risky = any_in_batch(~mixes(self.log_transition))
        # the largest transition is taken out of all of them: that into the first step of a stretch is its own
        highest = jax.lax.stop_gradient(jnp.max(self.log_transition))
        step = jnp.where(highest == -jnp.inf, 0, highest)

        def stretch(carry, given):
            begin, entering, message = carry
            part, counts, here = given
            scores = jnp.where(counts[:, None], self.score(part), 0)
            piece = chain(begin, scores, here)
            scaled = scale(piece)
            found, message = forward_pass(scaled, message)
            never = lambda piece, found: jnp.array(False)
            lost = jax.lax.cond(risky, underflows, never, *jax.lax.stop_gradient((piece, found)))
            reached = jnp.any((found.values[-1] > 0)[:, None] & edges, axis=0)
            begin = jnp.where(reached, 0, -jnp.inf).astype(scores.dtype)
            log_total = found.log_total + jnp.where(here[0], entering, 0)
            return (begin, step, message), (lost, log_total, scaled.potentials, found)

        one = jnp.ones((), self.log_initial.dtype)
        start = self.log_initial, jnp.zeros_like(one), (jnp.ones_like(self.log_initial), one)
        _, (lost, log_totals, potentials, found) = jax.lax.scan(stretch, start, (parts, masks, exists))
        return pairwise_sum(log_totals), jnp.any(lost), (potentials, found)

    def backward(self, stretches: _Stretch, possible: Array) -> tuple[Array, Array, PyTree]:
        """The first step's marginals, transitions and what was collected; zero for an impossible chain."""
        initial, transition = self.log_initial, self.log_transition
        log_scale = jnp.zeros((), initial.dtype)
        highest = jnp.max(transition)
        matrix = jnp.exp(transition - jax.lax.stop_gradient(jnp.where(highest == -jnp.inf, 0, highest)))

        def stretch(carry, given):
            message, following, pairs, collected = carry
            steps, exists, potentials, forward, totals = given
            after, own, message = scaled_future(Scaled(matrix, potentials, exists, log_scale), totals, message)
            single, inverse = single_marginals(forward, after, exists & possible)
            nexts = jnp.concatenate([jnp.where(exists[1:, None], own[1:], 0), following[None]])
            moved = jnp.einsum("si,sj->ij", forward * inverse[:, None], nexts, precision=jax.lax.Precision.HIGHEST)
            added = jax.tree_util.tree_map(jnp.add, collected, self.collect(steps, single))
            return (message, jnp.where(exists[0], own[0], 0), pairs + moved, added), single[0]

        one = jax.tree_util.tree_map(lambda a: a[0], stretches)
        nothing = _nothing(self.collect, one.steps, one.forward)
        start = jnp.ones_like(initial), jnp.zeros_like(initial), jnp.zeros_like(transition), nothing
        (_, _, pairs, collected), singles = jax.lax.scan(stretch, start, stretches, reverse=True)
        return singles[0], matrix * pairs, collected
