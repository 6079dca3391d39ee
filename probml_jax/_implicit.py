"""The compiled fit, with gradients through its result by the implicit function theorem."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ._constraint import movable, trainable
from ._loop import advance, finish, start
from ._model import objective


def _split(model):
    """Trainable arrays, other arrays, and the static rest of a model."""
    theta, rest = eqx.partition(model, trainable(model))
    return theta, *eqx.partition(rest, eqx.is_array)


@eqx.filter_custom_vjp
def _solve(inputs, theta, static, method, rtol, max_steps):
    rest, data, weights = inputs
    model = eqx.combine(theta, rest, static)
    everything_static = eqx.filter(model, eqx.is_array, inverse=True)
    progress = start(model, method.init(model, data, weights), max_steps)
    progress = advance(progress, everything_static, method, data, weights, rtol, max_steps + 1)
    return finish(progress, everything_static, data, weights)


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
    u, _ = jax.scipy.sparse.linalg.gmres(
        matvec, -flat_grad, tol=tol, atol=0.0, restart=restart, maxiter=32, solve_method="incremental"
    )
    (answer,) = jax.vjp(lambda phi: residual(fitted, phi), phi)[1](unravel(u))
    if cotangent.objective is not None:
        slope = jax.grad(lambda phi: objective(*rebuild(fitted, phi)))(phi)
        at_end = jnp.sum(cotangent.objective * (jnp.arange(cotangent.objective.size) == result.num_steps))
        answer = jax.tree_util.tree_map(lambda a, s: a + at_end * s, answer, slope)
    return answer


@eqx.filter_jit
def fit_compiled(model, data, weights, method, rtol, max_steps):
    """The whole fit as one program, which may be differentiated and mapped."""
    theta, rest, static = _split(model)
    theta = jax.lax.stop_gradient(theta)
    return _solve((rest, data, weights), theta, static, method, rtol, max_steps)
