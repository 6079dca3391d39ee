"""The messages of a chain of discrete states: one recursion in any semiring, in sequence or in parallel."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._special import any_in_batch, safe_log
from .._typing import Flag, Scalar
from .semiring import LOG, REAL, Semiring


class Chain(NamedTuple):
    """Potentials of one chain. Steps that do not exist stand at one end."""

    log_initial: Float[Array, "k"]
    log_transition: Float[Array, "*steps k k"]
    log_likelihood: Float[Array, "t k"]
    exists: Bool[Array, "t"]

    @property
    def varies(self) -> bool:
        """Whether every transition has a matrix of its own."""
        return self.log_transition.ndim == 3

    @property
    def length(self) -> Int[Array, ""]:
        return jnp.sum(self.exists)

    def reverse(self) -> "Chain":
        """The same chain read from its end, without an initial potential: its messages are the backward ones."""
        flipped = self.log_transition[::-1] if self.varies else self.log_transition
        free = jnp.zeros_like(self.log_initial)
        return Chain(free, jnp.swapaxes(flipped, -1, -2), self.log_likelihood[::-1], self.exists[::-1])


def make_chain(log_initial: Array, log_transition: Array, log_likelihood: Array, mask: Array | None) -> Chain:
    """Checks shapes; works out which steps exist and which have evidence."""
    log_initial, log_transition, log_likelihood = map(jnp.asarray, (log_initial, log_transition, log_likelihood))
    if log_likelihood.ndim != 2 or 0 in log_likelihood.shape:
        raise ValueError(f"log_likelihood has shape {log_likelihood.shape}; wanted (t, k) with t, k > 0.")
    t, k = log_likelihood.shape
    if log_initial.shape != (k,):
        raise ValueError(f"log_initial has shape {log_initial.shape}; log_likelihood (t, k) = {(t, k)} wants ({k},).")
    if log_transition.shape not in ((k, k), (t - 1, k, k)):
        raise ValueError(
            f"log_transition has shape {log_transition.shape}; log_likelihood (t, k) = {(t, k)} wants {(k, k)}, or "
            f"{(t - 1, k, k)} with one matrix per transition."
        )
    if mask is None:
        return Chain(log_initial, log_transition, log_likelihood, jnp.ones(t, bool))
    mask = jnp.asarray(mask)
    if mask.shape != (t,):
        raise ValueError(f"mask has shape {mask.shape}; log_likelihood of {t} steps wants ({t},).")
    mask = mask.astype(bool)
    return Chain(log_initial, log_transition, jnp.where(mask[:, None], log_likelihood, 0), _until_last(mask))


def _until_last(mask: Bool[Array, "t"]) -> Bool[Array, "t"]:
    """Steps up to the last one with evidence."""
    t = mask.shape[0]
    return jnp.arange(t) <= jnp.max(jnp.where(mask, jnp.arange(t), -1))


def pairwise_sum(x: Float[Array, "n"]) -> Scalar:
    r"""A sum whose rounding error grows with $\log n$ only: a long chain adds many normalizers of equal size."""
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        odd = x[2 * half :]
        x = jnp.concatenate([x[:half] + x[half : 2 * half], odd])
    return jnp.sum(x)


class Messages(NamedTuple):
    """Normalized messages after each step's evidence, and the log of the product of their normalizers."""

    values: Float[Array, "t r k"]
    log_total: Scalar


def in_sequence(ring: Semiring, start: Array, matrices: Array, potentials: Array, exists: Array) -> Messages:
    """Absorb evidence, normalize, move on; a step that does not exist passes the message through.

    `start (r, k)` is the message before any evidence; `potentials (t, k)` and `matrices` are elements of the semiring.
    Normalizers leave the scan one by one: a running sum would lose digits.
    """

    def absorb(message, potential):
        message = ring.times(message, potential[None])
        total = ring.total(message)
        return ring.remove(message, total), total

    def advance(incoming, inputs):
        potential, here, matrix = inputs
        message, total = absorb(incoming, potential)
        outgoing = jnp.where(here, ring.push(message, matrices if matrix is None else matrix), incoming)
        return outgoing, (message, total)

    varying = matrices if matrices.ndim == 3 else None
    last, (messages, totals) = jax.lax.scan(advance, start, (potentials[:-1], exists[:-1], varying))
    message, total = absorb(last, potentials[-1])
    totals = ring.log_total(jnp.append(totals, total))
    return Messages(jnp.concatenate([messages, message[None]]), pairwise_sum(jnp.where(exists, totals, 0)))


def in_parallel(ring: Semiring, start: Array, matrices: Array, potentials: Array, exists: Array) -> Messages:
    """The same as prefix products of matrices `(r, k, k)`, each normalized with the log of its scale apart."""
    t, k = potentials.shape
    dtype = potentials.dtype
    others = lambda a: jnp.full((ring.width - 1, *a.shape), ring.zero, dtype)
    lift = jax.vmap(lambda a: jnp.concatenate([a[None], others(a)]))
    identity = jnp.where(jnp.eye(k, dtype=bool), ring.one, ring.zero).astype(dtype)
    # the first step that exists has no transition into it
    enters = exists & jnp.concatenate([jnp.ones(1, bool), ~exists[:-1]])
    moves = jnp.concatenate([identity[None], jnp.broadcast_to(matrices, (t - 1, k, k))])
    moves = jnp.where(enters[:, None, None], identity[None], moves)
    moves = ring.times(moves, jnp.broadcast_to(potentials[:, None, :], moves.shape))
    moves = jnp.where(exists[:, None, None], moves, identity[None])
    first = jnp.where(exists[0], ring.times(start[0], potentials[0]), start[0])
    elements = lift(jnp.concatenate([jnp.broadcast_to(first, (1, k, k)), moves[1:]]))

    def normalize(matrix, log_scale):
        total = ring.total(matrix)
        return ring.remove(matrix, total), log_scale + ring.log_total(total)

    def combine(a, b):
        return jax.vmap(normalize)(jax.vmap(ring.compose)(a[0], b[0]), a[1] + b[1])

    scaled = jax.vmap(normalize)(elements, jnp.zeros(t, dtype))
    products, log_scales = jax.lax.associative_scan(combine, scaled)
    messages, log_scales = jax.vmap(normalize)(products[:, :, 0, :], log_scales)
    return Messages(messages, jnp.where(jnp.any(exists), log_scales[-1], 0))


