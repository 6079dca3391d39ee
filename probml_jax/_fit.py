"""`fit`: the one training loop of the library, its status codes, and gradients through its result."""

import enum
from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from ._buckets import parts_of
from ._constraint import movable, trainable
from ._model import AbstractAuditedModel, AbstractModel, AbstractPreparedModel, objective
from ._progress import reporter
from ._typing import Data, Scalar
from ._validate import as_data, as_weights, check_units, float_dtype, is_concrete


class Status(enum.IntEnum):
    """How a fit ended."""

    converged = 0
    max_steps = 1
    objective_fell = 2
    nonfinite = 3
    degenerate = 4


_MEANING = {
    Status.converged: "the objective stopped improving",
    Status.max_steps: "max_steps was reached before convergence",
    Status.objective_fell: "a step lowered the objective by more than rounding; the model before it was kept",
    Status.nonfinite: "the objective became NaN or infinite; the last good model was kept",
    Status.degenerate: "the model collapsed: a spread sits on its floor or a component has no data",
}


class AbstractMethod(eqx.Module):
    """A learning algorithm. It knows `AbstractModel` and nothing of distributions.

    `monotone` says whether a fall of the objective is a failure; `patience` how many calm steps in a row
    mean convergence.
    """

    monotone: eqx.AbstractClassVar[bool]
    patience: eqx.AbstractClassVar[int]

    @abstractmethod
    def check(self, model: AbstractModel) -> None:
        """Raise `TypeError` if this method cannot train such a model."""

    @abstractmethod
    def init(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        """What the method carries from step to step."""

    @abstractmethod
    def step(
        self, model: AbstractModel, data: Data, weights: Float[Array, "n"], state: PyTree
    ) -> tuple[AbstractModel, PyTree, Scalar]:
        """The next model, the next state, and the objective of the model that came *in*."""

    @abstractmethod
    def optimality(self, model: AbstractModel, data: Data, weights: Float[Array, "n"]) -> PyTree:
        """A tree, shaped like the trainable parameters, that vanishes where the method comes to rest."""


class Fit(eqx.Module):
    """What `fit` returns: a model of the same type, the trace of its objective, and how it ended.

    `objective[s]` is the objective after s steps, up to `objective[num_steps]` (the returned model's);
    it is NaN after that. `status` is a `Status` code, one per fit under `vmap`.
    """

    model: Any
    objective: Float[Array, "*batch steps"]
    num_steps: Int[Array, "*batch"]
    status: Int[Array, "*batch"]

    @property
    def final_objective(self) -> Array:
        """Objective of the returned model, one per fit when this is a batch of fits."""
        return jnp.take_along_axis(self.objective, self.num_steps[..., None], axis=-1)[..., 0]

    @property
    def converged(self) -> Array:
        return self.status == Status.converged

    def raise_if_failed(self) -> "Fit":
        """Raise `RuntimeError` on the host if any fit ended in failure; else return self.

        `converged` and `max_steps` are not failures.
        """
        codes = np.unique(np.asarray(self.status))
        failed = [Status(int(code)) for code in codes if code not in (Status.converged, Status.max_steps)]
        if failed:
            raise RuntimeError("fit failed: " + "; ".join(f"{s.name}: {_MEANING[s]}" for s in failed))
        return self

    def summary(self) -> str:
        """One readable line per fit."""
        statuses, steps = np.ravel(np.asarray(self.status)), np.ravel(np.asarray(self.num_steps))
        values = np.ravel(np.asarray(self.final_objective))
        rows = zip(statuses, steps, values, strict=True)
        return "\n".join(f"{Status(int(s)).name} after {n} steps, objective {v:.6g}" for s, n, v in rows)


class _Progress(NamedTuple):
    """The loop's carry. `current` is the last model whose objective is known and good."""

    current: PyTree
    candidate: PyTree
    state: PyTree
    trace: Array
    evaluations: Array
    status: Array
    calm: Array


_RUNNING = -1


def _start(model, method, data, weights, max_steps) -> _Progress:
    dynamic = eqx.filter(model, eqx.is_array)
    trace = jnp.full(max_steps + 1, jnp.nan, float_dtype(model))
    zero = jnp.zeros((), jnp.int32)
    return _Progress(dynamic, dynamic, method.init(model, data, weights), trace, zero, zero + _RUNNING, zero)


def _advance(progress: _Progress, static, method, data, weights, rtol, stop) -> _Progress:
    """Run until a status is reached or `stop` evaluations have been made."""

    def running(p: _Progress):
        return (p.status == _RUNNING) & (p.evaluations < stop)

    def body(p: _Progress) -> _Progress:
        model, state, value = method.step(eqx.combine(p.candidate, static), data, weights, p.state)
        proposed = eqx.filter(model, eqx.is_array)
        proposed = jax.tree_util.tree_map(lambda new, old: new.astype(old.dtype), proposed, p.candidate)
        value = value.astype(p.trace.dtype)
        i = p.evaluations
        last = jnp.where(i > 0, p.trace[i - 1], value)
        change, scale = value - last, jnp.maximum(jnp.abs(value), 1)
        good = jnp.isfinite(value)
        noise = jnp.maximum(rtol, 64 * jnp.finfo(value.dtype).eps) * scale
        fell = method.monotone & (change < -noise)
        calm = jnp.where((jnp.abs(change) <= rtol * scale) & (i > 0), p.calm + 1, 0)
        status = jnp.where(calm >= method.patience, Status.converged, _RUNNING)
        status = jnp.where(~good, Status.nonfinite, jnp.where(fell, Status.objective_fell, status))
        accepted = good & ~fell
        keep = lambda new, old: jax.tree_util.tree_map(lambda a, b: jnp.where(accepted, a, b), new, old)
        trace = p.trace.at[i].set(jnp.where(accepted | (i == 0), value, jnp.nan))
        return _Progress(
            keep(p.candidate, p.current),
            proposed,
            state,
            trace,
            i + 1,
            status.astype(jnp.int32),
            calm.astype(jnp.int32),
        )

    return jax.lax.while_loop(running, body, progress)


def _finish(progress: _Progress, static, data, weights) -> Fit:
    status = jnp.where(progress.status == _RUNNING, Status.max_steps, progress.status)
    rejected = (status == Status.nonfinite) | (status == Status.objective_fell)
    num_steps = jnp.maximum(progress.evaluations - 1 - rejected, 0)
    model = eqx.combine(progress.current, static)
    ended_well = (status == Status.converged) | (status == Status.max_steps)
    collapsed = model.degenerate()
    if isinstance(model, AbstractAuditedModel):
        collapsed = collapsed | model.degenerate_on(data, weights)
    status = jnp.where(ended_well & collapsed, Status.degenerate, status)
    return Fit(model, progress.trace, num_steps, status.astype(jnp.int32))


# ------------------------------------------------------------------ compiled, with gradients through the result


def _split(model):
    """Trainable arrays, other arrays, and the static rest of a model."""
    theta, rest = eqx.partition(model, trainable(model))
    return theta, *eqx.partition(rest, eqx.is_array)


@eqx.filter_custom_vjp
def _solve(inputs, theta, static, method, rtol, max_steps):
    rest, data, weights = inputs
    model = eqx.combine(theta, rest, static)
    everything_static = eqx.filter(model, eqx.is_array, inverse=True)
    progress = _start(model, method, data, weights, max_steps)
    progress = _advance(progress, everything_static, method, data, weights, rtol, max_steps + 1)
    return _finish(progress, everything_static, data, weights)


@_solve.def_fwd
def _solve_forward(perturbed, inputs, theta, static, method, rtol, max_steps):
    result = _solve(inputs, theta, static, method, rtol, max_steps)
    return result, result


@_solve.def_bwd
def _solve_backward(result, cotangent, perturbed, inputs, theta, static, method, rtol, max_steps):
    r"""Implicit function theorem at $F(\theta, \phi) = 0$: solve $F_\theta^\top u = -g$, return $F_\phi^\top u$.

    `phi` is everything else: data, weights, priors. The trace contributes its last entry only, by the envelope
    theorem (the objective's own partial derivative at the optimum).
    """
    fitted, _, _ = _split(result.model)
    differentiable = lambda tree: eqx.partition(tree, eqx.is_inexact_array)
    phi, fixed = differentiable(inputs)
    rebuild = lambda theta, phi: (eqx.combine(theta, eqx.combine(phi, fixed)[0], static), *eqx.combine(phi, fixed)[1:])

    free = movable(result.model)

    def residual(theta, phi):
        # entries that are not free are constants: they meet the condition that they stay what they are
        still = jax.lax.stop_gradient(theta)
        theirs = lambda mask, moving, other: jax.tree_util.tree_map(jnp.where, mask, moving, other)
        condition = method.optimality(*rebuild(theirs(free, theta, still), phi))
        return theirs(free, condition, jax.tree_util.tree_map(jnp.subtract, still, theta))

    grad_model, _, _ = _split(eqx.combine(cotangent.model, jax.tree_util.tree_map(jnp.zeros_like, result.model)))
    flat_grad, unravel = ravel_pytree(grad_model)
    _, pull_theta = jax.vjp(lambda theta: residual(theta, phi), fitted)
    matvec = lambda u: ravel_pytree(pull_theta(unravel(u))[0])[0]
    tol = float(np.sqrt(np.finfo(flat_grad.dtype).eps) * 1e-3)
    restart = int(min(flat_grad.size, 64))
    u, _ = jax.scipy.sparse.linalg.gmres(matvec, -flat_grad, tol=tol, atol=0.0, restart=restart, maxiter=32)
    (answer,) = jax.vjp(lambda phi: residual(fitted, phi), phi)[1](unravel(u))
    if cotangent.objective is not None:
        slope = jax.grad(lambda phi: objective(*rebuild(fitted, phi)))(phi)
        at_end = jnp.sum(cotangent.objective * (jnp.arange(cotangent.objective.size) == result.num_steps))
        answer = jax.tree_util.tree_map(lambda a, s: a + at_end * s, answer, slope)
    return answer


@eqx.filter_jit
def _fit_compiled(model, data, weights, method, rtol, max_steps):
    theta, rest, static = _split(model)
    theta = jax.lax.stop_gradient(theta)
    return _solve((rest, data, weights), theta, static, method, rtol, max_steps)


@eqx.filter_jit
def _start_compiled(model, data, weights, method, max_steps):
    return _start(model, method, data, weights, max_steps)


@eqx.filter_jit
def _advance_compiled(progress, static, data, weights, method, rtol, stop):
    return _advance(progress, static, method, data, weights, rtol, stop)


@eqx.filter_jit
def _finish_compiled(progress, static, data, weights):
    return _finish(progress, static, data, weights)


def _fit_with_progress(model, data, weights, method, rtol, max_steps) -> Fit:
    """The same loop in compiled chunks, with a word to the user between them."""
    static = eqx.filter(model, eqx.is_array, inverse=True)
    progress = _start_compiled(model, data, weights, method, max_steps)
    chunk = max(1, max_steps // 50)
    with reporter(max_steps) as report:
        done = 0
        while done <= max_steps and int(progress.status) == _RUNNING:
            done = min(done + chunk, max_steps + 1)
            progress = _advance_compiled(progress, static, data, weights, method, rtol, jnp.asarray(done))
            evaluated = int(progress.evaluations)
            report(evaluated - 1, float(progress.trace[evaluated - 1]))
    return _finish_compiled(progress, static, data, weights)


# ------------------------------------------------------------------ the door


def default_rtol(dtype) -> float:
    """1e-8 in float64; a few units of resolution of the objective in float32."""
    return 1e-8 if jnp.finfo(dtype).bits >= 64 else float(8 * jnp.finfo(dtype).eps)


def fit(
    model: AbstractModel,
    data: Data,
    method: AbstractMethod | None = None,
    *,
    weights: Any = None,
    max_steps: int = 100,
    rtol: float | Array | None = None,
    progress: bool = False,
) -> Fit:
    r"""Learn a model's parameters: climb $\sum_i w_i \log p(x_i) + \log p(\theta)$ by any method.

    The loop is compiled once per shape and runs on the device. It works under `jit` and `vmap` (restarts are a
    `vmap` over keys, see `best_of`). Reverse-mode gradients of the result with respect to data, weights and
    priors go by the implicit function theorem: no unrolling, memory of one step; run to convergence for exact ones.

    - `model`: the starting point; the result has the same type.
    - `data`: arrays whose leading axis is exchangeable units; NaN and -1 mean missing.
    - `method`: `EM()` (default), `Gradient(optimizer)`, `LBFGS()`, `GeneralizedEM(optimizer)`.
    - `weights`: real sample weights `(n,)`; zero pads.
    - `max_steps`, `rtol`: stop when the objective changes by less than `rtol` of itself. The default is a few units
      of float resolution in float32 and 1e-8 in float64; a negative `rtol` runs all `max_steps`.
    - `progress`: show a progress bar (a host loop over compiled chunks; not under `jit` or `vmap`).

    Returns a `Fit`. Bad arguments raise at once; whatever happens inside the loop comes back as `Fit.status`, with
    the last good model. Cost: one E-step (or gradient) per step plus one to evaluate the result.

    >>> import jax.random as jr, probml_jax as pml
    >>> xs = jnp.concatenate([jr.normal(jr.key(0), (50, 2)), 5 + jr.normal(jr.key(1), (50, 2))])
    >>> result = pml.fit(pml.mixtures.gaussian_mixture(jr.key(2), xs, num_components=2), xs)
    >>> pml.Status(int(result.status)).name
    'converged'
    """
    if method is None:
        from .methods.em import EM

        method = EM()
    if not isinstance(model, AbstractModel):
        raise TypeError(f"model must be an AbstractModel; got {type(model).__name__}.")
    if not isinstance(method, AbstractMethod):
        raise TypeError(f"method must be a method such as EM() or LBFGS(); got {type(method).__name__}.")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1; got {max_steps}.")
    method.check(model)
    data = as_data(data)
    num_units = check_units(data)
    dtype = float_dtype(model)
    _check_dtypes(data, dtype)
    weights = as_weights(weights, num_units, dtype)
    for part, _ in parts_of(data, weights):
        model.validate(part)
    if isinstance(model, AbstractPreparedModel):
        data, weights = model.prepare(data, weights)
    rtol = jnp.asarray(default_rtol(dtype) if rtol is None else rtol, dtype)
    if not progress:
        return _fit_compiled(model, data, weights, method, rtol, max_steps)
    if not is_concrete(model, data, weights):
        raise ValueError("progress=True needs concrete arrays: it cannot report from inside jit or vmap.")
    return _fit_with_progress(model, data, weights, method, rtol, max_steps)


def _check_dtypes(data, dtype) -> None:
    for leaf in jax.tree_util.tree_leaves(data):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != dtype:
            raise TypeError(f"data is {leaf.dtype} but the model is {dtype}; convert one to the other's dtype.")


def best_of(fits: Fit) -> Fit:
    """The fit with the highest final objective among a batch made by `jax.vmap`; failed fits never win.

    A degenerate fit wins only if every fit is degenerate or failed.
    """
    return fits if fits.status.ndim == 0 else _best_of(fits)


@eqx.filter_jit
def _best_of(fits: Fit) -> Fit:
    failed = (fits.status == Status.nonfinite) | ~jnp.isfinite(fits.final_objective)
    rank = jnp.where(failed, 2, jnp.where(fits.status == Status.degenerate, 1, 0))
    value = jnp.where(rank == jnp.min(rank), jnp.where(failed, 0.0, fits.final_objective), -jnp.inf)
    winner = jnp.argmax(value)
    return jax.tree_util.tree_map(lambda a: a[winner] if eqx.is_array(a) else a, fits)
