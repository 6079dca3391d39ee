"""The format of the UAI inference competitions: models and evidence."""

import os
import pathlib

import jax.numpy as jnp
import numpy as np

from .bayes_net import BayesNet
from .graph import AbstractGraph
from .markov_field import MarkovField
from .tokens import Reader, read_text


def _reader(text: str, source: str) -> Reader:
    return Reader(text, r"\S+", source)


def read_uai(path: str | os.PathLike) -> BayesNet | MarkovField:
    """A model from a UAI file (plain or `.gz`): a `BayesNet` from `BAYES`, a `MarkovField` from `MARKOV`.

    Variables are `x0`, `x1`, and so on. Malformed files raise `ValueError` with the line.

    >>> import tempfile, probml_jax as pml
    >>> net = pml.graphs.BayesNet({"a": (), "b": ("a",)}, {"a": [0.5, 0.5], "b": [[0.75, 0.25], [0.25, 0.75]]})
    >>> with tempfile.NamedTemporaryFile(suffix=".uai") as file:
    ...     write_uai(net, file.name)
    ...     read_uai(file.name).names
    ('x0', 'x1')
    """
    return parse_uai(read_text(path), pathlib.Path(path).name)


def parse_uai(text: str, source: str = "UAI text") -> BayesNet | MarkovField:
    """A model from the text of a UAI file; the last variable of a table runs fastest.

    >>> field = parse_uai("MARKOV 2  2 2  1  2 0 1  4  1 2 3 4")
    >>> round(float(jnp.exp(field.log_partition())), 4)
    10.0
    """
    reader = _reader(text, source)
    line = reader.line
    kind = reader.next("'BAYES' or 'MARKOV'").upper()
    if kind not in ("BAYES", "MARKOV"):
        reader.fail(f"found {kind!r} where 'BAYES' or 'MARKOV' is wanted.", line)
    num = reader.integer("the number of variables")
    sizes = [reader.integer("a number of states") for _ in range(num)]
    scopes = [_scope(reader, num) for _ in range(reader.integer("the number of tables"))]
    tables = [_table(reader, [sizes[v] for v in scope]) for scope in scopes]
    if not reader.done:
        reader.fail(f"found {reader.peek()!r} after the last table.")
    names = [f"x{v}" for v in range(num)]
    if kind == "MARKOV":
        with np.errstate(divide="ignore"):
            logs = [jnp.asarray(np.log(table), float) for table in tables]
        pairs = [(tuple(names[v] for v in scope), table) for scope, table in zip(scopes, logs, strict=True)]
        return MarkovField(dict(zip(names, sizes, strict=True)), pairs)
    children = {scope[-1]: i for i, scope in enumerate(scopes)}
    if sorted(children) != list(range(num)):
        reader.fail("a BAYES file needs exactly one table per variable, which stands last in its scope.")
    parents = {names[v]: tuple(names[p] for p in scopes[children[v]][:-1]) for v in range(num)}
    return BayesNet(parents, {names[v]: jnp.asarray(tables[children[v]], float) for v in range(num)})


def _scope(reader: Reader, num: int) -> list[int]:
    line = reader.line
    scope = [reader.integer("a variable") for _ in range(reader.integer("the size of a scope"))]
    if any(v >= num for v in scope):
        reader.fail(f"scope {scope} names a variable beyond {num - 1}.", line)
    if not scope:
        reader.fail("a table without variables is not supported; fold the constant into another table.", line)
    return scope


def _table(reader: Reader, shape: list[int]) -> np.ndarray:
    line = reader.line
    count = reader.integer("the number of entries")
    if count != int(np.prod(shape)):
        reader.fail(f"a table of shape {tuple(shape)} announces {count} entries; wanted {int(np.prod(shape))}.", line)
    line = reader.line
    values = np.array([reader.number("a table entry") for _ in range(count)])
    if not (np.isfinite(values) & (values >= 0)).all():
        reader.fail("a table has negative or infinite entries.", line)
    return values.reshape(shape)


def format_uai(graph: AbstractGraph) -> str:
    """The UAI text of a graph: `BAYES` for a Bayesian network, `MARKOV` for anything else."""
    kind = "BAYES" if isinstance(graph, BayesNet) else "MARKOV"
    lines = [kind, str(len(graph.variables)), " ".join(str(v.cardinality) for v in graph.variables)]
    lines += [str(len(graph.scopes)), *[" ".join(map(str, (len(scope), *scope))) for scope in graph.scopes]]
    for table in graph.log_potentials():
        values = np.exp(np.asarray(table)).ravel()
        lines += ["", str(values.size), " ".join(repr(float(x)) for x in values)]
    return "\n".join(lines) + "\n"


def write_uai(graph: AbstractGraph, path: str | os.PathLike) -> None:
    """Write any graph as a UAI model; names of variables and states are lost.

    >>> import tempfile, probml_jax as pml
    >>> with tempfile.NamedTemporaryFile(suffix=".uai") as file:
    ...     write_uai(pml.graphs.BayesNet({"a": ()}, {"a": [0.75, 0.25]}), file.name)
    ...     file.read().split()[:3]
    [b'BAYES', b'1', b'2']
    """
    pathlib.Path(path).write_text(format_uai(graph))


def read_uai_evidence(path: str | os.PathLike, graph: AbstractGraph) -> dict[str, int]:
    """Evidence from a UAI `.evid` file: a count, then pairs of variable and state. Bad pairs raise with the line.

    >>> import tempfile, probml_jax as pml
    >>> net = pml.graphs.BayesNet({"a": (), "b": ("a",)}, {"a": [0.5, 0.5], "b": [[0.75, 0.25], [0.25, 0.75]]})
    >>> with tempfile.NamedTemporaryFile(suffix=".evid") as file:
    ...     write_uai_evidence({"b": 1}, net, file.name)
    ...     read_uai_evidence(file.name, net)
    {'b': 1}
    """
    reader = _reader(read_text(path), pathlib.Path(path).name)
    found = {}
    for _ in range(reader.integer("the number of observed variables")):
        line = reader.line
        v, state = reader.integer("a variable"), reader.integer("a state")
        if v >= len(graph.variables) or state >= graph.variables[v].cardinality:
            reader.fail(f"variable {v} has no state {state}.", line)
        found[graph.variables[v].name] = state
    if not reader.done:
        reader.fail(f"found {reader.peek()!r} after the last pair.")
    return found


def write_uai_evidence(evidence: dict[str, int | str], graph: AbstractGraph, path: str | os.PathLike) -> None:
    """Write evidence as a UAI `.evid` file.

    >>> import tempfile, probml_jax as pml
    >>> with tempfile.NamedTemporaryFile(suffix=".evid") as file:
    ...     write_uai_evidence({"a": 1}, pml.graphs.BayesNet({"a": ()}, {"a": [0.75, 0.25]}), file.name)
    ...     file.read().split()
    [b'1', b'0', b'1']
    """
    row = np.asarray(graph.evidence_row(evidence))
    pairs = [(v, int(row[v])) for v in np.flatnonzero(row >= 0)]
    pathlib.Path(path).write_text(" ".join(map(str, (len(pairs), *[n for pair in pairs for n in pair]))) + "\n")
