"""Tables of a graph sorted by shape, so that all of a shape are handled by one array operation."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .contraction import Scope, Structure


@dataclasses.dataclass(frozen=True)
class Group:
    """Tables of one shape: which they are, and the variables of each."""

    shape: tuple[int, ...]
    members: tuple[int, ...]
    scopes: tuple[Scope, ...]

    @property
    def variables(self) -> Int[np.ndarray, "f axes"]:
        """The scopes as an array."""
        return np.array(self.scopes, np.int32)

    @property
    def arity(self) -> int:
        """Variables per table."""
        return len(self.shape)

    def others(self, axis: int) -> tuple[int, ...]:
        """All axes but one."""
        return tuple(j for j in range(self.arity) if j != axis)

    def spread(self, message: Float[Array, "f k"], axis: int) -> Float[Array, "..."]:
        """A message along one axis of the stacked tables."""
        return message.reshape(message.shape[0], *[s if j == axis else 1 for j, s in enumerate(self.shape)])


@functools.lru_cache(maxsize=256)
def group(structure: Structure) -> tuple[Group, ...]:
    """Tables over two or more variables, by shape."""
    found: dict[tuple[int, ...], list[int]] = {}
    for i, scope in enumerate(structure.scopes):
        if len(scope) > 1:
            found.setdefault(tuple(structure.cardinalities[v] for v in scope), []).append(i)
    return tuple(Group(s, tuple(ids), tuple(structure.scopes[i] for i in ids)) for s, ids in found.items())


def stack(structure: Structure, tables: Sequence[Array]) -> tuple[Float[Array, "..."], ...]:
    """The tables of each group, stacked."""
    return tuple(jnp.stack([tables[i] for i in g.members]) for g in group(structure))


def unary_potentials(structure: Structure, tables: Sequence[Array], unary: Sequence[Array]) -> Float[Array, "v k"]:
    """Everything said about single variables in one array; `-inf` pads states that do not exist."""
    width = max(structure.cardinalities)
    own = list(unary)
    for scope, table in zip(structure.scopes, tables, strict=True):
        if len(scope) == 1:
            own[scope[0]] = own[scope[0]] + table
    return jnp.stack([jnp.pad(u, (0, width - u.shape[0]), constant_values=-jnp.inf) for u in own])


def narrow(structure: Structure, padded: Float[Array, "v k"]) -> tuple[Float[Array, "_"], ...]:
    """One vector per variable, without the padding."""
    return tuple(padded[v, :k] for v, k in enumerate(structure.cardinalities))


def gather_to_variables(
    groups: Sequence[Group], messages: Sequence[Sequence[Float[Array, "_ _"]]], shape: tuple[int, ...]
) -> Float[Array, "v k"]:
    """The sum at each variable of what the tables say to it."""
    total = jnp.zeros(shape, messages[0][0].dtype) if messages else jnp.zeros(shape)
    for g, parts in zip(groups, messages, strict=True):
        for axis, part in enumerate(parts):
            total = total.at[g.variables[:, axis], : part.shape[1]].add(part)
    return total


def look(groups: Sequence[Group], values: Float[Array, "v k"]) -> tuple[tuple[Float[Array, "_ _"], ...], ...]:
    """What each variable of each table has in an array by variable."""
    return tuple(tuple(values[g.variables[:, j], : g.shape[j]] for j in range(g.arity)) for g in groups)


def map_axes(
    groups: Sequence[Group], function: Callable[[int, Group, int], Array]
) -> tuple[tuple[Float[Array, "_ _"], ...], ...]:
    """`function(number of the group, group, axis)` for every axis of every group."""
    return tuple(tuple(function(i, g, j) for j in range(g.arity)) for i, g in enumerate(groups))


@functools.lru_cache(maxsize=256)
def coloring(structure: Structure) -> tuple[tuple[int, ...], ...]:
    """Classes of variables that share no table, found greedily from the variable with the most neighbors."""
    around: list[set[int]] = [set() for _ in structure.cardinalities]
    for scope in structure.scopes:
        for v in scope:
            around[v] |= set(scope) - {v}
    color: dict[int, int] = {}
    for v in sorted(range(len(around)), key=lambda v: (-len(around[v]), v)):
        taken = {color[u] for u in around[v] if u in color}
        color[v] = next(c for c in range(len(around) + 1) if c not in taken)
    return tuple(tuple(v for v in color if color[v] == c) for c in sorted(set(color.values())))


def color_masks(structure: Structure) -> np.ndarray:
    """One row of flags per color."""
    classes = coloring(structure)
    masks = np.zeros((len(classes), len(structure.cardinalities)), bool)
    for row, members in zip(masks, classes, strict=True):
        row[list(members)] = True
    return masks
