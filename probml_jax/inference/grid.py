r"""Belief propagation, mean field and Gibbs sampling on a grid with one table for all edges: shifts of whole arrays.

$$p(x) \propto \exp\Big(\sum_{ij} u_{ij}(x_{ij}) + \sum_{(a,b)} C(x_a, x_b)\Big)$$

over the edges of an `(h, w)` grid with k states per site; `field` is $u$, `(h, w, k)`, and `table` is the symmetric
$C$, `(k, k)`. Messages are `(4, h, w, k)`: what each site hears from above, below, left and right. On the border the
message is flat, so no edge needs a special case. Cost: $O(h w k^2)$ per sweep.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._special import any_in_batch, logsumexp, xlogy
from .._typing import Flag, PRNGKey, Scalar
from . import gibbs as chains
from .fixed_point import Rest, rest

_HIGHEST = jax.lax.Precision.HIGHEST


class Grid(NamedTuple):
    """Potentials of a grid."""

    field: Float[Array, "h w k"]
    table: Float[Array, "k k"]


class Sites(NamedTuple):
    """Beliefs of sites, the estimate (or bound) of the log-partition, and how the iteration ended."""

    single: Float[Array, "h w k"]
    log_partition: Scalar
    num_sweeps: Int[Array, ""]
    residual: Scalar


def _shifted(a: Float[Array, "h w k"], fill: float = 0.0) -> Float[Array, "4 h w k"]:
    """What stands above, below, left and right of every site; `fill` beyond the border."""
    h, w = a.shape[:2]
    padded = jnp.pad(a, ((1, 1), (1, 1), (0, 0)), constant_values=fill)
    views = padded[:h, 1:-1], padded[2:, 1:-1], padded[1:-1, :w], padded[1:-1, 2:]
    return jnp.stack(views)


def _from_neighbors(out: Float[Array, "4 h w k"], fill: Array) -> Float[Array, "4 h w k"]:
    """What each site hears, from what each site says to the one above, below, left and right of it."""
    up, down, left, right = out
    row, column = jnp.broadcast_to(fill, (1, *up.shape[1:])), jnp.broadcast_to(fill, (up.shape[0], 1, up.shape[2]))
    return jnp.stack(
        [
            jnp.concatenate([row, down[:-1]], axis=0),
            jnp.concatenate([up[1:], row], axis=0),
            jnp.concatenate([column, right[:, :-1]], axis=1),
            jnp.concatenate([left[:, 1:], column], axis=1),
        ]
    )


def _through(logits: Float[Array, "e h w k"], table: Float[Array, "k k"]) -> Float[Array, "e h w k"]:
    r"""$\log\sum_j e^{a_j + C_{ji}}$."""
    return logsumexp(logits[..., :, None] + table.reshape(1, 1, 1, *table.shape), axis=-2)


def _normalized(message: Array) -> Array:
    total = logsumexp(message, axis=-1)[..., None]
    return message - jnp.where(total == -jnp.inf, 0, total)


class Rules(NamedTuple):
    """How messages are made: edge weights (vertical, horizontal; 1 is belief propagation), the operation, damping."""

    weights: tuple[float, float] = (1.0, 1.0)
    maximize: bool = False
    damping: float = 0.0


def _edge_weights(rules: Rules, dtype) -> Float[Array, "4 1 1 1"]:
    vertical, horizontal = rules.weights
    return jnp.asarray([vertical, vertical, horizontal, horizontal], dtype).reshape(4, 1, 1, 1)


def _outgoing(messages: Array, grid: Grid, rules: Rules) -> Float[Array, "4 h w k"]:
    """What each site says to the neighbor in each direction: everything but what that neighbor told it.

    Messages over a table without `-inf` are finite, so they can be taken back by subtraction; a field of `-inf` stays.
    """
    total = grid.field + jnp.sum(_edge_weights(rules, grid.field.dtype) * messages, axis=0)
    return total[None] - jnp.where(messages == -jnp.inf, 0, messages)


def update(messages: Float[Array, "4 h w k"], grid: Grid, rules: Rules) -> Float[Array, "4 h w k"]:
    """One synchronous sweep, undamped."""
    said = _outgoing(messages, grid, rules)
    vertical, horizontal = rules.weights
    if rules.maximize:
        through = lambda a, c: jnp.max(a[..., :, None] + c.reshape(1, 1, 1, *c.shape), axis=-2)
    else:
        through = _through
    if vertical == horizontal:
        passed = through(said, grid.table / vertical)
    else:
        parts = through(said[:2], grid.table / vertical), through(said[2:], grid.table / horizontal)
        passed = jnp.concatenate(parts)
    flat = jnp.full((1, 1, said.shape[-1]), -np.log(said.shape[-1]), said.dtype)
    return _from_neighbors(_normalized(passed), flat)


def _iterate(messages: Array, grid: Grid, rules: Rules) -> tuple[Array, Array]:
    new = update(messages, grid, rules)
    if rules.damping:
        both = (new > -jnp.inf) & (messages > -jnp.inf)
        mixed = (1 - rules.damping) * jnp.where(both, new, 0) + rules.damping * jnp.where(both, messages, 0)
        new = _normalized(jnp.where(both, mixed, new))
    return new, jnp.max(jnp.abs(jnp.exp(new) - jnp.exp(messages)))


def _inner(probs: Array, scores: Array) -> Scalar:
    return jnp.sum(jnp.where(probs > 0, probs * jnp.where(probs > 0, scores, 0), 0))


def _pairs(messages: Array, grid: Grid, rules: Rules) -> tuple[Float[Array, "_ _ k k"], ...]:
    """Beliefs of vertical edges (a site and the one below it) and of horizontal ones."""
    up, down, left, right = _outgoing(messages, grid, rules)
    vertical, horizontal = rules.weights

    def joint(first, second, table):
        logits = first[..., :, None] + second[..., None, :] + table.reshape(1, 1, *table.shape)
        total = logsumexp(logits, axis=(-2, -1))[..., None, None]
        return jnp.exp(logits - jnp.where(total == -jnp.inf, 0, total))

    return (
        joint(down[:-1], up[1:], grid.table / vertical),
        joint(right[:, :-1], left[:, 1:], grid.table / horizontal),
    )


def _read(messages: Array, grid: Grid, rules: Rules) -> tuple[Array, Scalar]:
    logits = grid.field + jnp.sum(_edge_weights(rules, grid.field.dtype) * messages, axis=0)
    single = jnp.exp(_normalized(logits))
    alone = -jnp.sum(xlogy(single, single), axis=-1)
    estimate = _inner(single, grid.field) + jnp.sum(alone)
    ends = (alone[:-1] + alone[1:], alone[:, :-1] + alone[:, 1:])
    for pair, both, weight in zip(_pairs(messages, grid, rules), ends, rules.weights, strict=True):
        together = -jnp.sum(xlogy(pair, pair), axis=(-2, -1))
        table = jnp.broadcast_to(grid.table.reshape(1, 1, *grid.table.shape), pair.shape)
        estimate = estimate + _inner(pair, table) - weight * jnp.sum(both - together)
    impossible = jnp.any(jnp.max(logits, axis=-1) == -jnp.inf)
    return single, jnp.where(impossible, -jnp.inf, estimate)


# ------------------------------------------------------------------ messages as probabilities, where they are exact


class Weights(NamedTuple):
    """The exponentials of a field (each site's largest is 1) and of a table (its largest entry is 1), labels first."""

    field: Float[Array, "k h w"]
    table: Float[Array, "k k"]


def _is_mild(grid: Grid) -> Flag:
    """Whether products of three messages and a field, as probabilities, lose nothing that could matter.

    With r the range of the table a message is at least $e^{-r}/k$ everywhere, so a product of three keeps $e^{-3r}$
    where the field is largest; what underflows is less than $e^{-87}$ in float32, and the table lifts it by $e^r$.
    """
    lowest = float(-np.log(np.finfo(grid.table.dtype).tiny))
    digits = float(-np.log(np.finfo(grid.table.dtype).eps))
    spread = jnp.max(grid.table) - jnp.min(grid.table)
    return 4 * spread + 4 * np.log(grid.table.shape[0]) + digits < lowest


def _weights(grid: Grid) -> Weights:
    highest = jax.lax.stop_gradient(jnp.max(grid.field, axis=-1, keepdims=True))
    field = jnp.exp(grid.field - jnp.where(highest == -jnp.inf, 0, highest))
    table = jnp.exp(grid.table - jax.lax.stop_gradient(jnp.max(grid.table)))
    return Weights(jnp.moveaxis(field, -1, 0), table)


def _scaled_update(heard: Float[Array, "4 k h w"], weights: Weights) -> Float[Array, "4 k h w"]:
    """One synchronous sweep without exponentials or logarithms; labels are unrolled, sites are the vector."""
    above, below, left, right = heard
    k = weights.table.shape[0]
    column, row = weights.field * above * below, weights.field * left * right
    # what each site says upward, downward, leftward, rightward: everything but what it heard from there
    said = (row * below, row * above, column * right, column * left)

    def pass_on(products):
        sums = [sum(weights.table[i, j] * products[j] for j in range(k)) for i in range(k)]
        total = sum(sums)
        inverse = jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1), 0)
        return jnp.stack([jnp.where(total > 0, one * inverse, 1 / k) for one in sums])

    up, down, left, right = (pass_on(products) for products in said)
    edge = lambda a, before, axis: jnp.pad(
        a, [(before, 1 - before) if i == axis else (0, 0) for i in range(3)], constant_values=1 / k
    )
    return jnp.stack(
        [edge(down[:, :-1], 1, 1), edge(up[:, 1:], 0, 1), edge(right[:, :, :-1], 1, 2), edge(left[:, :, 1:], 0, 2)]
    )


