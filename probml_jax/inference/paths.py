"""Paths through a chain of discrete states: the best, the K best, and samples. All are one way back through maps.

Given where a path is at step s+1, where was it at step s? For every possible answer to the first the second is a
lookup, so a way back is a composition of maps from states to states: a reverse scan, or an associative one.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Int

from .._typing import Flag, PRNGKey, Scalar
from .messages import Chain, filtered, log_messages, make_chain, pairwise_sum
from .semiring import MAX, top

_UNROLLED = range(9, 65)  # numbers of states for which a search for the maximum does not vectorize


def _way_back(maps: Int[Array, "t m"], start: Int[Array, "p"], parallel: bool) -> Int[Array, "t p"]:
    """Where each path is at every step, from where it is after the last one."""
    if not parallel:
        return jax.lax.scan(lambda here, before: (before[here],) * 2, start, maps, reverse=True)[1]
    later_then_earlier = lambda later, earlier: jnp.take_along_axis(earlier, later, axis=1)
    return jax.lax.associative_scan(later_then_earlier, maps, reverse=True)[:, start]


def _best_before(scores: Float[Array, "s k"], moves: Float[Array, "_ k k"]) -> Int[Array, "s k"]:
    """For every step and every state after it the best state before it; the lowest of equals."""
    k = scores.shape[1]
    if k not in _UNROLLED:
        return jnp.argmax(scores[:, :, None] + moves, axis=1).astype(jnp.int32)
    # one state after another: plain comparisons of vectors, up to ten times faster than a search for the maximum
    best = scores[:, :1] + moves[:, 0]
    where = jnp.zeros_like(best, jnp.int32)
    for i in range(1, k):
        rival = scores[:, i : i + 1] + moves[:, i]
        best, where = jnp.maximum(best, rival), jnp.where(rival > best, i, where)
    return where


def _trace(chain: Chain, scores: Float[Array, "t k"], parallel: bool) -> Int[Array, "t"]:
    """The path that takes, from the last step back, the state of highest score given its successor."""
    t, k = scores.shape
    moves = chain.log_transition if chain.varies else chain.log_transition[None]
    step = jnp.arange(t)[:, None]
    inner = jnp.concatenate([_best_before(scores[:-1], moves), jnp.zeros((1, k), jnp.int32)])
    final = jnp.argmax(scores, axis=1).astype(jnp.int32)[:, None]
    stay = jnp.arange(k, dtype=jnp.int32)[None, :]
    maps = jnp.where(step < chain.length - 1, inner, jnp.where(step == chain.length - 1, final, stay))
    path = _way_back(maps, jnp.zeros(1, jnp.int32), parallel)[:, 0]
    return jnp.where(chain.exists, path, -1)


def path_score(chain: Chain, path: Int[Array, "t"]) -> Scalar:
    """Log of the product of a path's potentials, summed pairwise; the path may hold -1 where no step exists."""
    t = path.shape[0]
    here = jnp.where(chain.exists, path, 0)
    local = chain.log_likelihood[jnp.arange(t), here]
    moves = chain.log_transition if chain.varies else chain.log_transition[None]
    index = jnp.arange(t - 1) if chain.varies else jnp.zeros(t - 1, int)
    first = chain.log_initial[here[:1]]
    arrive = jnp.concatenate([first, moves[index, here[:-1], here[1:]]])
    return pairwise_sum(jnp.where(chain.exists, local + arrive, 0))


