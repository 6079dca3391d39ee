"""What a query gives back: arrays by variable, with how the query ended."""

import enum
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class InferenceStatus(enum.IntEnum):
    """How a query ended."""

    success = 0
    max_sweeps = 1
    impossible = 2
    nonfinite = 3


_MEANING = {
    InferenceStatus.success: "exact, or converged",
    InferenceStatus.max_sweeps: "the messages still changed after the last sweep",
    InferenceStatus.impossible: "the evidence is contradictory: it has probability zero under the model",
    InferenceStatus.nonfinite: "a message became NaN",
}


class Variable(NamedTuple):
    """A discrete variable: its name and the names of its states."""

    name: str
    states: tuple[str, ...]

    @property
    def cardinality(self) -> int:
        """How many states."""
        return len(self.states)


def raise_if_impossible(status: Array) -> None:
    """Raise `RuntimeError` on the host for any status that is a failure; `max_sweeps` is not one."""
    codes = [InferenceStatus(int(code)) for code in np.unique(np.asarray(status))]
    failed = [code for code in codes if code not in (InferenceStatus.success, InferenceStatus.max_sweeps)]
    if failed:
        raise RuntimeError("inference failed: " + "; ".join(f"{s.name}: {_MEANING[s]}" for s in failed))


def exact_status(log_evidence: Float[Array, "*batch"]) -> Int[Array, "*batch"]:
    """The status of an exact query from the log-probability of its evidence."""
    broken = jnp.where(jnp.isnan(log_evidence), InferenceStatus.nonfinite, InferenceStatus.success)
    return jnp.where(log_evidence == -jnp.inf, InferenceStatus.impossible, broken).astype(jnp.int32)


def iteration_status(log_partition: Float[Array, ""], residual: Float[Array, ""], tolerance: float) -> Int[Array, ""]:
    """The status of an iteration from its estimate and the last sweep's change."""
    moving = jnp.where(residual <= tolerance, InferenceStatus.success, InferenceStatus.max_sweeps)
    exact = exact_status(jnp.where(jnp.isnan(residual), jnp.nan, log_partition))
    return jnp.where(exact == InferenceStatus.success, moving, exact).astype(jnp.int32)


def position(variables: tuple[Variable, ...], name: str) -> int:
    """Where a variable stands; `ValueError` names the unknown one and those that come close."""
    names = [variable.name for variable in variables]
    if name not in names:
        import difflib

        close = difflib.get_close_matches(str(name), names) or names[:6]
        raise ValueError(f"there is no variable {name!r}; did you mean one of {close}?")
    return names.index(name)


def state_position(variable: Variable, state: Any) -> int:
    """The number of a state given by number or by name; `ValueError` names what is out of range."""
    if isinstance(state, str):
        if state not in variable.states:
            raise ValueError(f"{variable.name!r} has no state {state!r}; its states are {list(variable.states)}.")
        return variable.states.index(state)
    if not -1 <= int(state) < variable.cardinality or int(state) != state:
        raise ValueError(
            f"evidence for {variable.name!r} is {state}; wanted a state 0..{variable.cardinality - 1} "
            "(-1 for unobserved)."
        )
    return int(state)


def check_states(variables: tuple[Variable, ...], rows: Int[np.ndarray, "n v"]) -> None:
    """Raise `ValueError` naming the first variable whose state is out of range in rows read on the host."""
    sizes = np.array([variable.cardinality for variable in variables])
    bad = np.argwhere((rows < -1) | (rows >= sizes[None]))
    if len(bad):
        state_position(variables[bad[0, 1]], rows[tuple(bad[0])])


