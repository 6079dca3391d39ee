r"""Exact inference in a graph of discrete variables by elimination, from arrays to arrays, in any semiring.

$$p(x) \propto \prod_f e^{\theta_f(x_f)} \prod_v e^{u_v(x_v)}$$

Every function takes a `Plan` (see `contraction`), `tables`, one log table $\theta_f$ per scope of the structure, and
`unary`, one vector $u_v$ per variable, which carries evidence: 0 where a state is possible and `-inf` elsewhere.
Nothing has to be normalized and `-inf` forbids. Each step multiplies a few tables and sums variables out; products
are taken in log space, messages are divided by their largest entry, and the logarithms of those divisors are added at
the end. All axes that the tables of a step treat alike are merged into one, so no limit on ranks applies.

Cost: `Plan.cost`. Marginals cost about three times the log-partition: they are its gradient.
Reference: Koller and Friedman (2009), chapters 9, 10 and 13; Darwiche (2003) for marginals as derivatives.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PyTree

from .._typing import PRNGKey, Scalar
from .contraction import Plan, Scope, Step, Structure


class Beliefs(NamedTuple):
    """The log-partition and its gradient: zero everywhere when nothing is possible."""

    log_partition: Scalar
    single: tuple[Float[Array, "_"], ...]
    """$p(x_v)$ of every variable."""
    joint: tuple[Float[Array, "..."], ...]
    """$p(x_f)$ of every table, in its shape."""


# ------------------------------------------------------------------ how the tables of one step meet


class Layout:
    """The product of a step's tables: eliminated variables first, and axes merged where all tables treat them alike.

    Variables with one state have no axis.
    """

    def __init__(self, structure: Structure, step: Step, scopes: tuple[Scope, ...]):
        self.sizes = structure.cardinalities
        self.scopes = tuple(self._thick(scope) for scope in scopes)
        self.gone, self.left = self._thick(step.eliminated), self._thick(step.scope)
        self.gone_runs, self.left_runs = self._runs(self.gone), self._runs(self.left)
        self.runs = (*self.gone_runs, *self.left_runs)
        self.summed = tuple(range(len(self.gone_runs)))
        self.num_choices = structure.size(self.gone)

    def _thick(self, scope: Scope) -> Scope:
        return tuple(v for v in scope if self.sizes[v] > 1)

    def _runs(self, variables: Scope) -> tuple[Scope, ...]:
        """Neighbors that occur in exactly the same tables."""
        runs: list[list[int]] = []
        met = lambda v: tuple(v in scope for scope in self.scopes)
        for v in variables:
            if runs and met(runs[-1][-1]) == met(v):
                runs[-1].append(v)
            else:
                runs.append([v])
        return tuple(tuple(run) for run in runs)

    def shape(self, variables: Scope) -> tuple[int, ...]:
        """One axis per variable."""
        return tuple(self.sizes[v] for v in variables)

    def merged(self, runs: Sequence[Scope]) -> tuple[int, ...]:
        """One axis per run."""
        return tuple(math.prod(self.shape(run)) for run in runs)

    def align(self, i: int, table: Float[Array, "..."], leading: int = 0) -> Float[Array, "..."]:
        """Table i with one axis per run (of size one where it does not mention it), after `leading` axes of its own."""
        scope, own = self.scopes[i], tuple(range(leading))
        order = [v for run in self.runs for v in run if v in scope]
        turned = table.transpose(*own, *[leading + scope.index(v) for v in order])
        size = lambda run: math.prod(self.shape(run)) if run[0] in scope else 1
        return turned.reshape(*table.shape[:leading], *[size(run) for run in self.runs])

    def product(self, tables: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
        """The sum of log tables, aligned; smaller ones first."""
        aligned = sorted((self.align(i, table) for i, table in enumerate(tables)), key=lambda a: a.size)
        total = aligned[0]
        for other in aligned[1:]:
            total = total + other
        return jnp.broadcast_to(total, self.merged(self.runs))

    def slice(self, i: int, table: Float[Array, "..."], found: dict[int, Array]) -> Float[Array, "..."]:
        """Table i at the states found so far: what remains is shaped by runs of the eliminated variables."""
        turned = self.align(i, table)
        known = tuple(v for v in self.left if v in self.scopes[i])
        rest = turned.shape[: len(self.gone_runs)]
        return turned.reshape(*rest, -1)[..., self.index(known, found)]

    def index(self, variables: Scope, found: dict[int, Array]) -> Int[Array, ""]:
        """The position of the states found, in a table over these variables."""
        position = jnp.zeros((), jnp.int32)
        for v in variables:
            position = position * self.sizes[v] + found[v]
        return position

    def split(self, choice: Int[Array, "*batch"]) -> dict[int, Array]:
        """The states of the eliminated variables from their joint position."""
        states = {}
        for v in reversed(self.gone):
            states[v] = (choice % self.sizes[v]).astype(jnp.int32)
            choice = choice // self.sizes[v]
        return states


def _layouts(plan: Plan) -> list[Layout]:
    return [Layout(plan.structure, step, scopes) for step, scopes in plan.input_scopes()]


# ------------------------------------------------------------------ semirings


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _log_sum(product: Float[Array, "..."], axis: tuple[int, ...]) -> Float[Array, "..."]:
    """`logsumexp` with true `-inf` and its derivative written out: half the operations to compile and to run."""
    highest = jnp.max(product, axis=axis, keepdims=True)
    shift = jnp.where(highest == -jnp.inf, 0, highest)
    return jnp.log(jnp.sum(jnp.exp(product - shift), axis=axis)) + jnp.squeeze(shift, axis)


@_log_sum.defjvp
def _log_sum_jvp(axis, primals, tangents):
    (product,), (change,) = primals, tangents
    total = _log_sum(product, axis)
    # an impossible entry has no share, and where nothing is possible nobody has
    shift = jnp.expand_dims(jnp.where(total == -jnp.inf, 0, total), axis)
    return total, jnp.sum(jnp.exp(product - shift) * change, axis=axis)


class Ring(NamedTuple):
    """What a value is: `lift` makes one of a log table, `contract` multiplies values and sums variables out."""

    lift: Callable[[Array], PyTree]
    contract: Callable[[Layout, list[PyTree]], PyTree]


class Scaled(NamedTuple):
    """A table divided by its largest entry, and the logarithm of everything divided out so far."""

    table: Float[Array, "..."]
    log_scale: Scalar


def _rescaled(table: Array, log_scales: Sequence[Array]) -> Scaled:
    # a constant to differentiation: it is subtracted here and added at the end
    highest = jax.lax.stop_gradient(jnp.max(table))
    shift = jnp.where(jnp.isfinite(highest), highest, 0)
    return Scaled(table - shift, sum(log_scales, shift))


def _summing(reduce: Callable[..., Array]) -> Ring:
    def contract(layout: Layout, values: list[Scaled]) -> Scaled:
        product = layout.product([value.table for value in values])
        message = reduce(product, layout.summed) if layout.summed else product
        return _rescaled(message.reshape(layout.shape(layout.left)), [value.log_scale for value in values])

    return Ring(lambda table: Scaled(table, jnp.zeros((), table.dtype)), contract)


LOG = _summing(_log_sum)
MAX = _summing(jnp.max)


class Uncertain(NamedTuple):
    """A table with the entropy, given each of its entries, of the variables summed out to make it."""

    scaled: Scaled
    entropy: Float[Array, "..."]


def _contract_entropy(layout: Layout, values: list[Uncertain]) -> Uncertain:
    product = layout.product([value.scaled.table for value in values])
    before = layout.product([value.entropy for value in values])
    total = _log_sum(product, layout.summed) if layout.summed else product
    log_probs = product - jnp.expand_dims(jnp.where(total == -jnp.inf, 0, total), layout.summed)
    possible = product > -jnp.inf
    # the chain rule, term by term: no difference of large numbers
    gain = jnp.where(possible, jnp.exp(log_probs) * (before - jnp.where(possible, log_probs, 0)), 0)
    shape = layout.shape(layout.left)
    scaled = _rescaled(total.reshape(shape), [value.scaled.log_scale for value in values])
    return Uncertain(scaled, jnp.sum(gain, axis=layout.summed).reshape(shape))


ENTROPY = Ring(lambda table: Uncertain(LOG.lift(table), jnp.zeros_like(table)), _contract_entropy)


def run(ring: Ring, plan: Plan, tables: Sequence[Array], unary: Sequence[Array]) -> list[Any]:
    """All values of an elimination: the lifted tables, then each step's result; the last is the answer."""
    sizes = plan.structure.cardinalities
    thick = lambda scope: tuple(sizes[v] for v in scope if sizes[v] > 1)
    scopes = [*plan.structure.scopes, *[(v,) for v in range(len(sizes))]]
    together = zip([*tables, *unary], scopes, strict=True)
    values = [ring.lift(table.reshape(thick(scope))) for table, scope in together]
    for (step, _), layout in zip(plan.input_scopes(), _layouts(plan), strict=True):
        values.append(ring.contract(layout, [values[i] for i in step.inputs]))
    return values


