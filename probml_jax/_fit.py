"""`fit`: learning as one function of a model, data and a method."""

import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._batches import Batches
from ._buckets import Buckets, parts_of
from ._checkpoint import Checkpoint, identity
from ._host_loop import fit_batches, fit_in_stretches
from ._implicit import fit_compiled
from ._method import AbstractMethod as AbstractMethod
from ._model import AbstractModel, AbstractPreparedModel, AbstractStandardizedModel
from ._outcome import Fit as Fit
from ._outcome import Status as Status
from ._outcome import best_of as best_of
from ._placed import Placed, replicated
from ._typing import Data
from ._validate import as_data, as_weights, check_units, float_dtype, is_concrete


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
    checkpoint: str | os.PathLike | None = None,
    every: int = 10,
    resume: bool = True,
) -> Fit:
    r"""Learn a model's parameters: climb $\sum_i w_i \log p(x_i) + \log p(\theta)$ by any method.

    The loop is compiled once per shape and runs on the device. It works under `jit` and `vmap` (restarts are a
    `vmap` over keys, see `best_of`). Reverse-mode gradients of the result with respect to data, weights and
    priors go by the implicit function theorem: no unrolling, memory of one step; run to convergence for exact ones.

    - `model`: the starting point; the result has the same type.
    - `data`: arrays whose leading axis is exchangeable units; NaN and -1 mean missing. Also `Buckets`, data placed on
      many devices (`pml.sharding.place`), and `Batches` or NumPy memory maps, of which a step is one pass.
    - `method`: `EM()` (default), `OnlineEM()`, `Gradient(optimizer)`, `GeneralizedEM(optimizer)`, `LBFGS()`,
      `Newton()`.
    - `weights`: real sample weights `(n,)`; zero pads.
    - `max_steps`, `rtol`: stop when the objective changes by less than `rtol` of itself. The default is a few units
      of float resolution in float32 and 1e-8 in float64; a negative `rtol` runs all `max_steps`.
    - `progress`: show a progress bar with objective and time left (a host loop over compiled stretches; not under `jit`
      or `vmap`). Ctrl-C then ends the fit with the last good model and the status `interrupted`; a second one raises.
    - `checkpoint`, `every`: a file to which the fit is written every so many steps and at its end (as a whole or not
      at all), and from which it goes on to the identical result when it is called again; `resume=False` starts anew. A
      larger `max_steps` continues a finished fit. The file of another model, method or data raises `ValueError`.

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
    if every < 1:
        raise ValueError(f"every must be at least 1; got {every}.")
    dtype = float_dtype(model)
    rtol = jnp.asarray(default_rtol(dtype) if rtol is None else rtol, dtype)
    keep = lambda *fitted: checkpoint and Checkpoint(checkpoint, every, resume, identity(method, rtol, *fitted))
    data = _in_batches(data, weights)
    if isinstance(data, Batches):
        return fit_batches(model, data, method, rtol, max_steps, keep(model, None, None), progress)
    model, data, weights = _ready(model, data, weights, dtype)
    original = model if isinstance(model, AbstractStandardizedModel) and not _in_parts(data) else None
    if original is not None:
        model, data = _standardized(original, data, weights)
    if not progress and checkpoint is None:
        found = fit_compiled(model, data, weights, method, rtol, max_steps)
    elif not is_concrete(model, data, weights):
        raise ValueError("progress and checkpoint need concrete arrays: they cannot work inside jit or vmap.")
    else:
        kept = keep(model, data, weights)
        found = fit_in_stretches(model, data, weights, method, rtol, max_steps, kept, progress)
    return found if original is None else _restored(original, found)


def _in_parts(data: Data) -> bool:
    """Whether data are of several parts, or on several devices: these are learned from as they are."""
    return isinstance(data, (Placed, Buckets))


@eqx.filter_jit
def _standardized(model: AbstractStandardizedModel, data: Data, weights: Array) -> tuple[AbstractModel, Data]:
    return model.standardized(data, weights)


@eqx.filter_jit
def _restored(original: AbstractStandardizedModel, found: Fit) -> Fit:
    return eqx.tree_at(lambda f: f.model, found, original.restored(found.model))


def _in_batches(data: Data, weights: Any) -> Data:
    """Memory maps are read in batches; batches and placed data bring their own weights."""
    if weights is not None and isinstance(data, (Batches, Placed)):
        maker = "Batches(...)" if isinstance(data, Batches) else "pml.sharding.place(...)"
        raise ValueError(f"weights belong to {maker} when data come from it.")
    mapped = any(isinstance(leaf, np.memmap) for leaf in jax.tree_util.tree_leaves(data))
    return Batches(data, weights=weights) if mapped else data


def _ready(model: AbstractModel, data: Data, weights: Any, dtype: Any) -> tuple[AbstractModel, Data, Array]:
    """Everything checked and where it belongs."""
    if isinstance(data, Placed):
        _check_dtypes(data.parts, dtype)
        for part in data.local():
            model.validate(part)
        return replicated(model, data.mesh), data, data.weights.astype(dtype)
    data = as_data(data)
    _check_dtypes(data, dtype)
    weights = as_weights(weights, check_units(data), dtype)
    for part, _ in parts_of(data, weights):
        model.validate(part)
    if isinstance(model, AbstractPreparedModel):
        data, weights = model.prepare(data, weights)
    return model, data, weights


def _check_dtypes(data, dtype) -> None:
    for leaf in jax.tree_util.tree_leaves(data):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != dtype:
            raise TypeError(f"data is {leaf.dtype} but the model is {dtype}; convert one to the other's dtype.")
