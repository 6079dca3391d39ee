"""Iterations that come to rest, and derivatives of where they rest."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int, PyTree

from .._typing import Scalar


class Rest(NamedTuple):
    """Where an iteration stopped, after how many steps, and by how much the last one still moved."""

    state: PyTree
    num_steps: Int[Array, ""]
    residual: Scalar


def rest(
    params: PyTree,
    start: PyTree,
    iterate: Callable[[PyTree, PyTree], tuple[PyTree, Scalar]],
    condition: Callable[[PyTree, PyTree], PyTree],
    max_steps: int,
    tolerance: float,
) -> Rest:
    r"""Iterate $s \leftarrow$ `iterate(s, params)` until it moves by at most `tolerance` or for `max_steps`.

    Reverse-mode derivatives of the state with respect to `params` go by the implicit function theorem at
    $s = F(s, \phi)$ with $F$ = `condition`: solve $(I - F_s^\top) u = g$ by GMRES, return $F_\phi^\top u$. They cost
    one linear solve however long the iteration was, and are exact where it has converged. Neither function may close
    over traced arrays.
    """
    return _rest(params, jax.lax.stop_gradient(start), iterate, condition, max_steps, tolerance)


@eqx.filter_custom_vjp
def _rest(params, start, iterate, condition, max_steps, tolerance) -> Rest:
    dtype = jax.tree_util.tree_leaves(start)[0].dtype

    def running(carry: Rest):
        return (carry.num_steps < max_steps) & ~(carry.residual <= tolerance) & ~jnp.isnan(carry.residual)

    def body(carry: Rest) -> Rest:
        state, residual = iterate(carry.state, params)
        return Rest(state, carry.num_steps + 1, residual.astype(dtype))

    first = Rest(start, jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, dtype))
    return jax.lax.while_loop(running, body, first)


@_rest.def_fwd
def _rest_forward(perturbed, params, start, iterate, condition, max_steps, tolerance):
    result = _rest(params, start, iterate, condition, max_steps, tolerance)
    return result, result.state


@_rest.def_bwd
def _rest_backward(state, cotangent, perturbed, params, start, iterate, condition, max_steps, tolerance):
    moving, fixed = eqx.partition(params, eqx.is_inexact_array)
    zeros = jax.tree_util.tree_map(jnp.zeros_like, state)
    grad = zeros if cotangent.state is None else eqx.combine(cotangent.state, zeros)
    flat, unravel = ravel_pytree(grad)
    _, pull_state = jax.vjp(lambda s: condition(s, params), state)
    matvec = lambda u: u - ravel_pytree(pull_state(unravel(u))[0])[0]
    tol = float(np.sqrt(np.finfo(flat.dtype).eps) * 1e-3)
    u, _ = jax.scipy.sparse.linalg.gmres(matvec, flat, tol=tol, atol=0.0, restart=int(min(flat.size, 64)), maxiter=32)
    _, pull_params = jax.vjp(lambda p: condition(state, eqx.combine(p, fixed)), moving)
    return pull_params(unravel(u))[0]
