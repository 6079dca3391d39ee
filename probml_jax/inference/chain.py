r"""Exact inference in one chain of discrete states, from arrays to arrays.

$$p(z_{1:t}) \propto e^{a(z_1)} \prod_{s>1} e^{T_s(z_{s-1}, z_s)} \prod_s e^{l_s(z_s)}$$

Every function takes `log_initial (k,)`, `log_transition (k, k)` or one matrix per transition `(t-1, k, k)`,
`log_likelihood (t, k)` and `mask (t,)`; none has to be normalized, and `-inf` forbids a state or a transition.
A step with `mask = False` has no evidence, and steps after the last `True` do not exist: padding changes nothing, its
marginals are zero and its states -1. A batch of chains is `vmap`.

What no path can explain has log-partition `-inf`, marginals of zero and states of -1. A NaN among the potentials is an
error made before: it comes out as NaN (the filter's from there on), and as states of -1.

Sequential scans by default; `parallel=True` uses associative scans of depth $O(\log t)$ at $k$ times the work, for
accelerators. Cost, where nothing else is said: $O(t k^2)$ time, $O(t k)$ memory.
Reference: Murphy (2012), section 17.4; Särkkä and García-Fernández (2021) for the parallel form.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from .._special import logsumexp, xlogy
from .._typing import PRNGKey, Scalar
from .._validate import check
from .messages import (
    Chain,
    Scaled,
    ScaledMessages,
    as_potentials,
    choose,
    filtered,
    log_total,
    make_chain,
    scaled_future,
    single_marginals,
)
from .paths import k_best as k_best
from .paths import path_score
from .paths import sample as sample
from .paths import viterbi as viterbi
from .semiring import LOG
from .wide_beliefs import wide_expectations

_HIGHEST = jax.lax.Precision.HIGHEST


class Beliefs(NamedTuple):
    """The gradient of the log-partition function, with its value."""

    log_partition: Scalar
    single: Float[Array, "t k"]
    """$p(z_s = i)$; zero for steps that do not exist."""
    pairs: Float[Array, "*steps k k"]
    """$p(z_s = i, z_{s+1} = j)$, shaped like `log_transition`: summed over steps when there is one matrix."""


# ------------------------------------------------------------------ forward-backward


def _by_probabilities(scaled: Scaled, forward: ScaledMessages) -> Beliefs:
    exists, matrices = scaled.exists, scaled.matrices
    f, totals, log_partition = forward
    after, g, _ = scaled_future(scaled, totals, jnp.ones_like(f[0]))
    single, inverse = single_marginals(f, after, exists)
    if matrices.ndim == 3:
        left = f[:-1] * jnp.where(exists[1:], inverse[:-1], 0)[:, None]
        return Beliefs(log_partition, single, matrices * left[:, :, None] * g[1:, None, :])
    # whole arrays, the last step without a successor: slices of them make a product of half the speed
    followed = jnp.append(exists[1:], False)
    left, right = f * jnp.where(followed, inverse, 0)[:, None], jnp.roll(g, -1, axis=0)
    pairs = matrices * jnp.einsum("si,sj->ij", left, right, precision=_HIGHEST)
    return Beliefs(log_partition, single, pairs)


def _by_wide(chain: Chain, parallel: bool) -> Beliefs:
    return Beliefs(*wide_expectations(chain, parallel))


def _beliefs(chain: Chain, parallel: bool) -> Beliefs:
    return _possible(choose(chain, parallel, _by_probabilities, lambda chain: _by_wide(chain, parallel)))


def wide_beliefs(chain: Chain) -> Beliefs:
    """Beliefs by numbers with exponents of their own, which is slower and always exact."""
    return _possible(_by_wide(chain, False))


def _possible(result: Beliefs) -> Beliefs:
    """An impossible chain has no posterior; NaN stays NaN."""
    possible = result.log_partition > -jnp.inf
    nothing = jnp.where(jnp.isnan(result.log_partition), jnp.nan, 0).astype(result.single.dtype)
    keep = lambda a: jnp.where(possible, a, nothing)
    return Beliefs(result.log_partition, keep(result.single), keep(result.pairs))


@functools.partial(jax.custom_jvp, nondiff_argnums=(4,))
def _log_partition(log_initial, log_transition, log_likelihood, exists, parallel: bool) -> Scalar:
    return log_total(Chain(log_initial, log_transition, log_likelihood, exists), parallel)


@_log_partition.defjvp
def _(parallel, primals, tangents):
    """Fisher's identity: the derivative is the expectation of the potentials' derivatives.

    It is linear in the tangents, so reverse mode is one backward pass; and made of ordinary operations, so that it
    can be differentiated again.
    """
    chain = Chain(*primals)
    value, single, pairs = _beliefs(chain, parallel)
    initial, transition, likelihood, _ = tangents
    slope = jnp.sum(single[0] * initial) + jnp.sum(pairs * transition) + jnp.sum(single * likelihood)
    return value, slope


# ------------------------------------------------------------------ what a user asks of a chain


def log_partition(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> Scalar:
    r"""$\log \sum_z \tilde p(z)$: the log-likelihood of an HMM, the normalizer of a CRF.

    Value and gradient together cost about three times the value (Fisher's identity). An impossible chain gives
    `-inf` with zero gradient. Right in float32: by probabilities where these lose nothing, by numbers with exponents of
    their own elsewhere.

    >>> half = jnp.log(jnp.array([0.5, 0.5]))
    >>> stay = jnp.log(jnp.array([[0.7, 0.3], [0.3, 0.7]]))
    >>> umbrella = jnp.log(jnp.array([[0.9, 0.2], [0.9, 0.2], [0.1, 0.8], [0.9, 0.2], [0.9, 0.2]]))
    >>> round(float(log_partition(half, stay, umbrella)), 5)
    -3.3725
    """
    return _log_partition(*make_chain(log_initial, log_transition, log_likelihood, mask), parallel)


def beliefs(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> Beliefs:
    """Log-partition, single marginals and expected transitions in one forward and one backward pass.

    The pairs are summed over steps when there is one transition matrix, so memory stays O(t k): what EM needs.
    """
    return _beliefs(make_chain(log_initial, log_transition, log_likelihood, mask), parallel)


def marginals(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> tuple[Float[Array, "t k"], Float[Array, "steps k k"]]:
    r"""Single $p(z_s)$ and two-slice marginals $p(z_s, z_{s+1})$; memory O(t k^2).

    >>> flat = jnp.zeros((3, 2))
    >>> single, pairs = marginals(flat[0], jnp.array([[0.0, -jnp.inf], [0.0, 0.0]]), flat)
    >>> [round(float(p), 2) for p in single[0]]
    [0.25, 0.75]
    """
    chain = make_chain(log_initial, log_transition, log_likelihood, mask)
    t, k = chain.log_likelihood.shape
    each = chain._replace(log_transition=jnp.broadcast_to(chain.log_transition, (t - 1, k, k)))
    _, single, pairs = _beliefs(each, parallel)
    return single, pairs


def expected_counts(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> tuple[Float[Array, "k"], Float[Array, "k k"], Float[Array, "k"]]:
    """Expected first state `(k,)`, number of transitions `(k, k)` and number of visits `(k,)` of the chain."""
    _, single, pairs = beliefs(log_initial, log_transition, log_likelihood, mask, parallel)
    return single[0], pairs if pairs.ndim == 2 else jnp.sum(pairs, axis=0), jnp.sum(single, axis=0)


def filter(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> Float[Array, "t k"]:
    r"""$p(z_s \mid$ evidence up to $s)$ at every step; zero where no step exists or nothing is possible."""
    chain = make_chain(log_initial, log_transition, log_likelihood, mask)
    return jnp.where(chain.exists[:, None], jnp.exp(filtered(chain, parallel)[0]), 0)


def smooth(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> Float[Array, "t k"]:
    r"""$p(z_s \mid$ all evidence$)$ at every step; zero where no step exists or nothing is possible."""
    return beliefs(log_initial, log_transition, log_likelihood, mask, parallel).single


def entropy(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> Scalar:
    r"""Entropy of the distribution over paths, $\sum_s H(z_{s+1} \mid z_s) + H(z_1)$, term by term.

    No difference of large numbers (as in $\log Z - E\log\tilde p$), so it is right in float32. Memory O(t k^2).
    """
    single, pairs = marginals(log_initial, log_transition, log_likelihood, mask, parallel)
    conditional = pairs / jnp.where(single > 0, single, 1)[:-1, :, None]
    value = -jnp.sum(xlogy(single[0], single[0])) - jnp.sum(xlogy(pairs, conditional))
    return jnp.where(jnp.isnan(single[0, 0]), jnp.nan, value)


def kl(first: tuple[Any, ...], second: tuple[Any, ...], parallel: bool = False) -> Scalar:
    r"""$KL(p \| q)$ between the path distributions of two chains, each given as the arguments of `log_partition`.

    Infinite when the first chain can take a path that the second forbids; NaN when the first can take none. Both must
    have the same steps: `ValueError`, or NaN in compiled code, when their masks end at different ones.
    """
    p = make_chain(*(*first, None)[:4])
    q = make_chain(*(*second, None)[:4])
    if p.log_likelihood.shape != q.log_likelihood.shape:
        sizes = p.log_likelihood.shape, q.log_likelihood.shape
        raise ValueError(f"kl needs two chains over the same paths; theirs are of (t, k) = {sizes[0]} and {sizes[1]}.")
    if p.varies != q.varies:
        raise ValueError("kl needs two chains of the same kind: one matrix each, or one matrix per transition each.")
    same = p.length == q.length
    check(same, "kl needs two chains over the same paths; their masks end at different steps.")
    log_p, single, pairs = _beliefs(p, parallel)
    log_q = _log_partition(*q, parallel)
    ratio = lambda mass, a, b: jnp.sum(jnp.where(mass > 0, mass * (a - jnp.where(mass > 0, b, 0)), 0))
    gain = ratio(single[0], p.log_initial, q.log_initial) + ratio(pairs, p.log_transition, q.log_transition)
    gain = gain + ratio(single, p.log_likelihood, q.log_likelihood) - log_p
    value = jnp.where(log_q == -jnp.inf, jnp.inf, gain + log_q)
    return jnp.where(same & (log_p > -jnp.inf), value, jnp.nan)


def predict(belief: ArrayLike | Sequence[float], log_transition: ArrayLike, steps: int) -> Float[Array, "steps k"]:
    r"""$p(z_{s+1}), \dots, p(z_{s+h})$ from the belief $p(z_s)$; a matrix per step `(steps, k, k)` is allowed.

    The first row is one step after the belief. Transitions must be normalized.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1; got {steps}.")
    start, moves = as_potentials(belief=belief, log_transition=log_transition)
    if moves.ndim == 3 and moves.shape[0] != steps:
        raise ValueError(f"log_transition has {moves.shape[0]} matrices for {steps} steps.")

    def move(belief, matrix):
        belief = belief @ jnp.exp(moves if matrix is None else matrix)
        return belief, belief

    return jax.lax.scan(move, start, moves if moves.ndim == 3 else None, length=steps)[1]


def step(
    log_belief: Float[Array, "k"], log_transition: Float[Array, "k k"], log_likelihood: Float[Array, "k"]
) -> tuple[Float[Array, "k"], Scalar]:
    r"""One step of the filter, for data that arrive one by one.

    `log_belief` is $\log p(z_s \mid x_{1:s})$; comes back $\log p(z_{s+1} \mid x_{1:s+1})$ and
    $\log p(x_{s+1} \mid x_{1:s})$. Start with `log_belief = log_initial + log_likelihood`, normalized, for the first.
    """
    joint = LOG.push(log_belief[None], log_transition)[0] + log_likelihood
    total = logsumexp(joint)
    return joint - jnp.where(total == -jnp.inf, 0, total), total


def autoregress(
    draw: Callable[[Array, PRNGKey, Array], Array], past: Shaped[Array, "lags d"], keys: Array, states: Int[Array, "t"]
) -> Shaped[Array, "t d"]:
    """Observations drawn one after another, each given those before it: `draw(past, key, state)`, latest first."""

    def advance(past, inputs):
        new = draw(past, *inputs)
        return jnp.concatenate([new[None], past[:-1]]), new

    return jax.lax.scan(advance, past, (keys, states))[1]


def path_log_score(
    path: Int[Array, "t"],
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
) -> Scalar:
    """Log of the product of one path's potentials; subtract `log_partition` for its log-probability."""
    return path_score(make_chain(log_initial, log_transition, log_likelihood, mask), path)


def reachability(edges: Bool[Array, "k k"]) -> Bool[Array, "k k"]:
    """Whether j can be reached from i along edges, in zero or more steps, by repeated squaring."""
    k = edges.shape[0]
    reach = edges | jnp.eye(k, dtype=bool)
    for _ in range(max(k - 1, 1).bit_length()):
        reach = (reach.astype(jnp.float32) @ reach.astype(jnp.float32)) > 0
    return reach


def stationary(matrix: Float[Array, "k k"], closed: Bool[Array, "k"]) -> Float[Array, "k"]:
    r"""The solution of $\pi P = \pi$, $\sum\pi = 1$ that lives on the states of the one closed class."""
    k = matrix.shape[0]
    inside = closed[:, None] & closed[None, :]
    balance = jnp.where(inside, matrix.T, 0) - jnp.eye(k, dtype=matrix.dtype)
    # adding the sum-to-one equation to every equation of the class makes the system regular
    system = balance + jnp.where(closed, 1, 0)[None, :] * jnp.where(closed, 1, 0)[:, None]
    solution = jnp.linalg.solve(system, jnp.where(closed, 1, 0).astype(matrix.dtype))
    return solution / jnp.sum(solution)