class Marginals(eqx.Module):
    r"""$p(x_v \mid e)$ for every variable: `marginals["rain"]` is a vector, with a leading axis per batch.

    `log_evidence` is the log-probability (of a Markov field: the log-partition) of the evidence. Contradictory
    evidence has `log_evidence = -inf`, status `impossible` and NaN probabilities; `raise_if_failed` says so.
    """

    probs: tuple[Float[Array, "*batch _"], ...]
    log_evidence: Float[Array, "*batch"]
    status: Int[Array, "*batch"]
    variables: tuple[Variable, ...] = eqx.field(static=True)

    def __getitem__(self, name: str) -> Float[Array, "*batch _"]:
        return self.probs[position(self.variables, name)]

    def as_dict(self) -> dict[str, Array]:
        """Name to probabilities."""
        return {variable.name: p for variable, p in zip(self.variables, self.probs, strict=True)}

    def raise_if_failed(self) -> Self:
        """Raise `RuntimeError` on the host if the evidence was contradictory; else return self."""
        raise_if_impossible(self.status)
        return self

    def summary(self) -> str:
        """One line per variable, for a single query."""
        width = max(len(variable.name) for variable in self.variables)
        parts = lambda v, p: "  ".join(f"{s} {float(x):.4f}" for s, x in zip(v.states, p, strict=True))
        rows = zip(self.variables, self.probs, strict=True)
        return "\n".join(f"{v.name:<{width}}  {parts(v, np.asarray(p))}" for v, p in rows)


class Assignment(eqx.Module):
    """One state per variable, `assignment["rain"]`, with its log score; -1 everywhere if nothing is possible."""

    states: Int[Array, "*batch v"]
    score: Float[Array, "*batch"]
    status: Int[Array, "*batch"]
    variables: tuple[Variable, ...] = eqx.field(static=True)

    def __getitem__(self, name: str) -> Int[Array, "*batch"]:
        return self.states[..., position(self.variables, name)]

    def labels(self) -> dict[str, str]:
        """Name to name of state, for a single assignment."""
        states = np.asarray(self.states)
        return {v.name: v.states[int(i)] if i >= 0 else "?" for v, i in zip(self.variables, states, strict=True)}

    def raise_if_failed(self) -> Self:
        """Raise `RuntimeError` on the host if the evidence was contradictory; else return self."""
        raise_if_impossible(self.status)
        return self


class Approximation(eqx.Module):
    """Approximate marginals with an estimate of (or bound on) the log-partition, and how the iteration ended.

    `marginals[name]` for named graphs, `(h, w, k)` for grids. `assignment` is the state of highest marginal of each
    variable (after max-product: of highest max-marginal), in the shape of the graph. `residual` is the largest change
    in the last sweep; `status` an `InferenceStatus` code.
    """

    marginals: Marginals | Float[Array, "h w k"]
    log_partition: Float[Array, "*batch"]
    assignment: Int[Array, "..."]
    num_sweeps: Int[Array, "*batch"]
    residual: Float[Array, "*batch"]
    status: Int[Array, "*batch"]

    @property
    def converged(self) -> Array:
        """Whether the messages or beliefs came to rest within the tolerance."""
        return self.status == InferenceStatus.success

    def raise_if_failed(self) -> Self:
        """Raise `RuntimeError` on the host for contradictory evidence or NaN; `max_sweeps` is not a failure."""
        raise_if_impossible(self.status)
        return self


class GibbsSamples(eqx.Module):
    """Marginals from Gibbs chains, the chains' last states, and whether they have mixed.

    `log_scores` is the trace of the log of the product of potentials, `effective_sample_size` that of its draws, and
    `rhat` the split R-hat of each state's frequency: above about 1.05 run longer.
    """

    marginals: Marginals | Float[Array, "h w k"]
    states: Int[Array, "chains ..."]
    log_scores: Float[Array, "chains sweeps"]
    rhat: Float[Array, "..."]
    effective_sample_size: Float[Array, ""]

    @property
    def max_rhat(self) -> Float[Array, ""]:
        """The worst R-hat of any variable: near 1 when chains agree."""
        return jnp.max(self.rhat)


class Bounds(NamedTuple):
    """Lower bound, estimate and upper bound of a log-partition, and whether each iteration converged.

    The lower bound always holds; the upper one once its iteration has converged.
    """

    lower: Float[Array, ""]
    estimate: Float[Array, ""]
    upper: Float[Array, ""]
    status: Int[Array, "3"]
