"""The messages of a chain of discrete states: one recursion in any semiring, in sequence or in parallel."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._special import any_in_batch, safe_log
from .._typing import Flag, Scalar
from .._validate import check_not_narrowed
from .semiring import LOG, Semiring
from .wide import Wide, along, from_log, to_log, wide_sweep


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
        """Steps that exist."""
        return jnp.sum(self.exists)


def make_chain(
    log_initial: ArrayLike, log_transition: ArrayLike, log_likelihood: ArrayLike, mask: ArrayLike | None
) -> Chain:
    """Checks shapes; works out which steps exist and which have evidence."""
    given = {"log_initial": log_initial, "log_transition": log_transition, "log_likelihood": log_likelihood}
    log_initial, log_transition, log_likelihood = as_potentials(**given)
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
    return Chain(log_initial, log_transition, jnp.where(mask[:, None], log_likelihood, 0), until_last(mask))


def as_potentials(**given: Any) -> list[Array]:
    """Arrays of one floating dtype: whole numbers and lists take that of the others, float64 is not narrowed."""
    for name, a in given.items():
        check_not_narrowed(name, a)
    arrays = [jnp.asarray(a) for a in given.values()]
    dtype = jnp.result_type(*arrays)
    dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
    return [a.astype(dtype) for a in arrays]


def until_last(mask: Bool[Array, "t"]) -> Bool[Array, "t"]:
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
    """Messages before and (normalized) after each step's evidence; the log of the product of their normalizers."""

    incoming: Float[Array, "t r k"]
    values: Float[Array, "t r k"]
    log_total: Scalar


class ScaledMessages(NamedTuple):
    """Forward messages as probabilities: the filtered distributions times their `totals`, and the log of all these."""

    values: Float[Array, "t k"]
    totals: Float[Array, "t"]
    log_total: Scalar


def sweep(
    ring: Semiring, start: Array, matrices: Array, potentials: Array, exists: Array, backward: bool = False
) -> tuple[Array, Array, Array]:
    """Absorb evidence, normalize, move on.

    Steps that do not exist stand after all others: what is said there does not matter on the way forward; on the way
    back they pass the message through.

    `start (r, k)` is the message before any evidence; `potentials (t, k)` and `matrices` are elements of the semiring.
    `backward` travels from the last step to the first, along transposed matrices. Normalizers leave the scan one by
    one: a running sum would lose digits.
    """
    along = jnp.swapaxes(matrices, -1, -2) if backward else matrices
    varying = along.ndim == 3
    if varying:  # the matrix that leads out of each step; out of the last, nothing does
        nowhere = jnp.full_like(along, ring.zero, shape=(1, *along.shape[1:]))
        along = jnp.concatenate([nowhere, along] if backward else [along, nowhere])

    def advance(incoming, inputs):
        potential, here, matrix = inputs
        message = ring.times(incoming, potential[None])
        total = ring.total(message)
        message = ring.remove(message, total)
        outgoing = ring.push(message, matrix if varying else along)
        outgoing = outgoing if here is None else jnp.where(here, outgoing, incoming)
        return outgoing, (incoming, message, total)

    inputs = potentials, exists if backward else None, along if varying else None
    return jax.lax.scan(advance, start, inputs, reverse=backward)[1]


def in_sequence(
    ring: Semiring, start: Array, matrices: Array, potentials: Array, exists: Array, backward: bool = False
) -> Messages:
    """The messages of a `sweep`."""
    incoming, messages, totals = sweep(ring, start, matrices, potentials, exists, backward)
    return Messages(incoming, messages, pairwise_sum(jnp.where(exists, ring.log_total(totals), 0)))


def in_parallel(
    ring: Semiring, start: Array, matrices: Array, potentials: Array, exists: Array, backward: bool = False
) -> Messages:
    """The same as prefix products of matrices `(r, k, k)`, each normalized with the log of its scale apart."""
    if backward:  # the chain read from its end
        turned = jnp.swapaxes(matrices[::-1] if matrices.ndim == 3 else matrices, -1, -2)
        future = in_parallel(ring, start, turned, potentials[::-1], exists[::-1])
        return Messages(future.incoming[::-1], future.values[::-1], future.log_total)
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
    pushed = jax.vmap(ring.push)(messages[:-1], jnp.broadcast_to(matrices, (t - 1, k, k)))
    incoming = jnp.concatenate([start[None], jnp.where(enters[1:, None, None], start[None], pushed)])
    return Messages(incoming, messages, jnp.where(jnp.any(exists), log_scales[-1], 0))


def log_messages(ring: Semiring, chain: Chain, parallel: bool, backward: bool = False) -> Messages:
    """Messages in a semiring over log-potentials; the initial potential belongs to the forward ones."""
    first = jnp.zeros_like(chain.log_initial)[None] if backward else chain.log_initial[None]
    start = jnp.concatenate([first, jnp.full((ring.width - 1, first.shape[1]), ring.zero, first.dtype)])
    run = in_parallel if parallel else in_sequence
    return run(ring, start, chain.log_transition, chain.log_likelihood, chain.exists, backward)