# ------------------------------------------------------------------ sums


def log_marginal(plan: Plan, tables: Sequence[Array], unary: Sequence[Array]) -> Float[Array, "..."]:
    """The unnormalized log table over the variables that the plan keeps, in the order asked for; `-inf` is impossible.

    Its derivative with respect to an entry that is `-inf` is zero.
    """
    table, log_scale = run(LOG, plan, tables, unary)[-1]
    sizes, last = plan.structure.cardinalities, plan.steps[-1].scope
    full = table.reshape(tuple(sizes[v] for v in last))
    return full.transpose([last.index(v) for v in plan.keep]) + log_scale


def log_partition(plan: Plan, tables: Sequence[Array], unary: Sequence[Array]) -> Scalar:
    r"""$\log\sum_x \prod_f e^{\theta_f(x_f)}\prod_v e^{u_v(x_v)}$, `-inf` when nothing is possible.

    >>> from probml_jax.inference.contraction import Structure, make_plan
    >>> plan = make_plan(Structure((2, 3), ((0, 1),)))
    >>> round(float(jnp.exp(log_partition(plan, [jnp.zeros((2, 3))], [jnp.zeros(2), jnp.zeros(3)]))), 4)
    6.0
    """
    return log_marginal(plan, tables, unary)


def beliefs(plan: Plan, tables: Sequence[Array], unary: Sequence[Array]) -> Beliefs:
    """All marginals, of variables and of tables, in one backward pass."""
    both = jax.value_and_grad(lambda tables, unary: log_partition(plan, tables, unary), argnums=(0, 1))
    value, (joint, single) = both(tuple(tables), tuple(unary))
    return Beliefs(value, single, joint)


