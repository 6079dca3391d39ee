r"""Loopy belief propagation on a graph of tables: sum- and max-product, and the tree-reweighted kind.

With a weight $\rho_f$ per table (1 for belief propagation), messages from tables to variables are at rest when

$$m_{f\to v}(x_v) = \log\sum_{x_f \setminus x_v}
\exp\Big(\theta_f(x_f)/\rho_f + \sum_{u\in f\setminus v} n_{u\to f}(x_u)\Big), \qquad
n_{v\to f} = u_v + \sum_g \rho_g m_{g\to v} - m_{f\to v},$$

and the estimate of the log-partition is
$\sum_f \langle b_f,\theta_f\rangle + \sum_v (\langle b_v, u_v\rangle + H_v) - \sum_f \rho_f (\sum_{v\in f} H_v - H_f)$.
Exact on trees; where tables forbid (`-inf`) messages do, exactly. All messages of one shape are one array.

Cost: one sweep visits every entry of every table once per axis.
Reference: Yedidia, Freeman and Weiss (2005); Wainwright, Jaakkola and Willsky (2005); Wainwright and Jordan (2008).
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._special import logsumexp, xlogy
from .._typing import Scalar
from .contraction import Structure
from .fixed_point import Rest, rest
from .groups import Group, gather_to_variables, group, look, map_axes, stack, unary_potentials

Messages = tuple[tuple[Float[Array, "_ _"], ...], ...]


class Potentials(NamedTuple):
    """Unary potentials by variable, stacked tables by group, and a weight per table."""

    unary: Float[Array, "v k"]
    tables: tuple[Float[Array, "..."], ...]
    weights: tuple[Float[Array, "_"], ...]


class Settings(NamedTuple):
    """What is fixed of a run: the graph, the operation, how far messages move, and which of them do."""

    structure: Structure
    maximize: bool
    damping: float
    residual_schedule: bool


class Propagation(NamedTuple):
    """Beliefs of variables (padded with zeros) and of tables by group, the estimate, and how the iteration ended."""

    single: Float[Array, "v k"]
    joint: tuple[Float[Array, "..."], ...]
    log_partition: Scalar
    num_sweeps: Int[Array, ""]
    residual: Scalar


def potentials(
    structure: Structure, tables: Sequence[Array], unary: Sequence[Array], weights: np.ndarray | None = None
) -> Potentials:
    """Tables and vectors in the form that messages use; `weights` one per table (all 1 by default)."""
    own = unary_potentials(structure, tables, unary)
    weights = np.ones(len(tables)) if weights is None else weights
    each = tuple(jnp.asarray(weights[list(g.members)], own.dtype) for g in group(structure))
    return Potentials(own, stack(structure, tables), each)


def _normalized(message: Float[Array, "f k"]) -> Float[Array, "f k"]:
    total = logsumexp(message, axis=1)
    return message - jnp.where(total == -jnp.inf, 0, total)[:, None]


def _weigh(weights: Float[Array, "f"], message: Array) -> Array:
    return weights.reshape(-1, *[1] * (message.ndim - 1)) * message


def to_tables(groups: Sequence[Group], given: Potentials, messages: Messages) -> tuple[Float[Array, "v k"], Messages]:
    """Log beliefs of variables, and what each variable says to each table: everything but what that table told it.

    What is impossible is counted apart: `-inf` cannot be taken back by subtraction.
    """
    possible = lambda m: m > -jnp.inf
    finite = map_axes(groups, lambda i, g, j: jnp.where(possible(messages[i][j]), messages[i][j], 0))
    blocked = map_axes(groups, lambda i, g, j: (~possible(messages[i][j])).astype(given.unary.dtype))
    weighed = map_axes(groups, lambda i, g, j: _weigh(given.weights[i], finite[i][j]))
    free = given.unary > -jnp.inf
    total = jnp.where(free, given.unary, 0) + gather_to_variables(groups, weighed, given.unary.shape)
    count = jnp.where(free, 0, 1) + gather_to_variables(groups, blocked, given.unary.shape)
    totals, counts = look(groups, total), look(groups, count)
    leave = lambda i, g, j: jnp.where(counts[i][j] - blocked[i][j] > 0.5, -jnp.inf, totals[i][j] - finite[i][j])
    return jnp.where(count > 0.5, -jnp.inf, total), map_axes(groups, leave)


def _product(
    g: Group, tables: Array, weights: Array, incoming: Sequence[Float[Array, "_ _"]], without: int | None = None
) -> Float[Array, "f ..."]:
    """Each table of a group times what its variables say, except the variable at axis `without`."""
    total = _weigh(1 / weights, tables)
    for j in range(g.arity):
        total = total if j == without else total + g.spread(incoming[j], j)
    return total


def update(messages: Messages, given: Potentials, settings: Settings) -> Messages:
    """One synchronous sweep, undamped: the map whose rest the iteration looks for."""
    groups = group(settings.structure)
    _, incoming = to_tables(groups, given, messages)
    reduce = jnp.max if settings.maximize else logsumexp

    def message(i: int, g: Group, j: int) -> Array:
        heard = _product(g, given.tables[i], given.weights[i], incoming[i], without=j)
        return _normalized(reduce(heard, axis=tuple(a + 1 for a in g.others(j))))

    return map_axes(groups, message)


def _damped(new: Array, old: Array, damping: Array) -> Array:
    both = (new > -jnp.inf) & (old > -jnp.inf)
    mixed = jnp.where(both, (1 - damping) * jnp.where(both, new, 0) + damping * jnp.where(both, old, 0), new)
    return _normalized(mixed)


def _iterate(messages: Messages, given: Potentials, settings: Settings) -> tuple[Messages, Scalar]:
    proposed = update(messages, given, settings)
    moves = jax.tree_util.tree_map(
        lambda new, old: jnp.max(jnp.abs(jnp.exp(new) - jnp.exp(old)), 1), proposed, messages
    )
    most = jnp.max(jnp.stack([jnp.max(move) for move in jax.tree_util.tree_leaves(moves)]))

    def step(new, old, move):
        hold = (move < 0.5 * most) if settings.residual_schedule else jnp.zeros_like(move, bool)
        damping = jnp.where(hold, 1.0, settings.damping).astype(new.dtype)[:, None]
        return _damped(new, old, damping)

    return jax.tree_util.tree_map(step, proposed, messages, moves), most


def _entropy(probs: Array, axes: tuple[int, ...]) -> Array:
    return -jnp.sum(xlogy(probs, probs), axis=axes)


def _inner(probs: Array, scores: Array) -> Scalar:
    return jnp.sum(jnp.where(probs > 0, probs * jnp.where(probs > 0, scores, 0), 0))


def _softmax(logits: Array, axes: tuple[int, ...]) -> Array:
    total = logsumexp(logits, axis=axes)
    return jnp.exp(logits - jnp.expand_dims(jnp.where(total == -jnp.inf, 0, total), axes))


def read(messages: Messages, given: Potentials, settings: Settings) -> tuple[Array, tuple[Array, ...], Scalar]:
    """Beliefs of variables and tables, and the estimate of the log-partition, from messages at rest."""
    groups = group(settings.structure)
    log_single, incoming = to_tables(groups, given, messages)
    single = _softmax(log_single, (1,))
    products = [_product(*parts) for parts in zip(groups, given.tables, given.weights, incoming, strict=True)]
    joint = tuple(_softmax(product, tuple(range(1, product.ndim))) for product in products)
    alone = _entropy(single, (1,))
    estimate = _inner(single, given.unary) + jnp.sum(alone)
    for g, table, belief, weight in zip(groups, given.tables, joint, given.weights, strict=True):
        shared = jnp.sum(alone[g.variables], axis=1) - _entropy(belief, tuple(range(1, belief.ndim)))
        estimate = estimate + _inner(belief, table) - jnp.sum(weight * shared)
    impossible = jnp.any(jnp.max(log_single, axis=1) == -jnp.inf)
    return single, joint, jnp.where(impossible, -jnp.inf, estimate)


def propagate(given: Potentials, settings: Settings, max_sweeps: int, tolerance: float) -> Propagation:
    """Sweep until messages rest. Beliefs and estimate are differentiable, implicitly, at the resting point.

    The estimate's gradient with respect to a table is its belief. Contradictions give an estimate of `-inf`.
    """
    groups = group(settings.structure)
    if not groups:
        single, joint, estimate = read((), given, settings)
        return Propagation(single, joint, estimate, jnp.zeros((), jnp.int32), jnp.zeros((), single.dtype))
    start = map_axes(groups, lambda i, g, j: jnp.full((len(g.members), g.shape[j]), -np.log(g.shape[j])))
    start = jax.tree_util.tree_map(lambda m: m.astype(given.unary.dtype), start)
    iterate = functools.partial(_iterate, settings=settings)
    condition = functools.partial(update, settings=settings)
    found: Rest = rest(given, start, iterate, condition, max_sweeps, tolerance)
    single, joint, estimate = read(found.state, given, settings)
    return Propagation(single, joint, estimate, found.num_steps, found.residual)