class WideMessages(NamedTuple):
    """As `Messages`, as numbers whose exponents have no bounds."""

    incoming: Wide
    values: Wide
    log_total: Scalar


def wide_messages(chain: Chain, parallel: bool, backward: bool = False) -> WideMessages:
    """Messages that are exact whatever the potentials; the initial one belongs to the forward ones."""
    if parallel:
        incoming, values, log_total = log_messages(LOG, chain, parallel, backward)
        return WideMessages(from_log(incoming[:, 0]), from_log(values[:, 0]), log_total)
    start = from_log(jnp.zeros_like(chain.log_initial) if backward else chain.log_initial)
    moves = along(chain.log_transition, backward)
    _, incoming, values, log_totals = wide_sweep(start, moves, chain.log_likelihood, chain.exists, backward)
    return WideMessages(incoming, values, pairwise_sum(jnp.where(chain.exists, log_totals, 0)))


# ------------------------------------------------------------------ scaled probabilities, where they are exact


def mixes(log_transition: Float[Array, "*steps k k"]) -> Flag:
    r"""Whether probabilities can stand for log-probabilities without loss: the transitions' range is moderate.

    Let every transition be possible and none $e^{r}$ times less likely than another. A message then sums up to $e^{-r}$
    at least, and a state that underflows holds less than $2^{-126}e^{r}$ of the mass. The next message of what was lost
    is smaller than $2^{-126} e^{2r}$ times that of what was kept, in every state; and so for ever, because the
    recursion is linear and positive. The data need not be looked at. States that nothing can enter do not matter. Where
    it does not hold, `underflows` looks at what happened.
    """
    matrix = jax.lax.stop_gradient(log_transition)
    if matrix.size == 0:  # one step: nothing moves
        return jnp.array(True)
    highest = jnp.max(matrix)
    enterable = jnp.max(matrix, axis=-2, keepdims=True) > -jnp.inf
    lowest = jnp.min(jnp.where(enterable, matrix, highest))
    info = jnp.finfo(matrix.dtype)
    limit = 0.5 * (jnp.log(info.eps) - jnp.log(info.tiny))
    return (highest - lowest < limit) & jnp.isfinite(highest)


class Scaled(NamedTuple):
    """Potentials as probabilities, each divided by its largest entry; `log_scale` is the log of all that was removed.

    The initial potential is part of the first step's. States that nothing can enter have none.
    """

    matrices: Float[Array, "*steps k k"]
    potentials: Float[Array, "t k"]
    exists: Bool[Array, "t"]
    log_scale: Scalar


def scale(chain: Chain) -> Scaled:
    """A chain's potentials as probabilities."""
    finite = lambda a: jax.lax.stop_gradient(jnp.where(a == -jnp.inf, 0, a))
    # selected rather than put together from parts: that would be one more array of this size
    first = (jnp.arange(chain.log_likelihood.shape[0]) == 0)[:, None]
    enterable = jnp.max(chain.log_transition, axis=-2) > -jnp.inf
    everywhere = jnp.ones((1, enterable.shape[-1]), bool)
    enterable = jnp.concatenate([everywhere, enterable]) if chain.varies else enterable[None]
    scores = chain.log_likelihood + jnp.where(first, chain.log_initial[None], jnp.where(enterable, 0, -jnp.inf))
    highest = finite(jnp.max(scores, axis=1))
    step = finite(jnp.max(chain.log_transition, axis=(-2, -1), keepdims=True))
    into = jnp.concatenate([jnp.zeros(1, step.dtype), jnp.broadcast_to(step[..., 0, 0], (scores.shape[0] - 1,))])
    removed = pairwise_sum(jnp.where(chain.exists, highest + into, 0))
    return Scaled(jnp.exp(chain.log_transition - step), jnp.exp(scores - highest[:, None]), chain.exists, removed)


# up to so many states a product is written out: XLA then compiles the whole scan as one loop, without calls
_WRITTEN_OUT = 16


def _moved(message: Float[Array, "k"], matrix: Float[Array, "k k"]) -> Float[Array, "k"]:
    """`message @ matrix`."""
    if matrix.shape[0] <= _WRITTEN_OUT:
        return jnp.sum(message[:, None] * matrix, axis=0)
    return jnp.matmul(message, matrix, precision=jax.lax.Precision.HIGHEST)


def scaled_messages(scaled: Scaled) -> ScaledMessages:
    """Forward messages of a whole chain."""
    return forward_pass(scaled, (jnp.ones_like(scaled.potentials[0]), jnp.ones_like(scaled.log_scale)))[0]


