"""Checks of networks at the door: names, cycles, shapes, normalization, rows of data. Errors name what is wrong."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._estimate import ML
from .._stack import AbstractStack, Stacked
from .._validate import as_float, is_concrete
from ..distributions.categorical import Categorical
from ..inference.contraction import Scope
from . import separation
from .factor_graph import make_variables
from .posterior import Variable, check_states


class Independence(NamedTuple):
    """A variable, those it is independent of, and what has to be known."""

    variable: str
    others: tuple[str, ...]
    given: tuple[str, ...]


def _named(names: Sequence[str]) -> str:
    return " -> ".join(names)


def parent_numbers(parents: Mapping[str, Sequence[str]]) -> tuple[Scope, ...]:
    """Parents as numbers; `ValueError` for unknown or repeated parents and for a cycle, which it names."""
    names = list(parents)
    for name, above in parents.items():
        if isinstance(above, str):
            raise ValueError(f"the parents of {name!r} are the string {above!r}; wanted a tuple, ({above!r},).")
        unknown = [p for p in above if p not in parents]
        if unknown:
            raise ValueError(f"{name!r} has the unknown parent {unknown[0]!r}; every variable needs an entry.")
        if len(set(above)) < len(above):
            raise ValueError(f"{name!r} names a parent twice: {list(above)}.")
    numbers = tuple(tuple(names.index(p) for p in above) for above in parents.values())
    cycle = separation.find_cycle(numbers)
    if cycle:
        raise ValueError(f"the graph has a cycle: {_named([names[v] for v in cycle])}.")
    return numbers


def node_table(name: str, parents: Mapping[str, Any], tables: Mapping[str, Any]) -> tuple[AbstractStack, int]:
    """A table as a stack of rows, one per joint state of the parents, and its number of states."""
    if name not in tables:
        raise ValueError(f"there is no table for {name!r}.")
    table = tables[name]
    if isinstance(table, AbstractStack):
        return table, table.member(0).predictive().probs.shape[-1]
    table = as_float(table, f"the table of {name!r}")
    if table.ndim != len(parents[name]) + 1:
        raise ValueError(
            f"the table of {name!r} has shape {tuple(table.shape)}; wanted one axis per parent {tuple(parents[name])} "
            "and its own last."
        )
    _check_rows(name, table)
    return Stacked(ML(jax.vmap(Categorical)(table.reshape(-1, table.shape[-1])))), table.shape[-1]


def _check_rows(name: str, table: Any) -> None:
    """Rows are probabilities that sum to one, as closely as `Categorical` wants it."""
    if not is_concrete(table):
        return
    tolerance = 1e-3 if table.dtype == jnp.float32 else 1e-6
    values = np.asarray(table, np.float64)
    if not np.all((values >= 0) & (values <= 1)):
        raise ValueError(f"the table of {name!r} has entries outside [0, 1].")
    total = values.sum(-1)
    off = np.abs(total - 1)
    if off.max() > tolerance:
        where = np.unravel_index(off.argmax(), off.shape)
        given = f" given its parents' states {tuple(map(int, where))}" if where else ""
        raise ValueError(f"the table of {name!r} does not sum to one{given}: the sum is {total[where]:.6g}.")


def ordered_parents(
    parents: Mapping[str, Sequence[str]], sizes: Mapping[str, int], states: Mapping[str, Sequence[str]]
) -> tuple[tuple[Variable, ...], tuple[Scope, ...]]:
    """Variables with names of states (numbers by default) and parents as numbers."""
    numbers = parent_numbers(parents)
    unknown = [name for name in states if name not in parents]
    if unknown:
        raise ValueError(f"states are given for {unknown[0]!r}, which is not a variable.")
    variables = make_variables({name: states.get(name, sizes[name]) for name in parents})
    for variable in variables:
        if variable.cardinality != sizes[variable.name]:
            raise ValueError(
                f"{variable.name!r} has {variable.cardinality} names of states and a table of {sizes[variable.name]}."
            )
    return variables, numbers


def check_table(variable: Variable, above: Sequence[Variable], table: Any, stack: AbstractStack) -> None:
    """The table of a variable has its parents' shape."""
    wanted = tuple(parent.cardinality for parent in above)
    shape = (stack.size,) if isinstance(table, AbstractStack) else np.shape(table)[:-1]
    if shape != ((int(np.prod(wanted)),) if isinstance(table, AbstractStack) else wanted):
        names = tuple(parent.name for parent in above)
        raise ValueError(
            f"the table of {variable.name!r} has {tuple(shape)} parent states; its parents {names} have {wanted}."
        )


def check_data(variables: tuple[Variable, ...], data: Any, *, complete: bool = False) -> None:
    """Rows of whole states, -1 for missing (unless complete ones are wanted)."""
    if data.ndim != 2 or data.shape[1] != len(variables) or not jnp.issubdtype(data.dtype, jnp.integer):
        raise ValueError(
            f"data is {data.dtype} of shape {tuple(data.shape)}; wanted whole states (n, {len(variables)}), -1 missing."
        )
    if is_concrete(data):
        rows = np.asarray(data)
        check_states(variables, rows)
        if complete and (rows < 0).any():
            raise ValueError("data has unobserved entries (-1); complete rows are wanted here.")