def _scaled_iterate(heard: Array, weights: Weights) -> tuple[Array, Array]:
    new = _scaled_update(heard, weights)
    return new, jnp.max(jnp.abs(new - heard))


def _rest_scaled(grid: Grid, max_sweeps: int, tolerance: float) -> Rest:
    h, w, k = grid.field.shape
    start = jnp.full((4, k, h, w), 1 / k, grid.field.dtype)
    found = rest(_weights(grid), start, _scaled_iterate, _scaled_update, max_sweeps, tolerance)
    return found._replace(state=jnp.log(jnp.moveaxis(found.state, 1, -1)))


def _rest_in_logs(grid: Grid, rules: Rules, max_sweeps: int, tolerance: float) -> Rest:
    h, w, k = grid.field.shape
    start = jnp.full((4, h, w, k), -np.log(k), grid.field.dtype)
    iterate, condition = functools.partial(_iterate, rules=rules), functools.partial(update, rules=rules)
    return rest(grid, start, iterate, condition, max_sweeps, tolerance)


def propagate(grid: Grid, rules: Rules, max_sweeps: int, tolerance: float) -> Sites:
    """Belief propagation until messages rest; derivatives are those of the resting point.

    Plain sum-product runs on probabilities wherever that is exact, everything else in log space. The table must be
    finite (`-inf` in the field is fine); see `belief_propagation` for hard constraints.
    """
    in_logs = lambda grid: _rest_in_logs(grid, rules, max_sweeps, tolerance)
    if rules == Rules():
        harsh = any_in_batch(~_is_mild(jax.lax.stop_gradient(grid)))
        found = jax.lax.cond(harsh, in_logs, lambda grid: _rest_scaled(grid, max_sweeps, tolerance), grid)
    else:
        found = in_logs(grid)
    single, estimate = _read(found.state, grid, rules)
    return Sites(single, estimate, found.num_steps, found.residual)