def entropy(plan: Plan, tables: Sequence[Array], unary: Sequence[Array]) -> Scalar:
    """Entropy of the distribution, by the chain rule along the elimination; 0 when nothing is possible."""
    return run(ENTROPY, plan, tables, unary)[-1].entropy


def expectation(
    plan: Plan, tables: Sequence[Array], unary: Sequence[Array], values: Sequence[Float[Array, "..."]]
) -> Scalar:
    r"""$E \sum_f g_f(x_f)$ for one table of values per table: the derivative of the log-partition along them."""
    along = lambda tables: log_partition(plan, tables, unary)
    return jax.jvp(along, (tuple(tables),), (tuple(values),))[1]


# ------------------------------------------------------------------ assignments


def score(structure: Structure, tables: Sequence[Array], unary: Sequence[Array], states: Int[Array, "v"]) -> Scalar:
    """The log of the product of all tables at one assignment."""
    joint = [table[tuple(states[v] for v in scope)] for table, scope in zip(tables, structure.scopes, strict=True)]
    return jnp.sum(jnp.stack([*joint, *[u[states[v]] for v, u in enumerate(unary)]]))


def _way_back(plan: Plan, values: list[Scaled], choose: Callable[[int, Array], Array]) -> Int[Array, "v"]:
    """States from the last step to the first: each step's eliminated variables given those that it left."""
    found: dict[int, Array] = {}
    steps, layouts = list(plan.steps), _layouts(plan)
    for s in reversed(range(len(steps))):
        if layouts[s].num_choices == 1:
            continue
        pieces = [layouts[s].slice(i, values[k].table, found) for i, k in enumerate(steps[s].inputs)]
        logits = sum(pieces[1:], pieces[0])
        shape = layouts[s].merged(layouts[s].gone_runs)
        found |= layouts[s].split(choose(s, jnp.broadcast_to(logits, shape).reshape(-1)))
    zero = jnp.zeros((), jnp.int32)
    return jnp.stack([found.get(v, zero) for v in range(len(plan.structure.cardinalities))])


def best(plan: Plan, tables: Sequence[Array], unary: Sequence[Array]) -> tuple[Int[Array, "v"], Scalar]:
    """The most probable assignment and its score; one assignment also when several are equally good.

    When nothing is possible, states of -1 and `-inf`.
    """
    values = run(MAX, plan, tables, unary)
    states = _way_back(plan, values, lambda s, logits: jnp.argmax(logits))
    value = score(plan.structure, tables, unary, states)
    return jnp.where(value > -jnp.inf, states, -1), value


