r"""Plans: in which order to multiply tables and sum variables out, decided on the host before anything runs.

A plan is a static tuple of steps. Each multiplies some tables and sums out the variables that no other table
mentions; the last leaves one table over the variables that are kept. Finding the cheapest is NP-hard, so several
heuristics propose and the cheapest proposal is kept.
Reference: Koller and Friedman (2009), section 9.4; Smith and Gray (2018) for opt_einsum's searches.
"""

import contextlib
import dataclasses
import functools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import opt_einsum

Scope = tuple[int, ...]
_OPERANDS_FOR_SEARCH = 60  # operands up to which a randomized search is worth its time
_SEARCHES = 32
_HOPELESS = 2.0**40  # entries


class Structure(NamedTuple):
    """What is static of a graph: the number of states of each variable, and the variables of each table."""

    cardinalities: tuple[int, ...]
    scopes: tuple[Scope, ...]

    def size(self, variables: Iterable[int]) -> int:
        """Entries of a table over these variables."""
        return math.prod(self.cardinalities[v] for v in variables)


class Step(NamedTuple):
    """Multiply the tables `inputs` and sum out `eliminated`; what is left is a table over `scope`.

    Tables are numbered: first those of the structure, then one unary table per variable, then each step's result.
    """

    inputs: tuple[int, ...]
    eliminated: Scope
    scope: Scope