def log_messages(ring: Semiring, chain: Chain, parallel: bool) -> Messages:
    """Messages in a semiring over log-potentials."""
    first = chain.log_initial[None]
    start = jnp.concatenate([first, jnp.full((ring.width - 1, first.shape[1]), ring.zero, first.dtype)])
    run = in_parallel if parallel else in_sequence
    return run(ring, start, chain.log_transition, chain.log_likelihood, chain.exists)


# ------------------------------------------------------------------ scaled probabilities, where they are exact


def mixes(chain: Chain) -> Flag:
    r"""Whether probabilities can stand for log-probabilities without loss: the transitions' range is moderate.

    A state whose probability underflows holds less than $2^{-126}$ of the mass. When every transition is possible and
    none is $e^{r}$ times less likely than another, the next message of what was lost is smaller than $2^{-126} e^{r}$
    times the message of what was kept, in every state; and so for ever, because the recursion is linear and positive.
    The data need not be looked at. States that nothing can enter do not matter.
    """
    matrix = jax.lax.stop_gradient(chain.log_transition)
    highest = jnp.max(matrix)
    enterable = jnp.max(matrix, axis=-2, keepdims=True) > -jnp.inf
    lowest = jnp.min(jnp.where(enterable, matrix, highest))
    limit = 0.5 * jnp.log(jnp.finfo(matrix.dtype).max)
    return (highest - lowest < limit) & jnp.isfinite(highest)


class Scaled(NamedTuple):
    """Potentials as probabilities, each divided by its largest entry; `log_scale` is the log of all that was removed.

    The initial potential is part of the first step's.
    """

    matrices: Float[Array, "*steps k k"]
    potentials: Float[Array, "t k"]
    exists: Bool[Array, "t"]
    log_scale: Scalar


def scale(chain: Chain) -> Scaled:
    """A chain's potentials as probabilities."""
    finite = lambda a: jax.lax.stop_gradient(jnp.where(a == -jnp.inf, 0, a))
    first = (chain.log_likelihood[0] + chain.log_initial)[None]
    scores = jnp.concatenate([first, chain.log_likelihood[1:]])
    highest = finite(jnp.max(scores, axis=1))
    step = finite(jnp.max(chain.log_transition, axis=(-2, -1), keepdims=True))
    into = jnp.concatenate([jnp.zeros(1, step.dtype), jnp.broadcast_to(step[..., 0, 0], (scores.shape[0] - 1,))])
    removed = pairwise_sum(jnp.where(chain.exists, highest + into, 0))
    return Scaled(jnp.exp(chain.log_transition - step), jnp.exp(scores - highest[:, None]), chain.exists, removed)


def scaled_messages(scaled: Scaled) -> Messages:
    """Forward messages as probabilities: `values (t, 1, k)` are the filtered distributions."""
    start = jnp.ones_like(scaled.potentials[:1])
    values, log_total = in_sequence(REAL, start, scaled.matrices, scaled.potentials, scaled.exists)
    return Messages(values, log_total + scaled.log_scale)


def scaled_future(scaled: Scaled) -> Float[Array, "t k"]:
    """Backward messages, each with its own step's evidence in it."""
    flipped = scaled.matrices[::-1] if scaled.matrices.ndim == 3 else scaled.matrices
    turned = Scaled(jnp.swapaxes(flipped, -1, -2), scaled.potentials[::-1], scaled.exists[::-1], scaled.log_scale)
    return scaled_messages(turned).values[::-1, 0]


def choose(chain: Chain, parallel: bool, by_probabilities, by_logs):
    """`by_probabilities(chain)` where that is exact for the whole batch, `by_logs(chain)` otherwise."""
    if parallel:
        return by_logs(chain)
    return jax.lax.cond(any_in_batch(~mixes(chain)), by_logs, by_probabilities, chain)


def filtered(chain: Chain, parallel: bool) -> tuple[Float[Array, "t k"], Scalar]:
    r"""$\log p(z_s \mid$ evidence up to $s)$ and the log-partition function."""

    def by_probabilities(chain):
        values, log_total = scaled_messages(scale(chain))
        return safe_log(values[:, 0]), log_total

    def by_logs(chain):
        values, log_total = log_messages(LOG, chain, parallel)
        return values[:, 0], log_total

    return choose(chain, parallel, by_probabilities, by_logs)


def log_total(chain: Chain, parallel: bool) -> Scalar:
    """The log-partition function alone."""
    by_logs = lambda chain: log_messages(LOG, chain, parallel).log_total
    return choose(chain, parallel, lambda chain: scaled_messages(scale(chain)).log_total, by_logs)