def sample(key: PRNGKey, plan: Plan, tables: Sequence[Array], unary: Sequence[Array], num: int) -> Int[Array, "num v"]:
    """Exact independent samples: eliminate once, then draw from the last variable back. States of -1 if impossible."""
    values = run(LOG, plan, tables, unary)
    draw = lambda key: lambda s, logits: jr.categorical(jr.fold_in(key, s), logits)
    states = jax.vmap(lambda key: _way_back(plan, values, draw(key)))(jr.split(key, num))
    return jnp.where(values[-1].table > -jnp.inf, states, -1)


# ------------------------------------------------------------------ the k best


class Ranked(NamedTuple):
    """The best few products for every entry, in falling order, and how each was made.

    `choice` is the joint state of the eliminated variables, `ranks` says which of each input's few was used.
    """

    values: Float[Array, "r ..."]
    choice: Int[Array, "r ..."] | None = None
    ranks: tuple[Int[Array, "r ..."], ...] = ()


def _pick(count: int, values: Array, notes: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    """The `count` largest along the first axis, with the notes that belong to them."""
    count = min(count, values.shape[0])
    top, where = jax.lax.top_k(jnp.moveaxis(values, 0, -1), count)
    where = jnp.moveaxis(where, -1, 0)
    take = lambda note: jnp.take_along_axis(jnp.broadcast_to(note, values.shape), where, axis=0)
    return jnp.moveaxis(top, -1, 0), tuple(take(note) for note in notes)


def top(count: int) -> Ring:
    """The `count` largest products."""

    def contract(layout: Layout, inputs: list[Ranked]) -> Ranked:
        shape = layout.merged(layout.runs)
        total, notes = jnp.zeros((1, *shape), inputs[0].values.dtype), ()
        for i, value in enumerate(inputs):
            other = layout.align(i, value.values, leading=1)
            r, q = total.shape[0], other.shape[0]
            pairs = (total[:, None] + other[None]).reshape(r * q, *shape)
            spread = lambda note, q=q: jnp.repeat(note, q, axis=0)
            mine = jnp.tile(jnp.arange(q, dtype=jnp.int32), r).reshape(-1, *[1] * len(shape))
            total, notes = _pick(count, pairs, (*[spread(note) for note in notes], mine))
        r, left = total.shape[0], layout.shape(layout.left)
        flat = lambda a: jnp.broadcast_to(a, (r, *shape)).reshape(r * layout.num_choices, -1)
        position = jnp.tile(jnp.arange(layout.num_choices, dtype=jnp.int32), r)[:, None]
        values, (choice, *ranks) = _pick(count, flat(total), (position, *[flat(note) for note in notes]))
        shaped = lambda a: a.reshape(a.shape[0], *left)
        return Ranked(shaped(values), shaped(choice), tuple(shaped(rank) for rank in ranks))

    return Ring(lambda table: Ranked(table[None]), contract)


def k_best(
    plan: Plan, tables: Sequence[Array], unary: Sequence[Array], k: int
) -> tuple[Int[Array, "k v"], Float[Array, "k"]]:
    """The k most probable assignments, best first, and their scores; -1 and `-inf` where fewer are possible.

    Cost: k times that of `best` in memory, and about k squared in time.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}.")
    values = run(top(k), plan, tables, unary)
    layouts, offset = _layouts(plan), len(values) - len(plan.steps)

    def trace(rank: Array) -> Array:
        found: dict[int, Array] = {}
        ranks: dict[int, Array] = {len(values) - 1: rank}
        for s in reversed(range(len(plan.steps))):
            made, layout, mine = values[offset + s], layouts[s], ranks[offset + s]
            at = layout.index(layout.left, found)
            look = lambda a, mine=mine, at=at: a.reshape(a.shape[0], -1)[mine, at]
            found |= layout.split(look(made.choice))
            ranks |= {i: look(a) for i, a in zip(plan.steps[s].inputs, made.ranks, strict=True)}
        zero = jnp.zeros((), jnp.int32)
        return jnp.stack([found.get(v, zero) for v in range(len(plan.structure.cardinalities))])

    top_values = values[-1].values
    states = jax.vmap(trace)(jnp.arange(top_values.shape[0], dtype=jnp.int32))
    scores = jax.vmap(lambda one: score(plan.structure, tables, unary, one))(states)
    scores = jnp.where(top_values > -jnp.inf, scores, -jnp.inf)
    short = k - scores.shape[0]
    scores = jnp.concatenate([scores, jnp.full(short, -jnp.inf, scores.dtype)])
    states = jnp.concatenate([states, jnp.full((short, states.shape[1]), -1, states.dtype)])
    return jnp.where((scores > -jnp.inf)[:, None], states, -1), scores