class Cost(NamedTuple):
    """What exact inference will take, known before it runs.

    `treewidth` is that of the plan (the largest number of variables combined at once, less one), `largest_table` the
    entries of the largest product, `operations` the sum of all products' entries, `bytes` what a backward pass
    (marginals, gradients) keeps: all products. `order` names the heuristic that won.
    """

    treewidth: int
    largest_table: int
    operations: int
    bytes: int
    order: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps of an elimination, its cost, and the variables left at the end."""

    structure: Structure
    steps: tuple[Step, ...]
    keep: Scope
    cost: Cost

    def input_scopes(self) -> Iterator[tuple[Step, tuple[Scope, ...]]]:
        """Each step with the scopes of its inputs."""
        scopes = [*self.structure.scopes, *[(v,) for v in range(len(self.structure.cardinalities))]]
        for step in self.steps:
            yield step, tuple(scopes[i] for i in step.inputs)
            scopes.append(step.scope)


# ------------------------------------------------------------------ from orders and paths to steps


class _TooLarge(Exception):
    """A proposal that no machine could run: there is no need to finish it."""


class _Desk:
    """The tables that are still to be multiplied, and which of them mention a variable."""

    def __init__(self, structure: Structure, keep: Scope, limit: float = math.inf):
        self.limit = limit
        variables = range(len(structure.cardinalities))
        self.structure, self.keep, self.steps = structure, frozenset(keep), []
        self.scopes: list[Scope] = [*structure.scopes, *[(v,) for v in variables]]
        self.open = set(range(len(self.scopes)))
        self.mentions: dict[int, set[int]] = {v: set() for v in variables}
        for i, scope in enumerate(self.scopes):
            for v in scope:
                self.mentions[v].add(i)

    def multiply(self, inputs: Iterable[int]) -> int:
        """One step: the product of these tables, without the variables that nobody else mentions."""
        chosen = sorted(inputs)
        together = set(chosen)
        # the layout of the largest table first: it is then read as it lies in memory
        by_size = sorted(chosen, key=lambda i: -self.structure.size(self.scopes[i]))
        union = list(dict.fromkeys(v for i in by_size for v in self.scopes[i]))
        if self.structure.size(union) > self.limit:
            raise _TooLarge
        gone = tuple(v for v in union if self.mentions[v] <= together and v not in self.keep)
        left = tuple(v for v in union if v not in gone)
        new = len(self.scopes)
        self.scopes.append(left)
        for v in union:
            self.mentions[v] = (self.mentions[v] - together) | ({new} if v in left else set())
        self.open = (self.open - together) | {new}
        self.steps.append(Step(tuple(chosen), gone, left))
        return new

    def finish(self) -> tuple[Step, ...]:
        """Multiply what is left into one table; its axes are the kept variables, in the order asked for."""
        if len(self.open) > 1 or not self.steps:
            self.multiply(self.open)
        return tuple(self.steps)


def _steps_of_order(
    structure: Structure, order: Iterable[int], keep: Scope, limit: float = math.inf
) -> tuple[Step, ...]:
    """Bucket elimination: for each variable, multiply all tables that mention it and sum it out."""
    desk = _Desk(structure, keep, limit)
    for v in order:
        if v not in desk.keep and desk.mentions[v]:
            desk.multiply(desk.mentions[v])
    return desk.finish()


def _steps_of_path(structure: Structure, path: Sequence[tuple[int, ...]], keep: Scope) -> tuple[Step, ...]:
    """A path of opt_einsum, whose operands are numbered as ours are."""
    desk = _Desk(structure, keep, _HOPELESS)
    for chosen in opt_einsum.paths.linear_to_ssa(path):
        desk.multiply(chosen)
    return desk.finish()


def _cost(structure: Structure, steps: Iterable[Step], order: str, itemsize: int) -> Cost:
    products = [(*step.eliminated, *step.scope) for step in steps]
    sizes = [structure.size(product) for product in products]
    widths = [sum(structure.cardinalities[v] > 1 for v in product) for product in products]
    total = sum(sizes)
    return Cost(max([*widths, 1]) - 1, max(sizes), total, total * itemsize, order)


# ------------------------------------------------------------------ who proposes


def _neighbors(structure: Structure) -> list[set[int]]:
    around: list[set[int]] = [set() for _ in structure.cardinalities]
    for scope in structure.scopes:
        for v in scope:
            around[v] |= set(scope) - {v}
    return around


def _greedy_order(structure: Structure, keep: Scope, by_fill: bool) -> Iterator[int]:
    """Eliminate the variable that adds the fewest edges (min-fill) or makes the smallest table (min-weight)."""
    around = _neighbors(structure)
    weight = lambda v: structure.size(around[v] | {v})

    def fill(v: int) -> int:
        missing = sum(len(around[v] - around[u]) - 1 for u in around[v])
        return missing // 2

    score = (lambda v: (fill(v), weight(v))) if by_fill else (lambda v: (weight(v), fill(v)))
    left = set(range(len(around))) - set(keep)
    scores = {v: score(v) for v in left}
    while left:
        v = min(left, key=lambda u: (scores[u], u))
        left.remove(v)
        yield v
        near = around[v]
        for u in near:
            around[u] = (around[u] | near) - {u, v}
        # fill changes within two steps of v, weight within one
        touched = near | (set().union(*(around[u] for u in near)) if by_fill and near else set())
        for u in touched & left:
            scores[u] = score(u)


def _paths(structure: Structure, keep: Scope) -> Iterator[tuple[str, Sequence[tuple[int, ...]]]]:
    """Pairwise contraction trees from opt_einsum."""
    inputs = [frozenset(s) for s in structure.scopes] + [frozenset((v,)) for v in range(len(structure.cardinalities))]
    sizes = dict(enumerate(structure.cardinalities))
    yield "opt_einsum greedy", opt_einsum.paths.greedy(inputs, frozenset(keep), sizes)
    if len(inputs) <= _OPERANDS_FOR_SEARCH:
        before = random.getstate()  # the search seeds the global generator, which is not ours
        path = opt_einsum.path_random.RandomGreedy(max_repeats=_SEARCHES)(inputs, frozenset(keep), sizes)
        random.setstate(before)
        yield "opt_einsum random-greedy", path


def _proposals(structure: Structure, keep: Scope) -> Iterator[tuple[str, tuple[Step, ...]]]:
    # grids and chains come in an order that is already good
    yield "given", _steps_of_order(structure, range(len(structure.cardinalities)), keep)
    for name, by_fill in (("min-fill", True), ("min-weight", False)):
        with contextlib.suppress(_TooLarge):
            yield name, _steps_of_order(structure, _greedy_order(structure, keep, by_fill), keep, _HOPELESS)
    for name, path in _paths(structure, keep):
        with contextlib.suppress(_TooLarge):
            yield name, _steps_of_path(structure, path, keep)


@functools.lru_cache(maxsize=256)
def make_plan(structure: Structure, keep: Scope = (), order: Scope | None = None, itemsize: int = 8) -> Plan:
    """The cheapest plan found that leaves the variables `keep`; or the one that eliminates in the given `order`.

    Cheapest is the least work among plans whose largest table is within four times the smallest seen. Cost: the
    square of the number of variables for bounded treewidth, once per structure.
    """
    if order is not None:
        candidates = [("chosen", _steps_of_order(structure, order, keep))]
    else:
        candidates = list(_proposals(structure, keep))
    costs = [_cost(structure, steps, name, itemsize) for name, steps in candidates]
    smallest = min(cost.largest_table for cost in costs)
    rank = lambda i: (costs[i].largest_table > 4 * smallest, costs[i].operations, len(candidates[i][1]))
    best = min(range(len(costs)), key=rank)
    return Plan(structure, candidates[best][1], keep, costs[best])
