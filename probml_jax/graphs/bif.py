"""The Bayesian Interchange Format (BIF), as written by bnlearn, pgmpy and others."""

import itertools
import os
import pathlib
import re
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .bayes_net import BayesNet
from .tokens import Reader, read_text

_TOKEN = r'"[^"]*"|[{}\[\]()|,;]|[^\s{}\[\]()|,;"]+'
_ROUNDING = 0.02  # rows of real files sum to one only to the digits they were written with


class _Block(NamedTuple):
    """A probability block: parents, and the rows found, by the parents' states (all of them if `None`)."""

    parents: tuple[str, ...]
    rows: dict[tuple[str, ...] | None, tuple[list[float], int]]
    line: int


def read_bif(path: str | os.PathLike) -> BayesNet:
    """A network from a BIF file (plain or `.gz`), with its names of variables and states.

    Rows are divided by their sum, since files round; a sum further than 0.02 from one, and anything that does not
    parse, raises `ValueError` with the line. Tables are of the default float type.

    >>> import tempfile, probml_jax as pml
    >>> net = pml.graphs.BayesNet({"a": (), "b": ("a",)}, {"a": [0.5, 0.5], "b": [[0.75, 0.25], [0.25, 0.75]]})
    >>> with tempfile.NamedTemporaryFile(suffix=".bif") as file:
    ...     write_bif(net, file.name)
    ...     read_bif(file.name).names
    ('a', 'b')
    """
    return parse_bif(read_text(path), pathlib.Path(path).name)


def parse_bif(text: str, source: str = "BIF text") -> BayesNet:
    """A network from the text of a BIF file.

    >>> rain = "variable rain { type discrete [2] { no, yes }; } probability ( rain ) { table 0.8, 0.2; }"
    >>> parse_bif(rain).marginals().summary()
    'rain  no 0.8000  yes 0.2000'
    """
    # comments go, their line breaks stay
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    reader = Reader(text, _TOKEN, source)
    states: dict[str, tuple[str, ...]] = {}
    blocks: dict[str, _Block] = {}
    while not reader.done:
        line = reader.line
        word = reader.next("a block")
        if word == "network":
            _skip_network(reader)
        elif word == "variable":
            name, found = _variable(reader)
            if name in states:
                reader.fail(f"variable {name!r} is declared twice.", line)
            states[name] = found
        elif word == "probability":
            name, block = _probability(reader, line)
            if name in blocks:
                reader.fail(f"{name!r} has two probability blocks.", line)
            blocks[name] = block
        else:
            reader.fail(f"found {word!r} where 'network', 'variable' or 'probability' is wanted.", line)
    return _network(reader, states, blocks)


def _skip_network(reader: Reader) -> None:
    while reader.next("'{'") != "{":
        pass
    while reader.next("'}'") != "}":
        pass


def _property(reader: Reader) -> None:
    while reader.next("';'") != ";":
        pass


def _list(reader: Reader, end: str, what: str) -> list[str]:
    """Words separated by commas up to a closing sign."""
    found = []
    while True:
        line = reader.line
        word = reader.next(what)
        if word in "{}[]()|,;":
            reader.fail(f"found {word!r} where {what} is wanted.", line)
        found.append(word.strip('"'))
        line = reader.line
        sign = reader.next(f"',' or {end!r}")
        if sign == end:
            return found
        if sign != ",":
            reader.fail(f"found {sign!r} where ',' or {end!r} is wanted.", line)


def _variable(reader: Reader) -> tuple[str, tuple[str, ...]]:
    name = reader.next("a name").strip('"')
    reader.expect("{")
    states: tuple[str, ...] = ()
    start = reader.line
    while reader.peek() != "}":
        if reader.peek() == "property":
            _property(reader)
            continue
        reader.expect("type", "discrete", "[")
        line = reader.line
        count = reader.integer("a number of states")
        reader.expect("]", "{")
        states = tuple(_list(reader, "}", "the name of a state"))
        if len(states) != count:
            reader.fail(f"{name!r} announces {count} states and names {len(states)}.", line)
        reader.expect(";")
    reader.expect("}")
    if not states:
        reader.fail(f"variable {name!r} has no type.", start)
    return name, states


def _values(reader: Reader) -> list[float]:
    found = [reader.number("a probability")]
    while reader.peek() == ",":
        reader.expect(",")
        found.append(reader.number("a probability"))
    reader.expect(";")
    return found