def viterbi(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> tuple[Int[Array, "t"], Scalar]:
    r"""The most probable path $\arg\max_z \log \tilde p(z)$ and its score.

    A chain without any possible path gives score `-inf` and a path of -1, one with a NaN potential NaN and -1. Ties go
    to the lower state.
    Reference: Murphy (2012), section 17.4.4.

    >>> half = jnp.log(jnp.array([0.5, 0.5]))
    >>> stay = jnp.log(jnp.array([[0.7, 0.3], [0.3, 0.7]]))
    >>> umbrella = jnp.log(jnp.array([[0.9, 0.2], [0.9, 0.2], [0.1, 0.8], [0.9, 0.2], [0.9, 0.2]]))
    >>> path, score = viterbi(half, stay, umbrella)
    >>> path.tolist(), round(float(score), 4)
    ([0, 0, 1, 0, 0], -4.459)
    """
    chain = make_chain(log_initial, log_transition, log_likelihood, mask)
    values = log_messages(MAX, chain, parallel).values
    path = _trace(chain, values[:, 0], parallel)
    score = jnp.where(_is_broken(chain, values), jnp.nan, path_score(chain, path))
    return jnp.where(score > -jnp.inf, path, -1), score


def _is_broken(chain: Chain, values: Float[Array, "t r k"]) -> Flag:
    """Whether some potential is NaN: every message after it is, for their normalizers are, and so the last one."""
    return jnp.any(jnp.isnan(values[jnp.maximum(chain.length - 1, 0)])) & (chain.length > 0)


def sample(
    key: PRNGKey,
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
) -> Int[Array, "t"]:
    """A path drawn from the chain's distribution: filter forward, sample backward. Many paths: `vmap` over keys.

    A chain without any possible path, or with a NaN potential, gives -1 everywhere.
    """
    chain = make_chain(log_initial, log_transition, log_likelihood, mask)
    beliefs, log_total = filtered(chain, parallel)
    noise = jr.gumbel(key, beliefs.shape, beliefs.dtype)
    return jnp.where(log_total > -jnp.inf, _trace(chain, beliefs + noise, parallel), -1)


def k_best(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    log_likelihood: ArrayLike,
    mask: ArrayLike | None = None,
    parallel: bool = False,
    *,
    k: int,
) -> tuple[Int[Array, "paths t"], Float[Array, "paths"]]:
    """The k most probable paths, best first, and their scores.

    Where fewer paths are possible the rest is -1 with score `-inf`; with a NaN potential all is -1 with NaN.
    Cost: O(t s^2 k) time and O(t s k) memory for s states.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}.")
    chain = make_chain(log_initial, log_transition, log_likelihood, mask)
    values = log_messages(top(k), chain, parallel).values
    t, _, s = values.shape
    moves = jnp.broadcast_to(chain.log_transition, (t - 1, s, s))
    ranked = jax.vmap(lambda m, move: _ranked(m[:, :, None] + move[None], k))(values[:-1], moves)
    step = jnp.arange(t)[:, None]
    inner = jnp.concatenate([ranked.reshape(t - 1, k * s), jnp.zeros((1, k * s), jnp.int32)])
    final = jax.vmap(lambda m: _ranked(m.reshape(-1, 1), k)[:, 0])(values)
    final = jnp.concatenate([final, jnp.zeros((t, k * s - k), jnp.int32)], axis=1)
    stay = jnp.arange(k * s, dtype=jnp.int32)[None, :]
    maps = jnp.where(step < chain.length - 1, inner, jnp.where(step == chain.length - 1, final, stay))
    paths = _way_back(maps, jnp.arange(k, dtype=jnp.int32), parallel).T % s
    paths = jnp.where(chain.exists[None], paths, -1)
    scores = jax.vmap(lambda path: path_score(chain, path))(paths)
    possible = jax.vmap(jnp.max)(_final_scores(values, chain, k)) > -jnp.inf
    possible = jnp.where(chain.length > 0, possible, jnp.arange(k) == 0)  # an empty chain has one path
    scores = jnp.where(possible, scores, -jnp.inf)
    scores = jnp.where(_is_broken(chain, values), jnp.nan, scores)
    order = jnp.argsort(-scores, stable=True)
    scores = scores[order]
    return jnp.where((scores > -jnp.inf)[:, None], paths[order], -1), scores


def _ranked(scores: Float[Array, "*m j"], count: int) -> Int[Array, "count j"]:
    """For each j the flat indices of its `count` highest scores, best first."""
    flat = scores.reshape(-1, scores.shape[-1]).T
    short = max(count - flat.shape[1], 0)
    flat = jnp.concatenate([flat, jnp.full((flat.shape[0], short), -jnp.inf, flat.dtype)], axis=1)
    index = jax.lax.top_k(flat, count)[1].T
    return jnp.minimum(index, scores.size // scores.shape[-1] - 1).astype(jnp.int32)


def _final_scores(values: Float[Array, "t r s"], chain: Chain, count: int) -> Float[Array, "count 1"]:
    """The relative scores of the `count` best paths at the chain's last step."""
    last = values[jnp.maximum(chain.length - 1, 0)].reshape(-1)
    return jax.lax.top_k(last, count)[0][:, None]