def comb_weights(height: int, width: int) -> tuple[float, float]:
    """How often vertical and horizontal edges occur in random combs: all rows and one column, or the converse."""
    vertical = 0.5 * (1 + 1 / width) if width > 1 else 1.0
    horizontal = 0.5 * (1 + 1 / height) if height > 1 else 1.0
    return vertical, horizontal


# ------------------------------------------------------------------ two colors of a checkerboard


def _checkerboard(height: int, width: int) -> Bool[Array, "h w 1"]:
    return jnp.asarray((np.indices((height, width)).sum(0) % 2 == 0)[..., None])


def _mean_logits(q: Float[Array, "h w k"], grid: Grid) -> Float[Array, "h w k"]:
    around = jnp.sum(_shifted(q), axis=0)
    return grid.field + jnp.tensordot(around, grid.table, 1, precision=_HIGHEST)


def _ascend(q: Float[Array, "h w k"], grid: Grid) -> Float[Array, "h w k"]:
    even = _checkerboard(*q.shape[:2])
    for mine in (even, ~even):
        q = jnp.where(mine, jnp.exp(_normalized(_mean_logits(q, grid))), q)
    return q


def _climb(q: Array, grid: Grid) -> tuple[Array, Array]:
    new = _ascend(q, grid)
    return new, jnp.max(jnp.abs(new - q))


