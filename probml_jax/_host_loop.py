"""The loop from the host: in compiled stretches, with a word to the user, a file on disk, and an ear for Ctrl-C."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from ._batches import Batches
from ._checkpoint import Checkpoint
from ._loop import RUNNING, Progress, advance, finish, judge, start
from ._method import AbstractAdditiveMethod, AbstractMethod
from ._model import AbstractAuditedModel, AbstractModel
from ._outcome import Fit, Status
from ._placed import Placed, across, replicated
from ._progress import reporter

# goes on until so many evaluations have been made, or it is told to stop
_GoOn: TypeAlias = Callable[[Progress, int, Callable[[], bool]], Progress]


class _Stopped(Exception):
    """Ctrl-C in the middle of a pass: what the pass had gathered is dropped."""


# a stretch of about so many seconds: often enough to be seen, seldom enough to cost nothing
_STRETCH = 0.3


@contextlib.contextmanager
def _interruption() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed. A second one raises `KeyboardInterrupt` as usual.

    Only where signals arrive (the main thread), and on one host: of several, all have to stop at the same step.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread() or jax.process_count() > 1:
        yield pressed.is_set
        return

    def listen(number, frame):
        pressed.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, listen)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _run(
    progress: Progress, go_on: _GoOn, max_steps: int, checkpoint: Checkpoint | None, show: bool
) -> tuple[Progress, bool]:
    """Drive `go_on(progress, stop, interrupted)` until the fit ends, and tell whether it was interrupted."""
    stretch = 1
    with reporter(max_steps, show) as report, _interruption() as interrupted:
        while int(progress.status) == RUNNING and int(progress.evaluations) <= max_steps and not interrupted():
            done = int(progress.evaluations)
            most = stretch if checkpoint is None else min(stretch, checkpoint.every)
            began = time.perf_counter()
            with contextlib.suppress(_Stopped):
                run = lambda p, most=min(done + most, max_steps + 1): go_on(p, most, interrupted)
                progress = _on_all_hosts(run, progress, checkpoint)
            done = int(progress.evaluations)
            if checkpoint is not None and checkpoint.due(progress):
                checkpoint.write(progress)
            report(max(done - 1, 0), float(progress.trace[max(done - 1, 0)]))
            stretch = _next_stretch(stretch, time.perf_counter() - began)
        stopped = interrupted() and int(progress.status) == RUNNING and int(progress.evaluations) <= max_steps
    if checkpoint is not None and int(progress.evaluations) != checkpoint.written:
        checkpoint.write(progress)
    return progress, stopped


def _next_stretch(stretch: int, seconds: float) -> int:
    if jax.process_count() > 1:  # hosts must agree, and their clocks do not
        return 1
    return 2 * stretch if seconds < _STRETCH / 2 else max(1, stretch // 2) if seconds > 2 * _STRETCH else stretch


def _on_all_hosts(run: Callable, progress: Progress, checkpoint: Checkpoint | None) -> Progress:
    """One stretch; if another host is lost in it, an error that says so and where to resume."""
    if jax.process_count() == 1:
        return run(progress)
    try:
        return jax.block_until_ready(run(progress))
    except jax.errors.JaxRuntimeError as error:
        kept = "There is no checkpoint."
        if checkpoint is not None and checkpoint.written > 0:
            kept = f"{checkpoint.path} holds the fit after {checkpoint.written - 1} steps: start all processes again."
        raise RuntimeError(
            f"another process of this fit was lost after step {int(progress.evaluations) - 1}. {kept}"
        ) from error


def _ended(fit: Fit, interrupted: bool) -> Fit:
    return eqx.tree_at(lambda f: f.status, fit, jnp.full_like(fit.status, Status.interrupted)) if interrupted else fit


# ------------------------------------------------------------------ arrays


@eqx.filter_jit
def _start(model, data, weights, method, max_steps):
    return start(model, method.init(model, data, weights), max_steps)


@eqx.filter_jit
def _advance(progress, static, data, weights, method, rtol, stop):
    return advance(progress, static, method, data, weights, rtol, stop)


@eqx.filter_jit
def _finish(progress, static, data, weights):
    return finish(progress, static, data, weights)


def fit_in_stretches(
    model: AbstractModel, data: Any, weights: Any, method: AbstractMethod, rtol: Any, max_steps: int,
    checkpoint: Checkpoint | None, show: bool,
) -> Fit:  # fmt: skip
    """The loop on data that are there."""
    static = eqx.filter(model, eqx.is_array, inverse=True)
    progress = _start(model, data, weights, method, max_steps)
    if checkpoint is not None:
        progress = checkpoint.resume(progress, float(rtol))
        progress = replicated(progress, data.mesh) if isinstance(data, Placed) else progress
    go_on = lambda p, stop, _: _advance(p, static, data, weights, method, rtol, jnp.asarray(stop))
    progress, interrupted = _run(progress, go_on, max_steps, checkpoint, show)
    return _ended(_finish(progress, static, data, weights), interrupted)


# ------------------------------------------------------------------ batches


@eqx.filter_jit
def _gather(model, method, data, weights, sofar):
    """What a batch tells, added to what is known; and its weight."""
    new = method.gather(model, data, weights), jnp.sum(weights)
    return new if sofar is None else jax.tree_util.tree_map(jnp.add, sofar, new)


@eqx.filter_jit
def _move(progress, static, method, gathered, rtol):
    found, mass = gathered
    new, state, value = method.move(eqx.combine(progress.candidate, static), found, mass, mass, progress.state)
    return judge(progress, method, new, state, value, rtol, mass)


@eqx.filter_jit
def _move_online(model, method, data, weights, total, state):
    mass = jnp.sum(weights)
    moved, state, value = method.move(model, method.gather(model, data, weights), mass, total, state)
    keep = lambda new, old: new.astype(old.dtype) if eqx.is_array(old) else old
    return jax.tree_util.tree_map(keep, moved, model), state, value, mass


@eqx.filter_jit
def _judge_online(progress, method, model, state, values, masses, rtol):
    """After a pass in which every batch moved the model. The first batch tells of the start, all of them of the pass;
    what the pass ended with is the model that is kept."""
    begun = progress.trace.at[0].set(jnp.where(progress.evaluations == 0, values[0], progress.trace[0]))
    progress = progress._replace(trace=begun, evaluations=jnp.maximum(progress.evaluations, 1))
    mass = jnp.sum(masses)
    after = judge(progress, method, model, state, jnp.sum(values * masses) / mass, rtol, mass)
    good = after.status != Status.nonfinite
    keep = lambda new, old: jnp.where(good, new, old)
    return after._replace(current=jax.tree_util.tree_map(keep, after.candidate, progress.current))


@eqx.filter_jit
def _audit(model, data, weights):
    return across(lambda m, part, share: m.audit(part, share), model, data, weights)


def fit_batches(
    model: AbstractModel, batches: Batches, method: AbstractMethod, rtol: Any, max_steps: int,
    checkpoint: Checkpoint | None, show: bool,
) -> Fit:  # fmt: skip
    """The loop on batches: a step is a pass over them."""
    if not isinstance(method, AbstractAdditiveMethod):
        raise TypeError(
            f"{type(method).__name__} needs all units at once; batches are learned from by EM, OnlineEM or Gradient."
        )
    if method.per_batch and batches.total is None:
        raise ValueError(f"{type(method).__name__} moves after each batch: Batches(..., num_units=...) is wanted.")
    dtype, static = rtol.dtype, eqx.filter(model, eqx.is_array, inverse=True)
    checked = False

    def passes(interrupted: Callable[[], bool] = lambda: False) -> Iterator:
        nonlocal checked
        for data, weights in batches.one_pass(dtype):
            if interrupted():
                raise _Stopped
            if not checked:
                for part in data.local() if isinstance(data, Placed) else [data]:
                    model.validate(part)
            yield data, weights
        checked = True

    def exact(p: Progress, stop: int, interrupted: Callable[[], bool]) -> Progress:
        candidate, gathered = eqx.combine(p.candidate, static), None
        for data, weights in passes(interrupted):
            gathered = _gather(candidate, method, data, weights, gathered)
        return _move(p, static, method, gathered, rtol)

    def online(p: Progress, stop: int, interrupted: Callable[[], bool]) -> Progress:
        now, state, total = eqx.combine(p.candidate, static), p.state, jnp.asarray(batches.total, dtype)
        values, masses = [], []
        for data, weights in passes(interrupted):
            now, state, value, mass = _move_online(now, method, data, weights, total, state)
            values, masses = [*values, value], [*masses, mass]
        return _judge_online(p, method, now, state, jnp.stack(values), jnp.stack(masses), rtol)

    progress = _start(model, *batches.first(dtype), method, max_steps)
    progress = progress if checkpoint is None else checkpoint.resume(progress, float(rtol))
    progress, interrupted = _run(progress, online if method.per_batch else exact, max_steps, checkpoint, show)
    fit = _finish(progress, static, None, None)
    if isinstance(model, AbstractAuditedModel) and not batches.once and int(fit.status) < Status.objective_fell:
        held = sum(float(_audit(fit.model, data, weights)) for data, weights in passes())
        fit = eqx.tree_at(lambda f: f.status, fit, jnp.full_like(fit.status, Status.degenerate)) if held == 0 else fit
    return _ended(fit, interrupted)