def forward_pass(scaled: Scaled, start: tuple[Array, Array]) -> tuple[ScaledMessages, tuple[Array, Array]]:
    """Forward messages, and what the next stretch of the chain starts from.

    A message is divided by the total of the one *before* it, which is known while it is made: then it sums up to what a
    division by its own total would have removed, and no step waits for a sum.
    """
    varying = scaled.matrices.ndim == 3
    # the matrix that leads out of each step; out of the last, nothing does
    nothing = jnp.zeros_like(scaled.matrices, shape=(1, *scaled.matrices.shape[1:]))
    out_of = jnp.concatenate([scaled.matrices, nothing]) if varying else None

    def advance(carry, inputs):
        incoming, inverse = carry
        potential, matrix = inputs
        message = incoming * (potential * inverse)
        total = jnp.sum(message)
        inverse = jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1), 0)
        return (_moved(message, matrix if varying else scaled.matrices), inverse), message

    end, values = jax.lax.scan(advance, start, (scaled.potentials, out_of))
    totals = jnp.sum(values, axis=1)
    log_total = pairwise_sum(jnp.where(scaled.exists, safe_log(totals), 0)) + scaled.log_scale
    return ScaledMessages(values, totals, log_total), end


def underflows(chain: Chain, forward: ScaledMessages) -> Flag:
    """Whether a state that can be reached has lost digits of its forward message, or all of it.

    The first loss is always seen: until then a message is positive exactly where paths lead.
    """
    info = jnp.finfo(forward.values.dtype)
    reached = (forward.values > 0).astype(info.dtype)
    edges = (chain.log_transition > -jnp.inf).astype(info.dtype)
    spec = "si,sij->sj" if chain.varies else "si,ij->sj"
    open_ = jnp.concatenate([chain.log_initial[None] > -jnp.inf, jnp.einsum(spec, reached[:-1], edges) > 0])
    possible = open_ & (chain.log_likelihood > -jnp.inf) & chain.exists[:, None]
    return jnp.any(possible & ~(forward.values > 8 * info.tiny / info.eps))


def scaled_future(
    scaled: Scaled, totals: Float[Array, "t"], end: Float[Array, "k"]
) -> tuple[Float[Array, "t k"], Float[Array, "t k"], Float[Array, "k"]]:
    """Backward messages of each step: of all that comes after it (`end`, for the last), and with its own evidence too;
    and the message that goes on from here.

    They are divided by the forward pass's totals, which spares the scan a sum and a division: the two messages of a
    step then multiply to a constant. A state that was reached has a forward message that is not too small, so its
    backward one is not too large; those of states that nothing reaches are held finite.
    """
    evidence = scaled.potentials / jnp.where(totals > 0, totals, 1)[:, None]
    bound = jnp.finfo(totals.dtype).eps / (8 * jnp.finfo(totals.dtype).tiny)
    varying = scaled.matrices.ndim == 3
    back = jnp.swapaxes(scaled.matrices, -1, -2)
    into = jnp.concatenate([jnp.zeros_like(back, shape=(1, *back.shape[1:])), back]) if varying else None

    def advance(after, inputs):
        seen, here, matrix = inputs
        message = jnp.minimum(after * seen, bound)
        return jnp.where(here, _moved(message, matrix if varying else back), after), after

    before, after = jax.lax.scan(advance, end, (evidence, scaled.exists, into), reverse=True)
    return after, jnp.minimum(after * evidence, bound), before


def single_marginals(
    forward: Float[Array, "t k"], after: Float[Array, "t k"], exists: Bool[Array, "t"]
) -> tuple[Float[Array, "t k"], Float[Array, "t"]]:
    """Products of the messages of each step, normalized, and what they were multiplied by (0 where nothing is)."""
    product = forward * after
    mass = jnp.sum(product, axis=1)
    inverse = jnp.where((mass > 0) & exists, 1 / jnp.where(mass > 0, mass, 1), 0)
    return product * inverse[:, None], inverse


def choose(chain: Chain, parallel: bool, by_probabilities, by_wide):
    """`by_probabilities(scaled, forward)` where that is exact for the whole batch, `by_wide(chain)` otherwise."""
    if parallel:
        return by_wide(chain)
    scaled = scale(chain)
    forward = scaled_messages(scaled)
    never = lambda chain, forward: jnp.array(False)
    fixed = jax.lax.stop_gradient((chain, forward))
    lost = jax.lax.cond(any_in_batch(~mixes(chain.log_transition)), underflows, never, *fixed)
    use_wide = lambda chain, scaled, forward: by_wide(chain)
    use_probabilities = lambda chain, scaled, forward: by_probabilities(scaled, forward)
    return jax.lax.cond(any_in_batch(lost), use_wide, use_probabilities, chain, scaled, forward)


def filtered(chain: Chain, parallel: bool) -> tuple[Float[Array, "t k"], Scalar]:
    r"""$\log p(z_s \mid$ evidence up to $s)$ and the log-partition function."""

    def by_wide(chain):
        _, values, log_total = wide_messages(chain, parallel)
        return to_log(values), log_total

    def by_probabilities(_, forward):
        own = safe_log(forward.totals)
        beliefs = safe_log(forward.values) - jnp.where(own == -jnp.inf, 0, own)[:, None]
        return jnp.where(jnp.isnan(forward.totals)[:, None], jnp.nan, beliefs), forward.log_total

    return choose(chain, parallel, by_probabilities, by_wide)


def log_total(chain: Chain, parallel: bool) -> Scalar:
    """The log-partition function alone."""
    by_wide = lambda chain: wide_messages(chain, parallel).log_total
    return choose(chain, parallel, lambda _, forward: forward.log_total, by_wide)
