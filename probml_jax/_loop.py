"""The one training loop of the library, on the device."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ._method import AbstractMethod
from ._model import AbstractAuditedModel, AbstractModel
from ._outcome import Fit, Status
from ._placed import across
from ._validate import float_dtype

RUNNING = -1
# units of resolution by which an objective may be off: measured, narrow clusters in float32 reach a hundred
_ROUNDING = 256


class Progress(NamedTuple):
    """The loop's carry. `current` is the last model whose objective is known and good."""

    current: PyTree
    candidate: PyTree
    state: PyTree
    trace: Array
    evaluations: Array
    status: Array
    calm: Array


def start(model: AbstractModel, state: PyTree, max_steps: int) -> Progress:
    dynamic = eqx.filter(model, eqx.is_array)
    trace = jnp.full(max_steps + 1, jnp.nan, float_dtype(model))
    zero = jnp.zeros((), jnp.int32)
    return Progress(dynamic, dynamic, state, trace, zero, zero + RUNNING, zero)


def judge(
    p: Progress, method: AbstractMethod, model: AbstractModel, state: PyTree, value: Array, rtol: Array, mass: Array
) -> Progress:
    """The loop after a step: `value` is the objective of the candidate, `model` what the step made of it.

    Rounding is that of a sum over units of weight `mass`, which may be far larger than the sum itself. A monotone
    method that falls by no more than that has come to the end of what the objective resolves.
    """
    proposed = eqx.filter(model, eqx.is_array)
    proposed = jax.tree_util.tree_map(lambda new, old: new.astype(old.dtype), proposed, p.candidate)
    value = value.astype(p.trace.dtype)
    i = p.evaluations
    last = jnp.where(i > 0, p.trace[i - 1], value)
    change, scale = value - last, jnp.maximum(jnp.abs(value), 1)
    good = jnp.isfinite(value)
    noise = jnp.maximum(rtol, _ROUNDING * jnp.finfo(value.dtype).eps) * jnp.maximum(scale, mass)
    fell = method.monotone & (change < -noise)
    resting = (jnp.abs(change) <= rtol * scale) | (method.monotone & (change < 0) & (rtol >= 0))
    calm = jnp.where(resting & (i > 0), p.calm + 1, 0)
    status = jnp.where(calm >= method.patience, Status.converged, RUNNING)
    status = jnp.where(~good, Status.nonfinite, jnp.where(fell, Status.objective_fell, status))
    accepted = good & ~fell
    keep = lambda new, old: jax.tree_util.tree_map(lambda a, b: jnp.where(accepted, a, b), new, old)
    trace = p.trace.at[i].set(jnp.where(accepted | (i == 0), value, jnp.nan))
    current = keep(p.candidate, p.current)
    return Progress(current, proposed, state, trace, i + 1, status.astype(jnp.int32), calm.astype(jnp.int32))


def advance(progress: Progress, static: PyTree, method: AbstractMethod, data, weights, rtol, stop) -> Progress:
    """Run until a status is reached or `stop` evaluations have been made."""

    mass = jnp.sum(weights)

    def running(p: Progress):
        return (p.status == RUNNING) & (p.evaluations < stop)

    def body(p: Progress) -> Progress:
        moved = method.step(eqx.combine(p.candidate, static), data, weights, p.state)
        return judge(p, method, *moved, rtol, mass)

    return jax.lax.while_loop(running, body, progress)


def finish(progress: Progress, static: PyTree, data: Any, weights: Any) -> Fit:
    """The result; without `data`, models that show their collapse on data only are not asked."""
    status = jnp.where(progress.status == RUNNING, Status.max_steps, progress.status)
    rejected = (status == Status.nonfinite) | (status == Status.objective_fell)
    num_steps = jnp.maximum(progress.evaluations - 1 - rejected, 0)
    model = eqx.combine(progress.current, static)
    ended_well = (status == Status.converged) | (status == Status.max_steps)
    collapsed = model.degenerate()
    if data is not None and isinstance(model, AbstractAuditedModel):
        held = across(lambda m, part, share: m.audit(part, share), model, data, weights)
        collapsed = collapsed | (held == 0)
    status = jnp.where(ended_well & collapsed, Status.degenerate, status)
    return Fit(model, progress.trace, num_steps, status.astype(jnp.int32))
