r"""Naive mean field: the best product $q(x) = \prod_v q_v(x_v)$ below the log-partition.

$$\log Z \ge \sum_f E_q\theta_f + \sum_v (E_q u_v + H(q_v)), \qquad
q_v \propto \exp E_{q \setminus v}\Big[u_v + \sum_{f \ni v}\theta_f\Big]$$

Variables of one color share no table, so updating a whole color at once is exact coordinate ascent: every sweep raises
the bound. Reference: Wainwright and Jordan (2008), chapter 5; Koller and Friedman (2009), section 11.5.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._special import logsumexp, xlogy
from .._typing import Scalar
from .belief_propagation import Potentials
from .contraction import Structure
from .fixed_point import Rest, rest
from .groups import Group, color_masks, gather_to_variables, group, look, map_axes


class MeanField(NamedTuple):
    """The factors of q (padded with zeros), the lower bound, and how the iteration ended."""

    single: Float[Array, "v k"]
    log_partition: Scalar
    num_sweeps: Int[Array, ""]
    residual: Scalar


def _contract(tables: Float[Array, "f ..."], others: dict[int, Float[Array, "f _"]]) -> Float[Array, "f _"]:
    """The stacked tables summed against a distribution along each of the given axes, the last axis first."""
    for j in sorted(others, reverse=True):
        along = (*[1] * j, others[j].shape[1], *[1] * (tables.ndim - j - 2))
        tables = jnp.sum(tables * others[j].reshape(-1, *along), axis=j + 1)
    return tables


def expected(given: Potentials, q: Float[Array, "v k"], structure: Structure) -> Float[Array, "v k"]:
    """Expected log potential of each state of each variable; `-inf` where q meets something forbidden."""
    groups = group(structure)
    here = look(groups, q)

    def message(i: int, g: Group, j: int) -> Array:
        table = given.tables[i]
        others = {a: here[i][a] for a in g.others(j)}
        forbidden = table == -jnp.inf
        mean = _contract(jnp.where(forbidden, 0, table), others)
        met = _contract(forbidden.astype(table.dtype), others)
        return jnp.where(met > 0, -jnp.inf, mean)

    return given.unary + gather_to_variables(groups, map_axes(groups, message), q.shape)


def _softened(logits: Float[Array, "v k"], old: Float[Array, "v k"]) -> Float[Array, "v k"]:
    total = logsumexp(logits, axis=1)[:, None]
    return jnp.where(total == -jnp.inf, old, jnp.exp(logits - jnp.where(total == -jnp.inf, 0, total)))


def sweep(q: Float[Array, "v k"], given: Potentials, structure: Structure) -> Float[Array, "v k"]:
    """One update of every variable, color by color."""

    def one_color(q: Array, mask: Bool[Array, "v"]) -> tuple[Array, None]:
        return jnp.where(mask[:, None], _softened(expected(given, q, structure), q), q), None

    return jax.lax.scan(one_color, q, jnp.asarray(color_masks(structure)))[0]


def bound(q: Float[Array, "v k"], given: Potentials, structure: Structure) -> Scalar:
    """The lower bound at any product distribution; `-inf` if it meets something forbidden."""
    groups = group(structure)
    inner = lambda p, s: jnp.sum(jnp.where(p > 0, p * jnp.where(p > 0, s, 0), 0))
    total = inner(q, given.unary) - jnp.sum(xlogy(q, q))
    for g, table, here in zip(groups, given.tables, look(groups, q), strict=True):
        product = jnp.ones_like(table)
        for j in range(g.arity):
            product = product * g.spread(here[j], j)
        total = total + inner(product, table)
    return total


def _iterate(q: Array, given: Potentials, structure: Structure) -> tuple[Array, Array]:
    new = sweep(q, given, structure)
    return new, jnp.max(jnp.abs(new - q))


def mean_field(
    given: Potentials, start: Float[Array, "v k"], structure: Structure, max_sweeps: int, tolerance: float
) -> MeanField:
    """Sweep until the factors rest. They and the bound are differentiable, implicitly, at the resting point."""
    iterate = functools.partial(_iterate, structure=structure)
    condition = functools.partial(sweep, structure=structure)
    found: Rest = rest(given, start, iterate, condition, max_sweeps, tolerance)
    return MeanField(found.state, bound(found.state, given, structure), found.num_steps, found.residual)