def bound(q: Float[Array, "h w k"], grid: Grid) -> Scalar:
    """Mean field's lower bound at any product of sites."""
    meet = lambda a, b: jnp.einsum("hwi,ij,hwj->", a, grid.table, b, precision=_HIGHEST)
    edges = meet(q[:-1], q[1:]) + meet(q[:, :-1], q[:, 1:])
    return _inner(q, grid.field) + edges - jnp.sum(xlogy(q, q))


def mean_field(grid: Grid, start: Float[Array, "h w k"], max_sweeps: int, tolerance: float) -> Sites:
    """Coordinate ascent by colors of a checkerboard: every sweep raises the bound."""
    found = rest(grid, start, _climb, _ascend, max_sweeps, tolerance)
    return Sites(found.state, bound(found.state, grid), found.num_steps, found.residual)


def log_score(states: Int[Array, "h w"], grid: Grid) -> Scalar:
    """The log of the product of all potentials at one labeling."""
    own = jnp.take_along_axis(grid.field, states[..., None], axis=-1)
    vertical, horizontal = grid.table[states[:-1], states[1:]], grid.table[states[:, :-1], states[:, 1:]]
    return jnp.sum(own) + jnp.sum(vertical) + jnp.sum(horizontal)


def conditional_logits(states: Int[Array, "h w"], grid: Grid) -> Float[Array, "h w k"]:
    """Log potential of each label of each site, given the labels around it."""
    labels = jnp.arange(grid.field.shape[-1], dtype=states.dtype).reshape(1, 1, -1)
    return _mean_logits((states[..., None] == labels).astype(grid.field.dtype), grid)


def gibbs_sweep(key: PRNGKey, states: Int[Array, "h w"], grid: Grid) -> Int[Array, "h w"]:
    """Every site drawn once given its neighbors, one color after the other; one uniform number per site."""
    h, w, k = grid.field.shape
    levels = jr.uniform(key, (h, w, 1), grid.field.dtype)
    even = _checkerboard(h, w)[..., 0]
    for mine in (even, ~even):
        logits = conditional_logits(states, grid)
        weights = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
        rising = [weights[..., :1]]
        for j in range(1, k):
            rising.append(rising[-1] + weights[..., j : j + 1])
        passed = jnp.concatenate(rising[:-1], axis=-1) <= levels * rising[-1] if k > 1 else jnp.zeros((h, w, 0))
        drawn = jnp.sum(passed, axis=-1).astype(states.dtype)
        states = jnp.where(mine, drawn, states)
    return states


def gibbs(key: PRNGKey, grid: Grid, num_chains: int, burn_in: int, num_sweeps: int) -> chains.Chains:
    """Chains started from the field alone."""
    begin, go = jr.split(key)
    start = jax.vmap(lambda k: jr.categorical(k, grid.field).astype(jnp.int32))(jr.split(begin, num_chains))
    sweep = functools.partial(gibbs_sweep, grid=grid)
    scored = functools.partial(log_score, grid=grid)
    return chains.run(go, start, sweep, scored, grid.field.shape[-1], burn_in, num_sweeps)