def _probability(reader: Reader, line: int) -> tuple[str, _Block]:
    reader.expect("(")
    name = reader.next("a name").strip('"')
    parents: tuple[str, ...] = ()
    where = reader.line
    sign = reader.next("'|' or ')'")
    if sign == "|":
        parents = tuple(_list(reader, ")", "a parent"))
    elif sign != ")":
        reader.fail(f"found {sign!r} where '|' or ')' is wanted.", where)
    reader.expect("{")
    rows: dict[tuple[str, ...] | None, tuple[list[float], int]] = {}
    while reader.peek() != "}":
        where = reader.line
        word = reader.next("'table', a row or '}'")
        if word == "property":
            _property(reader)
        elif word == "table":
            rows[None] = (_values(reader), where)
        elif word == "default":
            rows[()] = (_values(reader), where)
        elif word == "(":
            given = tuple(_list(reader, ")", "a state"))
            rows[given] = (_values(reader), where)
        else:
            reader.fail(f"found {word!r} where 'table', 'default' or '(' is wanted.", where)
    reader.expect("}")
    return name, _Block(parents, rows, line)


def _network(reader: Reader, states: dict[str, tuple[str, ...]], blocks: dict[str, _Block]) -> BayesNet:
    if not states:
        reader.fail("the file declares no variable.")
    for name, block in blocks.items():
        for other in (name, *block.parents):
            if other not in states:
                reader.fail(f"probability of the undeclared variable {other!r}.", block.line)
    missing = [name for name in states if name not in blocks]
    if missing:
        reader.fail(f"variable {missing[0]!r} has no probability block.")
    tables = {name: jnp.asarray(_table(reader, name, blocks[name], states), float) for name in states}
    parents = {name: blocks[name].parents for name in states}
    return BayesNet(parents, tables, states)


def _table(reader: Reader, name: str, block: _Block, states: dict[str, tuple[str, ...]]) -> np.ndarray:
    above = [states[p] for p in block.parents]
    shape = (*map(len, above), len(states[name]))
    if None in block.rows:  # the whole table, the variable itself slowest
        values, line = block.rows[None]
        if len(values) != np.prod(shape):
            reader.fail(f"the table of {name!r} has {len(values)} entries; wanted {np.prod(shape)}.", line)
        table = np.moveaxis(np.array(values).reshape(shape[-1], *shape[:-1]), 0, -1)
        return _normalized(reader, name, table, line)
    default = block.rows.get((), (None, block.line))
    table = np.full(shape, np.nan)
    for index, given in zip(np.ndindex(shape[:-1]), itertools.product(*above), strict=True):
        values, line = block.rows.get(given, default)
        if values is None:
            reader.fail(f"the table of {name!r} has no row for {given}.", block.line)
        if len(values) != shape[-1]:
            reader.fail(f"the row {given} of {name!r} has {len(values)} entries; wanted {shape[-1]}.", line)
        table[index] = _normalized(reader, name, np.array(values), line)
    known = {*itertools.product(*above), ()}
    unknown = [given for given in block.rows if given not in known]
    if unknown:
        reader.fail(f"{name!r} has a row for unknown states {unknown[0]}.", block.rows[unknown[0]][1])
    return table


def _normalized(reader: Reader, name: str, table: np.ndarray, line: int) -> np.ndarray:
    total = table.sum(-1, keepdims=True)
    if (table < 0).any() or (np.abs(total - 1) > _ROUNDING).any():
        worst = np.ravel(total)[np.abs(total - 1).argmax()]
        reader.fail(f"probabilities of {name!r} are negative or do not sum to one (the sum is {worst:.6g}).", line)
    return table / total


def write_bif(net: BayesNet, path: str | os.PathLike, name: str = "network") -> None:
    """Write a network as BIF text, every entry with the digits that restore it.

    >>> import tempfile, probml_jax as pml
    >>> net = pml.graphs.BayesNet({"a": ()}, {"a": [0.75, 0.25]})
    >>> with tempfile.NamedTemporaryFile(suffix=".bif") as file:
    ...     write_bif(net, file.name)
    ...     "table 0.75, 0.25;" in file.read().decode()
    True
    """
    pathlib.Path(path).write_text(format_bif(net, name))


def format_bif(net: BayesNet, name: str = "network") -> str:
    """The BIF text of a network."""
    lines = [f"network {name} {{", "}"]
    for variable in net.variables:
        states = ", ".join(variable.states)
        lines += [f"variable {variable.name} {{", f"  type discrete [ {variable.cardinality} ] {{ {states} }};", "}"]
    digits = lambda row: ", ".join(repr(float(x)) for x in row)
    for variable, above in zip(net.variables, net.parents, strict=True):
        table = np.asarray(net.table(variable.name))
        if not above:
            lines += [f"probability ( {variable.name} ) {{", f"  table {digits(table)};", "}"]
            continue
        parents = [net.variables[p] for p in above]
        lines.append(f"probability ( {variable.name} | {', '.join(p.name for p in parents)} ) {{")
        given = itertools.product(*(p.states for p in parents))
        rows = zip(given, table.reshape(-1, table.shape[-1]), strict=True)
        lines += [f"  ({', '.join(states)}) {digits(row)};" for states, row in rows]
        lines.append("}")
    return "\n".join(lines) + "\n"
